//go:build unix

package chaos

import (
	"fmt"
	"strings"
	"testing"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// orderJournal has the records of messages with the key "k", in a queue with an order. Times are in ms after 10 s.
type orderJournal struct{ flowJournal }

func (j orderJournal) ordered(order store.Order) string {
	return j.set(-1000, -999, store.Flow{Key: store.KeyFlow{Order: order}})
}

// send is a send that is answered 0.1 ms later.
func (j orderJournal) send(ms float64, id, due string, more ...any) string {
	return j.sends(ms, ms+0.1, id, due, more...)
}

func (j orderJournal) sends(ms, answered float64, id, due string, more ...any) string {
	return fmt.Sprintf("s %d %s %s %s - k %sS %d %s ok\n", j.at(ms), id, id, due, fmt.Sprintln(more...), j.at(answered),
		id)
}

// due is a due time for send.
func (j orderJournal) due(ms float64) string { return fmt.Sprint("@", j.at(ms)/1000) }

// start is a claim of a message that is due at a time. Its lease has the name of the message and its attempt.
func (j orderJournal) start(ms float64, id string, attempt int, due float64, fence int64) string {
	return j.startUnder(ms, id, attempt, attempt, due, fence)
}

func (j orderJournal) startUnder(ms float64, id string, lease, attempt int, due float64, fence int64) string {
	return fmt.Sprintf("c %d %s %d %d %d %s%d q %d %d 10 k %d\n", j.at(ms)+50, id, j.at(ms)-50, j.at(ms),
		j.at(ms+1000)/1000, id, lease, j.at(due)/1000, attempt, fence)
}

// settle settles a message under the lease of an attempt, within 0.1 ms.
func (j orderJournal) settle(ms float64, id string, attempt int, action string) string {
	return j.settled(ms, id, attempt, action, "ok")
}

func (j orderJournal) settled(ms float64, id string, attempt int, action, outcome string) string {
	return fmt.Sprintf("x %d %s %s%d %s 0\nX %d %s %[3]s%[4]d %[8]s\n", j.at(ms), id, id, attempt, action, j.at(ms+0.1),
		id, outcome)
}

// once is a start of the first attempt that is acked within half a ms.
func (j orderJournal) once(ms float64, id string, due float64, fence int64) string {
	return j.start(ms, id, 1, due, fence) + j.settle(ms+0.4, id, 1, "ack")
}

func (j orderJournal) resume(ms float64, key, outcome string) string {
	return fmt.Sprintf("u %d - q %d %s %s\n", j.at(ms+0.1), j.at(ms), key, outcome)
}

// of is a call for a message that is answered 0.1 ms later: 'k', 'm' or 'r'.
func (j orderJournal) of(ms float64, kind, id, outcome string) string {
	what, due, _ := strings.Cut(kind, " ")
	return fmt.Sprintf("%s %d %s %s\n%s %d %s %s\n", what, j.at(ms), id, due, strings.ToUpper(what), j.at(ms+0.1), id,
		outcome)
}

func TestCheckerFindsKeysThatAreNotHeld(t *testing.T) {
	var j orderJournal
	goesOn, halts := j.ordered(store.OrderContinue), j.ordered(store.OrderHalt)
	two := j.send(0, "a", "+0") + j.send(1, "b", "+0")
	began := two + j.start(2, "a", 1, 0, 20)
	again := func(ms float64) string { return j.start(ms, "a", 2, 0, int64(ms*10)) + j.settle(ms+0.4, "a", 2, "ack") }
	first := func(ms float64) string {
		return j.startUnder(ms, "a", 9, 1, 0, int64(ms*10)) + j.settle(ms+0.4, "a", 9, "ack")
	}
	b := func(ms float64) string { return j.once(ms, "b", 1, int64(ms*10)) }
	last := j.send(0, "a", "+0", 1) + j.send(1, "b", "+0") + j.start(2, "a", 1, 0, 20)
	nacked, buried := j.settle(3, "a", 1, "nack"), j.settle(3, "a", 1, "bury")
	set := func(f store.Flow) string { return j.set(3.2, 3.3, f) }
	const broken = "held"
	dead := map[string]*later.Info{"a": {State: later.StateDead, DeadReason: later.DeadBuried, Attempts: 1}}
	for name, c := range map[string]struct {
		journal, want string
		left          map[string]*later.Info
	}{
		"acked": {goesOn + began + j.settle(3, "a", 1, "ack") + b(4), "", nil},
		"its ack has no answer": {
			goesOn + began + j.settled(3, "a", 1, "ack", "unavailable") + b(4), "", nil,
		},
		"acked too late": {
			goesOn + began + b(4) + j.settle(5, "a", 1, "ack"), "concurrency held", nil,
		},
		"its ack was refused": {
			goesOn + began + j.settled(3, "a", 1, "ack", "lease_lost") + b(4) + again(1010), broken, nil,
		},
		"nacked":              {goesOn + began + nacked + again(4) + b(5), "", nil},
		"nacked, and another": {goesOn + began + nacked + b(4) + again(5), broken, nil},
		"snoozed":             {goesOn + began + j.settle(3, "a", 1, "snooze") + first(4) + b(5), "", nil},
		"snoozed, and another": {
			goesOn + began + j.settle(3, "a", 1, "snooze") + b(4) + first(5), broken, nil,
		},
		"released, and another": {
			goesOn + began + j.settle(3, "a", 1, "release") + b(4) + first(5), broken, nil,
		},
		"its lease ended":              {goesOn + began + again(1010) + b(1011), "", nil},
		"its lease ended, and another": {goesOn + began + b(1010) + again(1011), broken, nil},
		"cancelled":                    {goesOn + began + nacked + j.of(3.5, "k", "a", "scheduled") + b(4), "", nil},
		"perhaps cancelled": {
			goesOn + began + nacked + j.of(3.5, "k", "a", "unavailable") + b(4) + again(5), "", nil,
		},
		"its cancel was refused": {
			goesOn + began + nacked + j.of(3.5, "k", "a", "not_found") + b(4) + again(5), broken, nil,
		},
		"nacked for the last time":        {goesOn + last + nacked + j.of(9, "k", "a", "dead") + b(4), "", nil},
		"a lease ended for the last time": {goesOn + last + j.of(1020, "k", "a", "dead") + b(1010), "", nil},
		"halted by a nack":                {halts + last + nacked + j.of(9, "k", "a", "dead") + b(4), broken, nil},
		"halted by the end of a lease":    {halts + last + j.of(1020, "k", "a", "dead") + b(1010), broken, nil},
		"halted by a bury":                {halts + began + buried + b(4), broken, dead},
		"buried":                          {goesOn + began + buried + b(4), "", dead},
		"halted and removed":              {halts + last + nacked + j.of(3.5, "k", "a", "dead") + b(4), "", nil},
		"halted and resumed":              {halts + began + buried + j.resume(3.5, "k", "ok") + b(4), "", dead},
		"perhaps resumed": {
			halts + began + buried + j.resume(3.5, "k", "unavailable") + b(4), "", dead,
		},
		"resumed too late":  {halts + began + buried + j.resume(4.5, "k", "ok") + b(4), broken, dead},
		"resumed too early": {halts + j.resume(1, "k", "ok") + began + buried + b(4), broken, dead},
		"not resumed": {
			halts + began + buried + j.resume(3.5, "k", "not_found") + b(4), broken + " resume", dead,
		},
		"not resumed in time": {
			j.ordered(store.OrderContinue) + j.resume(-500, "k", "not_found") + j.set(-400, -399, store.Flow{
				Key: store.KeyFlow{Order: store.OrderHalt},
			}) + began + j.resume(2.5, "k", "not_found") + buried + j.resume(3.5, "k", "ok") +
				j.resume(4.5, "k", "not_found") + b(5), "", dead,
		},
		"not halted by a nack": {
			halts + began + nacked + j.resume(3.5, "k", "not_found") + again(4) + b(5), "", nil,
		},
		"another key was resumed": {halts + began + buried + j.resume(3.5, "l", "ok") + b(4), broken, dead},
		"halted and replayed": {
			halts + began + buried + j.of(3.5, "r", "a", "ok") + j.startUnder(4, "a", 9, 1, 3, 40) +
				j.settle(4.5, "a", 9, "ack") + b(5), "", nil,
		},
		"replayed, and another": {halts + began + buried + j.of(3.5, "r", "a", "ok") + b(4) +
			j.startUnder(5, "a", 9, 1, 3, 50) +
			j.settle(5.5, "a", 9, "ack"), broken, nil},
		"halts no longer": {
			halts + began + buried + set(store.Flow{Key: store.KeyFlow{Order: store.OrderContinue}}) + b(4), "", dead,
		},
		"without an order since": {goesOn + began + nacked + set(store.Flow{Fair: true}) +
			j.once(4, "b", 1, 0) + j.start(5, "a", 2, 0, 0) + j.settle(6, "a", 2, "ack"), "", nil},
	} {
		t.Run(name, func(t *testing.T) { wantViolations(t, history{"actor": c.journal}, c.left, c.want) })
	}
}

func TestCheckerFindsMessagesThatOvertake(t *testing.T) {
	var j orderJournal
	goesOn := j.ordered(store.OrderContinue)
	arrived := j.send(0.2, "a", "+0") + j.send(0.4, "b", "+0")
	scheduled := j.send(-9, "a", j.due(3)) + j.send(-8, "b", j.due(2))
	numbered := j.send(0.2, "a", "+0", 0, 1) + j.send(0.2, "b", "+0", 0, 2)
	same := j.send(-9, "a", j.due(2)) + j.send(-8, "b", j.due(2))
	first, second := j.once(5, "a", 0, 50), j.once(6, "b", 0, 60)
	late := j.once(7, "a", 0, 70)
	const broken = "order"
	for name, c := range map[string]struct{ journal, want string }{
		"in the order of sends": {goesOn + arrived + first + second, ""},
		"in another order":      {goesOn + arrived + second + late, broken},
		"of sends that overlap": {
			goesOn + j.sends(0.2, 0.5, "a", "+0") + j.send(0.4, "b", "+0") + second + late, "",
		},
		"of sends without an answer": {goesOn + strings.Replace(arrived, "a ok", "a context", 1) + second + late, ""},
		"sent while it was claimed": {
			goesOn + j.sends(0.2, 6, "a", "+0") + j.send(0.4, "b", "+0") + second + late, "",
		},
		"of one call":            {goesOn + numbered + first + second, ""},
		"of one call, the last":  {goesOn + numbered + second + late, broken},
		"the clock was set back": {goesOn + arrived + j.once(5, "a", 4, 50) + j.once(6, "b", 3, 60), ""},
		"the clock was set back, in the order of due times": {
			goesOn + arrived + j.once(5, "b", 3, 50) + j.once(6, "a", 4, 60), broken,
		},
		"sent before there was an order": {
			j.set(-1000, -999, store.Flow{Fair: true}) + arrived + j.set(2, 3, store.Flow{Key: store.KeyFlow{
				Order: store.OrderHalt,
			}}) + second + late, "",
		},
		"by due time":     {goesOn + scheduled + j.once(5, "b", 2, 50) + j.once(6, "a", 3, 60), ""},
		"not by due time": {goesOn + scheduled + j.once(5, "a", 3, 50) + j.once(6, "b", 2, 60), broken},
		"by due time, without an order": {
			j.set(-1000, -999, store.Flow{Fair: true}) + scheduled + j.once(5, "a", 3, 0) + j.once(6, "b", 2, 0), "",
		},
		"one that is not yet due": {goesOn + j.send(-9, "a", j.due(3)) + j.send(-8, "b", j.due(5)) +
			j.once(4, "a", 3, 40) +
			j.once(6, "b", 5, 60), ""},
		"scheduled before it was sent": {
			goesOn + j.send(-9, "b", j.due(-1)) + j.send(0.2, "a", "+0") + j.once(5, "b", -1, 50) +
				j.once(6, "a", 0, 60), "",
		},
		"sent after it was due": {
			goesOn + j.send(-9, "b", j.due(-1)) + j.send(0.2, "a", "+0") + j.once(5, "a", 0, 50) +
				j.once(6, "b", -1, 60), broken,
		},
		"ties by id":      {goesOn + same + j.once(5, "a", 2, 50) + j.once(6, "b", 2, 60), ""},
		"ties not by id":  {goesOn + same + j.once(5, "b", 2, 50) + j.once(6, "a", 2, 60), broken},
		"perhaps removed": {goesOn + arrived + j.of(1, "k", "a", "unavailable") + second + late, ""},
		"not removed":     {goesOn + arrived + j.of(1, "k", "a", "not_found") + second + late, broken},
		"rescheduled": {goesOn + scheduled + j.of(0, "m @10001", "a", "ok") + j.once(5, "a", 1, 50) +
			j.once(6, "b", 2, 60), ""},
		"rescheduled, in the former order": {goesOn + scheduled + j.of(0, "m @10001", "a", "ok") +
			j.once(5, "b", 2, 50) +
			j.once(6, "a", 1, 60), broken},
		"perhaps rescheduled": {goesOn + scheduled + j.of(0, "m @10001", "a", "unavailable") + j.once(5, "b", 2, 50) +
			j.once(6, "a", 1, 60), ""},
		"an attempt that was not recorded": {goesOn + "q 10004000 - 10003000 q context\n" + arrived +
			j.start(1004, "b", 2, 0, 50) +
			j.settle(1005, "b", 2, "ack") + j.once(1006, "a", 0, 60), ""},
	} {
		t.Run(name, func(t *testing.T) { wantViolations(t, history{"actor": c.journal}, nil, c.want) })
	}
}

func TestCheckerFindsBrokenFences(t *testing.T) {
	var j orderJournal
	goesOn, fair := j.ordered(store.OrderContinue), j.set(-1000, -999, store.Flow{Fair: true})
	two := j.send(0, "a", "+0") + j.send(1, "b", "+0")
	a := func(fence int64) string { return two + j.once(2, "a", 0, fence) }
	b := func(fence int64) string { return j.once(3, "b", 1, fence) }
	keyless := strings.ReplaceAll(strings.ReplaceAll(two, "- k", "-"), "q", "q") +
		strings.ReplaceAll(j.once(2, "a", 0, 7)+b(8), "10 k", "10 ")
	const broken = "fence"
	for name, c := range map[string]struct{ journal, want string }{
		"they grow":            {goesOn + a(7) + b(8), ""},
		"those of handlers":    {goesOn + a(7) + b(8) + "h 10002100 a 1 a 1 7\n", ""},
		"none of a handler":    {goesOn + a(7) + b(8) + "h 10002100 a 1 a 1 0\n", broken},
		"others of handlers":   {goesOn + a(7) + b(8) + "h 10002100 a 1 a 1 8\n", broken},
		"they stay":            {goesOn + a(7) + b(7), broken},
		"they shrink":          {goesOn + a(7) + b(6), broken},
		"none":                 {goesOn + a(7) + b(0), broken},
		"none, and none due":   {fair + a(0) + b(0), ""},
		"without an order":     {fair + a(0) + b(7), broken},
		"without a key":        {goesOn + keyless, broken},
		"too large":            {goesOn + a(7) + b(1<<53), broken},
		"while the order ends": {goesOn + a(7) + j.set(2.5, 3.5, store.Flow{}) + b(0), ""},
		"after another order": {
			goesOn + a(7) + j.set(2.2, 2.3, store.Flow{}) + j.set(2.4, 2.5, store.Flow{Key: store.KeyFlow{
				Order: store.OrderHalt,
			}}) + b(6), broken,
		},
	} {
		t.Run(name, func(t *testing.T) { wantViolations(t, history{"actor": c.journal}, nil, c.want) })
	}
}

// TestCheckerAllowsUndoneOrder has violations that a failover explains, and others.
func TestCheckerAllowsUndoneOrder(t *testing.T) {
	var j orderJournal
	journal := j.ordered(store.OrderContinue) + j.send(0, "a", "+0") + j.send(1, "b", "+0") +
		j.start(2, "a", 1, 0, 20) +
		j.settle(3, "a", 1, "nack") + j.once(4, "b", 1, 40) + j.start(5, "a", 2, 0, 50) + j.settle(6, "a", 2, "ack")
	for name, c := range map[string]struct {
		from, to float64
		want     string
	}{
		"before":    {-20, -10, "held"},
		"meanwhile": {3.5, 3.6, ""},
		"after":     {10, 20, "held"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &run{windows: []window{{from: int64(j.at(c.from)), to: int64(j.at(c.to))}}}
			wantViolationsOf(t, r, history{"actor": journal}, nil, c.want)
		})
	}
}

func TestCheckerCountsStartsInOrder(t *testing.T) {
	var j orderJournal
	journal := j.ordered(store.OrderHalt) + j.send(0, "a", "+0") + j.send(1, "b", "+0") + j.send(1.5, "c", "+0") +
		j.start(2, "a", 1, 0, 20) + j.settle(3, "a", 1, "nack") + j.start(4, "a", 2, 0, 40) +
		j.settle(5, "a", 2, "bury") + j.resume(6, "k", "ok") + j.once(7, "b", 1, 70) + j.once(8, "c", 1, 80)
	dead := map[string]*later.Info{"a": {State: later.StateDead, DeadReason: later.DeadBuried, Attempts: 2}}
	got := wantViolations(t, history{"actor": journal}, dead, "").Order
	want := OrderFacts{Started: 2, Returned: 1, Halted: 1, Resumed: 1, Chosen: 2, Arrived: 2, Fences: 4}
	if got != want {
		t.Errorf("got %+v; want %+v", got, want)
	}
}
