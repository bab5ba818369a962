package diskstore

import (
	"encoding/binary"
)

// lease is the right to settle the messages of one claim. It lists exactly the messages that it holds.
//
// It is stored as its deadline, the number of members (with isLimited if its flow follows), and the members. When a
// member leaves, its two-byte position is appended (a Pebble merge), with wasCancelled set or not, so that a lease is
// not written again for each message that is settled. Where it is written again, so are the cancelled members.
type lease struct {
	id        string
	deadline  int64
	flow      uint64    // id of the queue's flow when it was claimed; 0 for a plain queue
	members   []*member // by position; nil for one that has left
	left      int
	cancelled []string // ids cancelled since the last Extend

	stored  bool
	rewrite bool     // is to be stored whole
	leaving []uint16 // positions to be appended
	touched bool     // it is in tx.leases
}

const (
	wasCancelled = 1 << 15
	isLimited    = 1 << 15
)

// member is a leased message.
type member struct {
	lease       *lease
	position    int
	id          string
	maxAttempts int
	record      record
	group       int64 // number of its group; 0 for none
	follows     bool  // it has a successor; all but lease, position and maxAttempts is the successor's
}

// The message that a member was before it got a successor is stored under kindOriginal until the hold ends, because a
// repeated claim returns it. It is the original that moves, so that the end of a hold copies nothing.

// keepOriginal keeps a held message, with its envelope, before it gets its first successor.
func (t *tx) keepOriginal(q *queue, m *member, text string) {
	t.value = binary.BigEndian.AppendUint32(appendTime(t.value[:0], m.record.due), uint32(m.record.attempts))
	t.value = append(t.value, text...)
	t.set(appendIDKey(t.key[:0], q.number, kindOriginal, m.id), t.value)
}

// original returns the message that keepOriginal kept. It returns false if a version of Later that did not keep it
// stored the successor.
func (r *reader) original(queue uint32, id string) (due int64, attempts int, text string, ok bool, err error) {
	const head = timeLength + 4
	_, err = r.view(appendIDKey(r.key[:0], queue, kindOriginal, id), func(value []byte) error {
		if ok = len(value) >= head; ok {
			due, attempts = readTime(value), int(binary.BigEndian.Uint32(value[timeLength:]))
			text = string(value[head:])
		}
		return nil
	})
	return due, attempts, text, ok, err
}

// The bits of the first byte of a stored member.
const (
	memberStored  = 1 // there is a record
	memberGrouped = 2 // the number of its group follows the id
	memberFollows = 4 // it has a successor
)

func appendLease(b []byte, l *lease) []byte {
	b = appendTime(b, l.deadline)
	n := len(l.members) + len(l.cancelled)
	if l.flow == 0 {
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	} else {
		b = binary.BigEndian.AppendUint16(b, uint16(n|isLimited))
		b = binary.BigEndian.AppendUint64(b, l.flow)
	}
	for _, m := range l.members {
		bits := boolByte(m.record.stored)*memberStored | boolByte(m.follows)*memberFollows
		if m.group != 0 {
			bits |= memberGrouped
		}
		b = append(b, bits)
		b = binary.BigEndian.AppendUint16(b, uint16(m.maxAttempts))
		b = appendTime(b, m.record.due)
		b = append(b, byte(len(m.id)))
		b = append(b, m.id...)
		if m.group != 0 {
			b = appendTime(b, m.group)
		}
	}
	for _, id := range l.cancelled {
		b = append(b, make([]byte, 1+2+timeLength)...)
		b = append(append(b, byte(len(id))), id...)
	}
	for i := range l.cancelled {
		b = binary.BigEndian.AppendUint16(b, uint16(len(l.members)+i)|wasCancelled)
	}
	return b
}

// parseLease returns a lease with the members that have not left it. Their records have due and stored set.
func parseLease(id string, b []byte) (*lease, error) {
	bad := corrupt("lease %q has %d bytes that are not of this format", id, len(b))
	if len(b) < timeLength+2 {
		return nil, bad
	}
	l := &lease{id: id, deadline: readTime(b), stored: true}
	n := binary.BigEndian.Uint16(b[timeLength:])
	l.members = make([]*member, n&^isLimited)
	if b = b[timeLength+2:]; n&isLimited != 0 {
		if len(b) < 8 {
			return nil, bad
		}
		l.flow, b = binary.BigEndian.Uint64(b), b[8:]
	}
	const fixed = 1 + 2 + timeLength + 1
	for i := range l.members {
		if len(b) < fixed || len(b) < fixed+int(b[fixed-1]) {
			return nil, bad
		}
		end := fixed + int(b[fixed-1])
		l.members[i] = &member{
			lease: l, position: i, id: string(b[fixed:end]),
			maxAttempts: int(binary.BigEndian.Uint16(b[1:])),
			record:      record{stored: b[0]&memberStored != 0, due: readTime(b[3:])},
			follows:     b[0]&memberFollows != 0,
		}
		if b[0]&memberGrouped != 0 {
			if len(b) < end+timeLength {
				return nil, bad
			}
			l.members[i].group = readTime(b[end:])
			end += timeLength
		}
		b = b[end:]
	}
	for ; len(b) > 0; b = b[2:] {
		if len(b) == 1 {
			return nil, bad
		}
		left := binary.BigEndian.Uint16(b)
		position := int(left &^ wasCancelled)
		if position >= len(l.members) || l.members[position] == nil {
			return nil, bad
		}
		if left&wasCancelled != 0 {
			l.cancelled = append(l.cancelled, l.members[position].id)
		}
		l.members[position] = nil
	}
	for _, m := range l.members {
		if m != nil {
			l.left++
		}
	}
	return l, nil
}

// compact renumbers the members of a lease that is stored whole.
func (l *lease) compact() {
	kept := l.members[:0]
	for _, m := range l.members {
		if m != nil {
			m.position = len(kept)
			kept = append(kept, m)
		}
	}
	clear(l.members[len(kept):])
	l.members = kept
}

// storeLease writes the changes of a lease.
func (t *tx) storeLease(q *queue, l *lease) error {
	l.touched = false
	key := appendIDKey(t.key[:0], q.number, kindLease, l.id)
	t.key = key
	var err error
	switch {
	case l.left == 0 && len(l.cancelled) == 0:
		if l.stored {
			err = t.batch.Delete(key, nil)
		}
		l.stored = false
	case l.rewrite || !l.stored:
		l.compact()
		t.value = appendLease(t.value[:0], l)
		err = t.batch.Set(key, t.value, nil)
		l.stored = true
	case len(l.leaving) > 0:
		t.value = t.value[:0]
		for _, position := range l.leaving {
			t.value = binary.BigEndian.AppendUint16(t.value, position)
		}
		err = t.batch.Merge(key, t.value, nil)
	}
	l.rewrite, l.leaving = false, l.leaving[:0]
	return err
}

// unhold takes a message out of its lease; the caller puts it elsewhere, and ends the lease if it is empty.
func (t *tx) unhold(q *queue, m *member) {
	l := m.lease
	if m.follows {
		t.remove(appendIDKey(t.key[:0], q.number, kindOriginal, m.id))
	}
	delete(q.held, m.id)
	l.members[m.position] = nil
	l.left--
	q.countLeased(l, -1)
	l.leaving = append(l.leaving, uint16(m.position))
	t.touchLease(q, l)
}

// endLease removes a lease that holds nothing.
func (t *tx) endLease(q *queue, l *lease) {
	q.countLeased(l, -len(l.cancelled))
	l.cancelled = nil
	delete(q.leases, l.id)
	q.deadlines.Delete(entry{l.deadline, l.id})
	t.touchLease(q, l)
}
