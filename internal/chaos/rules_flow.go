//go:build unix

package chaos

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// Guarantees of the limits of a queue that these rules verify:
//
//   - In every span of time t at most Burst + N·t/Per messages start; see rules_flow_rate.go.
//   - A claim returns no message that exceeds the concurrency, counted with the messages that are leased for certain.
//   - A message does not wait longer than the limits require.
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
	ready  int64 // since when one of its messages was ready for certain
}

// exact reports whether the time of the start is known.
func (s *start) exact() bool { return s.lo == s.hi }

// hold is a message that is leased for certain until a time, and possibly until a later one.
type hold struct {
	start       *start
	until, most int64
}

// queueFlow has the limits of a queue and the messages that started.
type queueFlow struct {
	changes []flowChange
	byLease map[string]*start
	starts  []*start
	holds   []hold
}

// flowHistory has the limits of all queues, by queue.
type flowHistory map[string]*queueFlow

// addChange adds a record of a change.
func (h flowHistory) addChange(x record) {
	q := h[x.field(0)]
	if q == nil {
		q = &queueFlow{byLease: map[string]*start{}}
		h[x.field(0)] = q
	}
	per := time.Duration(x.number(4)) * time.Microsecond
	q.changes = append(q.changes, flowChange{from: x.number(1), to: x.at, flow: store.Flow{
		Concurrency: int(x.number(2)),
		Rate:        store.Rate{N: int(x.number(3)), Per: per, Burst: int(x.number(5))},
	}})
}

// addStarts adds the deliveries of a message to the history of its queue.
func (ck *checker) addStarts(m *message) {
	for i, d := range m.deliveries {
		q := ck.flows[d.queue]
		if q == nil {
			continue
		}
		s := q.byLease[d.lease]
		if s == nil {
			s = &start{lo: d.now, hi: d.now, lease: d.lease, actor: d.actor, ready: math.MaxInt64}
			// A repeated claim has the deadline of its first attempt and the time of its last.
			if began := d.deadline - ck.lease; ck.lease > 0 && began < d.now/1000 {
				s.lo, s.hi = began*1000, min(d.now, began*1000+999)
				if ck.grouped {
					s.hi = d.now
				}
			}
			q.byLease[d.lease] = s
			q.starts = append(q.starts, s)
		}
		s.n++
		if ready := ck.readySince(m, i); ready > 0 {
			s.ready = min(s.ready, ready)
		}
		q.holds = append(q.holds, ck.holdOf(m, d, s))
	}
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
		if c.ret == 0 || c.ret >= s.lo {
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
func (q *queueFlow) inForce(lo, hi int64) (first, last int) {
	first, last = -1, -1
	for i, c := range q.changes {
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
func (q *queueFlow) concurrency(s *start) (most, epoch int, ok bool) {
	first, last := q.inForce(s.lo, s.hi)
	if first < 0 {
		return 0, 0, false
	}
	for i, c := range q.changes[:last+1] {
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

// checkFlows checks the limits of all queues.
func (ck *checker) checkFlows(result *Result) {
	for name, q := range ck.flows {
		slices.SortFunc(q.changes, func(a, b flowChange) int { return cmp.Compare(a.from, b.from) })
		result.FlowChanges += len(q.changes)
		q.checkConcurrency(name, result)
		q.checkRate(name, result)
		ck.checkWaits(name, q, result)
	}
}

// checkConcurrency checks each claim.
func (q *queueFlow) checkConcurrency(name string, result *Result) {
	slices.SortFunc(q.holds, func(a, b hold) int {
		return cmp.Or(cmp.Compare(a.start.hi, b.start.hi), cmp.Compare(a.start.lease, b.start.lease))
	})
	var held []hold
	for i, h := range q.holds {
		held = append(held, h)
		if i+1 < len(q.holds) && q.holds[i+1].start == h.start {
			continue
		}
		at := h.start.hi
		held = slices.DeleteFunc(held, func(o hold) bool { return o.until <= at })
		most, epoch, ok := q.concurrency(h.start)
		if !ok || most == math.MaxInt {
			continue
		}
		n := 0
		for _, o := range held {
			if _, of, ok := q.concurrency(o.start); ok && of == epoch {
				n++
			}
		}
		if n >= most {
			result.FlowFull++
		}
		if n > most {
			result.violate("concurrency", "-", "%s: %s claimed %d messages under lease %s at %d, and then %d were "+
				"leased; the limit is %d:%s", name, h.start.actor, h.start.n, h.start.lease, at, n, most,
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

// waitsAtMost is how long a message may wait although the limits allow it, while nothing goes wrong. It is generous,
// because a busy machine must not fail a run.
const waitsAtMost = int64(5 * time.Second / time.Microsecond)

// checkWaits checks that no message waited although the limits allowed it.
func (ck *checker) checkWaits(name string, q *queueFlow, result *Result) {
	slices.SortFunc(q.starts, func(a, b *start) int { return cmp.Compare(a.hi, b.hi) })
	var ends []int64 // of the holds until then, ascending
	holds := q.holds // in the order of their starts
	for i, s := range q.starts {
		for len(holds) > 0 && holds[0].start.hi < s.hi {
			at, _ := slices.BinarySearch(ends, holds[0].most)
			ends = slices.Insert(ends, at, holds[0].most)
			holds = holds[1:]
		}
		if i == 0 || s.ready == math.MaxInt64 {
			continue
		}
		since := max(q.starts[i-1].hi, s.ready, ck.calmSince(s.hi))
		first, last := q.inForce(since, s.hi)
		if first < 0 || first != last {
			continue
		}
		f := q.changes[first].flow
		if c := f.Concurrency; c > 0 && len(ends) >= c {
			since = max(since, ends[len(ends)-c])
		}
		if f.Rate.N > 0 {
			since = max(since, q.starts[i-1].hi+f.Rate.Per.Microseconds()*int64(f.Rate.Burst)/int64(f.Rate.N))
		}
		if since >= s.hi {
			continue
		}
		if wait := s.hi - since; wait > result.FlowWait.micros {
			result.FlowWaited = fmt.Sprintf("lease %s of %s by %s, from %d on", s.lease, name, s.actor, since)
		}
		result.FlowWait.add(s.hi - since)
		if s.hi-since > waitsAtMost {
			result.violate("waited", "-", "%s: the limits allowed the claim under lease %s by %s from %d on, %d ms "+
				"earlier", name, s.lease, s.actor, since, (s.hi-since)/1000)
		}
	}
}

// unheardFor is how long a process may count as one to wake up although it does not hear: its beats are missed after
// 6 s, and every waiting queue is claimed every 5 s ± 20 %. Calls on half-open connections and claims without a record
// hold messages for less.
const unheardFor = 6 * time.Second

// calmSince returns from when on nothing delays claims at a time.
func (ck *checker) calmSince(at int64) (since int64) {
	for _, d := range ck.disturbances() {
		if d < at {
			since = max(since, d+unheardFor.Microseconds())
		}
	}
	return since
}

// disturbances returns when a fault began or ended, a claim failed or a process did not run.
func (ck *checker) disturbances() []int64 {
	if ck.faults != nil {
		return ck.faults
	}
	for _, e := range ck.events {
		switch e.field(0) {
		case "calm", "load-ended", "sent", "limits":
		default:
			ck.faults = append(ck.faults, e.at)
		}
	}
	for _, u := range ck.unseen {
		if u.queue != "" {
			ck.faults = append(ck.faults, u.to-unseenReach)
		}
	}
	for _, of := range ck.starved {
		for _, w := range of { // the process runs again, and no call hangs
			ck.faults = append(ck.faults, w.to-unheardFor.Microseconds())
		}
	}
	slices.Sort(ck.faults)
	return ck.faults
}
