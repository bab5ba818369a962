//go:build unix

package chaos

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/laterq/later/store"
)

// Guarantees of the limits of a queue and of each of its keys that these rules verify:
//
//   - In every span of time t at most Burst + N·t/Per messages start; see rules_flow_rate.go.
//   - A claim returns no message that exceeds the concurrency, counted with the messages that are leased for certain.
//   - A message does not wait longer than the limits require, and keys take turns; see rules_flow_wait.go.
//   - The messages of a key start in order; see rules_order.go.
//   - Urgent messages start before others; see rules_urgency.go.
//
// A message starts at the engine's clock of its claim. All claims that a consumer recorded count; the others can only
// have used more of a limit. During a change of the limits the looser ones count, from before the call until it has
// returned.

// flowChange is a change of the limits, executed between two times.
type flowChange struct {
	from, to int64 // µs
	flow     store.Flow
}

// start is a claim that returned messages.
type start struct {
	lo, hi int64 // it was executed in between, µs
	n      int
	lease  string
	actor  string
	ready  int64  // since when one of its messages was ready for certain
	id     string // of its last message
	acked  bool   // that message was acked for certain

	messages []*classed
	classes  [classes]int  // of its messages
	overlaps bool          // of a start of a queue: another one may have been before or after it
	waits    [classes]bool // of a start of a queue: a message of the class certainly could start, and did not

	// Of a start of a queue: since when the limits of the queue allowed it, if that is known.
	allowed      int64
	allowedKnown bool
}

// exact reports whether the time of the start is known.
func (s *start) exact() bool { return s.lo == s.hi }

// hold is a message that is leased for certain until a time, and possibly until a later one.
type hold struct {
	start       *start
	until, most int64
}

// flowGroup is a queue, or the messages of one key of a queue, with its limits and the messages that started.
type flowGroup struct {
	name    string
	key     string
	changes []flowChange
	byLease map[string]*start
	starts  []*start
	holds   []hold
	started []*keyStart
	shared  bool // several shards share the limits
}

// queueFlow is a queue with its keys.
type queueFlow struct {
	flowGroup
	settings []flowSetting
	keys     map[string]*flowGroup
	resumes  []*keyResume
	sends    []*urgentSend
}

// flowSetting is a call of SetFlow, or of SetKeyFlow for a key.
type flowSetting struct {
	flowChange
	key      string // "" for SetFlow
	override store.KeyOverride
}

// flowHistory has the limits of all queues, by queue.
type flowHistory map[string]*queueFlow

// add adds the record of a SetFlow or SetKeyFlow.
func (h flowHistory) add(x record) {
	q, name := h[x.field(0)], x.field(0)
	if q == nil {
		q = &queueFlow{flowGroup: flowGroup{name: name, byLease: map[string]*start{}}, keys: map[string]*flowGroup{}}
		h[name] = q
	}
	s := flowSetting{flowChange: flowChange{from: x.number(1), to: x.at}}
	if x.kind == keyFlowSet {
		s.key = x.field(2)
		if x.field(3) != "" {
			s.override.Concurrency = ptr(int(x.number(3)))
		}
		if x.field(4) != "" {
			s.override.Rate = ptr(rateOf(x, 4))
		}
	} else {
		s.flow = store.Flow{Concurrency: int(x.number(2)), Rate: rateOf(x, 3), Fair: x.number(6) == 1,
			Urgency: x.number(12) == 1}
		s.flow.Key = store.KeyFlow{Concurrency: int(x.number(7)), Rate: rateOf(x, 8), Order: store.Order(x.field(11))}
	}
	q.settings = append(q.settings, s)
}

// rateOf returns the rate in three fields of a record.
func rateOf(x record, field int) store.Rate {
	return store.Rate{N: int(x.number(field)), Per: time.Duration(x.number(field+1)) * time.Microsecond,
		Burst: int(x.number(field + 2))}
}

// changesOf returns the changes of the limits of a key, in the order of the settings. The limits of a key count while
// the queue is Fair, and its override lasts as long.
func (q *queueFlow) changesOf(key string) (changes []flowChange) {
	var flow store.Flow
	var override store.KeyOverride
	for _, s := range q.settings {
		switch s.key {
		case "":
			if flow = s.flow; !flow.Fair {
				override = store.KeyOverride{}
			}
		case key:
			override = s.override
		default:
			continue
		}
		c := flowChange{from: s.from, to: s.to, flow: store.Flow{Fair: flow.Fair}}
		if flow.Fair && key != "" {
			of := override.Of(flow.Key)
			c.flow.Concurrency, c.flow.Rate, c.flow.Key.Order = of.Concurrency, of.Rate, of.Order
		}
		changes = append(changes, c)
	}
	return changes
}

// key returns the group of a key.
func (q *queueFlow) key(key string) *flowGroup {
	g := q.keys[key]
	if g == nil {
		g = &flowGroup{key: key, name: q.name + " key " + strconv.Quote(key), byLease: map[string]*start{}}
		q.keys[key] = g
	}
	return g
}

// addStarts adds the deliveries of a message to the history of its queue, and checks their keys.
func (ck *checker) addStarts(m *message, violate violator) {
	ck.checkHandled(m, violate)
	for i, d := range m.deliveries {
		q := ck.flows[d.queue]
		if q == nil {
			continue
		}
		if len(m.sends) > 0 && d.key != m.sends[0].flowKey {
			violate("key", "was claimed with the key %q, and sent with %q", d.key, m.sends[0].flowKey)
		}
		ready := ck.readySince(m, i)
		c := &classed{urgency: d.urgency, sent: m.firstAt(), ready: ready, in: ck.startOf(&q.flowGroup, d)}
		for _, g := range []*flowGroup{&q.flowGroup, q.key(d.key)} {
			s := ck.startOf(g, d)
			s.n++
			s.messages = append(s.messages, c)
			if ready > 0 {
				s.ready = min(s.ready, ready)
			}
			g.holds = append(g.holds, ck.holdOf(m, d, s))
		}
		g := q.key(d.key)
		ck.addKeyStart(g, m, i, g.byLease[d.lease])
	}
}

// repeatsAfter is how long the first attempt of a call lasts at least before the call is repeated, in µs.
const repeatsAfter = 2000

// startOf returns the start of a group in which a message was delivered.
func (ck *checker) startOf(g *flowGroup, d *delivery) *start {
	s := g.byLease[d.lease]
	if s != nil {
		return s
	}
	s = &start{lo: d.now, hi: d.now, lease: d.lease, actor: d.actor, ready: math.MaxInt64}
	// A repeated claim has the deadline of its first attempt and the time of its last.
	switch began := d.deadline - ck.lease; {
	case ck.lease == 0:
	case began < d.now/1000:
		s.lo, s.hi = began*1000, min(d.now, began*1000+999)
		if ck.grouped {
			s.hi = d.now
		}
	case d.now-d.call > repeatsAfter: // both may be in the same millisecond
		s.lo = max(began*1000, d.call)
	}
	g.byLease[d.lease] = s
	g.starts = append(g.starts, s)
	return s
}

// holdOf returns how long a message is leased. A message that is cancelled may stop to count.
func (ck *checker) holdOf(m *message, d *delivery, s *start) hold {
	h := hold{start: s, until: d.deadline * 1000}
	for _, e := range ck.extends[d.lease] {
		h.until = max(h.until, e.deadline*1000)
		h.most = max(h.most, e.call+ck.lease*1000)
	}
	h.most = max(h.most, h.until)
	for _, c := range m.cancels {
		switch {
		case c.ret != 0 && c.ret < s.lo:
		case c.known(string(store.StateLeased)): // it counts until its holder learns of that
			for _, e := range ck.extends[d.lease] {
				if e.ret >= c.at {
					h.until = min(h.until, e.call)
				}
			}
		default:
			h.until = min(h.until, c.at)
		}
	}
	for _, x := range d.settles {
		h.until = min(h.until, x.at)
		if x.known(outcomeOK, outcomeLost) {
			h.most = min(h.most, x.ret)
		}
	}
	return h
}

// readySince returns since when a message was ready for certain before a delivery, or 0 if that is not known.
func (ck *checker) readySince(m *message, i int) int64 {
	d := m.deliveries[i]
	if len(m.reschedules)+len(m.replays)+len(m.cancels) > 0 || len(m.sends) == 0 {
		return 0
	}
	ready := max(d.due*1000, m.sends[0].ret)
	if ready == 0 || m.sends[0].ret == 0 || !m.sends[0].acknowledged() {
		return 0
	}
	if i > 0 {
		before := m.deliveries[i-1]
		ready = max(ready, ck.holdOf(m, before, &start{lo: before.now}).most)
	}
	return ready
}

// inForce returns the first and the last of the changes that may be in force between two times. first is -1 if the
// queue may have no limits yet.
func (g *flowGroup) inForce(lo, hi int64) (first, last int) {
	first, last = -1, -1
	for i, c := range g.changes {
		if c.to < lo {
			first = i
		}
		if c.from <= hi {
			last = i
		}
	}
	return first, last
}

// concurrency returns the loosest concurrency that may be in force when a claim is executed. epoch is different if the
// queue was without limits in between, because messages that were claimed before that do not count. ok is false if the
// queue may have no limits.
func (g *flowGroup) concurrency(s *start) (most, epoch int, ok bool) {
	first, last := g.inForce(s.lo, s.hi)
	if first < 0 {
		return 0, 0, false
	}
	for i, c := range g.changes[:last+1] {
		switch {
		case i >= first && !c.flow.Limited():
			return 0, 0, false
		case !c.flow.Limited():
			epoch++
		case i >= first && c.flow.Concurrency == 0:
			most = math.MaxInt
		case i >= first:
			most = max(most, c.flow.Concurrency)
		}
	}
	return most, epoch, true
}

// checkFlows checks the limits of all queues and of all their keys.
func (ck *checker) checkFlows(result *Result) {
	for _, q := range ck.flows {
		q.shared = ck.sharded
		slices.SortFunc(q.settings, func(a, b flowSetting) int { return cmp.Compare(a.from, b.from) })
		result.FlowChanges += len(q.settings)
		for _, s := range q.settings {
			if s.key == "" {
				q.changes = append(q.changes, s.flowChange)
			}
		}
		q.classify()
		q.checkRefusals(result)
		for key, g := range q.keys {
			g.changes = q.changesOf(key)
			ck.checkKeyOrder(q, key, g, result)
		}
		for _, r := range q.resumes {
			if r.known(outcomeOK) {
				result.Order.Resumed++
			}
		}
		if ck.slack > 0 {
			continue // the limits use the engine's clock
		}
		q.beforeAny(ck.windows).check(&result.FlowQueues, result)
		for _, g := range q.keys {
			g.beforeAny(ck.windows).check(&result.FlowKeys, result)
		}
		if len(ck.windows) > 0 || ck.sharded {
			continue // a failover may repeat starts, and each shard has its turns, and a share of what may start
		}
		ck.checkWaits(q, result)
		ck.checkUrgencies(q, result)
	}
}

// beforeAny returns the group with its starts before the first time of writes that may be undone. Those after it may
// take what starts that were undone have left.
func (g *flowGroup) beforeAny(windows []window) *flowGroup {
	if len(windows) == 0 {
		return g
	}
	first := slices.MinFunc(windows, func(a, b window) int { return cmp.Compare(a.from, b.from) }).from
	before := *g
	before.starts = slices.DeleteFunc(slices.Clone(g.starts), func(s *start) bool { return s.hi >= first })
	before.holds = slices.DeleteFunc(slices.Clone(g.holds), func(h hold) bool { return h.start.hi >= first })
	return &before
}

// check checks the limits of a group.
func (g *flowGroup) check(facts *FlowFacts, result *Result) {
	g.checkConcurrency(facts, result)
	g.checkRate(facts, result)
}

// checkConcurrency checks each claim. While messages are leased from before the limit was lowered, several shards keep
// to the former one.
func (g *flowGroup) checkConcurrency(facts *FlowFacts, result *Result) {
	slices.SortFunc(g.holds, func(a, b hold) int {
		return cmp.Or(cmp.Compare(a.start.hi, b.start.hi), cmp.Compare(a.start.lease, b.start.lease))
	})
	var held []hold
	for i, h := range g.holds {
		held = append(held, h)
		if i+1 < len(g.holds) && g.holds[i+1].start == h.start {
			continue
		}
		at := h.start.hi
		held = slices.DeleteFunc(held, func(o hold) bool { return o.until <= at })
		most, epoch, ok := g.concurrency(h.start)
		if !ok || most == math.MaxInt {
			continue
		}
		n := 0
		for _, o := range held {
			if allowed, of, ok := g.concurrency(o.start); ok && of == epoch {
				if n++; g.shared { // a shard without messages from before keeps to its share of the lower limit
					most = max(most, allowed)
				}
			}
		}
		if n >= most {
			facts.Full++
		}
		if n > most {
			result.violate("concurrency", "-", "%s: %s claimed %d messages under lease %s at %d, and then %d were "+
				"leased; the limit is %d:%s", g.name, h.start.actor, h.start.n, h.start.lease, at, n, most,
				leasesOf(held))
		}
	}
}

// leasesOf lists the leases that are held.
func leasesOf(held []hold) (text string) {
	for _, h := range held {
		text += fmt.Sprintf(" %s of %s from %d to %d;", h.start.lease, h.start.actor, h.start.hi, h.until)
	}
	return text
}
