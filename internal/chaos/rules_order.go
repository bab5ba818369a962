//go:build unix

package chaos

import (
	"cmp"
	"slices"

	"github.com/laterq/later/store"
)

// Guarantees of the order of keys that these rules verify:
//
//   - A message that has started holds its key until it is acked, dead or removed: it is the next message of its key
//     that starts. A dead message keeps its key if it halts it, until it is replayed and starts, is removed, the key is
//     resumed, or the order is no longer halt.
//   - Of the messages that certainly wait, the first one starts; see rules_order_first.go.
//   - The fences of a key grow.
//
// They do not use the engine's clock. A rule counts only while an order is certainly in force. A call with an unknown
// outcome may have taken effect, and writes that a failover may have undone excuse all that follows from them.

// keyStart is a delivery of a message with a key in a queue with limits.
type keyStart struct {
	m      *message
	of     int // index in m.deliveries
	lo, hi int64
	lease  *start
}

func (s *keyStart) delivery() *delivery { return s.m.deliveries[s.of] }

// keyResume is a call of ResumeKey.
type keyResume struct {
	call
	key string
}

// mayHaveResumed reports whether the call may have let its key go on between two times.
func (r *keyResume) mayHaveResumed(lo, hi int64) bool {
	return r.at < hi && (r.ret == 0 || r.ret >= lo) && (!r.known(outcomeNotFound) || r.repeated())
}

// addResume adds the record of a ResumeKey.
func (h flowHistory) addResume(actor string, x record) {
	if q := h[x.field(0)]; q != nil {
		q.resumes = append(q.resumes, &keyResume{call{actor, x.number(1), x.at, x.field(3)}, x.field(2)})
	}
}

// addKeyStart adds a delivery to the history of its key.
func (ck *checker) addKeyStart(g *flowGroup, m *message, of int, s *start) {
	d := m.deliveries[of]
	k := &keyStart{m: m, of: of, lo: s.lo, hi: s.hi, lease: s}
	if ck.slack > 0 {
		k.lo, k.hi = d.call, d.ret
	}
	g.started = append(g.started, k)
	s.id, s.acked = m.id, slices.ContainsFunc(d.settles, func(x *settle) bool {
		return x.action == store.Ack.String() && x.known(outcomeOK)
	})
}

// order returns the order that was certainly in force between two times, or OrderNone. It is OrderContinue if both
// orders may have been in force.
func (g *flowGroup) order(lo, hi int64) store.Order {
	first, last := g.inForce(lo, hi)
	if first < 0 {
		return store.OrderNone
	}
	order := store.OrderHalt
	for _, c := range g.changes[first : last+1] {
		switch c.flow.Key.Order {
		case store.OrderNone:
			return store.OrderNone
		case store.OrderContinue:
			order = store.OrderContinue
		}
	}
	return order
}

// checkKeyOrder checks the order of a key. The group of the messages without a key has none.
func (ck *checker) checkKeyOrder(q *queueFlow, key string, g *flowGroup, result *Result) {
	ck.checkFences(key, g, result)
	if key == "" {
		return
	}
	ck.checkHeld(q, key, g, result)
	ck.checkFirst(g, result)
}

// checkHeld checks that each message which started held its key, in the order of the fences.
func (ck *checker) checkHeld(q *queueFlow, key string, g *flowGroup, result *Result) {
	started := slices.DeleteFunc(slices.Clone(g.started), func(s *keyStart) bool { return s.delivery().fence == 0 })
	slices.SortStableFunc(started, func(a, b *keyStart) int {
		return cmp.Or(cmp.Compare(a.delivery().fence, b.delivery().fence), cmp.Compare(a.lo, b.lo))
	})
	for _, s := range started {
		ck.checkResumes(q, key, g, s, result)
	}
	for i, next := range started[min(1, len(started)):] {
		s := started[i]
		if s.lo > next.hi {
			continue // the fences are wrong
		}
		order := g.order(s.lo, next.hi)
		if order == store.OrderNone {
			continue
		}
		died := ck.mayHaveDied(s, next.hi)
		if order == store.OrderHalt && died == certainly {
			result.Order.Halted++
		}
		if s.m == next.m {
			result.Order.Returned++
			continue
		}
		result.Order.Started++
		if s.mayHaveGone(next.hi) || died != no && (order != store.OrderHalt ||
			slices.ContainsFunc(q.resumes, func(r *keyResume) bool {
				return r.key == key && r.mayHaveResumed(s.lo, next.hi)
			})) {
			continue
		}
		ck.violateOrder(s, next, result, "held", "%s: %s claimed it under lease %s with fence %d, although message "+
			"%s, claimed under lease %s with fence %d, was not acked, dead or removed, or halts the key", g.name,
			next.delivery().actor, next.delivery().lease, next.delivery().fence, s.m.id, s.delivery().lease,
			s.delivery().fence)
	}
}

// checkResumes checks that no call to resume a key found it going while the message of a start certainly halted it.
func (ck *checker) checkResumes(q *queueFlow, key string, g *flowGroup, s *keyStart, result *Result) {
	for _, r := range q.resumes {
		halted := r.key == key && r.at > s.hi && r.known(outcomeNotFound) && !r.repeated() &&
			g.order(s.lo, r.ret) == store.OrderHalt && ck.mayHaveDied(s, r.at) == certainly && !s.mayHaveGone(r.ret) &&
			!slices.ContainsFunc(s.delivery().settles, func(x *settle) bool { return x.ret >= r.at }) &&
			!slices.ContainsFunc(s.m.replays, func(c *call) bool { return c.at < r.ret && c.mayHaveRemoved(s.lo) }) &&
			!slices.ContainsFunc(q.resumes, func(o *keyResume) bool {
				return o.key == key && o.mayHaveResumed(s.lo, r.ret)
			})
		if halted {
			ck.violateOrder(s, s, result, "resume", "%s: it was not halted at %d, although this message had died "+
				"under lease %s", g.name, r.at, s.delivery().lease)
		}
	}
}

// violateOrder reports a violation of the order of two starts, unless a failover may have undone writes of them.
func (ck *checker) violateOrder(first, second *keyStart, result *Result, kind, format string, args ...any) {
	lo, hi := min(first.m.firstAt(), second.m.firstAt()), max(first.delivery().ret, second.delivery().ret)
	for _, w := range ck.windows {
		if w.from <= hi && w.to >= lo {
			result.Undone++
			return
		}
	}
	history := func() string {
		text := first.m.history()
		if first.m != second.m {
			text = first.m.id + ":\n" + text + "\n" + second.m.id + ":\n" + second.m.history()
		}
		return text
	}
	result.violateWith(history, kind, second.m.id, format, args...)
}

// firstAt returns when the message may have been sent at first.
func (m *message) firstAt() int64 {
	if len(m.sends) == 0 {
		return 0
	}
	return m.sends[0].at
}

// mayHaveGone reports whether the message may have given its key up by an ack or a removal until a time.
func (s *keyStart) mayHaveGone(hi int64) bool {
	for _, x := range s.delivery().settles {
		if x.action == store.Ack.String() && x.at < hi && (x.known(outcomeOK) || x.unknown()) {
			return true
		}
	}
	return slices.ContainsFunc(s.m.cancels, func(c *call) bool { return c.at < hi && c.mayHaveRemoved(s.lo) }) ||
		slices.ContainsFunc(s.m.sends, func(x *send) bool { return x.has(flagExpires) || x.has(flagUnreadable) })
}

// mayHaveRemoved reports whether a cancel or purge may have removed its message after a time.
func (c *call) mayHaveRemoved(lo int64) bool {
	return (c.ret == 0 || c.ret >= lo) && (!c.known(outcomeNotFound) || c.repeated())
}

// likelihood says whether something happened.
type likelihood int

const (
	no likelihood = iota
	possibly
	certainly
)

// mayHaveDied returns whether the message died after its start until a time: it was buried, or had no attempt left.
func (ck *checker) mayHaveDied(s *keyStart, hi int64) likelihood {
	d, died := s.delivery(), no
	most := s.m.maxAttempts()
	if d.attempt+int64(ck.unseenClaims(d.queue, d.call, hi)) >= most {
		died = possibly // the end of the lease counts as an attempt, too
	}
	for _, x := range d.settles {
		switch {
		case x.at >= hi:
		case x.action == store.Bury.String() || x.action == store.GiveBack.String():
			if x.known(outcomeOK) {
				return certainly
			}
			if x.unknown() || x.ambiguous() {
				died = possibly
			}
		case x.action == store.Nack.String() && d.attempt >= most && x.known(outcomeOK):
			return certainly
		}
	}
	return died
}

// maxAttempts returns the number of failed attempts after which the message is dead.
func (m *message) maxAttempts() int64 {
	if len(m.sends) == 0 {
		return 1 // unknown
	}
	return cmp.Or(m.sends[0].maxAttempts, store.DefaultMaxAttempts)
}

// unseenClaims returns the number of claims without a record that may have started a message of a queue between two
// times.
func (ck *checker) unseenClaims(queue string, lo, hi int64) (n int) {
	for _, u := range ck.unseen {
		if (u.queue == "" || u.queue == queue) && u.from < hi && u.to > lo {
			n++
		}
	}
	return n
}

// checkFences checks that only claims in a queue with an order have a fence, and that the fences of a key grow.
func (ck *checker) checkFences(key string, g *flowGroup, result *Result) {
	for _, s := range g.started {
		fence := s.delivery().fence
		ordered := key != "" && g.order(s.lo, s.hi) != store.OrderNone
		plain := key == "" || g.unordered(s.lo, s.hi)
		if fence < 0 || fence >= 1<<53 || ordered && fence == 0 || plain && fence != 0 {
			ck.violateOrder(s, s, result, "fence", "%s: %s claimed it under lease %s with fence %d", g.name,
				s.delivery().actor, s.delivery().lease, fence)
		}
	}
	byEnd := slices.DeleteFunc(slices.Clone(g.started), func(s *keyStart) bool { return s.delivery().fence == 0 })
	byBegin := slices.Clone(byEnd)
	slices.SortFunc(byEnd, func(a, b *keyStart) int { return cmp.Compare(a.hi, b.hi) })
	slices.SortFunc(byBegin, func(a, b *keyStart) int { return cmp.Compare(a.lo, b.lo) })
	var largest *keyStart // of the claims that ended before
	leases := map[int64]*keyStart{}
	for _, s := range byBegin {
		for len(byEnd) > 0 && byEnd[0].hi < s.lo {
			if largest == nil || byEnd[0].delivery().fence > largest.delivery().fence {
				largest = byEnd[0]
			}
			byEnd = byEnd[1:]
		}
		of := leases[s.delivery().fence]
		if of == nil {
			leases[s.delivery().fence] = s
			of = s
		}
		result.Order.Fences++
		for _, before := range []*keyStart{of, largest} {
			if before != nil && before.delivery().lease != s.delivery().lease &&
				before.delivery().fence >= s.delivery().fence {
				ck.violateOrder(before, s, result, "fence", "%s: %s claimed it under lease %s with fence %d, after "+
					"message %s under lease %s with fence %d", g.name, s.delivery().actor, s.delivery().lease,
					s.delivery().fence, before.m.id, before.delivery().lease, before.delivery().fence)
				break
			}
		}
	}
}

// checkHandled checks that handlers get the fence of their claim.
func (ck *checker) checkHandled(m *message, violate violator) {
	for _, h := range m.runs {
		claimed := func(d *delivery) bool { return d.actor == h.actor && d.attempt == h.attempt }
		if slices.ContainsFunc(m.deliveries, claimed) && !slices.ContainsFunc(m.deliveries, func(d *delivery) bool {
			return claimed(d) && d.fence == h.fence
		}) {
			violate("fence", "a handler had attempt %d with fence %d, which its claim does not have", h.attempt,
				h.fence)
		}
	}
}

// unordered reports whether certainly no order was in force between two times.
func (g *flowGroup) unordered(lo, hi int64) bool {
	first, last := g.inForce(lo, hi)
	return !slices.ContainsFunc(g.changes[max(0, first):last+1], func(c flowChange) bool {
		return c.flow.Key.Order != store.OrderNone
	})
}

// OrderFacts counts the facts about the order of keys that runs verified.
type OrderFacts struct {
	Started  int // of another message than the one before, while an order was in force
	Returned int // of the same message again
	Halted   int // deaths that halted a key
	Resumed  int // by ResumeKey
	Chosen   int // first starts while another message of the key certainly waited behind
	Arrived  int // of Chosen: both were sent without a delay
	Fences   int
}

func (f *OrderFacts) add(o OrderFacts) {
	f.Started += o.Started
	f.Returned += o.Returned
	f.Halted += o.Halted
	f.Resumed += o.Resumed
	f.Chosen += o.Chosen
	f.Arrived += o.Arrived
	f.Fences += o.Fences
}
