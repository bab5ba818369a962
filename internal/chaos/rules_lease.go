//go:build unix

package chaos

import "strings"

// checkLeases checks that a lease lasts as long as requested, and that settles are accepted until then and refused
// afterwards. It checks nothing if the engine's clock was stepped.
func (ck *checker) checkLeases(m *message, violate violator) {
	if ck.slack > 0 || ck.lease == 0 {
		return
	}
	for _, d := range m.deliveries {
		claim := call{at: d.call, ret: d.ret}
		// A repeated claim has the deadline of its first attempt and the time of its last.
		asked := d.now/1000 + ck.lease
		least := asked
		if ck.grouped {
			least = d.call/1000 + ck.lease
		}
		if d.deadline > asked || d.deadline < least && !claim.repeated() {
			violate("lease", "attempt %d was claimed for %d ms; want %d", d.attempt, d.deadline-d.now/1000, ck.lease)
		}
		if len(d.settles) > 0 {
			ck.checkFence(m, d, d.settles[0], violate)
		}
		for _, e := range ck.extends[d.lease] {
			if end, known := ck.heldAtMost(d, e.call); known && e.deadline > 0 && e.call > end*1000 {
				violate("late", "%s extended attempt %d %d µs after its lease had ended",
					d.actor, d.attempt, e.call-end*1000)
			}
		}
	}
}

// checkFence checks the first settle of a delivery.
func (ck *checker) checkFence(m *message, d *delivery, s *settle, violate violator) {
	if end, known := ck.heldAtMost(d, s.at); known && s.known(outcomeOK) && !s.ambiguous() && s.at > end*1000 {
		violate("late", "%s settled (%s) attempt %d %d µs after its lease had ended",
			d.actor, s.action, d.attempt, s.at-end*1000)
	}
	for _, c := range m.cancels {
		if !c.known(outcomeNotFound) && !c.unknown() && d.ret < c.at && c.ret < s.at && s.known(outcomeOK) &&
			!s.ambiguous() {
			violate("late", "%s settled (%s) attempt %d %d µs after it was cancelled", d.actor, s.action,
				d.attempt, s.at-c.ret)
		}
		if !c.known(outcomeNotFound) && c.at < s.ret {
			return
		}
	}
	if held := ck.heldUntil(d, s.at); s.known(outcomeLost) && s.ret < held*1000 {
		violate("refused", "the settle (%[2]s) of attempt %[3]d by %[1]s was refused %[4]d µs before its lease ended",
			d.actor, s.action, d.attempt, held*1000-s.ret)
	}
}

// heldUntil returns until when a delivery was certainly held, in ms of the engine's clock, considering only replies
// before a given time.
func (ck *checker) heldUntil(d *delivery, before int64) int64 {
	until := d.deadline
	for _, e := range ck.extends[d.lease] {
		undone := false
		for _, w := range ck.windows {
			undone = undone || e.call <= w.to && e.ret >= w.from
		}
		if e.ret < before && !undone {
			until = max(until, e.deadline)
		}
	}
	return until
}

// heldAtMost returns when the lease of a delivery had certainly ended, in ms of the engine's clock, considering only
// requests before a given time. This is unknown for a process killed during a call.
func (ck *checker) heldAtMost(d *delivery, before int64) (until int64, known bool) {
	if !ck.ended[d.actor] || strings.HasPrefix(d.actor, stale) {
		return 0, false
	}
	until = d.deadline
	for _, e := range ck.extends[d.lease] {
		if e.call >= before {
			continue
		}
		if e.deadline == 0 && !e.refused {
			return 0, false
		}
		until = max(until, e.deadline+ck.late) // a late extension may have been the last
	}
	return until, true
}
