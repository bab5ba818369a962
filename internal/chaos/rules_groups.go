//go:build unix

package chaos

import "slices"

// groupChange is a call that cancelled or rescheduled a group.
type groupChange struct {
	call
	do            string
	delay         int64 // ms
	changed, kept int64
	// Of the messages that were sent before the call, certain were in the store during all of it, and possible may have
	// been. They are counted only for the first call, if it succeeded.
	certain, possible int64
}

// groupHistory is the calls for each group, in order of time. Only one process uses a group.
type groupHistory map[string][]*groupChange

func (h groupHistory) add(actor string, x record) {
	g := &groupChange{
		call: call{actor: actor, at: x.number(2), ret: x.at, outcome: x.field(4)}, do: x.field(1), delay: x.number(3),
		changed: x.number(5), kept: x.number(6),
	}
	h[x.field(0)] = append(h[x.field(0)], g)
}

// checkGrouped checks that a change of the message's group changed it, if it was in the store.
func (ck *checker) checkGrouped(m *message, violate violator) {
	unsure := slices.ContainsFunc(m.sends, func(s *send) bool { return !s.acknowledged() })
	if m.group == "" || len(m.sends) == 0 || unsure {
		return
	}
	for i, g := range ck.groups[m.group] {
		if !g.known(outcomeOK) || g.at < m.sends[len(m.sends)-1].ret {
			continue
		}
		if i == 0 {
			ck.countGrouped(m, g)
		}
		switch g.do {
		case cancelGroup:
			ck.checkGroupCancelled(m, g, violate)
		case rescheduleGroup:
			ck.checkGroupMoved(m, g, violate)
		}
	}
}

func (ck *checker) checkGroupCancelled(m *message, g *groupChange, violate violator) {
	for _, d := range m.deliveries {
		if ck.claimedAfter(d, g.ret) {
			violate("uncancelled", "was claimed under lease %s, %d µs after its group was cancelled", d.lease,
				d.ret-g.ret)
		}
	}
	if info := ck.left[m.id]; info != nil {
		violate("uncancelled", "is %s, although its group was cancelled", info.State)
	}
}

// checkGroupMoved checks the due time of a message that nothing else can have moved: it was due long after the run. An
// attempt moves it, also one that no consumer saw.
func (ck *checker) checkGroupMoved(m *message, g *groupChange, violate violator) {
	from, to := g.at/1000+g.delay, g.ret/1000+1+g.delay+ck.slack/1000
	if info := ck.left[m.id]; info != nil && len(m.deliveries) == 0 && info.Attempts == 0 {
		if due := info.Due.UnixMilli(); due < from || due > to {
			violate("unmoved", "is due at %d ms, although its group was moved to %d to %d", due, from, to)
		}
	}
	if len(m.deliveries) > 0 && m.deliveries[0].attempt == 1 {
		if due := m.deliveries[0].due; due < from || due > to {
			violate("unmoved", "was due at %d ms, although its group was moved to %d to %d", due, from, to)
		}
	}
}

// countGrouped counts the message for the first call of its group.
func (ck *checker) countGrouped(m *message, g *groupChange) {
	certain, possible := true, true
	for _, d := range m.deliveries {
		for _, s := range d.settles {
			if s.action == "ack" && (s.known(outcomeOK) || s.unknown()) && s.at < g.ret {
				certain = false
				possible = possible && !(s.known(outcomeOK) && s.ret < g.at)
			}
		}
	}
	for _, c := range m.cancels {
		if c.outcome != outcomeGroup && c.at < g.ret { // by a handler
			certain = false
		}
	}
	if certain {
		g.certain++
	}
	if possible {
		g.possible++
	}
}

// checkGroups checks the counts of the first call for each group.
func (ck *checker) checkGroups(result *Result) {
	for name, calls := range ck.groups {
		if g := calls[0]; g.known(outcomeOK) {
			if n := g.changed + g.kept; n < g.certain || n > g.possible {
				result.violate("miscounted", "-", "%s of %s found %d messages; want %d to %d", g.do, name, n,
					g.certain, g.possible)
			}
		}
	}
}
