//go:build unix

package chaos

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/laterq/later/store"
)

// Guarantees of the urgency of messages that these rules verify:
//
//   - A queue refuses a message with an urgency while its flow has none, and takes it otherwise. A refused message is
//     never delivered. A message is delivered with the urgency with which it was sent.
//   - Of store.NormalEvery starts in a row one is of normal urgency while a normal message may start, and of
//     store.LowEvery one is of low urgency while a low message may start.
//   - While a message waits and may start, less urgent ones start only by these shares.
//
// Within an urgency keys take turns; see rules_flow_wait.go. The messages of a key with an order start in order,
// whatever their urgency; see rules_order.go. A message counts with its urgency if its queue certainly had Urgency from
// its send until its start.

// class is the urgency with which a message was sorted.
type class int

const (
	classHigh class = iota
	classNormal
	classLow
	classUnknown
	classes
)

var classNames = [classes]string{"high", "normal", "low", "unknown"}

// classOf returns the class of an urgency that counts.
func classOf(u store.Urgency) class {
	switch u {
	case store.UrgencyHigh:
		return classHigh
	case store.UrgencyLow:
		return classLow
	}
	return classNormal
}

// share is the number of starts of other classes that may come between two of a class.
var share = [classes]int{classNormal: store.NormalEvery - 1, classLow: store.LowEvery - 1}

// owed is the number of starts of other classes after which a message may start before a more urgent one. For low
// messages it is one less than their share, because a normal one may be owed at the same time.
var owed = [classes]int{classNormal: store.NormalEvery - 1, classLow: store.LowEvery - 2}

// classed is a delivery of a message in a queue with limits.
type classed struct {
	urgency     store.Urgency
	class       class
	sent, ready int64  // when it was sent at first, and since when it was ready for certain or 0, µs
	in          *start // of its queue
}

// urgentSend is a send whose queue must, or must not, have refused it.
type urgentSend struct {
	*send
	m        *message
	undoable bool // it overlaps a time of writes that may be undone
}

// addUrgency adds the sends of a message to the history of their queues, and checks its deliveries.
func (ck *checker) addUrgency(m *message, violate violator) {
	refused := len(m.sends) > 0
	for _, s := range m.sends {
		refused = refused && s.refused()
		if q := ck.flows[s.queue]; q != nil && (s.urgent || s.known(outcomeInvalid)) {
			q.sends = append(q.sends, &urgentSend{s, m, ck.mayBeUndone(m)})
		}
	}
	if refused && (len(m.deliveries) > 0 || ck.left[m.id] != nil) {
		violate("urgency", "is in its queue, although all its sends were refused because of its urgency")
	}
	for _, d := range m.deliveries {
		if len(m.sends) > 0 && d.urgency != m.sends[0].urgency && ck.flows[d.queue] != nil {
			violate("urgency", "was claimed with the urgency %q, and sent with %q", d.urgency, m.sends[0].urgency)
		}
	}
	if len(m.sends) == 0 {
		return
	}
	for _, c := range slices.Concat(m.cancels, callsOf(m.reschedules)) {
		w := window{from: c.at, to: cmp.Or(c.ret, math.MaxInt64)}
		ck.removals[m.sends[0].flowKey] = append(ck.removals[m.sends[0].flowKey], w)
	}
}

func callsOf(sends []*send) (calls []*call) {
	for _, s := range sends {
		calls = append(calls, &s.call)
	}
	return calls
}

// mayHaveLost reports whether a key may have lost a message otherwise than by a start between two times. If it has an
// order, it may have waited with the urgency of that message.
func (ck *checker) mayHaveLost(key string, lo, hi int64) bool {
	return slices.ContainsFunc(ck.removals[key], func(w window) bool { return w.from < hi && w.to > lo })
}

// urgency returns whether the flow had Urgency at all times between two.
func (g *flowGroup) urgency(lo, hi int64) likelihood {
	first, last := g.inForce(lo, max(lo, hi)) // a call may have no answer, and the engine's clock may be off
	with, without := false, first < 0
	for _, c := range g.changes[max(0, first) : last+1] {
		with, without = with || c.flow.Urgency, without || !c.flow.Urgency
	}
	switch {
	case with && without:
		return possibly
	case with:
		return certainly
	}
	return no
}

// classify sets the classes of all deliveries.
func (q *queueFlow) classify() {
	set := func(s *start) {
		for _, c := range s.messages {
			c.class = classOf(c.urgency)
			if c.urgency != store.UrgencyNormal {
				switch q.urgency(c.sent, s.hi) {
				case no:
					c.class = classNormal
				case possibly:
					c.class = classUnknown
				}
			}
			s.classes[c.class]++
		}
	}
	for _, s := range q.starts {
		set(s)
	}
	for _, g := range q.keys {
		for _, s := range g.starts {
			set(s)
		}
	}
}

// class returns the class of the messages of a start, or classUnknown if they have several.
func (s *start) class() class {
	for c, n := range s.classes {
		if n == s.n {
			return class(c)
		}
	}
	return classUnknown
}

// checkRefusals checks which sends a queue has refused.
func (q *queueFlow) checkRefusals(result *Result) {
	violate := func(s *urgentSend, text string) {
		if s.undoable {
			result.Undone++
			return
		}
		result.violateWith(s.m.history, "urgency", s.m.id, "%s: %s sent it at %d with the urgency %q, which the queue "+
			"%s", q.name, s.actor, s.at, s.urgency, text)
	}
	for _, s := range q.sends {
		switch had := q.urgency(s.at, s.ret); {
		case s.known(outcomeInvalid) && !s.urgent:
			violate(s, "refused, although no message of the call had an urgency")
		case s.known(outcomeInvalid) && had == certainly:
			violate(s, "refused, although its flow had urgency")
		case s.acknowledged() && had == no:
			violate(s, "took, although its flow had no urgency")
		case s.known(outcomeInvalid):
			result.Urgency.Refused++
		case s.acknowledged():
			result.Urgency.Taken++
		}
	}
}

// checkUrgencies checks the shares of the starts of a queue.
func (ck *checker) checkUrgencies(q *queueFlow, result *Result) {
	if !slices.ContainsFunc(q.changes, func(c flowChange) bool { return c.flow.Urgency }) {
		return
	}
	q.findOverlaps()
	for _, g := range q.keys {
		g.eachAllowed(func(s *start, allowed func(int64) (int64, bool)) {
			for _, c := range s.messages {
				if since, known := ck.maySince(g, s, c, allowed); known {
					ck.checkShares(q, g, c, since, result)
				}
			}
		})
	}
	for _, s := range q.starts {
		f := &result.Urgency
		f.High += s.classes[classHigh]
		f.Normal += s.classes[classNormal]
		f.Low += s.classes[classLow]
		several := false
		for c, n := range s.classes {
			for of, waits := range s.waits {
				several = several || waits && n > 0 && c != of
			}
		}
		if several {
			f.Several++
		}
		if s.waits[classHigh] {
			f.NormalShare += s.classes[classNormal]
		}
		if s.waits[classHigh] || s.waits[classNormal] {
			f.LowShare += s.classes[classLow]
		}
	}
}

// findOverlaps sets which starts of the queue may have happened in the order that their times do not say.
func (q *queueFlow) findOverlaps() {
	byBegin := slices.SortedFunc(slices.Values(q.starts), func(a, b *start) int { return cmp.Compare(a.lo, b.lo) })
	var last *start // that ends last
	for _, s := range byBegin {
		if last != nil && last.hi >= s.lo {
			s.overlaps, last.overlaps = true, true
		}
		if last == nil || s.hi > last.hi {
			last = s
		}
	}
	slices.SortFunc(q.starts, func(a, b *start) int { return cmp.Compare(a.hi, b.hi) })
}

// maySince returns since when the limits of its key allowed a message of a start to start with its urgency, and whether
// that is known.
func (ck *checker) maySince(
	g *flowGroup, s *start, c *classed, allowed func(int64) (int64, bool),
) (since int64, known bool) {
	if c.ready == 0 || c.class == classUnknown {
		return 0, false
	}
	first, last := g.inForce(c.ready, s.hi)
	if first < 0 || first != last || !g.changes[first].flow.Fair {
		return 0, false
	}
	switch f := g.changes[first].flow; {
	case f.Key.Order != store.OrderNone:
		since, known = allowed(c.ready)
		return since, known && !ck.mayHaveLost(g.key, since, s.hi)
	case f.Concurrency > 0 || f.Rate.N > 0:
		return allowed(c.ready)
	}
	return c.ready, true
}

// checkShares checks the starts between the time since when a message certainly could start, and its start.
func (ck *checker) checkShares(q *queueFlow, g *flowGroup, c *classed, since int64, result *Result) {
	if since >= c.in.lo || ck.unrecorded(q.name, since, c.in.hi) {
		return
	}
	row := inRow{most: share[c.class]}
	var before [classes]apart
	for less := range before {
		before[less] = apart{owed[less], owed[less]}
	}
	for o := range q.sortedBetween(since, c.in.lo) {
		o.waits[c.class] = true
		if c.class != classHigh && !row.add(o, c.class) {
			q.violateShare(g, c, since, result, "share", "more than %d others started in a row until %d", row.most,
				o.hi)
			return
		}
		for less := c.class + 1; less < classUnknown; less++ {
			if !before[less].add(o, less) {
				q.violateShare(g, c, since, result, "urgent", "%s claimed another of %s urgency under lease %s at %d, "+
					"less than %d starts after the one before", o.actor, classNames[less], o.lease, o.hi, owed[less])
				return
			}
		}
	}
}

func (q *queueFlow) violateShare(
	g *flowGroup, c *classed, since int64, result *Result, kind, format string, args ...any,
) {
	result.violate(kind, "-", "%s: a message of %s urgency could start from %d on, and started under lease %s at %d, "+
		"but %s", g.name, classNames[c.class], since, c.in.lease, c.in.hi, fmt.Sprintf(format, args...))
}

// inRow follows how many starts of other classes there were in a row, at least. It takes the messages of a claim in the
// order in which these are the fewest.
type inRow struct{ most, n int }

// add adds a start. It returns false if too many were in a row.
func (r *inRow) add(s *start, c class) bool {
	own, others := s.classes[c]+s.classes[classUnknown], 0
	if !s.overlaps {
		others = s.n - own
	}
	if own > 0 {
		r.n = max(0, others-(r.most-r.n)-r.most*(own-1))
	} else {
		r.n += others
	}
	return r.n <= r.most
}

// apart follows how many starts of other classes there were since the last one of a class, at most. It takes the
// messages of a claim in the order in which these are the most.
type apart struct{ least, n int }

// add adds a start. It returns false if too few were between two starts of the class.
func (a *apart) add(s *start, c class) bool {
	own := s.classes[c]
	others := s.n - own
	switch {
	case own == 0:
		a.n += others
	case s.overlaps:
		a.n = a.least // it is not known which starts were before
	default:
		others -= max(0, a.least-a.n) + a.least*(own-1)
		a.n = others
		return others >= 0
	}
	return true
}

// ShareFacts counts the facts about urgencies that runs verified.
type ShareFacts struct {
	Refused, Taken        int // sends in a call with an urgency
	High, Normal, Low     int // starts of a known urgency, in queues that have Urgency at times
	Several               int // claims while a message of another urgency certainly could start
	NormalShare, LowShare int // starts while a more urgent message certainly could start
}

func (f *ShareFacts) add(o ShareFacts) {
	f.Refused += o.Refused
	f.Taken += o.Taken
	f.High += o.High
	f.Normal += o.Normal
	f.Low += o.Low
	f.Several += o.Several
	f.NormalShare += o.NormalShare
	f.LowShare += o.LowShare
}
