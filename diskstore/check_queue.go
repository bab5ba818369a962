package diskstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// errGone is returned when the queue was deleted meanwhile.
var errGone = errors.New("the queue is gone")

// checkQueue checks a queue, and repairs it if it has an issue. The name is "" for a number without one.
func (e *checker) checkQueue(name string, number uint32) error {
	c, err := e.scanQueue(name, number)
	if errors.Is(err, store.ErrCorrupt) && !e.s.hasFailed() { // a damaged file, which concerns this queue only
		e.report(store.CheckResult{Severity: store.SeverityError, Check: "tables", Queue: name, Count: 1,
			Text: err.Error(), Advice: e.s.recoverAdvice()})
		return nil
	}
	found := c.issues
	switch {
	case err != nil:
	case name == "":
		name = fmt.Sprintf("recovered-%d", number)
		found.note("names", 1, fmt.Sprintf("number %d has keys and no name: a repair names it %s", number, name))
		if e.repair {
			err = e.step("", false, func(t *tx) error { name = t.nameQueue(number); return nil })
		}
		fallthrough
	case len(found) > 0:
		if e.repair && err == nil {
			c, err = e.rebuild(name, number)
		}
	}
	if err != nil {
		if errors.Is(err, errGone) {
			err = nil
		}
		return err
	}
	found.report(name, e.repair, e.report)
	if e.repair || len(found) == 0 {
		e.ok("queue", name, c.messages, "messages: %d (%d scheduled or ready, %d leased, %d dead), each in its place",
			c.messages, c.meta.due, c.messages-c.meta.due-c.meta.dead, c.meta.dead)
	}
	return nil
}

// scanQueue finds the issues of a queue.
func (e *checker) scanQueue(name string, number uint32) (*scan, error) {
	c := newScan(e, number)
	err := e.inSnapshot(&c.reader, name, false, func(t *tx) error {
		c.now = t.now
		if name == "" {
			return nil
		}
		q, err := t.same(name, number)
		if err == nil && q.damage == nil {
			q.cells.fold(q.due.n)
			c.cells, c.counted = cellCheck{all: q.cells.all}, q.cells.known
		}
		return err
	}, c.check)
	return c, err
}

// same returns a queue, or errGone when its name has another number by now.
func (t *tx) same(name string, number uint32) (*queue, error) {
	q := t.s.queues[name]
	if q == nil || q.number != number {
		return nil, errGone
	}
	return q, nil
}

// scan reads a queue in a snapshot once, and finds out what it should hold: the indexes and the counters follow from
// the messages, their records, the leases and the remembered ids. A repair writes that. A check compares it with what
// the queue holds; the indexes by sums of hashes, in bounded memory.
type scan struct {
	reader
	ctx    context.Context
	number uint32
	now    int64                         // when the snapshot was taken
	write  func(key, value []byte) error // removes a key without a value; a check does neither

	issues
	messages   int64
	meta       meta // what the counters should be
	leases     []*lease
	held       map[string]*member // messages that are in a lease and were not found yet
	followed   map[string]bool    // held messages that have a successor
	records    *pebble.Iterator   // at the next record, if there are more
	more       bool
	seed       maphash.Seed
	want, have [256]sum // by the kind of index
	cells      cellCheck
	counted    bool // cells are known
}

// sum is the number of entries of an index and the sum of their hashes.
type sum struct {
	n    int64
	hash uint64
}

func newScan(e *checker, number uint32) *scan {
	return &scan{reader: reader{s: e.s}, ctx: e.ctx, number: number, meta: meta{head: never}, held: map[string]*member{},
		followed: map[string]bool{},
		seed:     maphash.MakeSeed(), write: func(key, value []byte) error { return nil }}
}

// run reads the queue. The keys of leases come before those of messages, and these before those of originals.
func (c *scan) run() error {
	it, err := c.iterate(numberKey(c.number), numberKey(c.number+1))
	if err != nil {
		return err
	}
	c.records, err = c.iterate(appendKey(nil, c.number, kindRecord), appendKey(nil, c.number, kindRecord+1))
	if err != nil {
		return c.end(it, err)
	}
	c.more = c.records.First()
	n := 0
	for valid := it.First(); valid && err == nil; valid = it.Next() {
		if n++; n%10_000 == 0 {
			err = c.s.interrupted(c.ctx)
		}
		if err == nil {
			err = c.visit(it.Key(), it.Value())
		}
	}
	if err = c.end(it, err); err == nil {
		err = c.removeRecords(nil)
	}
	if err == nil {
		err = c.fixLeases()
	}
	return c.end(c.records, err)
}

func (c *scan) visit(key, value []byte) error {
	if len(key) < prefixLength {
		return c.fix("keys", fmt.Sprintf("%x", key), key, nil)
	}
	kind, rest := key[prefixLength-1], key[prefixLength:]
	switch {
	case kind == kindDue:
		c.have[kind].add(c.seed, rest, len(value) > 0)
		if len(rest) >= timeLength {
			c.cells.add(readTime(rest))
		}
	case kind == kindDead, kind == kindForget, kind == kindGroup:
		c.have[kind].add(c.seed, rest, len(value) > 0)
	case kind == kindLease:
		return c.lease(key, value)
	case kind == kindMessage:
		return c.message(rest, value)
	case kind == kindRemembered && !isRemembered(rest, value):
		return c.fix("remembered", string(rest), key, nil)
	case kind == kindRemembered:
		c.meta.remembered++
		return c.entry(kindForget, readTime(value), string(rest), false)
	case kind == kindRecord: // read with its message
	case kind == kindOriginal && c.followed[string(rest)]:
	case kind == kindMeta && len(rest) == 0:
	case kind == kindProperty && len(rest) > 0 && len(value) > 0:
	case kind == kindCells && len(rest) == 0: // compared as they are in memory
	case kind == kindActivity && len(rest) == 0 && soundActivity(value):
	default:
		return c.fix("keys", fmt.Sprintf("%x", key), key, nil)
	}
	return nil
}

// fix notes an issue that a repair fixes by writing a value, or by removing the key.
func (c *scan) fix(check, example string, key, value []byte) error {
	c.add(check, example)
	return c.write(key, value)
}

// entry notes where a message or a remembered id should be.
func (c *scan) entry(kind byte, at int64, id string, stored bool) error {
	value := []byte{}
	if stored {
		value = withRecord
	}
	c.key = appendTimeKey(c.key[:0], c.number, kind, entry{at, id})
	c.want[kind].add(c.seed, c.key[prefixLength:], stored)
	return c.write(c.key, value)
}

func (s *sum) add(seed maphash.Seed, rest []byte, stored bool) {
	var h maphash.Hash
	h.SetSeed(seed)
	h.WriteByte(boolByte(stored))
	h.Write(rest)
	s.n++
	s.hash += h.Sum64()
}

// lease notes which messages a lease holds. Of several leases a message is in the one that ends last.
func (c *scan) lease(key, value []byte) error {
	l, err := parseLease(string(key[prefixLength:]), value)
	if err != nil {
		return c.fix("leases", string(key[prefixLength:]), key, nil)
	}
	c.leases = append(c.leases, l)
	for _, m := range l.members {
		if m == nil {
			continue
		}
		other := c.held[m.id]
		if other != nil && other.lease.deadline >= l.deadline {
			m, other = other, m
		}
		c.held[m.id] = m
		if other != nil {
			drop(other)
		}
	}
	return nil
}

func drop(m *member) { m.lease.members[m.position], m.lease.rewrite = nil, true }

// fixLeases rewrites the leases that do not match their messages.
func (c *scan) fixLeases() error {
	for _, m := range c.held { // it is dead, or does not exist
		drop(m)
	}
	for _, l := range c.leases {
		if !l.rewrite {
			continue
		}
		var value []byte
		if l.compact(); len(l.members) > 0 {
			value = appendLease(nil, l)
		}
		if err := c.fix("leases", l.id, appendIDKey(nil, c.number, kindLease, l.id), value); err != nil {
			return err
		}
	}
	return nil
}

// removeRecords removes the records before that of a message, or all others, because they have no message.
func (c *scan) removeRecords(id []byte) error {
	if err := c.records.Error(); err != nil {
		return c.s.unreadable(err)
	}
	for c.more && (id == nil || bytes.Compare(c.records.Key()[prefixLength:], id) < 0) {
		if err := c.fix("keys", fmt.Sprintf("%x", c.records.Key()), c.records.Key(), nil); err != nil {
			return err
		}
		c.more = c.records.Next()
	}
	return nil
}

// lostRecordText is the last error of a message whose record could not be read.
const lostRecordText = "its record could not be read: attempts and last error are lost"

// message notes where a message should be, after what cannot be read of it was replaced.
func (c *scan) message(id, value []byte) error {
	if err := c.removeRecords(id); err != nil {
		return err
	}
	c.messages++
	m, unreadable := parseMessage(value)
	if unreadable == nil {
		unreadable = envelope.Decode(m.envelope, &store.Message{})
	}
	r, damaged := record{due: m.due}, false
	if c.more && bytes.Equal(c.records.Key()[prefixLength:], id) {
		if stored, err := parseRecord(c.records.Value()); err == nil {
			r = stored
		} else {
			r.delivered, r.lastError, damaged = true, lostRecordText, true // rather delivered than expired
		}
		c.more = c.records.Next()
	}
	if r.deadReason == "" && unreadable != nil {
		r.deadReason, r.diedAt, r.lastError, damaged = store.DeadUnreadable, c.now, store.UnreadableText, true
	}
	name := string(id)
	if damaged {
		r.stored = true
		if err := c.fix("unreadable", name, appendIDKey(nil, c.number, kindRecord, name), appendRecord(nil, &r)); err != nil {
			return err
		}
	}
	group := int64(0)
	if unreadable == nil {
		group = groupIn(m.envelope)
	}
	if group != 0 {
		c.meta.grouped++
		if err := c.entry(kindGroup, group, name, false); err != nil {
			return err
		}
	}
	return c.place(name, &r, group)
}

// place notes where a message with a record, in a group or 0 for none, should be.
func (c *scan) place(id string, r *record, group int64) error {
	h := c.held[id]
	switch {
	case r.deadReason != "":
		c.meta.dead++
		return c.entry(kindDead, r.diedAt, id, false)
	case h != nil:
		if h.record.stored != r.stored || !r.stored && h.record.due != r.due {
			h.record, h.lease.rewrite = *r, true
		}
		if h.group != group {
			h.group, h.lease.rewrite = group, true
		}
		if h.follows {
			c.followed[id] = true
		}
		delete(c.held, id)
		return nil
	}
	c.meta.due++
	c.meta.head = min(c.meta.head, r.due)
	if r.due <= c.meta.mark {
		c.meta.ready++
	}
	return c.entry(kindDue, r.due, id, r.stored)
}

// check reads the queue and compares what it holds with what it should hold.
func (c *scan) check() error {
	stored, damage := meta{}, corrupt("there are none")
	_, err := c.view(appendKey(nil, c.number, kindMeta), func(value []byte) error {
		stored, damage = parseMeta(value)
		return nil
	})
	if err != nil {
		return err
	}
	c.meta.mark = stored.mark
	if err := c.run(); err != nil {
		return err
	}
	c.compare(&stored, damage)
	return c.checkRemembered()
}

// compare compares the indexes and the stored counters, which may be damaged, with what they should be.
func (c *scan) compare(stored *meta, damage error) {
	var indexes, counters []string
	index := func(kind byte, name string) {
		if c.have[kind] != c.want[kind] {
			indexes = append(indexes, fmt.Sprintf("%s has %d entries for %d messages", name, c.have[kind].n, c.want[kind].n))
		}
	}
	index(kindDue, "by due time")
	index(kindDead, "by time of death")
	index(kindGroup, "by group")
	if len(indexes) > 0 {
		c.note("indexes", int64(len(indexes)), "an index does not match the messages: "+strings.Join(indexes, ", "))
	}
	if damage != nil {
		c.note("counters", 1, fmt.Sprintf("the counters cannot be read (%v): a repair counts anew", damage))
		return
	}
	counter := func(name string, has, want int64) {
		if has != want {
			counters = append(counters, fmt.Sprintf("%s is %d instead of %d", name, has, want))
		}
	}
	counter("due", stored.due, c.meta.due)
	counter("ready", stored.ready, c.meta.ready)
	counter("dead", stored.dead, c.meta.dead)
	counter("in groups", stored.grouped, c.meta.grouped)
	counter("remembered", stored.remembered, c.have[kindForget].n)
	if c.meta.due > 0 { // else there is no earliest
		counter("earliest due time", max(stored.head, c.meta.head), c.meta.head)
	}
	counters = append(counters, stored.fixRetention()...)
	if len(counters) > 0 {
		c.note("counters", int64(len(counters)), "counters are wrong: "+strings.Join(counters, ", "))
	}
	// If the index or its counter is wrong, so are the counts, and a repair counts anew anyway.
	if c.counted && len(indexes) == 0 && stored.due == c.meta.due && !c.cells.end() {
		c.note("counts", 1, "the counts by due time, for histograms, are wrong: a repair counts anew")
	}
}

// checkRemembered checks that each remembered id has an entry at the time until which it is remembered. An entry
// alone is no issue: an id may be remembered anew, until another time.
func (c *scan) checkRemembered() error {
	if c.want[kindForget] == c.have[kindForget] {
		return nil
	}
	it, err := c.iterate(appendKey(nil, c.number, kindRemembered), appendKey(nil, c.number, kindRemembered+1))
	if err != nil {
		return err
	}
	for valid := it.First(); valid && err == nil; valid = it.Next() {
		id, ok := string(it.Key()[prefixLength:]), true
		if isRemembered(it.Key()[prefixLength:], it.Value()) {
			ok, err = c.has(appendTimeKey(c.key[:0], c.number, kindForget, entry{readTime(it.Value()), id}))
		}
		if err == nil && !ok {
			c.add("remembered", id)
		}
	}
	return c.end(it, err)
}
