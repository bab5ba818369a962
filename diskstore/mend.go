package diskstore

import (
	"encoding/binary"
	"slices"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// The steps of a repair that are about one message or lease. Each is done by the writer like any other call.

// lostRecordText is the last error of a message whose record could not be read.
const lostRecordText = "its record could not be read: attempts and last error are lost"

// mend makes the indexes say of a message what the message says. It looks at all anew, since other calls went on;
// the caller has flushed.
func (t *tx) mend(q *queue, f *facts) error {
	for _, key := range f.broken {
		if err := t.removeBroken(q, key); err != nil {
			return err
		}
	}
	if len(f.broken) > 0 {
		return nil
	}
	entries, err := t.existing(q, f)
	if err != nil {
		return err
	}
	value, message, err := t.read(q, kindMessage, f.id)
	if err != nil {
		return err
	}
	stored, found, err := t.read(q, kindRecord, f.id)
	if err != nil {
		return err
	}
	held := q.held[f.id]
	if !message {
		t.release(q, held)
		t.removeEntries(q, f.id, entries, placing{})
		if found {
			t.remove(appendIDKey(t.key[:0], q.number, kindRecord, f.id))
		}
		t.touch(q)
		return nil
	}
	j := judge(value, stored, found)
	if j.badRecord {
		t.replaceRecord(q, f.id, &j, entries)
	}
	if j.short {
		t.rewrite(q, f.id, &j, value)
	}
	dying := j.unreadable && j.record.deadReason == ""
	if held != nil && (dying || j.record.deadReason != "" || f.held != nil && f.held.mismatch && f.held.lease == held.lease.id) {
		t.release(q, held)
		held = nil
	}
	if dying {
		t.removeEntries(q, f.id, entries, placing{})
		j.record.lastError = store.UnreadableText
		t.die(q, f.id, &j.record, store.DeadUnreadable)
		return nil
	}
	return t.settleAt(q, f.id, &j, entries, j.place(held != nil))
}

// settleAt makes a place the only one where a message is.
func (t *tx) settleAt(q *queue, id string, j *judgement, entries []placing, place placing) error {
	t.removeEntries(q, id, entries, place)
	e := entry{place.at, id}
	switch place.kind {
	case kindDue:
		value, ok, err := t.get(appendTimeKey(nil, q.number, kindDue, e))
		if err != nil {
			return err
		}
		j.record.stored = place.stored
		switch {
		case !ok:
			t.addDue(q, id, &j.record)
		case (len(value) > 0) != place.stored: // it stays, and says the right thing about the record
			q.due--
			if e.at <= q.mark {
				q.ready--
			}
			t.addDue(q, id, &j.record)
		}
	case kindDead:
		_, ok, err := t.get(appendTimeKey(nil, q.number, kindDead, e))
		if err != nil {
			return err
		}
		if !ok {
			t.addDead(q, e)
		}
	}
	t.touch(q)
	return nil
}

// read reads a key of a message.
func (t *tx) read(q *queue, kind byte, id string) (value []byte, ok bool, err error) {
	value, ok, err = t.get(appendIDKey(nil, q.number, kind, id))
	return slices.Clone(value), ok, err
}

// existing gives the entries that were found and are still there.
func (t *tx) existing(q *queue, f *facts) (entries []placing, err error) {
	for _, p := range f.entries {
		value, ok, err := t.get(appendTimeKey(nil, q.number, p.kind, entry{p.at, f.id}))
		if err != nil {
			return nil, err
		}
		if ok {
			p.stored = len(value) > 0
			entries = append(entries, p)
		}
	}
	return entries, nil
}

// removeEntries removes all entries but that of a place.
func (t *tx) removeEntries(q *queue, id string, entries []placing, but placing) {
	for _, p := range entries {
		switch {
		case p.kind == but.kind && p.at == but.at:
		case p.kind == kindDue:
			t.removeDue(q, entry{p.at, id})
		case p.kind == kindDead:
			t.removeDead(q, entry{p.at, id})
		}
	}
}

// removeBroken removes a key of an index that is no entry.
func (t *tx) removeBroken(q *queue, key []byte) error {
	_, ok, err := t.get(key)
	if !ok || err != nil {
		return err
	}
	switch t.remove(key); key[4] {
	case kindDue:
		if q.due--; q.due == 0 {
			q.startAt(entry{at: never}, true)
		}
	case kindDead:
		q.dead--
	case kindForget:
		q.forgetting--
	}
	t.touch(q)
	return nil
}

// release ends the holding of a message, and the lease if it holds no other.
func (t *tx) release(q *queue, m *member) {
	if m == nil {
		return
	}
	t.unhold(q, m)
	if m.lease.left == 0 && len(m.lease.cancelled) == 0 {
		t.end(q, m.lease)
	}
}

// replaceRecord writes a record for one that cannot be read: the message keeps its place.
func (t *tx) replaceRecord(q *queue, id string, j *judgement, entries []placing) {
	j.record = record{due: j.due, delivered: true, lastError: lostRecordText} // rather delivered than expired
	for _, p := range entries {
		switch p.kind {
		case kindDue:
			j.record.due = p.at
		case kindDead:
			j.record.deadReason, j.record.diedAt = store.DeadFailed, p.at
		}
	}
	t.keep(q, id, &j.record)
	j.badRecord, j.stored = false, true
}

// rewrite writes a message whose due time cannot be read, so that its bytes can be looked at.
func (t *tx) rewrite(q *queue, id string, j *judgement, raw []byte) {
	if j.due = t.now; j.stored {
		j.due = j.record.due
	}
	j.record.due = j.due
	var m store.Message
	if envelope.Decode(string(raw), &m) == nil {
		raw = append([]byte{0xff}, raw...) // or it would pass for a message, which it is not
	}
	value := append(appendTime(nil, j.due), raw...)
	q.longest = max(q.longest, int64(len(value)))
	t.set(appendIDKey(t.key[:0], q.number, kindMessage, id), value)
}

func (t *tx) removeLeases(number uint32, ids []string) error {
	for _, id := range ids {
		key := appendIDKey(nil, number, kindLease, id)
		value, ok, err := t.get(key)
		if err != nil {
			return err
		}
		if _, bad := parseLease(id, value); ok && bad != nil {
			t.remove(key)
		}
	}
	return nil
}

// leave takes a message out of a lease as it is on the disk.
func (t *tx) leave(number uint32, lease, id string) error {
	key := appendIDKey(nil, number, kindLease, lease)
	value, ok, err := t.get(key)
	if !ok || err != nil {
		return err
	}
	l, err := parseLease(lease, value)
	if err != nil {
		return err
	}
	for _, m := range l.members {
		if m != nil && m.id == id {
			err = t.batch.Merge(key, binary.BigEndian.AppendUint16(nil, uint16(m.position)), nil)
		}
	}
	if err != nil {
		return t.s.fail(err)
	}
	return nil
}
