package diskstore

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
)

// lease is the right to settle the messages of one claim. It lists exactly the messages that it holds.
//
// It is stored as four numbers and its members. When a member leaves, its two-byte position is appended (a Pebble
// merge), with wasCancelled set or not, so that a lease is not written again for each message that is settled. Where it
// is written again, so are the cancelled members.
type lease struct {
	id        string
	deadline  int64
	flow      uint64    // id of the queue's flow when it was claimed; 0 for a plain queue
	keyed     uint64    // the queue's flow.keyed when it was claimed
	members   []*member // by position; nil for one that has left
	left      int
	cancelled []cancelled // since the last Extend

	stored  bool
	rewrite bool     // is to be stored whole
	leaving []uint16 // positions to be appended
	touched bool     // it is in tx.leases
}

const wasCancelled = 1 << 15

// cancelled is a message that was cancelled while it was leased.
type cancelled struct{ id, key string }

// member is a leased message.
type member struct {
	lease       *lease
	position    int
	id          string
	maxAttempts int
	record      record
	group       int64  // number of its group; 0 for none
	key         string // the message's key when it was claimed, if the queue was Fair
	follows     bool   // it has a successor; all but lease, position, maxAttempts and key is the successor's
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
	memberFollows = 2 // it has a successor
)

func appendLease(b []byte, l *lease) []byte {
	b = appendUvarints(b, uint64(l.deadline), uint64(len(l.members)+len(l.cancelled)), l.flow, l.keyed)
	for _, m := range l.members {
		b = appendMember(b, m)
	}
	for _, c := range l.cancelled {
		b = appendMember(b, &member{id: c.id, key: c.key})
	}
	for i := range l.cancelled {
		b = binary.BigEndian.AppendUint16(b, uint16(len(l.members)+i)|wasCancelled)
	}
	return b
}

func appendMember(b []byte, m *member) []byte {
	b = append(b, boolByte(m.record.stored)*memberStored|boolByte(m.follows)*memberFollows)
	b = appendUvarints(b, uint64(m.maxAttempts), uint64(m.record.due), uint64(m.record.rank.micros), uint64(m.group))
	return appendText(appendText(b, m.id), m.key)
}

func appendUvarints(b []byte, numbers ...uint64) []byte {
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

// cutUvarints reads numbers that appendUvarints has appended, and cuts them off.
func cutUvarints(b []byte, to ...*uint64) (rest []byte, ok bool) {
	for _, n := range to {
		var length int
		if *n, length = binary.Uvarint(b); length <= 0 {
			return nil, false
		}
		b = b[length:]
	}
	return b, true
}

// parseLease returns a lease with the members that have not left it. Their records have due and stored set.
func parseLease(id string, b []byte) (*lease, error) {
	bad := corrupt("lease %q has %d bytes that are not of this format", id, len(b))
	l := &lease{id: id, stored: true}
	var deadline, n uint64
	b, ok := cutUvarints(b, &deadline, &n, &l.flow, &l.keyed)
	if !ok || deadline > lastTime || n > uint64(len(b)) {
		return nil, bad
	}
	l.deadline, l.left = int64(deadline), int(n)
	l.members = make([]*member, n)
	for i := range l.members {
		m := &member{lease: l, position: i}
		if b, ok = m.parse(b); !ok {
			return nil, bad
		}
		l.members[i] = m
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
			l.cancelled = append(l.cancelled, cancelled{l.members[position].id, l.members[position].key})
		}
		l.members[position] = nil
		l.left--
	}
	return l, nil
}

// parse reads the member that b begins with, and returns what follows it. The record has due and stored set.
func (m *member) parse(b []byte) (rest []byte, ok bool) {
	if len(b) == 0 || b[0] > memberStored|memberFollows {
		return nil, false
	}
	m.record.stored, m.follows = b[0]&memberStored != 0, b[0]&memberFollows != 0
	var maxAttempts, due, micros, group uint64
	if b, ok = cutUvarints(b[1:], &maxAttempts, &due, &micros, &group); !ok || max(due, group) > lastTime {
		return nil, false
	}
	m.maxAttempts, m.group = int(maxAttempts), int64(group)
	m.record.due, m.record.rank.micros = int64(due), uint16(micros)
	id, b, hasID := cutText(b)
	key, b, hasKey := cutText(b)
	m.id, m.key = string(id), string(key)
	return b, hasID && hasKey
}

// eachKey calls f with the key of each message that may count: the held ones, and the cancelled ones.
func (l *lease) eachKey(f func(key string)) {
	for _, m := range l.members {
		if m != nil {
			f(m.key)
		}
	}
	for _, c := range l.cancelled {
		f(c.key)
	}
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
func (t *tx) storeLease(q *queue, l *lease) {
	l.touched = false
	key := appendIDKey(t.key[:0], q.number, kindLease, l.id)
	switch {
	case l.left == 0 && len(l.cancelled) == 0:
		if l.stored {
			t.remove(key)
		}
		l.stored = false
	case l.rewrite || !l.stored:
		l.compact()
		t.value = appendLease(t.value[:0], l)
		t.set(key, t.value)
		l.stored = true
	case len(l.leaving) > 0:
		t.value = t.value[:0]
		for _, position := range l.leaving {
			t.value = binary.BigEndian.AppendUint16(t.value, position)
		}
		t.merge(key, t.value)
	}
	l.rewrite, l.leaving = false, l.leaving[:0]
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
	q.countLeased(t.micros, l, m.key, -1)
	l.leaving = append(l.leaving, uint16(m.position))
	t.touchLease(q, l)
}

// endLease removes a lease that holds nothing.
func (t *tx) endLease(q *queue, l *lease) {
	q.learned(t.micros, l)
	delete(q.leases, l.id)
	q.deadlines.Delete(entry{l.deadline, l.id})
	t.touchLease(q, l)
}

// loadLeases reads the leases of a queue.
func (q *queue) loadLeases(r *reader, it *pebble.Iterator) (err error) {
	for id, value := range r.keysBy(it, &err, q.number, kindLease) {
		var l *lease
		if l, err = parseLease(id, value); err != nil {
			return err
		}
		q.leases[l.id] = l
		for _, m := range l.members {
			if m == nil {
				continue
			}
			if other := q.held[m.id]; other != nil {
				return corrupt("message %q is held by the leases %q and %q", m.id, other.lease.id, l.id)
			}
			q.held[m.id] = m
			if m.record.stored {
				k := m.record.rank
				if m.record, err = r.record(q.number, m.id, m.record.due); err != nil {
					return err
				}
				m.record.rank = k
			}
		}
	}
	return err
}

// correctLeases leaves leases the time that they had left when the queue was last changed, a time in microseconds, if
// the clock went back since then; see rewind. The deadlines are stored with the next change of the leases: until then
// each load computes the same.
func (s *Store) correctLeases(q *queue, changed int64) {
	now := s.clock.Now().UnixMilli()
	back := max(0, changed/1000-now)
	if back <= maxStandstill {
		back = 0
		s.lastNow, s.lastMicros = max(s.lastNow, changed/1000), max(s.lastMicros, changed)
	}
	for _, l := range q.leases {
		if deadline := min(l.deadline-back, max(now, s.lastNow)+maxLease); deadline != l.deadline {
			l.deadline, l.rewrite = deadline, true
			s.corrected = append(s.corrected, touchedLease{q, l})
		}
		q.deadlines.Set(entry{l.deadline, l.id})
	}
}
