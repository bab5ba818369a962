//go:build unix

package chaos

import (
	"fmt"
	"strings"
)

// AroundText returns tables of the facts that runs of the faults watch, locks, fleet and flow verified in addition to
// the messages, or "" if there were none.
func AroundText(results []*Result) string {
	var rows strings.Builder
	for _, name := range []string{"watch", "locks", "fleet"} {
		if sum, runs := sumOf(results, name); runs > 0 {
			fmt.Fprintf(&rows, "| `%s` | %d | %d | %d | %d, %d | %d | %d | %d | %d | %s | %d | %d |\n", name, runs,
				sum.Injected,
				sum.EventsSeen, sum.EventsMissed, sum.Gaps, sum.StreamsChecked, sum.LocksHeld, sum.LocksLost,
				sum.LocksBeside,
				sum.LockFreed, sum.Told, sum.Obeyed)
		}
	}
	if rows.Len() == 0 {
		return flowText(results)
	}
	return "\n| fault | runs | faults injected | events received | events missed, gaps | " +
		"streams without a gap compared | " +
		"handlers with a lock | locks lost | beside one with an expired lock | key free after its holder's death s | " +
		"commands to workers | obeyed |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n" +
		rows.String() + flowText(results)
}

// sumOf returns the facts that all runs of a fault verified, and the number of runs.
func sumOf(results []*Result, fault string) (sum Result, runs int) {
	for _, r := range results {
		if r.Fault == fault {
			runs++
			sum.addAround(r)
		}
	}
	return sum, runs
}

// addAround adds the facts that another run verified.
func (r *Result) addAround(o *Result) {
	r.Injected += o.Injected
	r.EventsSeen += o.EventsSeen
	r.EventsMissed += o.EventsMissed
	r.Gaps += o.Gaps
	r.StreamsChecked += o.StreamsChecked
	r.LocksHeld += o.LocksHeld
	r.LocksLost += o.LocksLost
	r.LocksBeside += o.LocksBeside
	r.LockFreed.merge(o.LockFreed)
	r.Told += o.Told
	r.Obeyed += o.Obeyed
	r.FlowChanges += o.FlowChanges
	r.FlowQueues.add(o.FlowQueues)
	r.FlowKeys.add(o.FlowKeys)
	r.Order.add(o.Order)
	r.Urgency.add(o.Urgency)
	r.FlowTurns += o.FlowTurns
	r.FlowPassed = max(r.FlowPassed, o.FlowPassed)
	r.FlowWait.merge(o.FlowWait)
}

// flowFaults are the faults whose queues have limits.
var flowFaults = []string{"flow", "flow-embedded", "flow-memory", "flow-cluster", "flow-failover", "flow-clock",
	"reshard", "reshard-cluster", "reshard-failover"}

// flowText returns a table of what runs of the flow faults verified about limits, or "" if there were none.
func flowText(results []*Result) string {
	var rows strings.Builder
	for _, name := range flowFaults {
		if sum, runs := sumOf(results, name); runs > 0 {
			fmt.Fprintf(&rows, "| `%s` | %d | %d | %d | %d | %d, %d | %d, %d | %d | %d | %s |\n", name, runs,
				sum.Injected, sum.FlowChanges, sum.FlowQueues.Starts, sum.FlowQueues.Paced, sum.FlowKeys.Paced,
				sum.FlowQueues.Full, sum.FlowKeys.Full, sum.FlowTurns, sum.FlowPassed, sum.FlowWait)
		}
	}
	if rows.Len() == 0 {
		return ""
	}
	return orderText(results) + urgencyText(results) + "\n| fault | runs | faults injected | limits set | starts | " +
		"claims that used up the rate of the queue, of the key | " +
		"claims that used up the concurrency of the queue, of the key | " +
		"claims for which the turns are known | most messages of another key before one | " +
		"longest wait that the limits did not require s |\n" +
		"|---|---|---|---|---|---|---|---|---|---|\n" + rows.String()
}

// orderText returns a table of what these runs verified about the order of keys.
func orderText(results []*Result) string {
	var rows strings.Builder
	for _, name := range flowFaults {
		if sum, runs := sumOf(results, name); runs > 0 {
			o := sum.Order
			fmt.Fprintf(&rows, "| `%s` | %d | %d | %d | %d, %d | %d | %d | %d |\n", name, runs, o.Started, o.Returned,
				o.Chosen, o.Arrived, o.Halted, o.Resumed, o.Fences)
		}
	}
	return "\n| fault | runs | starts of another message of an ordered key | of the same one again | " +
		"starts with another that waited behind, both without a delay | deaths that halted a key | " +
		"keys resumed by hand | fences |\n|---|---|---|---|---|---|---|---|\n" + rows.String()
}

// urgencyText returns a table of what these runs verified about the urgency of messages.
func urgencyText(results []*Result) string {
	var rows strings.Builder
	for _, name := range flowFaults {
		if sum, runs := sumOf(results, name); runs > 0 {
			u := sum.Urgency
			fmt.Fprintf(&rows, "| `%s` | %d | %d, %d | %d, %d, %d | %d | %d, %d |\n", name, runs, u.Taken, u.Refused,
				u.High, u.Normal, u.Low, u.Several, u.NormalShare, u.LowShare)
		}
	}
	return "\n| fault | runs | sends of calls with an urgency that were taken, refused | " +
		"starts of high, normal, low urgency | claims while a message of another urgency waited | " +
		"normal, low starts by their share while a more urgent message waited |\n|---|---|---|---|---|---|\n" +
		rows.String()
}
