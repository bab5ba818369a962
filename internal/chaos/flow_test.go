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
	return string(appendRecord(nil, flowSet, int64(j.at(to)), "-", flowFields("q", int64(j.at(from)), f)))
}

// claim is a claim of n messages, whose lease ends a second later.
func (j flowJournal) claim(ms float64, lease string, n int) (text string) {
	return j.keyed(ms, lease, make([]string, n)...)
}

// keyed is a claim of messages with keys.
func (j flowJournal) keyed(ms float64, lease string, keys ...string) (text string) {
	for i, key := range keys {
		text += fmt.Sprintf("c %d %s%d %d %d %d %s q 9000 1 10 %s\n", j.at(ms)+100, lease, i, j.at(ms)-100, j.at(ms),
			(j.at(ms)+1_000_000)/1000, lease, key)
	}
	return text
}

// override is a call that set limits of a key.
func (j flowJournal) override(from, to float64, key string, o store.KeyOverride) string {
	return string(appendRecord(nil, keyFlowSet, int64(j.at(to)), "-", overrideFields("q", int64(j.at(from)), key, o)))
}

// ack acks the i-th message of a lease.
func (j flowJournal) ack(ms float64, lease string, i int) string {
	id := fmt.Sprint(lease, i)
	return fmt.Sprintf("x %d %s %s ack 0\nX %d %s %s ok\n", j.at(ms), id, lease, j.at(ms)+100, id, lease)
}

// sent is a message that was sent a second before, and is due.
func (j flowJournal) sent(id string) string { return j.sentKeyed(id, "") }

func (flowJournal) sentKeyed(id, key string) string {
	return "s 9000000 " + id + " " + id + " +0 - " + key + "\nS 9000100 " + id + " ok\n"
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
				j.claim(5, "b", 1), broken,
		},
		"one after the cancel of one that may have been leased": {
			begin + j.claim(0, "a", 3) + fmt.Sprintf("k %d a1\nK %d a1 unavailable\n", j.at(3), j.at(3.5)) +
				j.claim(5, "b", 1), "",
		},
		"one after the holder has learned of a cancel": {
			begin + j.claim(0, "a", 3) + fmt.Sprintf("k %d a1\nK %d a1 leased\n", j.at(3), j.at(3.5)) +
				fmt.Sprintf("e %d - %d a lease_lost\n", j.at(4.9), j.at(4)) + j.claim(5, "b", 1), "",
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
			g := flowGroup{changes: []flowChange{{from: 1, to: 2, flow: store.Flow{Rate: r}}}, starts: c.starts}
			g.checkRate(&FlowFacts{}, &result)
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

func TestCheckerFindsBrokenLimitsOfKeys(t *testing.T) {
	var j flowJournal
	two := j.set(-2, -1, store.Flow{Key: store.KeyFlow{Concurrency: 2}})
	rate := j.set(-2, -1, store.Flow{Key: store.KeyFlow{Rate: store.Rate{N: 100, Per: time.Second, Burst: 2}}})
	off, fair := j.set(2, 3, store.Flow{}), j.set(4, 5, store.Flow{Key: store.KeyFlow{Concurrency: 2}})
	three := store.KeyOverride{Concurrency: ptr(3)}
	full := j.keyed(0, "a", "k", "k")
	const concurrency, paced = "concurrency", "rate"
	for name, c := range map[string]struct{ journal, want string }{
		"as many as allowed of each key": {two + j.keyed(0, "a", "k", "l", "k", "l"), ""},
		"too many of a key":              {two + j.keyed(0, "a", "k", "l", "k", "k"), concurrency},
		"too many in two claims":         {two + full + j.keyed(1, "b", "l", "k"), concurrency},
		"one after an ack":               {two + full + j.ack(4, "a", 1) + j.keyed(5, "b", "k"), ""},
		"one after an ack of another": {
			two + j.keyed(0, "a", "k", "k", "l") + j.ack(4, "a", 2) + j.keyed(5, "b", "k"), concurrency,
		},
		"without a key":            {two + j.claim(0, "a", 9), ""},
		"a burst of each key":      {rate + j.keyed(0, "a", "k", "k", "l", "l"), ""},
		"a burst and one":          {rate + j.keyed(0, "a", "k", "l", "k") + j.keyed(9, "b", "k"), paced},
		"a burst and one in time":  {rate + j.keyed(0, "a", "k", "l", "k") + j.keyed(10, "b", "k"), ""},
		"not fair":                 {two + off + j.keyed(4, "a", "k", "k", "k"), ""},
		"claimed while not fair":   {two + off + j.keyed(3.5, "a", "k", "k") + fair + j.keyed(6, "b", "k", "k"), ""},
		"fair again, one too many": {two + off + fair + j.keyed(6, "b", "k", "k", "k"), concurrency},
		"raised for the key":       {two + j.override(0, 1, "k", three) + j.keyed(2, "a", "k", "k", "k"), ""},
		"raised for another key":   {two + j.override(0, 1, "l", three) + j.keyed(2, "a", "k", "k", "k"), concurrency},
		"above the raised limit": {
			two + j.override(0, 1, "k", three) + j.keyed(2, "a", "k", "k", "k", "k"), concurrency,
		},
		"raised, and no longer": {
			two + j.override(0, 1, "k", three) + j.override(2, 3, "k", store.KeyOverride{}) +
				j.keyed(4, "a", "k", "k", "k"), concurrency,
		},
		"raised before the turns ended": {
			two + j.override(0, 1, "k", three) + off + fair + j.keyed(6, "a", "k", "k", "k"), concurrency,
		},
		"another rate for the key": {
			rate + j.override(0, 1, "k", store.KeyOverride{Rate: &store.Rate{}}) + j.keyed(2, "a", "k", "k", "k"), "",
		},
		"another key than sent": {two + j.sentKeyed("a0", "l") + j.keyed(0, "a", "k") + j.ack(1, "a", 0), "key"},
	} {
		t.Run(name, func(t *testing.T) { wantViolations(t, history{"actor": c.journal}, nil, c.want) })
	}
}

func TestCheckerFindsKeysThatArePassedOver(t *testing.T) {
	var j flowJournal
	fair := func(key store.KeyFlow) string { return j.set(-1100, -1099, store.Flow{Fair: true, Key: key}) }
	begin := fair(store.KeyFlow{})
	// others has claims of a message each, of the keys in turn, a ms apart.
	others := func(from float64, n int, keys ...string) (text string) {
		for i := range n {
			lease := fmt.Sprintf("o%v-%d-", from, i)
			text += j.keyed(from+float64(i), lease, keys[i%len(keys)]) + j.ack(from+float64(i)+0.5, lease, 0)
		}
		return text
	}
	next := func(ms float64) string { return j.sentKeyed("b0", "k") + j.keyed(ms, "b", "k") + j.ack(ms+1, "b", 0) }
	last := next(100)
	rests := begin + j.override(-1090, -1089, "k", store.KeyOverride{Rate: &store.Rate{N: 10, Per: time.Second}}) +
		j.keyed(0, "a", "k")
	const broken = "turn"
	for name, c := range map[string]struct{ journal, want string }{
		"two of another key":    {begin + others(0, 5, "l") + last, ""},
		"three of another key":  {begin + others(0, 6, "l") + last, broken},
		"two each of many keys": {begin + others(0, 13, "l", "m", "n", "", "p") + last, ""},
		"three without a key":   {begin + others(0, 6, "") + last, broken},
		"many, and not fair":    {j.set(-1100, -1099, store.Flow{Concurrency: 9}) + others(0, 50, "l") + last, ""},
		"many, fair since then": {begin + others(-60, 50, "l") + j.set(98, 99, store.Flow{Fair: true}) + last, ""},
		"many while its slot is taken": {
			fair(store.KeyFlow{Concurrency: 1}) + j.keyed(0, "a", "k") + others(1, 50, "l") + j.ack(99, "a", 0) + last,
			"",
		},
		"many after its slot is free": {
			fair(store.KeyFlow{Concurrency: 1}) + j.keyed(0, "a", "k") + others(1, 50, "l") + j.ack(20, "a", 0) + last,
			broken,
		},
		"many while its rate rests": {rests + others(1, 99, "l") + next(101), ""},
		"many after its rate rests": {rests + others(101, 50, "l") + next(200), broken},
		"many while a claim fails": {
			begin + others(0, 50, "l") + fmt.Sprintf("q %d - %d q unavailable\n", j.at(50), j.at(49)) + last, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			wantViolations(t, history{"actor": c.journal}, nil, c.want)
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
