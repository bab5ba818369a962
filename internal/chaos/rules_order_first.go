//go:build unix

package chaos

import (
	"cmp"
	"slices"

	"github.com/laterq/later/store"
)

// lined is a message that waited for its first start, at a place that is known.
type lined struct {
	*keyStart       // its first
	at, from, until int64
	due             int64 // ms
	// arrived means that it was sent without a delay, so that its place is behind all that were sent before, if an
	// order was in force.
	arrived bool
}

// waitingOf returns since when a message certainly waited until it started. It got its place after at; from and until
// are when it certainly was there. ok is false if this was not the first start, or if a call may have changed the
// message meanwhile: then it may hold its key, or have had another place.
func (ck *checker) waitingOf(s *keyStart) (w lined, ok bool) {
	m, d := s.m, s.delivery()
	if s.of > 0 || d.attempt != 1 || len(m.sends) == 0 || m.resent() {
		return w, false
	}
	w = lined{keyStart: s, at: m.sends[0].at, until: s.lo, due: d.due, arrived: m.sends[0].due == atOnce}
	i := slices.IndexFunc(m.sends, func(x *send) bool { return x.acknowledged() })
	if i < 0 {
		return w, false
	}
	w.from = m.sends[i].ret
	if slices.ContainsFunc(m.replays, func(c *call) bool { return c.at < d.ret }) {
		return w, false
	}
	for _, r := range m.reschedules {
		switch refused := r.known(outcomeNotFound, outcomeLeased, string(store.StateDead)) && !r.repeated(); {
		case refused || r.at > d.ret:
		case !r.known(outcomeOK) || r.ret >= s.lo:
			return w, false
		default:
			w.arrived, w.at, w.from = false, max(w.at, r.at), max(w.from, r.ret)
		}
	}
	for _, c := range m.cancels {
		if c.mayHaveRemoved(w.from) {
			w.until = min(w.until, c.at)
		}
	}
	return w, true
}

// checkFirst checks that of the messages of a key that certainly waited, the first one started. A message that holds
// its key is not checked: it starts before all others.
func (ck *checker) checkFirst(g *flowGroup, result *Result) {
	var all []lined
	for _, s := range g.started {
		if w, ok := ck.waitingOf(s); ok {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b lined) int { return cmp.Compare(a.lo, b.lo) })
	for i := range all {
		s := &all[i]
		if g.order(s.lo, s.hi) == store.OrderNone {
			continue
		}
		chosen, arrived := false, false
		for j := i + 1; j < len(all); j++ { // started later
			o := &all[j]
			if o.from >= s.lo || o.until <= s.hi || !ck.startable(g, o, s) {
				continue
			}
			if s.before(g, o, s.hi) {
				chosen = true
				arrived = arrived || s.arrived && o.arrived
			}
			if o.before(g, s, s.hi) {
				ck.violateOrder(o.keyStart, s.keyStart, result, "order", "%s: %s claimed it under lease %s, although "+
					"message %s waited since %d and came before", g.name, s.delivery().actor, s.delivery().lease,
					o.m.id, o.from)
				break
			}
		}
		if chosen {
			result.Order.Chosen++
		}
		if arrived {
			result.Order.Arrived++
		}
	}
}

// startable reports whether a message that waited was certainly due when another one started.
func (ck *checker) startable(g *flowGroup, w, other *lined) bool {
	if w.arrived && g.order(w.at, other.hi) != store.OrderNone {
		return true // whatever the clock says
	}
	at := other.lo
	if ck.slack > 0 {
		d := other.delivery()
		if claim := (call{at: d.call, ret: d.ret}); claim.repeated() {
			return false
		}
		at = d.now
	}
	return w.due*1000 <= at
}

// before reports whether w certainly comes before another message, if both wait. hi is until when the order of their
// queue counts.
func (w *lined) before(g *flowGroup, o *lined, hi int64) bool {
	if w.arrived && o.arrived && g.order(min(w.at, o.at), hi) != store.OrderNone {
		if w.from < o.at || w.inOneCall(o) {
			return true
		}
		if o.from < w.at || o.inOneCall(w) {
			return false
		}
	}
	if w.due != o.due {
		return w.due < o.due
	}
	// What is sent without a delay is due in its millisecond, or begins it.
	return !w.arrived && w.m.id < o.m.id
}

// inOneCall reports whether one call sent w and, behind it, the other message, and was not repeated by its caller.
func (w *lined) inOneCall(o *lined) bool {
	a, b := w.m.sends[0], o.m.sends[0]
	return a.number > 0 && a.number < b.number && a.actor == b.actor && a.at == b.at && a.ret == b.ret &&
		a.known(outcomeOK) && b.known(outcomeOK)
}
