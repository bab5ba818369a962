package diskstore

import (
	"encoding/binary"
	"slices"

	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

// The messages of a key start in order of their places; see turns.Message. A message that is sent
// with a key and without a delay to a queue with an order arrives: it is due right behind the one that arrived before
// it, whatever the clock says, and is sorted at once. The index of due messages has the millisecond, and in its value
// the rest, so that claims sort all messages as before after the store was opened.

// rank is the part of the place of a message that its due time leaves out, and its class.
type rank struct {
	micros  uint16 // 0 to 999
	class   class
	arrived bool // it is sorted even if the clock is behind its due time
}

// The bits of the first byte of the value of a due entry. There is no value if no bit is set.
const (
	dueStored  = 1 // there is a record
	dueRanked  = 2 // the two bytes of rank.micros follow
	dueArrived = 4
	dueClassed = 8 // the two bytes of rank.class follow
)

// appendDueValue writes the value of a due entry.
func appendDueValue(b []byte, r *record) []byte {
	k := r.rank
	bits := boolByte(r.stored)*dueStored | boolByte(k.micros != 0)*dueRanked | boolByte(k.arrived)*dueArrived |
		boolByte(k.class != 0)*dueClassed
	if bits != 0 {
		b = append(b, bits)
	}
	for _, n := range []uint16{k.micros, uint16(k.class)} {
		if n != 0 {
			b = binary.BigEndian.AppendUint16(b, n)
		}
	}
	return b
}

// parseDueValue reads a value that appendDueValue wrote. The rank of any other value is zero.
func parseDueValue(b []byte) (stored bool, k rank, ok bool) {
	if len(b) == 0 {
		return false, k, true
	}
	bits, rest := b[0], b[1:]
	stored, k.arrived, ok = bits&dueStored != 0, bits&dueArrived != 0, bits > 0 && bits < 2*dueClassed
	take := func(bit byte) (n uint16) {
		if ok = ok && (bits&bit == 0 || len(rest) >= 2); ok && bits&bit != 0 {
			n, rest = binary.BigEndian.Uint16(rest), rest[2:]
			ok = n > 0
		}
		return n
	}
	k.micros, k.class = take(dueRanked), class(take(dueClassed))
	if ok = ok && len(rest) == 0 && k.micros < 1000 && k.class.isSound(); !ok {
		k = rank{}
	}
	return stored, k, ok
}

// dueRecord returns the record of a due entry, as far as its value tells it.
func dueRecord(e entry, value []byte) record {
	stored, k, _ := parseDueValue(value)
	return record{stored: stored, due: e.at, rank: k}
}

// lateEntryOf returns a due entry with its value.
func lateEntryOf(e entry, value []byte) lateEntry {
	stored, k, _ := parseDueValue(value)
	return lateEntry{e, stored, k}
}

// place returns the place of a message; see turns.Message.
func (e lateEntry) place() int64 { return micros(e.at) + int64(e.rank.micros) }

// setDue sets a due time that is a whole millisecond.
func (r *record) setDue(ms int64) { r.due, r.rank = ms, rank{} }

// isOrdered reports whether the messages of each key start in order.
func (q *queue) isOrdered() bool { return q.flow.Key.Order != store.OrderNone }

// sentRecord returns the record of a message that is sent with a key.
func (t *tx) sentRecord(q *queue, key string, due store.Due) record {
	if !q.isOrdered() || key == "" || !due.At.IsZero() || due.Delay > 0 {
		return record{due: t.dueAt(due)}
	}
	place := q.flow.Arrivals.Next(t.micros)
	return record{due: place / 1000, rank: rank{micros: uint16(place % 1000), arrived: true}}
}

// rankOf returns the rank of a message that is scheduled or ready. It has one too while the order of its queue is
// removed. The caller has flushed.
func (r *reader) rankOf(queue uint32, e entry) (k rank, err error) {
	_, err = r.view(appendTimeKey(r.key[:0], queue, kindDue, e), func(value []byte) error {
		_, k, _ = parseDueValue(value)
		return nil
	})
	return k, err
}

// maxPassed is how many entries that are sorted already a scan passes over.
const maxPassed = 20 * store.MaxBatch

// firstAhead returns the first entry ahead, or a bound of it, or an entry that never comes.
func (t *tx) firstAhead(q *queue) (first entry, err error) {
	l := q.lanes
	x := &l.ahead
	if x.exact {
		return x.first, nil
	}
	if err := t.flush(); err != nil {
		return entry{}, err
	}
	exact, passed := true, 0
	first = entry{at: never}
	for e := range t.each(&err, q, x, x.first, lastTime) {
		if isAhead := l.isAhead(e); isAhead || passed == maxPassed {
			first, exact = e, isAhead
			break
		}
		passed++
	}
	if err == nil {
		x.startAt(first, exact)
	}
	return first, err
}

// findArrivals has a claim sort the messages that arrived and that are ahead of the clock, after it was set back and
// the store was opened. It looks at a bounded number of messages; until the last one was looked at, nothing starts.
func (t *tx) findArrivals(q *queue) (err error) {
	l := q.lanes
	if l.unseen <= t.micros {
		l.unseen = 0
		return nil
	}
	from, rest, passed := entry{at: t.now + 1}, entry{at: never}, 0
	if from.less(l.seen) {
		from = l.seen
	}
	var all []lateEntry
	for e, value := range t.each(&err, q, &l.ahead, from, l.unseen/1000) {
		if passed++; passed > maxPassed || len(all) == maxSorted {
			rest = e
			break
		}
		if e := lateEntryOf(e, value); e.rank.arrived && l.isAhead(e.entry) {
			all = append(all, e)
		}
	}
	if err != nil {
		return err
	}
	for _, e := range all {
		l.ahead.remove(e.entry)
		l.late.Set(e)
	}
	if l.seen = rest; rest.at == never {
		l.unseen = 0
	}
	return nil
}

// lookForArrivals has claims look for messages that arrived and that are ahead of the clock.
func (l *lanes) lookForArrivals(q *queue) { l.unseen, l.seen = int64(q.flow.Arrivals), entry{} }

// rewind has claims sort messages by a clock that was set back. What is sorted stays so, because messages that arrive
// later must not start before it. Messages that arrived and were to be sorted at the former time are looked for.
func (l *lanes) rewind(q *queue, former, now int64) {
	if l.unseen > 0 || l.ahead.first.at <= former {
		l.lookForArrivals(q)
	}
	var scheduled []lateEntry
	l.late.Scan(func(e lateEntry) bool {
		if e.at > now && !e.rank.arrived {
			scheduled = append(scheduled, e)
		}
		return true
	})
	for _, e := range scheduled {
		l.late.Delete(e)
		l.ahead.add(e.entry)
	}
	l.frontier = entry{}
	if l.ahead.n > 0 {
		l.ahead.startAt(q.due.first, false)
	}
}

// comeBack puts a message that has left a lease among the scheduled and ready ones. It holds its key if it counted.
func (t *tx) comeBack(q *queue, l *lease, m *member) {
	m.record.rank = rank{}
	t.addDue(q, m.id, &m.record)
	if q.countsKeys(l) {
		q.lanes.order.Keep(t.micros, m.key, m.id)
	}
}

// comeBackUntouched puts a message back that was released. It keeps its due time. If it holds a key with an order and
// the clock was set back behind the due time, it is due now: its key starts messages whatever the clock says.
func (t *tx) comeBackUntouched(q *queue, l *lease, m *member) {
	if m.record.due > t.now && q.isOrdered() && q.countsKeys(l) && m.key != "" {
		m.record.setDue(t.now)
		t.keep(q, m.id, &m.record)
	}
	t.comeBack(q, l, m)
}

// dieOf moves a message that has left a lease to the dead ones. It may halt its key if it counted.
func (t *tx) dieOf(q *queue, l *lease, m *member, reason store.DeadReason) {
	t.die(q, m.id, &m.record, reason)
	if q.countsKeys(l) {
		q.lanes.order.Halt(t.micros, m.key, m.id)
	}
}

// isHeldBy reports whether a message with a key and a record holds the key.
func (q *queue) isHeldBy(id, key string, r *record) bool {
	if q.lanes == nil || key == "" {
		return false
	}
	held, halts := q.lanes.order.Holds(id)
	return held == key && halts == (r.deadReason != "")
}

// landDue puts a message that has come from another sub-queue among the scheduled and ready ones. If it was sent there
// without a delay, and the clock is behind its place, the next claim sorts it nevertheless: messages that are sent
// later are sorted at once, and are not to start before it.
func (t *tx) landDue(q *queue, id string, r *record) {
	if r.due <= t.now || !r.rank.arrived || !q.isOrdered() {
		t.addDue(q, id, r)
		return
	}
	q.lanes.late.Set(t.putDue(q, id, r))
}

// dropHold has a message hold its key no longer. It returns the key that it halted, or "".
func (t *tx) dropHold(q *queue, id string) (resumed string) {
	if q.lanes == nil {
		return ""
	}
	return q.lanes.order.Drop(t.micros, id)
}

// firstDead returns a place that no dead message is before, unless it halts its key.
func (q *queue) firstDead() entry {
	if q.lanes != nil && q.dead.first.less(q.lanes.halts) {
		return q.lanes.halts
	}
	return q.dead.first
}

// halts reports whether a dead message halts its key.
func (q *queue) halts(id string) bool {
	if q.lanes == nil {
		return false
	}
	_, halts := q.lanes.order.Holds(id)
	return halts
}

// halted returns the number of halted keys.
func (q *queue) halted() int64 {
	if !q.isOrdered() {
		return 0
	}
	return int64(q.lanes.order.Halted())
}

// haltedKeys returns the keys that are halted.
func (l *lanes) haltedKeys() (keys []string) {
	for key, h := range l.holds() {
		if h.dead {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// holds returns the messages that hold keys, by key, where the memory has them as they are stored.
func (l *lanes) holds() map[string]hold {
	all := map[string]hold{}
	for key, s := range l.states {
		if s.Holder == "" {
			continue
		}
		if held, halts := l.order.Holds(s.Holder); held == key && halts == s.Dead {
			all[key] = hold{s.Holder, s.Dead}
		}
	}
	return all
}

// hold is the message that holds a key while it is not leased; see turns.State.
type hold struct {
	id   string
	dead bool
}

// canHold reports whether a message can hold a key: it exists, has the key, and is dead or not as h says.
func (r *reader) canHold(number uint32, key string, h hold) (bool, error) {
	value, ok, err := r.get(appendIDKey(r.key[:0], number, kindMessage, h.id))
	if !ok || err != nil || keyIn(value).Key != key {
		return false, err
	}
	p, err := r.parsePlace(number, h.id, value, 0)
	return (p.record.deadReason != "") == h.dead, err
}

// copyKeyState recovers an override or the state of a key. It returns the check that the parts fail which do not apply
// or cannot be read, or "".
func (t *tx) copyKeyState(q *queue, from *reader, kind byte, key, value []byte) (failed string, err error) {
	number, _, _ := splitKey(key)
	name := string(key[prefixLength:])
	if q.lanes == nil || !isSound(kind, []byte(name), value) {
		return "limits", nil
	}
	if kind == kindKeyFlow {
		t.set(appendIDKey(t.key[:0], q.number, kind, name), value)
		o, _ := parseOverride(name, value)
		q.lanes.order.SetOverride(t.micros, name, *o)
		return "", nil
	}
	s, _ := parseKeyState(name, value)
	if s.Holder != "" {
		ok, err := from.canHold(number, name, hold{s.Holder, s.Dead})
		if err != nil {
			return "", err
		}
		if !ok || !q.isOrdered() {
			s.Holder, s.Dead, failed = "", false, "holds"
		}
	}
	t.keepStates(q)
	if s.Holder == "" {
		k := q.lanes.order.Key(t.micros, name)
		s.Holder, s.Dead = k.Holder, k.Halted // which was leased, or in a damaged parcel
	}
	t.keepState(q, name, s)
	q.lanes.order.Restore(t.micros, name, s)
	q.lanes.order.Changes(func(string, turns.State) {}) // so that it stays as it was stored, whatever the clock says
	return failed, nil
}
