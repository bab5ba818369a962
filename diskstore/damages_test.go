package diskstore

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/internal/codec"
	"github.com/laterq/later/store"
)

// raw changes keys of queue q behind the store's back.
type raw struct {
	t      *testing.T
	s      *Store
	number uint32
}

func (r raw) set(key, value []byte) {
	r.t.Helper()
	if err := r.s.db.Set(key, value, pebble.NoSync); err != nil {
		r.t.Fatal(err)
	}
}

func (r raw) remove(key []byte) {
	r.t.Helper()
	if err := r.s.db.Delete(key, pebble.NoSync); err != nil {
		r.t.Fatal(err)
	}
}

func (r raw) get(key []byte) []byte {
	r.t.Helper()
	value, closer, err := r.s.db.Get(key)
	if err != nil {
		r.t.Fatal(err)
	}
	defer closer.Close()
	return slices.Clone(value)
}

func (r raw) id(kind byte, id string) []byte { return appendIDKey(nil, r.number, kind, id) }

func (r raw) time(kind byte, at int64, id string) []byte {
	return appendTimeKey(nil, r.number, kind, entry{at, id})
}

// due returns when a message was sent to be due.
func (r raw) due(id string) int64 { return readTime(r.get(r.id(kindMessage, id))) }

func (r raw) record(id string) record {
	r.t.Helper()
	record, err := parseRecord(r.get(r.id(kindRecord, id)))
	if err != nil {
		r.t.Fatal(err)
	}
	return record
}

func (r raw) meta(change func(m *meta)) {
	r.t.Helper()
	m, err := parseMeta(r.get(appendKey(nil, r.number, kindMeta)))
	if err != nil {
		r.t.Fatal(err)
	}
	change(&m)
	r.set(appendKey(nil, r.number, kindMeta), codec.Append(nil, &m))
}

// lease returns the id and value of the only lease.
func (r raw) lease() (id string, value []byte) {
	r.t.Helper()
	it, err := r.s.db.NewIter(&pebble.IterOptions{LowerBound: r.id(kindLease, ""), UpperBound: r.id(kindLease+1, "")})
	if err != nil {
		r.t.Fatal(err)
	}
	defer it.Close()
	if !it.First() {
		r.t.Fatal("there is no lease")
	}
	return string(it.Key()[prefixLength:]), slices.Clone(it.Value())
}

// damages are all kinds of damage to the keys of a store, each alone.
var damages = []struct {
	name   string
	damage func(r raw)
	checks string            // of the results, in order
	states map[string]string // messages that are elsewhere after the recovery: a state, or "" for none
	queue  string            // "q" is called this after the recovery
}{
	{
		name:   "counter of due",
		checks: "counters",
		damage: func(r raw) { r.meta(func(m *meta) { m.Due += 5 }) },
	},
	{
		name:   "counter of due is zero",
		checks: "counters",
		damage: func(r raw) { r.meta(func(m *meta) { m.Due = 0 }) },
	},
	{name: "counter of dead", checks: "counters", damage: func(r raw) { r.meta(func(m *meta) { m.Dead = 0 }) }},
	{
		name:   "counter of remembered",
		checks: "counters",
		damage: func(r raw) { r.meta(func(m *meta) { m.Remembered = 0 }) },
	},
	{
		name:   "counter of messages in groups",
		checks: "counters",
		damage: func(r raw) { r.meta(func(m *meta) { m.Grouped = 9 }) },
	},
	{
		name:   "entry of a group without message",
		checks: "indexes",
		damage: func(r raw) { r.set(r.time(kindGroup, groupNumber("g"), "nobody"), nil) },
	},
	{
		name:   "message missing from its group",
		checks: "indexes",
		damage: func(r raw) { r.remove(r.time(kindGroup, groupNumber("g"), "s2")) },
	},
	{
		name:   "message in another group",
		checks: "indexes",
		damage: func(r raw) {
			r.remove(r.time(kindGroup, groupNumber("g"), "r2"))
			r.set(r.time(kindGroup, groupNumber("h"), "r2"), nil)
		},
	},
	{
		name:   "lease without the group of its message",
		checks: "leases",
		damage: func(r raw) {
			id, value := r.lease()
			l, err := parseLease(id, value)
			if err != nil {
				r.t.Fatal(err)
			}
			for _, m := range l.members {
				m.group = 0
			}
			r.set(r.id(kindLease, id), appendLease(nil, l))
		},
	},
	{name: "earliest is too late", checks: "counters", damage: func(r raw) { r.meta(func(m *meta) { m.Head += 1e9 }) }},
	{
		name:   "retention that is not possible",
		checks: "counters",
		damage: func(r raw) {
			r.meta(func(m *meta) { m.Retention = store.Retention{MaxAge: -1, MaxCount: store.MaxDeadCount + 1} })
		},
	},
	{name: "no counters", checks: "counters", damage: func(r raw) { r.remove(appendKey(nil, r.number, kindMeta)) }},
	{
		name:   "counters of another format",
		checks: "counters",
		damage: func(r raw) { r.set(appendKey(nil, r.number, kindMeta), []byte("x")) },
	},
	{
		name:   "due entry without message",
		checks: "indexes",
		damage: func(r raw) { r.set(r.time(kindDue, 5, "nobody"), nil) },
	},
	{
		name:   "dead entry without message",
		checks: "indexes",
		damage: func(r raw) { r.set(r.time(kindDead, 5, "nobody"), nil) },
	},
	{name: "original without successor", checks: "keys", damage: func(r raw) {
		r.set(r.id(kindOriginal, "l1"), r.get(r.id(kindMessage, "l1")))
		r.set(r.id(kindOriginal, "nobody"), nil)
	}},
	{name: "record without message", checks: "keys", damage: func(r raw) {
		r.set(r.id(kindRecord, "nobody"), appendRecord(nil, &record{due: 7}))
	}},
	{
		name:   "message without its bytes",
		checks: "indexes counters",
		states: map[string]string{"r1": ""},
		damage: func(r raw) { r.remove(r.id(kindMessage, "r1")) },
	},
	{
		name:   "dead message without its bytes",
		checks: "keys indexes counters",
		states: map[string]string{"d1": ""},
		damage: func(r raw) { r.remove(r.id(kindMessage, "d1")) },
	},
	{
		name:   "leased message without its bytes",
		checks: "leases",
		states: map[string]string{"l1": ""},
		damage: func(r raw) { r.remove(r.id(kindMessage, "l1")) },
	},
	{
		name:   "scheduled in no state",
		checks: "indexes",
		damage: func(r raw) { r.remove(r.time(kindDue, r.due("s1"), "s1")) },
	},
	{name: "ready in no state", checks: "indexes", damage: func(r raw) { r.remove(r.time(kindDue, r.due("r1"), "r1")) }},
	{
		name:   "tried and in no state",
		checks: "indexes",
		damage: func(r raw) { r.remove(r.time(kindDue, r.record("n1").due, "n1")) },
	},
	{
		name:   "dead in no state",
		checks: "indexes",
		damage: func(r raw) { r.remove(r.time(kindDead, r.record("d1").diedAt, "d1")) },
	},
	{name: "due twice", checks: "indexes", damage: func(r raw) { r.set(r.time(kindDue, 5, "s1"), nil) }},
	{name: "due and dead", checks: "indexes", damage: func(r raw) { r.set(r.time(kindDead, 5, "r1"), nil) }},
	{name: "dead and due", checks: "indexes", damage: func(r raw) {
		r.set(r.time(kindDue, 5, "d1"), []byte{dueStored})
	}},
	{name: "leased and due", checks: "indexes", damage: func(r raw) { r.set(r.time(kindDue, r.due("l1"), "l1"), nil) }},
	{
		name:   "leased and dead",
		checks: "leases indexes counters",
		states: map[string]string{"l1": "dead"},
		damage: func(r raw) {
			died := record{due: r.due("l1"), deadReason: store.DeadFailed, diedAt: 77}
			r.set(r.id(kindRecord, "l1"), appendRecord(nil, &died))
		},
	},
	{name: "listed at another time", checks: "indexes", damage: func(r raw) {
		r.remove(r.time(kindDue, r.due("s1"), "s1"))
		r.set(r.time(kindDue, r.due("s1")+1, "s1"), nil)
	}},
	{
		name:   "entry that says nothing of the record",
		checks: "indexes",
		damage: func(r raw) { r.set(r.time(kindDue, r.record("n1").due, "n1"), nil) },
	},
	{
		name:   "no lease",
		checks: "indexes counters",
		states: map[string]string{"l1": "ready", "l2": "ready"},
		damage: func(r raw) {
			id, _ := r.lease()
			r.remove(r.id(kindLease, id))
		},
	},
	{
		name:   "lease of another format",
		checks: "leases indexes counters",
		states: map[string]string{"l1": "ready", "l2": "ready"},
		damage: func(r raw) {
			id, _ := r.lease()
			r.set(r.id(kindLease, id), []byte("lease"))
		},
	},
	{name: "two leases", checks: "leases", damage: func(r raw) {
		id, value := r.lease()
		r.set(r.id(kindLease, id+"too"), value)
	}},
	{name: "lease with another due time", checks: "leases", damage: func(r raw) {
		id, value := r.lease()
		l, err := parseLease(id, value)
		try(r.t, err)
		l.members[0].record.due ^= 1
		r.set(r.id(kindLease, id), appendLease(nil, l))
	}},
	{
		name:   "unreadable message",
		checks: "unreadable indexes counters",
		states: map[string]string{"r1": "dead"},
		damage: func(r raw) {
			r.set(r.id(kindMessage, "r1"), append(appendTime(nil, r.due("r1")), "\xffbytes"...))
		},
	},
	{
		name:   "unreadable leased message",
		checks: "unreadable leases indexes counters",
		states: map[string]string{"l1": "dead"},
		damage: func(r raw) {
			r.set(r.id(kindMessage, "l1"), append(appendTime(nil, r.due("l1")), "\xffbytes"...))
		},
	},
	{
		name:   "message without due time",
		checks: "unreadable indexes counters",
		states: map[string]string{"r1": "dead"},
		damage: func(r raw) {
			r.set(r.id(kindMessage, "r1"), []byte("\x00abc"))
		},
	},
	{
		name:   "record of another format",
		checks: "unreadable indexes",
		states: map[string]string{"n1": "ready"},
		damage: func(r raw) { r.set(r.id(kindRecord, "n1"), []byte("x")) },
	},
	{
		name:   "dead record of another format",
		checks: "unreadable indexes counters",
		states: map[string]string{"d1": "ready"},
		damage: func(r raw) { r.set(r.id(kindRecord, "d1"), []byte("x")) },
	},
	{name: "leased record of another format", checks: "unreadable leases", damage: func(r raw) {
		r.set(r.id(kindRecord, "l1"), []byte("x"))
	}},
	{name: "remembered for ever", checks: "remembered counters", damage: func(r raw) {
		r.remove(r.time(kindForget, readTime(r.get(r.id(kindRemembered, "gone"))), "gone"))
	}},
	{
		name:   "remembered until nobody knows",
		checks: "remembered",
		damage: func(r raw) { r.set(r.id(kindRemembered, "gone"), []byte("x")) },
	},
	{
		name:   "send with a key that nobody can read",
		checks: "remembered",
		damage: func(r raw) { r.set(r.id(kindRemembered, oncePrefix+"0123456789abcdef"), []byte("x")) },
	},
	{name: "outbox that nobody can read", checks: "outbox", damage: func(r raw) {
		r.set(r.id(kindOutbox, ""), []byte("x"))
		r.set(r.id(kindArrived, "q{g}a"), []byte("x"))
		r.set(r.id(kindArrived, ""), binary.BigEndian.AppendUint64(nil, 1))
	}},
	{
		name:   "sign at the name of a queue",
		checks: "names names",
		queue:  "recovered-1",
		damage: func(r raw) { r.set(appendIDKey(nil, 0, kindSign, "q"), []byte("sign")) },
	},
	{name: "sign without a text", checks: "keys", damage: func(r raw) {
		r.set(appendIDKey(nil, 0, kindSign, "q"), nil)
	}},
	{name: "short keys", checks: "indexes counters", damage: func(r raw) {
		r.set(r.id(kindDue, "a"), nil)
		r.set(r.id(kindDead, "b"), nil)
		r.set(r.id(kindForget, ""), nil)
	}},
	{name: "unknown kinds", checks: "keys keys", damage: func(r raw) {
		r.set(r.id('a', "x"), nil)
		r.set(r.id('a', "y"), nil)
		r.set(r.id('z', "x"), nil)
		r.set(r.id(kindMeta, "x"), nil)
		r.set(r.id(0xff, "x"), nil)
		r.set([]byte{0, 0, 0, 0, 'a'}, nil)
		r.set([]byte{0, 0}, nil)
	}},
	{
		name:   "no name",
		checks: "names",
		queue:  "recovered-1",
		damage: func(r raw) { r.remove(appendIDKey(nil, 0, kindName, "q")) },
	},
	{name: "name of no number", checks: "names names", queue: "recovered-1", damage: func(r raw) {
		r.set(appendIDKey(nil, 0, kindName, "q"), []byte("one"))
	}},
	{
		name:   "two names",
		checks: "names",
		damage: func(r raw) { r.set(appendIDKey(nil, 0, kindName, "qq"), numberKey(r.number)) },
	},
	{
		name:   "number of nobody",
		checks: "indexes counters names",
		damage: func(r raw) { r.set(appendIDKey(nil, 77, kindDue, "123456x"), nil) },
	},
}
