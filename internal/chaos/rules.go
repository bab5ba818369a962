//go:build unix

package chaos

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laterq/later"
)

// check checks what must hold for one message and counts what became of it. What broke a promise in a way that
// the persistence or replication allows is counted as permitted.
func (f *facts) check(m *message, result *Result) {
	touched := f.touched(m)
	violate := func(kind, format string, args ...any) bool {
		if touched {
			result.Undone++
			return false
		}
		result.violateWith(m.history, kind, m.id, format, args...)
		return true
	}
	f.count(m, touched, result)
	f.checkSends(m, result, violate)
	f.checkTimes(m, result, violate)
	f.checkOrder(m, result, violate)
	f.checkHolders(m, result, violate)
	f.checkLeases(m, violate)
	f.checkLeft(m, violate)
}

// violator notes that a promise was broken; false when it was permitted.
type violator func(kind, format string, args ...any) bool

// touched tells whether a write of the message was acknowledged in a time whose writes may be undone.
func (f *facts) touched(m *message) bool {
	in := func(actor string, from, to int64) bool {
		for _, w := range f.windows {
			if strings.HasPrefix(actor, w.actors) && from <= w.to && (to == 0 || to >= w.from) {
				return true
			}
		}
		return false
	}
	for _, s := range slices.Concat(m.sends, m.moves) {
		if in(s.actor, s.at, s.ret) {
			return true
		}
	}
	for _, c := range m.cancels {
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

// count finds what became of a message that was acknowledged.
func (f *facts) count(m *message, touched bool, result *Result) {
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
	case acked:
		result.Delivered++
	case f.left[m.id] != nil && f.left[m.id].State == later.StateDead:
		result.Dead++
	case f.left[m.id] != nil:
		result.StillThere++
	case m.cancelled():
		result.Cancelled++
	case maybe:
		result.Delivered++ // by an ack whose answer nobody lived to hear
		result.Unsure++
	case touched && !durable:
		result.LostPermitted++
	default:
		result.Lost++
		result.violateWith(m.history, "lost", m.id, "was acknowledged and is nowhere")
	}
	result.Sent++
}

// settled tells whether a settle of that action succeeded, or may have.
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

// cancelled tells whether a cancel removed the message, or may have.
func (m *message) cancelled() bool {
	for _, c := range m.cancels {
		if !c.known(outcomeNotFound) {
			return true
		}
	}
	return false
}

// shortestPause is how soon the store makes a call again after a lost answer. A call that took less was made once.
const shortestPause = 2500 * time.Microsecond

// repeated tells whether the store may have made the call more than once. If it was refused, then perhaps because
// it had had its effect before.
func (c *call) repeated() bool { return c.ret-c.at >= shortestPause.Microseconds() }

// gone gives when the message may have been gone for the first time: the beginning of the first ack or cancel that
// may have had its effect. 0 means never.
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

// resent tells whether a send may have been done, or made again by its caller, after the message was gone. It may then
// have come into being once more, unless its id was to be remembered. What the store makes again by itself is one call,
// and done once.
func (m *message) resent() bool {
	gone := m.gone()
	if gone == 0 {
		return false
	}
	for i, s := range m.sends {
		if s.ret > gone && i > 0 || s.unknown() { // one that is unknown may be under way for long after its caller gave up
			return true
		}
	}
	return false
}

// reborn tells whether the message may have come into being once more by the time of a delivery. Until it was gone for
// the first time, no send of it changes anything.
func (f *facts) reborn(m *message, d *delivery) bool {
	by := d.now
	if f.slack > 0 {
		by = d.ret
	}
	return m.resent() && m.gone() <= by
}

// checkSends: what is delivered was sent, whole, and once.
func (f *facts) checkSends(m *message, result *Result, violate violator) {
	for _, h := range m.runs {
		if !h.whole {
			violate("damaged", "its payload is not what was sent")
		}
	}
	if len(m.sends) > 0 {
		for i, s := range m.sends {
			// An id is used once. It is known to the queue at the first try only if that try made it known.
			if gone := m.gone(); i > 0 && m.sends[i-1].acknowledged() && s.known(outcomeOK) && (gone == 0 || s.ret < gone) {
				violate("duplicate", "was sent again while it was living, and taken for a new one")
			}
			if s.known(outcomeDuplicate) && i == 0 && !(s.has(flagRemember) && m.resent()) {
				violate("duplicate", "the first send of the id was refused as a duplicate")
			}
		}
		return
	}
	for _, h := range m.runs {
		// A producer that was killed did not live to write down an id that Later made.
		actor, _, _ := strings.Cut(h.key, "-")
		if f.ended[actor] {
			violate("unknown", "%s never sent it", actor)
		}
	}
	if len(m.deliveries) > 0 {
		result.Unacknowledged++
	}
}

// checkTimes: nothing is early, by the engine's clock, which is that of all processes but for the slack.
func (f *facts) checkTimes(m *message, result *Result, violate violator) {
	early := func(d *delivery, by, slack int64, what string) {
		result.EarlyMost.add(by)
		if by > slack && violate("early", "attempt %d came %d µs before %s", d.attempt, by, what) {
			result.Early++
		}
	}
	asked := m.asked()
	for i, d := range m.deliveries {
		if by := d.due*1000 - d.now; by > 0 {
			slack := f.slack
			if claim := (call{at: d.call, ret: d.ret}); !claim.repeated() {
				slack = 0 // both are of one step of the script, else of the first try and the last
			}
			early(d, by, slack, "its due time")
		}
		if by := asked - d.now; asked > 0 && by > 0 {
			early(d, by, f.slack, "the time that its sender gave")
		}
		if f.slack == 0 && d.now > d.ret {
			violate("clock", "attempt %d was claimed %d µs after the claim's answer, by the engine's clock", d.attempt, d.now-d.ret)
		}
		if late := d.now - d.due*1000; late > result.LatestMicros && f.slack == 0 {
			result.LatestMicros = late
		}
		if i+1 < len(m.deliveries) && !f.reborn(m, m.deliveries[i+1]) && len(m.moves) == 0 { // which may have been made again
			for _, s := range d.settles {
				next := m.deliveries[i+1]
				if by := s.at + s.delay - next.now; s.known(outcomeOK) && s.delay > 0 && by > 0 && s.at < next.now {
					early(next, by, f.slack, "the delay of its "+s.action)
				}
			}
		}
	}
}

// asked gives the earliest time, in µs, that a send or a reschedule of the message gave it; 0 when none is known.
func (m *message) asked() (earliest int64) {
	for _, s := range slices.Concat(m.sends, m.moves) {
		if s.known(outcomeNotFound, outcomeLeased) && !s.repeated() {
			continue // a reschedule that was refused; one that was made again may have been done at first
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

// checkOrder: attempts never shrink, and nothing comes after it was acked or cancelled.
func (f *facts) checkOrder(m *message, result *Result, violate violator) {
	resent := m.resent()
	remembered := len(m.sends) > 0 && f.slack == 0 // a stepped clock forgets sooner
	for _, s := range m.sends {
		remembered = remembered && s.has(flagRemember)
	}
	if resent && len(m.deliveries) > 0 && m.deliveries[len(m.deliveries)-1].call > m.gone() {
		result.Resent++
	}
	if len(m.deliveries) > 0 && len(m.sends) > 0 && !f.reborn(m, m.deliveries[0]) {
		if d, sent := m.deliveries[0], m.sends[0].at/1000; f.uncounted(d, sent, d.attempt-1) {
			violate("attempts", "attempt %d came first, %d ms after it was sent", d.attempt, d.now/1000-sent)
		}
	}
	for i, d := range m.deliveries {
		for _, s := range d.settles {
			if s.action != "ack" || !s.known(outcomeOK) {
				continue
			}
			for _, after := range m.deliveries[i+1:] {
				if f.after(after, s.ret) && (!resent || remembered && !m.cancelled()) &&
					violate("doubled", "was acked under lease %s and claimed again %d µs later", d.lease, after.ret-s.ret) {
					result.Doubled++
				}
			}
		}
		if i+1 == len(m.deliveries) || f.reborn(m, m.deliveries[i+1]) {
			continue
		}
		next := m.deliveries[i+1]
		least := d.attempt + 1 // its lease ended, or it was nacked
		if d.did("release", "snooze") {
			least = d.attempt
		}
		if next.attempt < least {
			violate("attempts", "attempt %d was followed by attempt %d; want %d or more", d.attempt, next.attempt, least)
		}
		if f.uncounted(next, d.deadline-f.lease, next.attempt-least) {
			violate("attempts", "attempt %d was followed by attempt %d after %d ms", d.attempt, next.attempt, next.now/1000-d.deadline+f.lease)
		}
	}
	for _, c := range m.cancels {
		if c.ret == 0 || c.known(outcomeNotFound) || c.unknown() || resent {
			continue
		}
		for _, d := range m.deliveries {
			if f.after(d, c.ret) {
				violate("cancelled", "was cancelled and claimed %d µs later", d.ret-c.ret)
			}
		}
	}
}

// after tells whether a claim was made when a call had been answered, so that it saw what the call did.
func (f *facts) after(d *delivery, answered int64) bool {
	return d.call > answered || f.slack == 0 && d.now > answered
}

// uncounted tells whether a delivery counts more attempts than there can have been. Those that nobody lived to write
// down held the message to the end of a lease each, since a time in ms.
func (f *facts) uncounted(d *delivery, since, attempts int64) bool {
	return f.slack == 0 && attempts > 0 && d.now/1000 < since+attempts*f.lease
}

// did tells whether the delivery was ended by one of the actions, or may have been.
func (d *delivery) did(actions ...string) bool {
	for _, s := range d.settles {
		for _, a := range actions {
			if s.action == a && (s.known(outcomeOK) || s.unknown() || s.repeated()) {
				return true
			}
		}
	}
	return false
}

// checkHolders: at any time one holder at most can settle, and one that can not any more is told so.
func (f *facts) checkHolders(m *message, result *Result, violate violator) {
	for i, d := range m.deliveries[:max(0, len(m.deliveries)-1)] {
		next := m.deliveries[i+1]
		taken := next.now
		if f.slack > 0 {
			taken = next.ret
		}
		settled := false
		for _, s := range d.settles {
			if s.known(outcomeOK) && s.at > taken &&
				violate("two-holders", "%s settled (%s) %d µs after %s had claimed it", d.actor, s.action, s.at-taken, next.actor) {
				result.TwoHolders++
			}
			// Perhaps it was itself what freed the message for the next holder.
			own := s.known(outcomeLost) && s.at < taken && s.guessed()
			settled = settled || s.known(outcomeOK) || s.unknown() || own
		}
		if settled || f.reborn(m, next) || len(m.cancels) > 0 {
			continue
		}
		result.Redelivered++
		if until := f.heldUntil(d, next.call); next.now+f.slack < until*1000 &&
			violate("two-holders", "%s claimed it %d µs before the lease of %s ended", next.actor, until*1000-next.now, d.actor) {
			result.TwoHolders++
		}
		f.measureRedelivery(d, next, result)
		if f.kinds[d.actor] == "worker" && f.ended[d.actor] && !m.wasTold(d) {
			violate("untold", "%s lost attempt %d and was not told", d.actor, d.attempt)
		}
	}
}

// wasTold tells whether the holder of a delivery heard that it is not the holder any more.
func (m *message) wasTold(d *delivery) bool {
	for _, t := range m.tolds {
		if t.actor == d.actor && t.attempt == d.attempt && t.at >= d.call {
			return true
		}
	}
	return false
}

// checkLeft: what is dead has a reason for it.
func (f *facts) checkLeft(m *message, violate violator) {
	info := f.left[m.id]
	if info == nil {
		return
	}
	if did, _ := m.settled("ack"); did && !m.resent() {
		violate("doubled", "was acked and is %s in the end", info.State)
	}
	for _, c := range m.cancels {
		if !c.unknown() && !c.known(outcomeNotFound) && !m.resent() {
			violate("cancelled", "was cancelled and is %s in the end", info.State)
		}
	}
	switch {
	case info.State == later.StateLeased || info.State == later.StateReady:
		violate("stuck", "is %s in the end", info.State)
	case info.State != later.StateDead:
	case info.DeadReason == later.DeadBuried:
		if did, maybe := m.settled("bury"); !did && !maybe {
			violate("dead", "is dead as buried, and nobody buried it")
		}
	case info.DeadReason == later.DeadUnreadable:
		if len(m.sends) == 0 || !m.sends[0].has(flagUnreadable) {
			violate("dead", "is dead as unreadable, and nobody damaged it")
		}
	case info.Attempts < info.MaxAttempts:
		violate("dead", "is dead as %s after %d of %d attempts", info.DeadReason, info.Attempts, info.MaxAttempts)
	}
}

// history tells all that is known of a message, one line for each event, by time.
func (m *message) history() string {
	var lines []string
	add := func(at int64, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("%d ", at)+fmt.Sprintf(format, args...))
	}
	answer := func(c *call) string {
		if c.ret == 0 {
			return "no answer"
		}
		return fmt.Sprintf("%s after %d µs", c.outcome, c.ret-c.at)
	}
	for _, s := range m.sends {
		add(s.at, "%s sends it, due %s, flags %s: %s", s.actor, s.due, s.flags, answer(&s.call))
	}
	for _, s := range m.moves {
		add(s.at, "%s reschedules it, due %s: %s", s.actor, s.due, answer(&s.call))
	}
	for _, c := range m.cancels {
		add(c.at, "%s cancels it: %s", c.actor, answer(c))
	}
	for _, d := range m.deliveries {
		add(d.now, "%s claims attempt %d under lease %s until %d (call from %d to %d)", d.actor, d.attempt, d.lease, d.deadline*1000, d.call, d.ret)
		for _, s := range d.settles {
			add(s.at, "%s settles (%s, delay %d µs) under lease %s: %s", s.actor, s.action, s.delay, d.lease, answer(&s.call))
		}
	}
	for _, h := range m.runs {
		add(h.at, "a handler begins, whole %t", h.whole)
	}
	for _, t := range m.tolds {
		add(t.at, "%s is told that attempt %d is lost", t.actor, t.attempt)
	}
	return joinSorted(lines)
}
