//go:build unix

package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// flowJournal has the records of a queue with limits. Times are in ms after 10 s.
type flowJournal struct{}

func (flowJournal) at(ms float64) int { return 10_000_000 + int(ms*1000) }

// set is a call that set limits, made at from and answered at to.
func (j flowJournal) set(from, to float64, f store.Flow) string {
	f = f.Normal()
	return fmt.Sprintf("F %d - q %d %d %d %d %d\n", j.at(to), j.at(from), f.Concurrency, f.Rate.N,
		f.Rate.Per.Microseconds(), f.Rate.Burst)
}

// claim is a claim of n messages, whose lease ends a second later.
func (j flowJournal) claim(ms float64, lease string, n int) (text string) {
	for i := range n {
		text += fmt.Sprintf("c %d %s%d %d %d %d %s q 9000 1 10\n", j.at(ms)+100, lease, i, j.at(ms)-100, j.at(ms),
			(j.at(ms)+1_000_000)/1000, lease)
	}
	return text
}

// ack acks the i-th message of a lease.
func (j flowJournal) ack(ms float64, lease string, i int) string {
	id := fmt.Sprint(lease, i)
	return fmt.Sprintf("x %d %s %s ack 0\nX %d %s %s ok\n", j.at(ms), id, lease, j.at(ms)+100, id, lease)
}

// sent is a message that was sent a second before, and is due.
func (flowJournal) sent(id string) string {
	return "s 9000000 " + id + " " + id + " +0 -\nS 9000100 " + id + " ok\n"
}

func TestCheckerFindsBrokenConcurrency(t *testing.T) {
	var j flowJournal
	begin := j.set(-2, -1, store.Flow{Concurrency: 3})
	two := store.Flow{Concurrency: 2}
	const broken = "concurrency"
	for name, c := range map[string]struct{ journal, want string }{
		"as many as allowed":      {begin + j.claim(0, "a", 2) + j.claim(1, "b", 1), ""},
		"too many in one claim":   {begin + j.claim(0, "a", 4), broken},
		"one too many":            {begin + j.claim(0, "a", 2) + j.claim(1, "b", 2), broken},
		"one after an ack":        {begin + j.claim(0, "a", 3) + j.ack(4, "a", 1) + j.claim(5, "b", 1), ""},
		"one before an ack":       {begin + j.claim(0, "a", 3) + j.ack(6, "a", 1) + j.claim(5, "b", 1), broken},
		"two after an ack":        {begin + j.claim(0, "a", 3) + j.ack(4, "a", 1) + j.claim(5, "b", 2), broken},
		"one after the lease":     {begin + j.claim(0, "a", 3) + j.claim(1000, "b", 3), ""},
		"one just before its end": {begin + j.claim(0, "a", 3) + j.claim(999, "b", 1), broken},
		"one in an extended lease": {
			begin + j.claim(0, "a", 3) + fmt.Sprintf("e %d - %d a %d\n", j.at(501), j.at(500), 11_500) +
				j.claim(1001, "b", 1), broken,
		},
		"one after a cancel": {
			begin + j.claim(0, "a", 3) + fmt.Sprintf("k %d a1\nK %d a1 leased\n", j.at(3), j.at(3.5)) +
				j.claim(5, "b", 1), "",
		},
		"more than the lowered limit, claimed before": {begin + j.claim(0, "a", 3) + j.set(1, 2, two), ""},
		"one above the lowered limit": {
			begin + j.claim(0, "a", 3) + j.set(1, 2, two) + j.ack(3, "a", 0) + j.claim(4, "b", 1), broken,
		},
		"one while the limit is lowered": {
			begin + j.claim(0, "a", 2) + j.set(1, 3, two) + j.claim(2, "b", 1), "",
		},
		"one too many while the limit is lowered": {
			begin + j.claim(0, "a", 2) + j.set(1, 3, two) + j.claim(2, "b", 2), broken,
		},
		"one before the limit is raised": {
			begin + j.claim(0, "a", 3) + j.claim(1, "b", 1) + j.set(2, 3, store.Flow{Concurrency: 9}), broken,
		},
		"without limits": {begin + j.set(0, 1, store.Flow{}) + j.claim(2, "a", 9), ""},
		"claimed without limits, and limited again": {
			begin + j.set(0, 1, store.Flow{}) + j.claim(2, "a", 9) + j.set(3, 4, two) + j.claim(5, "b", 2), "",
		},
		"limited again, one too many": {
			begin + j.set(0, 1, store.Flow{}) + j.claim(2, "a", 9) + j.set(3, 4, two) + j.claim(5, "b", 3), broken,
		},
		"limited by a rate meanwhile": {
			begin + j.claim(0, "a", 2) + j.set(1, 2, store.Flow{Rate: store.Rate{N: 9, Per: time.Second, Burst: 9}}) +
				j.claim(3, "b", 5) + j.set(4, 5, two) + j.claim(6, "c", 1), broken,
		},
	} {
		t.Run(name, func(t *testing.T) { wantViolations(t, history{"actor": c.journal}, nil, c.want) })
	}
}

func TestCheckerFindsBrokenRates(t *testing.T) {
	var j flowJournal
	rate := func(n, burst int) store.Flow {
		return store.Flow{Rate: store.Rate{N: n, Per: time.Second, Burst: burst}}
	}
	begin := j.set(-2, -1, rate(100, 3))
	// steady has n claims of a message from a time on.
	steady := func(from, apart float64, n int) (text string) {
		for i := range n {
			text += j.claim(from+apart*float64(i), fmt.Sprintf("s%v-%d-", from, i), 1)
		}
		return text
	}
	const broken = "rate"
	for name, c := range map[string]struct{ journal, want string }{
		"a burst":                     {begin + j.claim(0, "a", 3), ""},
		"a burst and one":             {begin + j.claim(0, "a", 4), broken},
		"a burst and one in a while":  {begin + j.claim(0, "a", 3) + j.claim(9.999, "b", 1), broken},
		"a burst and one in time":     {begin + j.claim(0, "a", 3) + j.claim(10, "b", 1), ""},
		"evenly":                      {begin + steady(0, 10, 50) + j.claim(500, "b", 3), ""},
		"evenly, and a larger burst":  {begin + steady(0, 10, 50) + j.claim(500, "b", 4), broken},
		"a little too fast":           {begin + steady(0, 9.9, 300), broken},
		"a little too fast, not long": {begin + steady(0, 9.9, 200), ""},
		"not a whole number of µs": {
			j.set(-2, -1, rate(150, 1)) + j.claim(0, "a", 1) + j.claim(6.667, "b", 1) + j.claim(13.334, "c", 1), "",
		},
		"not a whole number of µs, a µs early": {
			j.set(-2, -1, rate(150, 1)) + j.claim(0, "a", 1) + j.claim(6.666, "b", 1), broken,
		},
		"without limits": {begin + j.set(0, 1, store.Flow{}) + j.claim(2, "a", 9), ""},
		"after a new limit": {
			begin + j.set(0, 1, store.Flow{}) + j.set(2, 3, rate(100, 3)) + j.claim(4, "a", 4), broken,
		},
		"a burst of each limit": {
			begin + j.claim(0, "a", 3) + j.set(1, 2, store.Flow{}) + j.set(3, 4, rate(100, 3)) + j.claim(5, "b", 3), "",
		},
		"a burst while the limit is raised":  {begin + j.set(0, 2, rate(100, 5)) + j.claim(1, "a", 5), ""},
		"more while the limit is raised":     {begin + j.set(0, 2, rate(100, 5)) + j.claim(1, "a", 6), broken},
		"a burst before the limit is raised": {begin + j.claim(-0.5, "a", 5) + j.set(0, 2, rate(100, 5)), broken},
		"a burst while the limit is lowered": {begin + j.set(0, 2, rate(10, 1)) + j.claim(1, "a", 3), ""},
		"a burst and more while it is lowered": {
			begin + j.set(0, 2, rate(10, 1)) + j.claim(1, "a", 3) + j.claim(1.5, "b", 1), broken,
		},
		"a burst after it was lowered": {begin + j.set(0, 2, rate(10, 1)) + j.claim(3, "a", 2), broken},
		"the time of the next start is kept": { // 30 ms ahead, which is less than the new burst
			begin + j.claim(0, "a", 3) + j.set(0.5, 1, rate(50, 3)) + j.claim(2, "b", 2), broken,
		},
		"the new burst, less the time of the next start": {
			begin + j.claim(0, "a", 3) + j.set(0.5, 1, rate(50, 3)) + j.claim(2, "b", 1), "",
		},
	} {
		t.Run(name, func(t *testing.T) { wantViolations(t, history{"actor": c.journal}, nil, c.want) })
	}
}

// TestRepeatedClaimsCountWhenTheyMayHaveStarted has claims that were executed at an unknown time within a span.
func TestRepeatedClaimsCountWhenTheyMayHaveStarted(t *testing.T) {
	r := store.Rate{N: 100, Per: time.Second, Burst: 1}
	at := func(lo, hi int64) *start { return &start{lo: 1_000_000 + lo, hi: 1_000_000 + hi, n: 1} }
	for name, c := range map[string]struct {
		starts []*start
		broken bool
	}{
		"repeated, and one in time":      {[]*start{at(0, 999), at(10_000, 10_000)}, false},
		"repeated, and one too early":    {[]*start{at(0, 999), at(9_999, 9_999)}, true},
		"one, and a repeated one":        {[]*start{at(0, 0), at(9_500, 10_499)}, false},
		"one, and a repeated, too early": {[]*start{at(0, 0), at(9_000, 9_999)}, true},
		"one during a repeated one":      {[]*start{at(0, 20_000), at(500, 500)}, false},
		"two during a repeated one":      {[]*start{at(0, 30_000), at(500, 500), at(10_500, 10_500)}, false},
		"two during a repeated one, too early": {
			[]*start{at(0, 30_000), at(500, 500), at(10_499, 10_499)}, false, // one of them may have been before both
		},
		"three too early": {
			[]*start{at(0, 30_000), at(500, 500), at(10_499, 10_499), at(10_500, 10_500)}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var result Result
			q := queueFlow{changes: []flowChange{{from: 1, to: 2, flow: store.Flow{Rate: r}}}, starts: c.starts}
			q.checkRate("q", &result)
			if got := result.Violated > 0; got != c.broken {
				t.Errorf("broken: %t; want %t: %+v", got, c.broken, result.Violations)
			}
		})
	}
}

func TestCheckerFindsMessagesThatWait(t *testing.T) {
	var j flowJournal
	two := j.set(-2, -1, store.Flow{Concurrency: 2})
	slow := j.set(-2, -1, store.Flow{Rate: store.Rate{N: 1, Per: 9 * time.Second}})
	first := j.claim(0, "a", 2) + j.ack(1, "a", 0)
	next := func(ms float64) string { return j.sent("b0") + j.claim(ms, "b", 1) + j.ack(ms+1, "b", 0) }
	for name, c := range map[string]struct{ journal, run, want string }{
		"soon":                {two + first + next(4000), "", ""},
		"late":                {two + first + next(6000), "", "waited"},
		"late, for its slot":  {two + j.claim(0, "a", 2) + next(5900), "", ""},
		"late, after a slot":  {two + j.claim(0, "a", 2) + next(6100), "", "waited"},
		"late, for the rate":  {slow + j.claim(0, "a", 1) + next(10_000), "", ""},
		"late, after a fault": {two + first + next(6000), "! 12000000 - half-open\n", ""},
		"late, after the end of the load": {
			two + first + next(6000), "! 12000000 - load-ended\n", "waited",
		},
		"late, limited meanwhile": {
			two + first + j.set(2000, 2001, store.Flow{Concurrency: 3}) + next(6000), "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			wantViolations(t, history{"actor": c.journal, "run": c.run}, nil, c.want)
		})
	}
}

// TestLimitsAreSetFreely checks the limits of the flow faults.
func TestLimitsAreSetFreely(t *testing.T) {
	for i, sets := range limitSets {
		if len(sets) != len(limitSets[0]) || !sets[0].Limited() {
			t.Errorf("queue %d has %d limits, and first %+v", i, len(sets), sets[0])
		}
		if !slices.ContainsFunc(sets, func(f store.Flow) bool { return !f.Limited() }) {
			t.Errorf("the limits of queue %d are never removed", i)
		}
		for _, f := range sets {
			if err := f.Check(); err != nil || strings.Contains(f.Rate.String(), " ") != (f.Rate.Burst > 1) {
				t.Errorf("%+v: %v", f, err)
			}
		}
	}
}
