package diskstore

import (
	"bytes"
	"context"
	"fmt"
	"hash/maphash"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// queueLook is one examination of a queue, in a snapshot.
//
// Where each message should be is compared with where the indexes have it by sums: each place that should be, and
// each that is, adds a number made of the message's id and the place to one of many sums, chosen by the id. Where
// the two sums differ, and only there, the messages are looked at one by one in further passes. So memory is
// bounded, and an index that is right is read once.
type queueLook struct {
	s        *Store
	ctx      context.Context
	snapshot *pebble.Snapshot
	number   uint32
	seed     maphash.Seed
	limit    int64 // about how many messages or ids a pass may take down
	read     int   // keys so far

	meta    meta
	metaErr error
	counted meta // what the counters should be

	messages, records, leases int64
	held                      map[string]*holding
	badLeases                 []string  // ids of leases that cannot be read
	twice                     []holding // places in leases of messages that another lease holds for longer
	badRecords                []string  // of leased messages
	want, have                []uint64  // the sums
	unknown                   unknownKeys
}

// holding is a leased message.
type holding struct {
	lease            string
	position         int
	deadline         int64
	id               string
	due              int64
	stored           bool
	exists, mismatch bool // there is a message; its lease has something else of it than its record
}

// sums is the number of sums, and of messages in one of 10 million some 150.
const sums = 1 << 16

// placing is where a message is, or should be.
type placing struct {
	kind   byte // kindDue, kindDead or kindLease; 0 for one that is nowhere
	at     int64
	stored bool // kindDue: it says that there is a record
}

func (l *queueLook) sumOf(id []byte) int { return int(maphash.Bytes(l.seed, id) % sums) }

func (l *queueLook) hash(id []byte, p placing) uint64 {
	var h maphash.Hash
	h.SetSeed(l.seed)
	h.Write(id)
	var b [1 + 8 + 1]byte
	b[0], b[9] = p.kind, boolByte(p.stored)
	for i := range 8 {
		b[1+i] = byte(p.at >> (8 * i))
	}
	h.Write(b[:])
	return h.Sum64()
}

// each goes over the keys of a kind, behind the prefix.
func (l *queueLook) each(kind byte, f func(rest, value []byte) error) error {
	return l.over(appendKey(nil, l.number, kind), appendKey(nil, l.number, kind+1), func(key, value []byte) error {
		return f(key[prefixLength:], value)
	})
}

func (l *queueLook) over(from, to []byte, f func(key, value []byte) error) error {
	it, err := l.snapshot.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return l.s.unreadable(err)
	}
	for valid := it.First(); valid && err == nil; valid = it.Next() {
		if l.read++; l.read%10_000 == 0 {
			if err = l.s.interrupted(l.ctx); err != nil {
				break
			}
		}
		err = f(it.Key(), it.Value())
	}
	if closed := it.Close(); err == nil && closed != nil {
		err = l.s.unreadable(closed)
	}
	return err
}

// pass reads the whole queue once.
func (l *queueLook) pass() error {
	l.held, l.want, l.have = map[string]*holding{}, make([]uint64, sums), make([]uint64, sums)
	l.counted = meta{head: never}
	for _, step := range []func() error{l.readMeta, l.readLeases, l.readMessages, l.readDue, l.readDead, l.readForget, l.readUnknown} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (l *queueLook) readMeta() error {
	l.metaErr = corrupt("there are none")
	err := l.each(kindMeta, func(rest, value []byte) error {
		if len(rest) == 0 {
			l.meta, l.metaErr = parseMeta(value)
		}
		return nil
	})
	l.counted.mark = l.meta.mark
	return err
}

func (l *queueLook) readLeases() error {
	return l.each(kindLease, func(rest, value []byte) error {
		l.leases++
		id := string(rest)
		lease, err := parseLease(id, value)
		if err != nil {
			l.badLeases = append(l.badLeases, id)
			return nil
		}
		for _, m := range lease.members {
			if m == nil {
				continue
			}
			h := &holding{lease: id, position: m.position, deadline: lease.deadline, id: m.id, due: m.record.due, stored: m.record.stored}
			if other := l.held[m.id]; other != nil {
				if other.deadline >= h.deadline {
					l.twice = append(l.twice, *h)
					continue
				}
				l.twice = append(l.twice, *other)
			}
			l.held[m.id] = h
		}
		return nil
	})
}

// readMessages goes over the messages and their records side by side.
func (l *queueLook) readMessages() error {
	records, err := l.snapshot.NewIter(&pebble.IterOptions{
		LowerBound: appendKey(nil, l.number, kindRecord), UpperBound: appendKey(nil, l.number, kindRecord+1),
	})
	if err != nil {
		return l.s.unreadable(err)
	}
	valid := records.First()
	err = l.each(kindMessage, func(id, value []byte) error {
		l.messages++
		l.counted.longest = max(l.counted.longest, int64(len(value)))
		for valid && bytes.Compare(records.Key()[prefixLength:], id) < 0 {
			l.orphanRecord(records.Key()[prefixLength:])
			valid = records.Next()
		}
		var record []byte
		found := valid && bytes.Equal(records.Key()[prefixLength:], id)
		if found {
			l.records++
			record = records.Value()
		}
		l.message(id, value, record, found)
		if found {
			valid = records.Next()
		}
		return nil
	})
	for ; valid && err == nil; valid = records.Next() {
		l.orphanRecord(records.Key()[prefixLength:])
	}
	if closed := records.Close(); err == nil && closed != nil {
		err = l.s.unreadable(closed)
	}
	return err
}

// suspect has a message looked at by itself.
func (l *queueLook) suspect(id []byte) { l.want[l.sumOf(id)] += 0x9e3779b97f4a7c15 }

func (l *queueLook) orphanRecord(id []byte) {
	l.records++
	l.suspect(id)
}

// message adds where a message should be.
func (l *queueLook) message(id, value, record []byte, found bool) {
	j := judge(value, record, found)
	held := l.held[string(id)]
	if held != nil {
		held.exists = true
		held.mismatch = held.stored != found || !found && held.due != j.due
		if j.badRecord {
			l.badRecords = append(l.badRecords, string(id))
		}
	}
	p := j.place(held != nil)
	if j.wrong() || held != nil && (held.mismatch || p.kind != kindLease) {
		l.suspect(id)
	}
	if p.kind != kindLease {
		l.want[l.sumOf(id)] += l.hash(id, p)
	}
}

// judgement is what a message's own bytes, and those of its record, say.
type judgement struct {
	due        int64
	record     record
	stored     bool
	short      bool // the message has no due time
	unreadable bool // its envelope cannot be read
	badRecord  bool // its record cannot be read
}

func judge(value, stored []byte, found bool) (j judgement) {
	m, err := parseMessage(value)
	if j.short = err != nil; j.short {
		m.envelope = string(value)
	}
	var decoded store.Message
	j.unreadable = j.short || envelope.Decode(m.envelope, &decoded) != nil
	j.due, j.stored = m.due, found
	j.record = record{due: m.due}
	if found {
		if r, err := parseRecord(stored); err == nil {
			j.record = r
		} else {
			j.badRecord = true
		}
	}
	return j
}

// wrong tells what the message itself, not its place, has wrong. One that cannot be read is right when it is dead.
func (j *judgement) wrong() bool {
	return j.short || j.badRecord || j.unreadable && j.record.deadReason == ""
}

// place is where the message should be.
func (j *judgement) place(held bool) placing {
	switch {
	case j.record.deadReason != "":
		return placing{kind: kindDead, at: j.record.diedAt}
	case held:
		return placing{kind: kindLease}
	}
	return placing{kind: kindDue, at: j.record.due, stored: j.stored}
}

func (l *queueLook) readDue() error {
	return l.each(kindDue, func(rest, value []byte) error {
		l.counted.due++
		at, id, ok := splitTime(rest)
		if !ok {
			l.suspect(rest)
			return nil
		}
		if at <= l.counted.mark {
			l.counted.ready++
		}
		l.counted.head = min(l.counted.head, at)
		l.have[l.sumOf(id)] += l.hash(id, placing{kind: kindDue, at: at, stored: len(value) > 0})
		return nil
	})
}

func (l *queueLook) readDead() error {
	return l.each(kindDead, func(rest, _ []byte) error {
		l.counted.dead++
		at, id, ok := splitTime(rest)
		if !ok {
			l.suspect(rest)
			return nil
		}
		l.have[l.sumOf(id)] += l.hash(id, placing{kind: kindDead, at: at})
		return nil
	})
}

func (l *queueLook) readForget() error {
	return l.each(kindForget, func(rest, _ []byte) error {
		l.counted.forgetting++
		if len(rest) < timeLength {
			l.suspect(rest)
		}
		return nil
	})
}

// readUnknown looks at what is between the kinds.
func (l *queueLook) readUnknown() error {
	kinds := []byte{kindDue, kindForget, kindLease, kindMessage, kindMeta, kindRemembered, kindRecord, kindDead, 0xff}
	from := byte(0)
	for _, kind := range kinds {
		next := false
		err := l.over(appendKey(nil, l.number, from), appendKey(nil, l.number, kind), func(key, _ []byte) error {
			l.unknown.add(key, next)
			next = true
			return nil
		})
		if err != nil {
			return err
		}
		from = kind + 1
	}
	next := false // behind the one key of kindMeta
	return l.over(append(appendKey(nil, l.number, kindMeta), 0), appendKey(nil, l.number, kindMeta+1), func(key, _ []byte) error {
		l.unknown.add(key, next)
		next = true
		return nil
	})
}

// splitTime reads what follows the prefix in the key of an entry.
func splitTime(rest []byte) (at int64, id []byte, ok bool) {
	if len(rest) < timeLength {
		return 0, nil, false
	}
	return readTime(rest), rest[timeLength:], true
}

// wrongCounters tells which counters are wrong.
func (l *queueLook) wrongCounters() (n int64, text string) {
	if l.metaErr != nil {
		return 1, fmt.Sprintf("the counters cannot be read (%v)", l.metaErr)
	}
	c, m := &l.counted, &l.meta
	for _, x := range []struct {
		name      string
		has, want int64
		wrong     bool
	}{
		{"due", m.due, c.due, m.due != c.due},
		{"ready", m.ready, c.ready, m.ready != c.ready},
		{"dead", m.dead, c.dead, m.dead != c.dead},
		{"remembered", m.forgetting, c.forgetting, m.forgetting != c.forgetting},
		{"earliest due time", m.head, c.head, c.due > 0 && m.head > c.head},
		{"longest message", m.longest, c.longest, m.longest < c.longest},
	} {
		if x.wrong {
			if n++; text != "" {
				text += ", "
			}
			text += fmt.Sprintf("%s is %d instead of %d", x.name, x.has, x.want)
		}
	}
	return n, "counters are wrong: " + text
}
