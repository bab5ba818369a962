package turns

import "github.com/laterq/later/store"

// class is a set of messages that take turns by themselves: the messages of one urgency. The next class follows from
// the rule of choose.
type class int

// The classes, in the order in which they start while none has waited for long.
const (
	high class = iota
	normal
	low
	classes // the number of classes
)

var urgencies = [classes]store.Urgency{store.UrgencyHigh, store.UrgencyNormal, store.UrgencyLow}

func classOf(u store.Urgency) class {
	switch u {
	case store.UrgencyHigh:
		return high
	case store.UrgencyLow:
		return low
	}
	return normal
}

// Passed counts the starts of other classes that have passed a class over while it had a message that could start.
type Passed struct{ Normal, Low int }

// choose returns the next of the classes that may start: high before normal before low, unless one has been passed over
// too often. At its last place among store.LowEvery starts, a start of normal may be owed too, so low
// goes one start earlier.
func (p Passed) choose(may [classes]bool) (next class, ok bool) {
	switch {
	case may[normal] && p.Normal >= store.NormalEvery-1:
		return normal, true
	case may[low] && p.Low >= store.LowEvery-2:
		return low, true
	}
	for c := range classes {
		if may[c] {
			return c, true
		}
	}
	return 0, false
}

// count counts a start.
func (p *Passed) count(started class, may [classes]bool) {
	for c, n := range map[class]*int{normal: &p.Normal, low: &p.Low} {
		if c == started {
			*n = 0
		} else if may[c] {
			*n++
		}
	}
}

// Passed returns the counts by which the Order chooses the next class. An engine that outlives its process keeps them.
func (o *Order) Passed() Passed { return o.passed }

// RestorePassed sets the counts that Passed has returned.
func (o *Order) RestorePassed(p Passed) { o.passed = p }
