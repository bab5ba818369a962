package diskstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// The issues of a queue.
var (
	issueName        = issue{"names", "names without a queue of their own"}
	issueKey         = issue{"keys", "keys of an unknown kind"}
	issueShortKey    = issue{"keys", "keys of an index that are too short"}
	issueBadLease    = issue{"leases", "leases that cannot be read"}
	issueTwoLeases   = issue{"leases", "messages held by two leases"}
	issueLease       = issue{"leases", "messages whose lease contradicts their record"}
	issueDeadLeased  = issue{"states", "dead messages that a lease holds"}
	issueUnreadable  = issue{"unreadable", "messages that cannot be read and are not dead"}
	issueRecord      = issue{"records", "records that cannot be read"}
	issueMissing     = issue{"states", "messages missing where they should be listed"}
	issueMisplaced   = issue{"states", "messages listed where they should not be"}
	issueOrphanDue   = issue{"orphans", "entries by due time without a message"}
	issueOrphanDead  = issue{"orphans", "entries by time of death without a message"}
	issueOrphan      = issue{"orphans", "records without a message"}
	issueOrphanLease = issue{"orphans", "places in leases without a message"}
	issueRemembered  = issue{"remembered", "remembered ids whose time cannot be read"}
	issueForget      = issue{"remembered", "remembered ids that would never be forgotten"}
)

// checkQueue checks a queue, and repairs it if it has an issue. The name is "" for a number without one.
func (e *examiner) checkQueue(name string, number uint32) error {
	c, err := e.readQueue(name, number)
	switch {
	case err != nil && (e.s.hasFailed() || !errors.Is(err, store.ErrCorrupt)):
		return err
	case err != nil: // a damaged file, which concerns this queue only
		e.report(store.Finding{Severity: store.SeverityError, Check: "tables", Queue: name, Count: 1,
			Text: err.Error(), Advice: e.s.recoverAdvice()})
		return nil
	case name == "" && c.messages == 0:
		c.issues = nil
		c.note("names", 1, fmt.Sprintf("number %d has keys, and neither a name nor a message", number))
		if e.repair {
			err = e.step(func(t *tx) error { return t.removeNumber(number) })
		}
	case name == "":
		name = fmt.Sprintf("recovered-%d", number)
		c.note("names", 1, fmt.Sprintf("number %d has %d messages and no name: a repair names it %s", number, c.messages, name))
		if e.repair {
			err = e.step(func(t *tx) error { name = t.nameQueue(number); return nil })
		}
		fallthrough
	case len(c.issues) > 0:
		if e.repair && err == nil {
			err = e.rebuild(name, number)
		}
	default:
		e.report(store.Finding{Severity: store.SeverityOK, Check: "queue", Queue: name, Count: c.messages,
			Text: fmt.Sprintf("messages: %d (%d scheduled or ready, %d leased, %d dead); each is in its place, and the counters "+
				"are right", c.messages, c.counted.due, len(c.held), c.counted.dead)})
	}
	if errors.Is(err, errGone) {
		return nil
	}
	if err == nil {
		c.report(name, e.repair, e.report)
	}
	return err
}

func (e *examiner) readQueue(name string, number uint32) (*queueCheck, error) {
	snapshot, err := e.snapshot(name)
	if err != nil {
		return nil, err
	}
	c := &queueCheck{queueReader: queueReader{reader: reader{s: e.s, src: snapshot}, ctx: e.ctx, number: number},
		seed: maphash.MakeSeed(), want: map[byte]sum{}, have: map[byte]sum{}}
	return c, e.s.closeSnapshot(snapshot, c.run())
}

// queueReader reads a queue in a snapshot.
type queueReader struct {
	reader
	ctx    context.Context
	number uint32
	read   int // keys

	leases    []*lease
	held      map[string]*holding
	badLeases []string
	twoLeases []string // messages that a second lease holds
}

// holding is a leased message. Of several leases it is in the one that ends last.
type holding struct {
	*member
	found  bool // there is such a message
	leased bool // and its own record does not say otherwise
}

// each calls f for the keys of a kind, without their prefix.
func (r *queueReader) each(kind byte, f func(rest, value []byte) error) error {
	return r.eachKey(appendKey(nil, r.number, kind), appendKey(nil, r.number, kind+1), func(key, value []byte) error {
		return f(key[prefixLength:], value)
	})
}

func (r *queueReader) eachKey(from, to []byte, f func(key, value []byte) error) error {
	it, err := r.iterate(from, to)
	if err != nil {
		return err
	}
	for valid := it.First(); valid && err == nil; valid = it.Next() {
		if r.read++; r.read%10_000 == 0 {
			err = r.s.interrupted(r.ctx)
		}
		if err == nil {
			err = f(it.Key(), it.Value())
		}
	}
	return r.end(it, err)
}

func (r *queueReader) readLeases() error {
	r.held = map[string]*holding{}
	return r.each(kindLease, func(id, value []byte) error {
		l, err := parseLease(string(id), value)
		if err != nil {
			r.badLeases = append(r.badLeases, string(id))
			return nil
		}
		r.leases = append(r.leases, l)
		for _, m := range l.members {
			if m == nil {
				continue
			}
			other := r.held[m.id]
			if other != nil {
				r.twoLeases = append(r.twoLeases, m.id)
			}
			if other == nil || other.lease.deadline < l.deadline {
				r.held[m.id] = &holding{member: m}
			}
		}
		return nil
	})
}

// eachMessage calls f for each message with its record, and orphan for each record without message.
func (r *queueReader) eachMessage(f func(id, value []byte, s messageState) error, orphan func(id []byte) error) error {
	records, err := r.iterate(appendKey(nil, r.number, kindRecord), appendKey(nil, r.number, kindRecord+1))
	if err != nil {
		return err
	}
	valid := records.First()
	orphansBefore := func(id []byte) (err error) {
		for valid && err == nil && (id == nil || bytes.Compare(records.Key()[prefixLength:], id) < 0) {
			err = orphan(records.Key()[prefixLength:])
			valid = records.Next()
		}
		return err
	}
	err = r.each(kindMessage, func(id, value []byte) error {
		if err := orphansBefore(id); err != nil {
			return err
		}
		stored := valid && bytes.Equal(records.Key()[prefixLength:], id)
		if !stored {
			return f(id, value, parseState(value, nil, false))
		}
		err := f(id, value, parseState(value, records.Value(), true))
		valid = records.Next()
		return err
	})
	if err == nil {
		err = orphansBefore(nil)
	}
	return r.end(records, err)
}

// messageState is what the bytes of a message and of its record say.
type messageState struct {
	record    record
	short     bool // the message has no due time
	badRecord bool // its record cannot be read
}

func parseState(value, stored []byte, isStored bool) (s messageState) {
	m, err := parseMessage(value[:min(len(value), timeLength)])
	s.short = err != nil
	s.record = record{due: m.due}
	if isStored {
		if r, err := parseRecord(stored); err == nil {
			s.record = r
		} else {
			s.record.stored, s.badRecord = true, true
		}
	}
	return s
}

// location is where a message is listed: in which index, when, and with which note of a record.
type location struct {
	kind   byte // kindDue or kindDead, or kindLease for none
	at     int64
	stored bool
}

// location returns where the message should be. It is unknown when what says so cannot be read.
func (s *messageState) location(held bool) (l location, known bool) {
	switch {
	case s.badRecord || s.short && !s.record.stored:
		return location{}, false
	case s.record.deadReason != "":
		return location{kind: kindDead, at: s.record.diedAt}, true
	case held:
		return location{kind: kindLease}, true
	}
	return location{kindDue, s.record.due, s.record.stored}, true
}

// isUnreadable reports whether a claim could not return a message.
func isUnreadable(value []byte) bool {
	m, err := parseMessage(value)
	return err != nil || envelope.Decode(m.envelope, &store.Message{}) != nil
}

// queueCheck checks a queue. Where each message should be is compared with what the indexes hold by sums of hashes, so
// that a sound queue is read once, and in bounded memory. Only where a sum differs, a second pass looks up each
// message's entry, and each entry's message.
type queueCheck struct {
	queueReader
	issues
	seed       maphash.Seed
	meta       meta
	counted    meta
	messages   int64
	want, have map[byte]sum // by the kind of index
}

// sum is the number of entries of an index and the sum of their hashes.
type sum struct {
	n    int64
	hash uint64
}

func (c *queueCheck) addTo(sums map[byte]sum, l location, id []byte) {
	var h maphash.Hash
	h.SetSeed(c.seed)
	h.WriteByte(boolByte(l.stored))
	h.Write(appendTime(nil, l.at))
	h.Write(id)
	s := sums[l.kind]
	sums[l.kind] = sum{s.n + 1, s.hash + h.Sum64()}
}

func (c *queueCheck) run() error {
	metaErr := corrupt("there are none")
	_, err := c.view(appendKey(nil, c.number, kindMeta), func(value []byte) error {
		c.meta, metaErr = parseMeta(value)
		return nil
	})
	if err != nil {
		return err
	}
	c.counted = meta{mark: c.meta.mark, head: never}
	for _, step := range []func() error{c.checkLeases, c.checkMessages, c.readIndexes, c.checkRemembered, c.checkUnknown} {
		if err := step(); err != nil {
			return err
		}
	}
	c.compareCounters(metaErr)
	if err := c.findMismatches(kindDue, issueOrphanDue); err != nil {
		return err
	}
	return c.findMismatches(kindDead, issueOrphanDead)
}

func (c *queueCheck) checkLeases() error {
	err := c.readLeases()
	for _, id := range c.badLeases {
		c.add(issueBadLease, id)
	}
	for _, id := range c.twoLeases {
		c.add(issueTwoLeases, id)
	}
	return err
}

func (c *queueCheck) checkMessages() error {
	err := c.eachMessage(func(id, value []byte, s messageState) error {
		c.messages++
		h := c.held[string(id)]
		if s.badRecord {
			c.add(issueRecord, string(id))
		}
		if s.short || s.record.deadReason == "" && isUnreadable(value) {
			c.add(issueUnreadable, string(id))
		}
		l, known := s.location(h != nil)
		if known && l.kind != kindLease {
			c.addTo(c.want, l, id)
		}
		switch {
		case h == nil:
			return nil
		case l.kind == kindDead:
			c.add(issueDeadLeased, string(id))
		case h.record.stored != s.record.stored || !s.record.stored && h.record.due != s.record.due:
			c.add(issueLease, string(id))
		}
		h.found = true
		return nil
	}, func(id []byte) error {
		c.add(issueOrphan, string(id))
		return nil
	})
	for id, h := range c.held {
		if !h.found && err == nil {
			c.add(issueOrphanLease, id)
		}
	}
	return err
}

// readIndexes counts and sums the entries of the indexes.
func (c *queueCheck) readIndexes() error {
	for _, kind := range []byte{kindDue, kindDead, kindForget} {
		err := c.each(kind, func(rest, value []byte) error {
			if len(rest) < timeLength {
				c.add(issueShortKey, fmt.Sprintf("%c%x", kind, rest))
				return nil
			}
			at := readTime(rest)
			c.addTo(c.have, location{kind, at, len(value) > 0}, rest[timeLength:])
			if kind == kindDue {
				c.counted.head = min(c.counted.head, at)
				if at <= c.counted.mark {
					c.counted.ready++
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	c.counted.due, c.counted.dead, c.counted.remembered = c.have[kindDue].n, c.have[kindDead].n, c.have[kindForget].n
	return nil
}

// checkRemembered checks that each remembered id has an entry at the time until which it is remembered. An entry alone
// is no issue: an id may be remembered anew, until another time.
func (c *queueCheck) checkRemembered() error {
	err := c.each(kindRemembered, func(id, value []byte) error {
		if len(value) == timeLength {
			c.addTo(c.want, location{kind: kindForget, at: readTime(value)}, id)
		} else {
			c.add(issueRemembered, string(id))
		}
		return nil
	})
	if err != nil || c.want[kindForget] == c.have[kindForget] {
		return err
	}
	return c.each(kindRemembered, func(id, value []byte) error {
		if len(value) != timeLength {
			return nil
		}
		ok, err := c.has(appendTimeKey(nil, c.number, kindForget, entry{readTime(value), string(id)}))
		if err == nil && !ok {
			c.add(issueForget, string(id))
		}
		return err
	})
}

func (c *queueCheck) checkUnknown() error {
	for _, r := range unknownRanges(c.number) {
		err := c.eachKey(r.from, r.to, func(key, _ []byte) error {
			c.add(issueKey, fmt.Sprintf("%x", key))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

type keyRange struct{ from, to []byte }

// unknownRanges returns the ranges of a queue's keys that are empty in a sound queue.
func unknownRanges(number uint32) (all []keyRange) {
	from := numberKey(number)
	for _, kind := range []byte{kindDue, kindForget, kindLease, kindMessage, kindMeta, kindRemembered, kindRecord, kindDead} {
		all = append(all, keyRange{from, appendKey(nil, number, kind)})
		from = appendKey(nil, number, kind+1)
		if kind == kindMeta { // a single key
			from = append(appendKey(nil, number, kind), 0)
		}
	}
	return append(all, keyRange{from, numberKey(number + 1)})
}

func (c *queueCheck) compareCounters(metaErr error) {
	if metaErr != nil {
		c.note("counters", 1, fmt.Sprintf("the counters cannot be read (%v); a repair counts anew, and pauses the queue if it "+
			"cannot read whether it was paused", metaErr))
		return
	}
	n, text := int64(0), "counters are wrong: "
	compare := func(name string, has, want int64, equal bool) {
		if equal {
			return
		}
		if n++; n > 1 {
			text += ", "
		}
		text += fmt.Sprintf("%s is %d instead of %d", name, has, want)
	}
	has, want := &c.meta, &c.counted
	compare("due", has.due, want.due, has.due == want.due)
	compare("ready", has.ready, want.ready, has.ready == want.ready)
	compare("dead", has.dead, want.dead, has.dead == want.dead)
	compare("remembered", has.remembered, want.remembered, has.remembered == want.remembered)
	compare("earliest due time", has.head, want.head, want.due == 0 || has.head <= want.head)
	if n > 0 {
		c.note("counters", n, text)
	}
}

// findMismatches finds the messages and the entries of an index that do not match, if the sums differ.
func (c *queueCheck) findMismatches(kind byte, orphan issue) error {
	if c.want[kind] == c.have[kind] {
		return nil
	}
	err := c.eachMessage(func(id, _ []byte, s messageState) error {
		l, known := s.location(c.held[string(id)] != nil)
		if !known || l.kind != kind {
			return nil
		}
		right := false
		key := appendTimeKey(c.key[:0], c.number, kind, entry{l.at, string(id)})
		_, err := c.view(key, func(value []byte) error {
			right = (len(value) > 0) == l.stored
			return nil
		})
		if err == nil && !right {
			c.add(issueMissing, string(id))
		}
		return err
	}, func([]byte) error { return nil })
	if err != nil {
		return err
	}
	return c.each(kind, func(rest, _ []byte) error {
		if len(rest) < timeLength {
			return nil
		}
		id := string(rest[timeLength:])
		s, ok, err := c.state(id)
		l, known := s.location(c.held[id] != nil)
		switch {
		case err != nil:
			return err
		case !ok:
			c.add(orphan, id)
		case known && (l.kind != kind || l.at != readTime(rest)):
			c.add(issueMisplaced, id)
		}
		return nil
	})
}

// state returns the state of a message, and reports whether there is one.
func (c *queueCheck) state(id string) (s messageState, ok bool, err error) {
	record, stored, err := c.get(appendIDKey(c.key[:0], c.number, kindRecord, id))
	if err != nil {
		return s, false, err
	}
	ok, err = c.view(appendIDKey(c.key[:0], c.number, kindMessage, id), func(value []byte) error {
		s = parseState(value, record, stored)
		return nil
	})
	return s, ok, err
}
