//go:build unix

package chaos

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// waitsAtMost is how long a message may wait although the limits allow it, while nothing goes wrong. It is generous,
// because a busy machine must not fail a run.
const waitsAtMost = int64(5 * time.Second / time.Microsecond)

// eachAllowed calls visit for each start. allowed returns since when the limits of the group allowed the start, from
// floor on, and whether that is known: a message was ready, and the limits did not change since then.
func (g *flowGroup) eachAllowed(visit func(s *start, allowed func(floor int64) (since int64, known bool))) {
	slices.SortFunc(g.starts, func(a, b *start) int { return cmp.Compare(a.hi, b.hi) })
	var ends []int64 // of the holds until then, ascending
	holds := g.holds // in the order of their starts
	previous, before := int64(0), (*start)(nil)
	for _, s := range g.starts {
		for len(holds) > 0 && holds[0].start.hi < s.hi {
			at, _ := slices.BinarySearch(ends, holds[0].most)
			ends = slices.Insert(ends, at, holds[0].most)
			holds = holds[1:]
		}
		visit(s, func(floor int64) (since int64, known bool) {
			since = max(floor, previous, s.ready)
			first, last := g.inForce(since, s.hi)
			if s.ready == math.MaxInt64 || first < 0 || first != last {
				return 0, false
			}
			f := g.changes[first].flow
			if f.Key.Order != store.OrderNone && before != nil && before.id != s.id && !before.acked {
				return 0, false // it is not known since when it does not hold the key
			}
			if c := f.Concurrency; c > 0 && len(ends) >= c {
				since = max(since, ends[len(ends)-c])
			}
			if f.Rate.N > 0 {
				began := max(previous, g.changes[first].to) // of the rest: a new rate may set the next start
				since = max(since, began+f.Rate.Per.Microseconds()*int64(f.Rate.Burst)/int64(f.Rate.N))
			}
			return since, true
		})
		previous, before = s.hi, s
	}
}

// checkWaits checks that no message waited although the limits of its queue and its key allowed it, and that keys took
// turns.
func (ck *checker) checkWaits(q *queueFlow, result *Result) {
	q.eachAllowed(func(s *start, allowed func(int64) (int64, bool)) {
		if s != q.starts[0] {
			s.allowed, s.allowedKnown = allowed(ck.calmSince(s.hi))
		}
	})
	for _, g := range q.keys {
		g.eachAllowed(func(s *start, allowed func(int64) (int64, bool)) {
			if of := q.byLease[s.lease]; of.allowedKnown {
				if since, known := allowed(of.allowed); known {
					g.checkWait(s, since, result)
				}
			}
			if since, known := allowed(0); known {
				ck.checkTurn(q, g, s, since, result)
			}
		})
	}
}

// checkWait checks a start that the limits allowed since a time.
func (g *flowGroup) checkWait(s *start, since int64, result *Result) {
	wait := s.hi - since
	if wait <= 0 {
		return
	}
	if wait > result.FlowWait.micros {
		result.FlowWaited = fmt.Sprintf("lease %s of %s by %s, from %d on", s.lease, g.name, s.actor, since)
	}
	result.FlowWait.add(wait)
	if wait > waitsAtMost {
		result.violate("waited", "-", "%s: the limits allowed the claim under lease %s by %s from %d on, %d ms earlier",
			g.name, s.lease, s.actor, since, wait/1000)
	}
}

// sortingClaims is the number of claims that may pass until a ready message takes part in the turns. Each of them sorts
// at least 250 messages, and far fewer than 750 gather in a queue.
const sortingClaims = 3

// passesAtMost is how many messages of one other key may start while a key waits and may go. Its pass is then ahead of
// the clock by at most 1, that of another key is not behind the clock, and each start adds 1 to it. So the other key
// has no start left once two have passed.
const passesAtMost = 2

// checkTurn checks that no other key had more starts than its turns between the time since when the limits of the
// group's key allowed a start, and the start. Only starts of the same urgency count.
func (ck *checker) checkTurn(q *queueFlow, g *flowGroup, s *start, since int64, result *Result) {
	first, _ := g.inForce(since, s.hi)
	f, of := g.changes[first].flow, s.class()
	if !f.Fair || ck.unrecorded(q.name, since, s.hi) || of == classUnknown {
		return
	}
	if f.Key.Order != store.OrderNone && q.urgency(since, s.hi) != no && ck.mayHaveLost(g.key, since, s.hi) {
		return // it may have waited with another urgency
	}
	passed := map[*flowGroup]int{}
	for o := range q.sortedBetween(since, s.lo) {
		for _, other := range q.keys {
			if started := other.byLease[o.lease]; started != nil && other != g {
				passed[other] += started.classes[of]
			}
		}
	}
	result.FlowTurns++
	for other, n := range passed {
		result.FlowPassed = max(result.FlowPassed, n)
		if n > passesAtMost {
			result.violate("turn", "-", "%s: the limits allowed the claim under lease %s by %s at %d from %d on, and "+
				"%d messages of %s started meanwhile", g.name, s.lease, s.actor, s.hi, since, n, other.name)
		}
	}
}

// sortedBetween returns the starts certainly between two times, except for the first sortingClaims.
func (q *queueFlow) sortedBetween(since, until int64) iter.Seq[*start] {
	return func(yield func(*start) bool) {
		after, _ := slices.BinarySearchFunc(q.starts, since+1, func(o *start, at int64) int {
			return cmp.Compare(o.hi, at)
		})
		claims := 0
		for _, o := range q.starts[after:] {
			if o.hi >= until {
				return
			}
			if o.lo <= since {
				continue
			}
			if claims++; claims > sortingClaims && !yield(o) {
				return
			}
		}
	}
}

// unrecorded reports whether a claim without a record may have started messages of a queue that count between two
// times: a claim fails at the latest when its lease would end, and its messages are leased as long again.
func (ck *checker) unrecorded(queue string, lo, hi int64) bool {
	around := 2 * ck.lease * 1000
	return slices.ContainsFunc(ck.unseen, func(u unseen) bool {
		at := u.to - unseenReach
		return (u.queue == "" || u.queue == queue) && lo-around < at && at < hi+around
	})
}

// unheardFor is how long a process may count as one to wake up although it does not hear: its beats are missed after
// 6 s, and every waiting queue is claimed every 10 s ± 20 %. Calls on half-open connections and claims without a record
// hold messages for less.
const unheardFor = 12 * time.Second

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
