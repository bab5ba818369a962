//go:build unix

package chaos

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laterq/later"
)

// check verifies the guarantees for one message and counts its outcome. Violations that the persistence or replication
// settings permit are only counted.
func (ck *checker) check(m *message, result *Result) {
	mayBeUndone := ck.mayBeUndone(m)
	violate := func(kind, format string, args ...any) bool {
		if mayBeUndone {
			result.Undone++
			return false
		}
		result.violateWith(m.history, kind, m.id, format, args...)
		return true
	}
	if m.follows() {
		ck.checkFollowed(m, result, violate)
		return
	}
	ck.count(m, mayBeUndone, result)
	ck.checkSends(m, result, violate)
	ck.checkTimes(m, result, violate)
	ck.checkOrder(m, result, violate)
	ck.checkHolders(m, result, violate)
	ck.checkAttempts(m, violate)
	ck.checkLeases(m, violate)
	ck.checkHeartbeats(m, violate)
	ck.checkLeft(m, violate)
	ck.checkList(m, violate)
	ck.checkFound(m, violate)
	ck.checkAround(m, result, violate)
}

// violator records a violation. It returns false if the violation was permitted.
type violator func(kind, format string, args ...any) bool

// mayBeUndone reports whether any call for the message overlaps a time of writes that may be undone.
func (ck *checker) mayBeUndone(m *message) bool {
	in := func(actor string, from, to int64) bool {
		for _, w := range ck.windows {
			if strings.HasPrefix(actor, w.actors) && from <= w.to && (to == 0 || to >= w.from) {
				return true
			}
		}
		return false
	}
	for _, s := range slices.Concat(m.sends, m.reschedules) {
		if in(s.actor, s.at, s.ret) {
			return true
		}
	}
	for _, c := range slices.Concat(m.cancels, m.replays) {
		if in(c.actor, c.at, c.ret) {
			return true
		}
	}
	for _, d := range m.deliveries {
		if in(d.actor, d.call, d.ret) {
			return true
		}
		for _, s := range d.settles {
			if in(s.actor, s.at, s.ret) {
				return true
			}
		}
	}
	return false
}

// count adds a message to the counters of the result.
func (ck *checker) count(m *message, mayBeUndone bool, result *Result) {
	result.Deliveries += len(m.deliveries)
	acknowledged, durable := false, false
	for _, s := range m.sends {
		if s.acknowledged() {
			acknowledged, durable = true, durable || s.has(flagDurable)
		} else if s.known("full") {
			result.Refused++
		}
	}
	acked, maybe := m.settled("ack")
	switch {
	case !acknowledged:
		if acked {
			result.Unacknowledged++
		}
		return
	case acked || ck.awayLeft == nil && ck.inList(m) > 0:
		result.Delivered++
	case ck.left[m.id] != nil && ck.left[m.id].State == later.StateDead:
		result.Dead++
	case ck.left[m.id] != nil:
		result.StillThere++
	case m.cancelled():
		result.Cancelled++
	case maybe:
		result.Delivered++ // by an ack that lost its reply
		result.Unsure++
	case mayBeUndone && !durable:
		result.LostPermitted++
	default:
		result.Lost++
		result.violateWith(m.history, "lost", m.id, "was acknowledged and is missing")
	}
	result.Sent++
}

// settled reports whether a settle with that action succeeded, and whether one may have.
func (m *message) settled(action string) (did, maybe bool) {
	for _, d := range m.deliveries {
		for _, s := range d.settles {
			if s.action == action {
				did = did || s.known(outcomeOK)
				maybe = maybe || s.unknown()
			}
		}
	}
	return did, maybe
}

// cancelled reports whether a cancel removed the message, or may have.
func (m *message) cancelled() bool {
	for _, c := range m.cancels {
		if !c.known(outcomeNotFound) {
			return true
		}
	}
	return false
}

// shortestPause is the shortest delay before the store retries a call. A faster call was made only once.
const shortestPause = 2500 * time.Microsecond

// repeated reports whether the store may have made the call more than once. A repeated call may be refused because its
// first attempt took effect.
func (c *call) repeated() bool { return c.ret-c.at >= shortestPause.Microseconds() }

// gone returns the earliest time when the message may have been gone: the start of the first ack or cancel that may
// have taken effect. It returns 0 if there is none.
func (m *message) gone() (at int64) {
	earlier := func(t int64) {
		if at == 0 || t < at {
			at = t
		}
	}
	for _, d := range m.deliveries {
		for _, s := range d.settles {
			if s.action == "ack" && (s.known(outcomeOK) || s.unknown()) {
				earlier(s.at)
			}
		}
	}
	for _, c := range m.cancels {
		if !c.known(outcomeNotFound) || c.repeated() {
			earlier(c.at)
		}
	}
	return at
}

// resent reports whether a send may have been executed, or retried by its caller, after the message was gone. It may
// then have created the message again, unless its id had a dedup window. Retries by the store itself count as one call,
// which is executed once.
func (m *message) resent() bool {
	gone := m.gone()
	if gone == 0 {
		return false
	}
	for i, s := range m.sends {
		// A send with an unknown outcome may take effect long after its caller gave up.
		if s.ret > gone && i > 0 || s.unknown() {
			return true
		}
	}
	return false
}

// recreated reports whether the message may have been created again before a delivery. Until the message is gone for
// the first time, sending it again changes nothing.
func (ck *checker) recreated(m *message, d *delivery) bool {
	by := d.now
	if ck.slack > 0 {
		by = d.ret
	}
	return m.resent() && m.gone() <= by
}

// checkSends checks that each delivered message was sent, is undamaged, and was accepted once.
func (ck *checker) checkSends(m *message, result *Result, violate violator) {
	for _, h := range m.runs {
		if !h.whole {
			violate("damaged", "its payload differs from the one sent")
		}
	}
	if len(m.sends) > 0 {
		for i, s := range m.sends {
			// Each id is used for one message, so its first send finds the id taken only by an earlier attempt.
			if gone := m.gone(); i > 0 && m.sends[i-1].acknowledged() && s.known(outcomeOK) &&
				(gone == 0 || s.ret < gone) {
				violate("duplicate", "was sent again while live, and accepted as new")
			}
			if s.known(outcomeDuplicate) && i == 0 && !(s.has(flagDedup) && m.resent()) {
				violate("duplicate", "the first send of the id was refused as a duplicate")
			}
		}
		return
	}
	for _, h := range m.runs {
		// A killed producer may have died before it recorded an id generated by Later.
		actor, _, _ := strings.Cut(h.key, "-")
		if ck.ended[actor] {
			violate("unknown", "%s never sent it", actor)
		}
	}
	if len(m.deliveries) > 0 {
		result.Unacknowledged++
	}
}

// checkTimes checks that no delivery is early by the engine's clock. That is the clock of all processes, except for
// the slack.
func (ck *checker) checkTimes(m *message, result *Result, violate violator) {
	early := func(d *delivery, by, slack int64, what string) {
		result.EarlyMost.add(by)
		if by > slack && violate("early", "attempt %d came %d µs before %s", d.attempt, by, what) {
			result.Early++
		}
	}
	asked := m.requestedDue()
	for i, d := range m.deliveries {
		if by := d.due*1000 - d.now; by > 0 {
			slack := ck.slack
			if claim := (call{at: d.call, ret: d.ret}); !claim.repeated() && ck.flows[d.queue] == nil {
				slack = 0 // both times come from one script call; otherwise from the first attempt and the last
			} // a message that is sorted among those of its key stays ready when the clock is set back
			early(d, by, slack, "its due time")
		}
		if by := asked - d.now; asked > 0 && by > 0 {
			early(d, by, ck.slack, "the due time that its sender requested")
		}
		if ck.slack == 0 && d.now > d.ret {
			violate("clock", "attempt %d was claimed %d µs after its claim returned, by the engine's clock",
				d.attempt, d.now-d.ret)
		}
		if late := d.now - d.due*1000; late > result.LatestMicros && ck.slack == 0 {
			result.LatestMicros = late
		}
		// A reschedule or replay may have been repeated, so it excuses the message.
		if i+1 < len(m.deliveries) && !ck.recreated(m, m.deliveries[i+1]) && len(m.reschedules)+len(m.replays) == 0 {
			for _, s := range d.settles {
				next := m.deliveries[i+1]
				if by := s.at + s.delay - next.now; s.known(outcomeOK) && s.delay > 0 && by > 0 && s.at < next.now {
					early(next, by, ck.slack, "the delay of its "+s.action)
				}
			}
		}
	}
}

// requestedDue returns the earliest due time, in µs, requested by a send or reschedule, or 0 if none is known.
func (m *message) requestedDue() (earliest int64) {
	for _, s := range slices.Concat(m.sends, m.reschedules) {
		if s.known(outcomeNotFound, outcomeLeased) && !s.repeated() {
			continue // refused; a repeated one may have taken effect at first
		}
		if len(s.due) < 2 {
			return 0
		}
		at, err := strconv.ParseInt(s.due[1:], 10, 64)
		if err != nil {
			return 0
		}
		if at *= 1000; s.due[0] == '+' {
			at += s.at
		}
		if earliest == 0 || at < earliest {
			earliest = at
		}
	}
	return earliest
}

// checkOrder checks that no delivery follows an ack or a cancel, and that there was time for each attempt.
func (ck *checker) checkOrder(m *message, result *Result, violate violator) {
	resent := m.resent()
	dedup := len(m.sends) > 0 && ck.slack == 0 // a stepped clock shortens the dedup window
	for _, s := range m.sends {
		dedup = dedup && s.has(flagDedup)
	}
	if resent && len(m.deliveries) > 0 && m.deliveries[len(m.deliveries)-1].call > m.gone() {
		result.Resent++
	}
	if len(m.deliveries) > 0 && len(m.sends) > 0 && !ck.recreated(m, m.deliveries[0]) {
		if d, sent := m.deliveries[0], m.sends[0].at/1000; ck.tooManyAttempts(d, sent, d.attempt-1) {
			violate("attempts", "attempt %d came first, %d ms after it was sent", d.attempt, d.now/1000-sent)
		}
	}
	for i, d := range m.deliveries {
		for _, s := range d.settles {
			if s.action != "ack" || !s.known(outcomeOK) {
				continue
			}
			for _, after := range m.deliveries[i+1:] {
				if ck.claimedAfter(after, s.ret) && (!resent || dedup && !m.cancelled()) &&
					violate("doubled", "was acked under lease %s and claimed again %d µs later", d.lease,
						after.ret-s.ret) {
					result.Doubled++
				}
			}
		}
		if i+1 == len(m.deliveries) || ck.recreated(m, m.deliveries[i+1]) {
			continue
		}
		next := m.deliveries[i+1]
		least := d.attempt + 1 // the lease expired, or the message was nacked
		if d.endedBy("release", "snooze") {
			least = d.attempt
		}
		if ck.tooManyAttempts(next, d.deadline-ck.lease, next.attempt-least) {
			violate("attempts", "attempt %d was followed by attempt %d after %d ms",
				d.attempt, next.attempt, next.now/1000-d.deadline+ck.lease)
		}
	}
	for _, c := range m.cancels {
		if c.ret == 0 || c.known(outcomeNotFound) || c.unknown() || resent {
			continue
		}
		for _, d := range m.deliveries {
			if ck.claimedAfter(d, c.ret) {
				violate("cancelled", "was cancelled and claimed %d µs later", d.ret-c.ret)
			}
		}
	}
}

// claimedAfter reports whether a claim was executed after a call had returned, so that it saw the call's effect.
func (ck *checker) claimedAfter(d *delivery, returned int64) bool {
	return d.call > returned || ck.slack == 0 && d.now > returned
}

// tooManyAttempts reports whether a delivery counts more attempts than possible since a time in ms. Each unrecorded
// attempt held the message for a full lease.
func (ck *checker) tooManyAttempts(d *delivery, since, attempts int64) bool {
	return ck.slack == 0 && attempts > 0 && d.now/1000 < since+attempts*ck.lease
}

// endedBy reports whether one of the actions ended the delivery, or may have.
func (d *delivery) endedBy(actions ...string) bool {
	for _, s := range d.settles {
		for _, a := range actions {
			if s.action == a && (s.known(outcomeOK) || s.unknown() || s.repeated()) {
				return true
			}
		}
	}
	return false
}

// checkHolders checks that at most one holder at a time can settle, and that a lost lease is reported to its holder.
func (ck *checker) checkHolders(m *message, result *Result, violate violator) {
	for i, d := range m.deliveries[:max(0, len(m.deliveries)-1)] {
		next := m.deliveries[i+1]
		taken := next.now
		if ck.slack > 0 {
			taken = next.ret
		}
		settled := false
		for _, s := range d.settles {
			if s.known(outcomeOK) && s.at > taken &&
				violate("two-holders", "%s settled (%s) %d µs after %s had claimed it",
					d.actor, s.action, s.at-taken, next.actor) {
				result.TwoHolders++
			}
			// The settle itself may have made the message available to the next holder.
			own := s.known(outcomeLost) && s.at < taken && s.ambiguous()
			settled = settled || s.known(outcomeOK) || s.unknown() || own
		}
		if settled || ck.recreated(m, next) || len(m.cancels) > 0 {
			continue
		}
		result.Redelivered++
		if until := ck.heldUntil(d, next.call); next.now+ck.slack < until*1000 &&
			violate("two-holders", "%s claimed it %d µs before the lease of %s ended",
				next.actor, until*1000-next.now, d.actor) {
			result.TwoHolders++
		}
		ck.measureRedelivery(d, next, result)
		if ck.kinds[d.actor] == "worker" && ck.ended[d.actor] && !m.lossReported(d) {
			violate("unreported", "%s lost attempt %d, which was not reported to it", d.actor, d.attempt)
		}
	}
}

// lossReported reports whether the loss of a delivery was reported to its holder.
func (m *message) lossReported(d *delivery) bool { return m.lossOf(d) != nil }

// lossOf returns the report that a delivery was lost, or nil.
func (m *message) lossOf(d *delivery) *leaseLoss {
	for i, t := range m.leaseLosses {
		if t.actor == d.actor && t.attempt == d.attempt && t.at >= d.call {
			return &m.leaseLosses[i]
		}
	}
	return nil
}

// checkLeft checks that messages left in the store are in a permitted state, and that each dead one has a cause.
func (ck *checker) checkLeft(m *message, violate violator) {
	info := ck.left[m.id]
	if info == nil {
		return
	}
	if did, _ := m.settled("ack"); did && !m.resent() {
		violate("doubled", "was acked and is %s after the run", info.State)
	}
	for _, c := range m.cancels {
		if !c.unknown() && !c.known(outcomeNotFound) && !m.resent() {
			violate("cancelled", "was cancelled and is %s after the run", info.State)
		}
	}
	switch {
	case info.State == later.StateLeased || info.State == later.StateReady:
		violate("stuck", "is %s after the run", info.State)
	case info.State != later.StateDead:
	case info.DeadReason == later.DeadBuried:
		if did, maybe := m.settled("bury"); !did && !maybe {
			violate("dead", "is dead as buried, but was not buried")
		}
	case info.DeadReason == later.DeadUnreadable:
		if len(m.sends) == 0 || !m.sends[0].has(flagUnreadable) {
			violate("dead", "is dead as unreadable, but was not damaged")
		}
	case info.DeadReason == later.DeadExpired:
		if len(m.sends) == 0 || !m.sends[0].has(flagExpires) {
			violate("dead", "is dead as expired, but has no expiry")
		}
		for _, d := range m.deliveries {
			if !d.endedBy("release") && !m.resent() {
				violate("dead", "is dead as expired, but was delivered")
				break
			}
		}
	case info.Attempts < info.MaxAttempts:
		violate("dead", "is dead as %s after %d of %d attempts", info.DeadReason, info.Attempts, info.MaxAttempts)
	}
}
