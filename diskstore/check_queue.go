package diskstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	"github.com/laterq/later/internal/activity"
	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// checkQueue checks a queue. The name is "" for a number without one. A queue that was deleted since is passed over.
func (e *checker) checkQueue(name string, number uint32) error {
	c := &scan{meta: meta{Head: never}, held: map[string]*member{}, followed: map[string]bool{},
		keys: map[string]int{}, seed: maphash.MakeSeed()}
	gone := false
	prepare := func(t *tx, _ *queue) {
		q := t.s.queues[name]
		if gone = name != "" && (q == nil || q.number != number); gone {
			for other, renamed := range t.s.queues {
				if renamed.number == number {
					name, q, gone = other, renamed, false
				}
			}
		}
		if c.loaded = q != nil && q.damage == nil; c.loaded {
			c.flow, c.inMemory, c.lanes = q.flow, q.leased, q.lanes.inMemory(q, t.micros)
		}
	}
	_, err := read(e.ctx, e.s, "", prepare, func(v *view) (struct{}, error) {
		if c.view, v.number = v, number; gone {
			return struct{}{}, nil
		}
		return struct{}{}, c.run(e.ctx)
	})
	switch {
	case errors.Is(err, store.ErrCorrupt) && !e.s.hasFailed(): // a damaged file, which concerns this queue only
		e.report(store.CheckResult{Severity: store.SeverityError, Check: "tables", Queue: name, Count: 1,
			Text: err.Error(), Advice: e.s.recoverAdvice()})
		return nil
	case err != nil || gone:
		return err
	case name == "":
		name = recoveredName(number)
		c.note("names", 1, fmt.Sprintf("number %d has keys and no name", number))
	}
	c.issues.report(name, e.s.recoverAdvice(), e.report)
	if len(c.issues) == 0 {
		e.ok("queue", name, c.messages, "messages: %d (%d scheduled or ready, %d leased, %d dead), each in its place",
			c.messages, c.meta.Due, c.messages-c.meta.Due-c.meta.Dead, c.meta.Dead)
	}
	return nil
}

// scan reads a queue once, and derives its indexes and counters from the messages, their records, the leases and the
// remembered ids, and compares. It compares indexes by sums of hashes, in bounded memory.
type scan struct {
	*view

	issues
	messages   int64
	records    int64 // of messages, less the record keys
	stored     meta
	damage     error              // of the stored counters
	meta       meta               // the right counters
	loaded     bool               // the queue is served
	flow       flow               // its limits in memory
	inMemory   int                // as leased, in memory
	lanes      *lanesInMemory     // nil unless it is Fair
	leased     int                // messages that count against its concurrency, by the leases
	keys       map[string]int     // messages that count for each key, by the leases
	classes    classCounts        // due entries with a class
	keyFlows   int                // overrides of keys
	keyStates  int                // states of keys
	expected   int                // keys that are
	held       map[string]*member // messages that are in a lease and were not found yet
	followed   map[string]bool    // held messages that have a successor
	seed       maphash.Seed
	want, have [256]sum                               // by the kind of index
	slots      [len(slotBits)]struct{ slot, n int64 } // of the last due entry, and the number of entries in it
}

// sum is the number of entries of an index and the sum of their hashes.
type sum struct {
	n    int64
	hash uint64
}

// run reads the queue. Leases come before messages, and messages before originals.
func (c *scan) run(ctx context.Context) error {
	c.damage = corrupt("there are none")
	_, err := c.reader.view(appendKey(nil, c.number, kindMeta), func(value []byte) error {
		c.stored, c.damage = parseMeta(value)
		return nil
	})
	if err != nil {
		return err
	}
	it, err := c.iterate(numberKey(c.number), numberKey(c.number+1))
	if err != nil {
		return err
	}
	n := 0
	for valid := it.First(); valid && err == nil; valid = it.Next() {
		if n++; n%interruptEvery == 0 {
			err = c.s.interrupted(ctx)
		}
		if err == nil {
			err = c.visit(it.Key(), it.Value())
		}
	}
	if err = c.end(it, err); err == nil {
		c.compare()
	}
	return err
}

func (c *scan) visit(key, value []byte) error {
	kind, rest := byte(0), []byte(nil)
	if len(key) >= prefixLength {
		kind, rest = key[prefixLength-1], key[prefixLength:]
	}
	switch kind {
	case kindCount:
		if n, _ := binary.Varint(value); n == 0 {
			return nil
		}
		c.have[kind].add(c.seed, append(slices.Clone(rest), value...), false)
	case kindDue, kindDead, kindForget, kindGroup:
		stored, k, ok := parseDueValue(value)
		if !ok || kind != kindDue && len(value) > 0 {
			c.add("keys", fmt.Sprintf("%x", key))
		}
		if c.stored.Flow.hasClass(k.class) {
			c.classes[k.class&urgencyBits]++
		}
		c.have[kind].add(c.seed, rest, stored)
		if kind == kindDue && len(rest) >= timeLength {
			c.countDue(readTime(rest))
		}
	case kindLease:
		c.lease(string(rest), value)
	case kindMessage:
		return c.message(string(rest), value)
	case kindRecord:
		c.records--
	case kindRemembered:
		return c.rememberedID(rest, value)
	case kindKeyFlow, kindKeyState:
		return c.keyState(kind, string(rest), value)
	case kindOutbox, kindArrived:
		if !isSound(kind, rest, value) {
			c.add("outbox", cmp.Or(string(rest), "outbox"))
		}
	default:
		if !isSound(kind, rest, value) && !(kind == kindOriginal && c.followed[string(rest)]) {
			c.add("keys", fmt.Sprintf("%x", key))
		}
	}
	return nil
}

// isSound reports whether a queue can have a key of a kind that is neither of its messages nor derived from them.
func isSound(kind byte, rest, value []byte) bool {
	switch kind {
	case kindMeta:
		return len(rest) == 0
	case kindProperty:
		return len(rest) > 0 && len(value) > 0
	case kindKeyFlow:
		_, err := parseOverride(string(rest), value)
		return err == nil
	case kindKeyState:
		_, err := parseKeyState(string(rest), value)
		return err == nil
	case kindOutbox:
		o, err := parseOutbox(value)
		if err == nil {
			_, err = parseItems(o.data)
		}
		return len(rest) == 0 && err == nil
	case kindArrived:
		_, err := parseArrived(value)
		return len(rest) > 0 && err == nil
	case kindActivity:
		_, err := activity.Parse(string(value))
		return len(rest) == 0 && err == nil
	}
	return false
}

// keyState checks an override or the state of a key.
func (c *scan) keyState(kind byte, key string, value []byte) error {
	if c.damage == nil && !c.stored.Flow.Fair || !isSound(kind, []byte(key), value) {
		c.add("limits", key)
	}
	if kind == kindKeyFlow {
		c.keyFlows++
		return nil
	}
	c.keyStates++
	s, err := parseKeyState(key, value)
	c.expected += int(boolByte(s.Expected))
	if err != nil || s.Holder == "" {
		return nil
	}
	held := hold{s.Holder, s.Dead}
	ok, err := c.canHold(c.number, key, held)
	_, leased := c.followed[s.Holder]
	order := c.stored.Flow.Key.Order
	allowed := order == store.OrderHalt || order == store.OrderContinue && !s.Dead || c.damage != nil
	if inMemory := c.lanes == nil || c.lanes.holds[key] == held; !ok || leased || !allowed || !inMemory {
		c.add("holds", key)
	}
	if c.lanes != nil {
		delete(c.lanes.holds, key)
	}
	return err
}

// countDue counts a due entry in its slots. Entries come in order, and at the end a time before all.
func (c *scan) countDue(at int64) {
	for level, bits := range slotBits {
		x := &c.slots[level]
		if slot := at >> bits; slot != x.slot {
			if x.n > 0 {
				key := appendSlotKey(nil, c.number, level, x.slot<<bits)
				c.want[kindCount].add(c.seed, binary.AppendVarint(key[prefixLength:], x.n), false)
			}
			x.slot, x.n = slot, 0
		}
		x.n++
	}
}

// entry notes where a message should be.
func (c *scan) entry(kind byte, e entry, stored bool) {
	c.key = appendTimeKey(c.key[:0], c.number, kind, e)
	c.want[kind].add(c.seed, c.key[prefixLength:], stored)
}

func (s *sum) add(seed maphash.Seed, rest []byte, stored bool) {
	var h maphash.Hash
	h.SetSeed(seed)
	h.WriteByte(boolByte(stored))
	h.Write(rest)
	s.n++
	s.hash += h.Sum64()
}

// lease notes which messages a lease holds.
func (c *scan) lease(id string, value []byte) {
	l, err := parseLease(id, value)
	if err != nil {
		c.add("leases", id)
		return
	}
	if l.flow != 0 && l.flow == c.stored.Flow.ID {
		c.leased += l.left + len(l.cancelled)
	}
	if l.keyed != 0 && l.keyed == c.stored.Flow.Keyed {
		l.eachKey(func(key string) { c.keys[key]++ })
	}
	for _, m := range l.members {
		if m == nil {
			continue
		}
		if c.held[m.id] != nil {
			c.add("leases", id) // another lease holds it too
		}
		c.held[m.id], c.followed[m.id] = m, m.follows
	}
}

// message notes where a message should be.
func (c *scan) message(id string, value []byte) error {
	c.messages++
	p, err := c.reader.parsePlace(c.number, id, value, c.now)
	if err != nil {
		return err
	}
	r, h := &p.record, c.held[id]
	if p.damaged {
		c.add("unreadable", id)
	}
	if p.recorded {
		c.records++
	}
	if p.group != 0 {
		c.meta.Grouped++
		c.entry(kindGroup, entry{p.group, id}, false)
	}
	switch {
	case r.deadReason != "":
		c.meta.Dead++
		c.entry(kindDead, entry{r.diedAt, id}, false)
	case h != nil:
		if h.record.stored != r.stored || !r.stored && h.record.due != r.due || h.group != p.group {
			c.add("leases", h.lease.id)
		}
		delete(c.held, id)
	default:
		c.meta.addDue(r.due)
		c.entry(kindDue, entry{r.due, id}, r.stored)
	}
	return nil
}

// rememberedID notes a remembered id. An entry without an id is normal: an id may be remembered again, until another
// time.
func (c *scan) rememberedID(id, value []byte) error {
	ok := isRemembered(id, value)
	if ok {
		var err error
		e := entry{readTime(value), string(id)}
		if ok, err = c.has(appendTimeKey(c.key[:0], c.number, kindForget, e)); err != nil {
			return err
		}
	}
	if !ok {
		c.add("remembered", string(id))
	}
	return nil
}

// compare compares the indexes and the counters with the right ones.
func (c *scan) compare() {
	if c.records < 0 {
		c.note("keys", -c.records, fmt.Sprintf("records without a message: %d", -c.records))
	}
	for id, m := range c.held { // it is dead, or does not exist
		c.add("leases", m.lease.id+" "+id)
	}
	var wrong []string
	for _, x := range []struct {
		kind byte
		name string
	}{{kindDue, "by due time"}, {kindDead, "by time of death"}, {kindGroup, "by group"}} {
		if has, want := c.have[x.kind], c.want[x.kind]; has != want {
			wrong = append(wrong, fmt.Sprintf("%s has %d entries for %d messages", x.name, has.n, want.n))
		}
	}
	indexes := len(wrong) > 0
	if indexes {
		c.note("indexes", int64(len(wrong)), "an index does not match the messages: "+strings.Join(wrong, ", "))
	}
	if c.damage != nil {
		c.note("counters", 1, fmt.Sprintf("the counters cannot be read: %v", c.damage))
		return
	}
	wrong = nil
	counter := func(name string, has, want int64) {
		if has != want {
			wrong = append(wrong, fmt.Sprintf("%s is %d instead of %d", name, has, want))
		}
	}
	counter("due", c.stored.Due, c.meta.Due)
	counter("dead", c.stored.Dead, c.meta.Dead)
	counter("in groups", c.stored.Grouped, c.meta.Grouped)
	counter("remembered", c.stored.Remembered, c.have[kindForget].n)
	if c.meta.Due > 0 { // an empty queue has no earliest due time
		counter("earliest due time", max(c.stored.Head, c.meta.Head), c.meta.Head)
	}
	if f := c.stored.Flow; c.loaded && (c.flow.Flow != f.Flow || c.flow.ID != f.ID || c.flow.Keyed != f.Keyed) {
		wrong = append(wrong, fmt.Sprintf("the limits are %+v instead of %+v", c.stored.Flow.Flow, c.flow.Flow))
	} else if c.loaded {
		counter("leased under the limits", int64(c.inMemory), int64(c.leased))
		counter("starts that passed normal urgency", int64(f.Passed.Normal), int64(c.flow.Passed.Normal))
		counter("starts that passed low urgency", int64(f.Passed.Low), int64(c.flow.Passed.Low))
	}
	if c.lanes != nil {
		counter("overrides of keys", int64(c.lanes.keyFlows), int64(c.keyFlows))
		counter("states of keys", int64(c.lanes.keyStates), int64(c.keyStates))
		counter("expected keys", int64(c.lanes.expected), int64(c.expected))
		counter("holds that are not stored", int64(len(c.lanes.holds)), 0)
		counter("sorted and to be sorted", c.lanes.messages, c.stored.Due)
		for i, u := range urgencies {
			n, stored := c.lanes.classes[i+1], c.classes[i+1]
			counter(fmt.Sprintf("stored as sorted for urgency %q", u), int64(min(n, stored)), int64(n))
		}
		for _, key := range slices.Sorted(maps.Keys(c.keys)) {
			counter(fmt.Sprintf("leased of key %q", key), int64(c.lanes.leased[key]), int64(c.keys[key]))
		}
	}
	if len(wrong) > 0 {
		c.note("counters", int64(len(wrong)), "counters are wrong: "+strings.Join(wrong, ", "))
	}
	// If the index or its counter is wrong, so are the counts.
	if c.countDue(-1); !indexes && c.stored.Due == c.meta.Due && c.have[kindCount] != c.want[kindCount] {
		c.note("counts", 1, "the counts by due time, for histograms, are wrong")
	}
}

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
