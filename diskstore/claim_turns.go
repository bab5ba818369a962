package diskstore

import (
	"cmp"
	"strings"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

const (
	// maxSorted is how many messages a claim sorts.
	maxSorted = store.MaxBatch
	// maxLooks is how many keys a claim looks at for each of its reasons; see turns.Order.
	maxLooks = store.MaxBatch
)

// readTurns sorts messages, and reads the messages that have their turn into t.ready. It returns how many are to be
// delivered, and reports whether it reached a bound.
func (t *tx) readTurns(q *queue, limit int) (deliverable int, bounded bool, err error) {
	t.ready = t.ready[:0]
	if _, err := t.earliest(q); err != nil { // so that the first due entry stays known
		return 0, false, err
	}
	if err := t.flush(); err != nil {
		return 0, false, err
	}
	reader, err := t.readMessages(q)
	if err != nil {
		return 0, false, err
	}
	sorted, unsorted := t.sortReady(q, reader)
	left := false
	if q.isOrdered() && unsorted == nil {
		left, unsorted = t.isUnsorted(q)
	}
	if !q.isOrdered() || !left && unsorted == nil { // without an order sorted messages start nevertheless
		deliverable, bounded, err = t.takeTurns(q, reader, limit)
	}
	bounded = bounded || left
	t.keepClasses(q, sorted)
	t.keepStates(q)
	if err = t.end(reader.it, cmp.Or(err, unsorted)); err != nil && len(t.ready) > 0 {
		return deliverable, true, nil // the next claim returns the error; this one returns what has had its turn
	}
	return deliverable, bounded, err
}

// takeTurns reads the messages that have their turn. A message that is appended to t.ready has left its lane.
func (t *tx) takeTurns(q *queue, reader *messageReader, limit int) (deliverable int, bounded bool, err error) {
	order := q.lanes.order
	size := 0                // bytes of the messages to deliver
	dying, dyingSize := 0, 0 // the others, and their bytes
	for order.Wake(t.micros, maxLooks); dying < store.MaxBatch && dyingSize < 2*store.MaxBatchBytes; {
		m, ok := order.Head(t.micros)
		if !ok {
			return deliverable, false, nil
		}
		s := q.lanes.sorted[m.ID]
		f := found{entry: entry{m.Place / 1000, m.ID}}
		f.record = record{stored: s.stored, due: f.at, rank: rank{micros: s.micros}}
		if err := reader.readOne(&f); err != nil {
			return deliverable, false, err
		}
		if f.gone || f.death != "" {
			dying++
			dyingSize += f.length
			order.Remove(t.micros, m)
			order.Drop(t.micros, m.ID)
		} else {
			if size += f.length; deliverable == limit || size > store.MaxBatchBytes && deliverable > 0 {
				return deliverable, false, nil
			}
			deliverable++
			order.Start(t.micros, m, true)
		}
		s.started = true
		q.lanes.sorted[m.ID] = s
		t.ready = append(t.ready, f)
	}
	return deliverable, true, nil
}

// sortReady sorts ready messages by their keys: the late ones, and then those from the frontier on. It sorts a bounded
// number, and reads a bounded number of bytes for that. It returns the sorted messages.
func (t *tx) sortReady(q *queue, reader *messageReader) (sorted []lateEntry, err error) {
	l := q.lanes
	if err := t.findArrivals(q); err != nil {
		return nil, err
	}
	var all []lateEntry
	l.late.Scan(func(e lateEntry) bool {
		all = append(all, e)
		return len(all) < maxSorted
	})
	late, next, scanned := len(all), entry{at: never}, false
	exact := true
	if late < maxSorted && l.ahead.first.at <= t.now {
		scanned = true
		passed := 0
		for e, value := range t.each(&err, q, &l.ahead, l.ahead.first, lastTime) {
			isAhead := l.isAhead(e)
			if isAhead && (e.at > t.now || len(all) == maxSorted) || passed == maxPassed {
				next, exact = e, isAhead
				break
			}
			if isAhead {
				all = append(all, lateEntryOf(e, value))
			} else {
				passed++
			}
		}
		if err != nil {
			return nil, err
		}
	}
	keys, err := reader.keys(all) // everything is read before the first change
	if err != nil {
		return nil, err
	}
	for i, m := range keys {
		e := all[i]
		q.sort(t.micros, m, e)
		if i < late {
			l.late.Delete(e)
		}
	}
	if first := max(late, len(keys)); first < len(all) {
		next, exact = all[first].entry, true
	}
	if scanned {
		l.ahead.n -= int64(max(0, len(keys)-late))
		l.ahead.startAt(next, exact)
	}
	if len(keys) > late {
		l.frontier = all[len(keys)-1].behind()
	}
	return all[:len(keys)], nil
}

// keys returns messages with their keys and urgencies, up to a bounded number of bytes that it reads, and up to the
// first message that is in a damaged file. It returns the error if that is the first of all.
func (r *messageReader) keys(all []lateEntry) (keys []turns.Message, err error) {
	size := 0
	for _, e := range all {
		m, length, err := r.keyOf(e.id)
		if err != nil && len(keys) == 0 {
			return nil, r.t.s.unreadable(err)
		}
		if size += length; err != nil || size > store.MaxBatchBytes && len(keys) > 0 {
			break
		}
		keys = append(keys, m)
	}
	return keys, nil
}

// keyOf returns a message with its key and urgency, and how many bytes it read. A message that does not exist or makes
// no sense has none; it has its turn among the messages without a key, and is set aside then.
func (r *messageReader) keyOf(id string) (m turns.Message, length int, err error) {
	value, ok, err := r.seek(id)
	if !ok || err != nil {
		return m, 0, err
	}
	m = keyIn(value)
	m.Key = strings.Clone(m.Key) // without the rest of the message
	return m, len(value), nil
}

// keyIn returns a stored message with its key and urgency.
func keyIn(value []byte) turns.Message {
	if len(value) <= timeLength || !envelope.HasGroup(string(value[timeLength:timeLength+1])) {
		return turns.Message{} // nor does it have headers, with which both are stored
	}
	var m store.Message
	if envelope.Decode(string(value[timeLength:]), &m) != nil {
		return turns.Message{}
	}
	return inLane(&m)
}
