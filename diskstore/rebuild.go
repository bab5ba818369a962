package diskstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// storedPlace is where a message belongs by its stored value and record.
type storedPlace struct {
	record   record
	recorded bool  // the record is stored
	group    int64 // number of its group, or 0
	damaged  bool  // the message or its record cannot be read, and record replaces it
}

// lostRecordText is the last error of a message with an unreadable record.
const lostRecordText = "its record could not be read: attempts and last error are lost"

// parsePlace returns where a message that no lease holds belongs. An unreadable message is dead. A message with an
// unreadable record is due as it was sent.
func (r *reader) parsePlace(number uint32, id string, value []byte, now int64) (p storedPlace, err error) {
	m, unreadable := parseMessage(value)
	if unreadable == nil {
		unreadable = envelope.Decode(m.envelope, &store.Message{})
	}
	p.record, err = r.record(number, id, m.due)
	switch {
	case isFormatError(err):
		p.recorded, p.damaged = true, true
		p.record = record{stored: true, due: m.due, delivered: true, lastError: lostRecordText} // it does not expire
	case err != nil:
		return p, err
	default:
		p.recorded = p.record.stored
	}
	if unreadable == nil {
		p.group = groupIn(m.envelope)
	} else if p.record.deadReason == "" {
		p.damaged = true
		p.record = record{stored: true, due: p.record.due, attempts: p.record.attempts, failures: p.record.failures,
			deadReason: store.DeadUnreadable, diedAt: now, lastError: store.UnreadableText}
	}
	return p, nil
}

// rebuilding makes the keys of a store consistent that Recover has filled, before they are loaded. The messages and
// their records are right; the indexes and counters are derived from them. Leases and sessions of processes that have
// ended are removed: the messages that they held are due as before.
type rebuilding struct {
	reader
	ctx    context.Context
	report func(store.CheckResult)
	batch  *pebble.Batch
	now    int64
}

func (s *Store) rebuildAll(ctx context.Context, report func(store.CheckResult)) error {
	b := &rebuilding{reader{s: s, src: s.db}, ctx, report, s.db.NewBatch(), s.clock.Now().UnixMilli()}
	defer func() { b.batch.Close() }()
	n, err := b.names()
	if err != nil {
		return err
	}
	for _, key := range n.stray {
		b.batch.Delete(key, nil)
	}
	used := map[string]bool{}
	for _, name := range n.queues {
		used[name] = true
	}
	for _, number := range slices.Sorted(maps.Keys(n.queues)) {
		name := n.queues[number]
		if name == "" {
			for name = recoveredName(number); used[name]; {
				name += "-again"
			}
			n.note("names", 1, fmt.Sprintf("the name of queue number %d is lost: it is called %s", number, name))
			b.batch.Set(appendIDKey(nil, 0, kindName, name), numberKey(number), nil)
		}
		if err := b.queue(name, number); err != nil {
			return err
		}
	}
	b.reportAll("", n.issues)
	return b.apply(pebble.Sync)
}

func recoveredName(number uint32) string { return fmt.Sprintf("recovered-%d", number) }

func (b *rebuilding) reportAll(queue string, all issues) {
	for _, r := range all.results(queue) {
		r.Repaired = true
		b.report(r)
	}
}

// apply writes the batch, and empties it.
func (b *rebuilding) apply(mode *pebble.WriteOptions) error {
	if err := b.s.interrupted(b.ctx); err != nil {
		return err
	}
	if err := b.s.db.Apply(b.batch, mode); err != nil {
		return b.s.writeError(err)
	}
	b.batch.Reset()
	return nil
}

// queue rebuilds a queue.
func (b *rebuilding) queue(name string, number uint32) error {
	for _, kind := range []byte{kindDue, kindDead, kindForget, kindGroup, kindLease, kindOriginal, kindCount} {
		b.batch.DeleteRange(appendKey(nil, number, kind), appendKey(nil, number, kind+1), nil)
	}
	m, lost := meta{paused: true}, corrupt("there are none") // it may have been paused
	_, err := b.view(appendKey(nil, number, kindMeta), func(value []byte) error {
		if stored, bad := parseMeta(value); bad == nil {
			m, lost = stored, nil
		}
		return nil
	})
	if err != nil {
		return err
	}
	var found issues
	if lost != nil {
		found.note("counters", 1, "the settings of the queue are lost: it is paused")
	}
	m = meta{paused: m.paused, maxAge: m.maxAge, maxCount: m.maxCount, dropped: m.dropped, swept: slotOf(b.now),
		now: b.now, head: never}
	it, err := b.iterate(numberKey(number), numberKey(number+1))
	if err != nil {
		return err
	}
	for valid := it.First(); valid && err == nil; valid = it.Next() {
		if err = b.visit(number, &m, &found, it.Key(), it.Value()); err == nil && b.batch.Len() > maxGroupBytes {
			err = b.apply(pebble.NoSync)
		}
	}
	if err = b.end(it, err); err != nil {
		return err
	}
	b.batch.Set(appendKey(nil, number, kindMeta), appendMeta(nil, m), nil)
	b.reportAll(name, found)
	return nil
}

// visit writes the entries that follow from a key of a queue, or removes the key.
func (b *rebuilding) visit(number uint32, m *meta, found *issues, key, value []byte) error {
	kind, id := byte(0), ""
	if len(key) >= prefixLength {
		kind, id = key[prefixLength-1], string(key[prefixLength:])
	}
	keep, err := true, error(nil)
	switch kind {
	case kindDue, kindDead, kindForget, kindGroup, kindLease, kindOriginal, kindCount: // removed already
	case kindMessage:
		return b.message(number, m, found, id, value)
	case kindRecord:
		keep, err = b.has(appendIDKey(b.key[:0], number, kindMessage, id))
	case kindRemembered:
		if keep = isRemembered([]byte(id), value); keep {
			m.remembered++
			b.set(appendTimeKey(b.key[:0], number, kindForget, entry{readTime(value), id}), nil)
		}
	default:
		keep = isSound(kind, []byte(id), value)
	}
	if !keep {
		b.batch.Delete(key, nil)
	}
	return err
}

func (b *rebuilding) set(key, value []byte) {
	b.key = key
	b.batch.Set(key, value, nil) // its only error is of a batch that was applied
}

func (b *rebuilding) message(number uint32, m *meta, found *issues, id string, value []byte) error {
	p, err := b.parsePlace(number, id, value, b.now)
	if err != nil {
		return err
	}
	r := &p.record
	if p.damaged {
		found.add("unreadable", id)
		b.set(appendIDKey(b.key[:0], number, kindRecord, id), appendRecord(nil, r))
	}
	if p.group != 0 {
		m.grouped++
		b.set(appendTimeKey(b.key[:0], number, kindGroup, entry{p.group, id}), nil)
	}
	if r.deadReason != "" {
		m.dead++
		b.set(appendTimeKey(b.key[:0], number, kindDead, entry{r.diedAt, id}), nil)
		return nil
	}
	m.addDue(r.due)
	b.batch.Merge(appendSlotKey(nil, number, slotOf(r.due)), binary.AppendVarint(nil, 1), nil)
	var mark []byte
	if r.stored {
		mark = withRecord
	}
	b.set(appendTimeKey(b.key[:0], number, kindDue, entry{r.due, id}), mark)
	return nil
}
