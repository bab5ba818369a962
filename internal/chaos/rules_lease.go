//go:build unix

package chaos

import "strings"

// checkLeases: a lease lasts as long as was asked for; until then its holder is not refused, and after that it is. The
// engine's clock is that of all processes, so nothing is checked where that was stepped.
func (f *facts) checkLeases(m *message, violate violator) {
	if f.slack > 0 || f.lease == 0 {
		return
	}
	for _, d := range m.deliveries {
		claim := call{at: d.call, ret: d.ret}
		// A claim that was made again tells the lease of the first try, and the time of the last.
		if asked := d.now/1000 + f.lease; d.deadline > asked || d.deadline < asked && !claim.repeated() {
			violate("lease", "attempt %d was claimed for %d ms; want %d", d.attempt, d.deadline-d.now/1000, f.lease)
		}
		if len(d.settles) > 0 {
			f.checkFence(m, d, d.settles[0], violate)
		}
		for _, e := range f.extends[d.lease] {
			if end, known := f.heldAtMost(d, e.call); known && e.deadline > 0 && e.call > end*1000 {
				violate("late", "%s extended attempt %d %d µs after its lease had ended", d.actor, d.attempt, e.call-end*1000)
			}
		}
	}
}

// checkFence checks the first settle of a delivery.
func (f *facts) checkFence(m *message, d *delivery, s *settle, violate violator) {
	if end, known := f.heldAtMost(d, s.at); known && s.known(outcomeOK) && !s.guessed() && s.at > end*1000 {
		violate("late", "%s settled (%s) attempt %d %d µs after its lease had ended", d.actor, s.action, d.attempt, s.at-end*1000)
	}
	for _, c := range m.cancels {
		if !c.known(outcomeNotFound) && !c.unknown() && d.ret < c.at && c.ret < s.at && s.known(outcomeOK) && !s.guessed() {
			violate("late", "%s settled (%s) attempt %d %d µs after it was cancelled", d.actor, s.action, d.attempt, s.at-c.ret)
		}
		if !c.known(outcomeNotFound) && c.at < s.ret {
			return
		}
	}
	if held := f.heldUntil(d, s.at); s.known(outcomeLost) && s.ret < held*1000 {
		violate("refused", "%s was refused to settle (%s) attempt %d, %d µs before its lease ended", d.actor, s.action, d.attempt, held*1000-s.ret)
	}
}

// heldUntil gives, in ms of the engine's clock, until when a delivery was held for certain, by what was answered before
// a time.
func (f *facts) heldUntil(d *delivery, before int64) int64 {
	until := d.deadline
	for _, e := range f.extends[d.lease] {
		undone := false
		for _, w := range f.windows {
			undone = undone || e.call <= w.to && e.ret >= w.from
		}
		if e.ret < before && !undone {
			until = max(until, e.deadline)
		}
	}
	return until
}

// heldAtMost gives, in ms of the engine's clock, when the lease of a delivery had ended at the latest, by what was asked
// for before a time. It is not known for a process that was killed with a call under way.
func (f *facts) heldAtMost(d *delivery, before int64) (until int64, known bool) {
	if !f.ended[d.actor] || strings.HasPrefix(d.actor, stale) {
		return 0, false
	}
	until = d.deadline
	for _, e := range f.extends[d.lease] {
		if e.call >= before {
			continue
		}
		if e.deadline == 0 && !e.refused {
			return 0, false
		}
		until = max(until, e.deadline+f.late) // the extension that came late may have been the last
	}
	return until, true
}
