package turns_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

var urgencies = []store.Urgency{store.UrgencyHigh, store.UrgencyNormal, store.UrgencyLow}

// nextUrgency returns the urgency that starts next, of the ones that may.
func nextUrgency(p turns.Passed, may map[store.Urgency]bool) store.Urgency {
	switch {
	case may[store.UrgencyNormal] && p.Normal >= 7:
		return store.UrgencyNormal
	case may[store.UrgencyLow] && p.Low >= 62:
		return store.UrgencyLow
	}
	i := slices.IndexFunc(urgencies, func(u store.Urgency) bool { return may[u] })
	return urgencies[i]
}

func countPassed(p *turns.Passed, started store.Urgency, may map[store.Urgency]bool) {
	count := func(n *int, u store.Urgency) {
		if may[u] {
			*n++
		}
		if u == started {
			*n = 0
		}
	}
	count(&p.Normal, store.UrgencyNormal)
	count(&p.Low, store.UrgencyLow)
}

// sortUrgent sorts n messages of a key and urgency, from a place on.
func sortUrgent(o *turns.Order, key string, u store.Urgency, place, n int) {
	for i := range n {
		id := fmt.Sprint(key, u, place+i)
		o.Sort(start, turns.Message{Key: key, Place: int64(place + i), ID: id, Urgency: u})
	}
}

// takeUrgent starts the next n messages, and returns them.
func takeUrgent(o *turns.Order, n int) (started []turns.Message) {
	o.Wake(start, 1000)
	for range n {
		m, ok := o.Head(start)
		if !ok {
			break
		}
		o.Start(start, m, true)
		started = append(started, m)
	}
	return started
}

func TestHighGoesFirstAndNormalGetsAnEighthAndLowA64th(t *testing.T) {
	for _, waits := range [][]store.Urgency{urgencies, urgencies[1:], {store.UrgencyHigh, store.UrgencyLow},
		urgencies[:2]} {
		o := turns.New(store.KeyFlow{})
		for _, u := range waits {
			sortUrgent(o, "a", u, 0, 700)
			sortUrgent(o, "b", u, 0, 700)
		}
		last, n := map[store.Urgency]int{}, map[store.Urgency]int{}
		for i, m := range takeUrgent(o, 640) {
			last[m.Urgency] = i + 1
			n[m.Urgency]++
			for u, every := range map[store.Urgency]int{store.UrgencyNormal: 8, store.UrgencyLow: 64} {
				if slices.Contains(waits, u) && i+1-last[u] >= every {
					t.Fatalf("%q: start %d, and the last one was %d", u, i+1, last[u])
				}
			}
		}
		for _, u := range waits[1:] {
			most := map[store.Urgency]int{store.UrgencyNormal: 640 / 8, store.UrgencyLow: 640/63 + 1}[u]
			if n[u] > most {
				t.Errorf("%v wait: %d starts are of %q, want at most %d", waits, n[u], u, most)
			}
		}
	}
}

func TestTheCountsOfStartsThatPassOthersOverAreRestored(t *testing.T) {
	was := turns.New(store.KeyFlow{})
	for _, u := range urgencies {
		sortUrgent(was, "a", u, 0, 9)
	}
	takeUrgent(was, 7)
	if got := was.Passed(); got != (turns.Passed{Normal: 7, Low: 7}) {
		t.Fatal(got)
	}
	is := turns.New(store.KeyFlow{})
	is.RestorePassed(was.Passed())
	sortUrgent(is, "a", store.UrgencyHigh, 0, 1)
	sortUrgent(is, "b", store.UrgencyNormal, 0, 1)
	if got := takeUrgent(is, 1); got[0].Key != "b" {
		t.Error(got)
	}
	if got := is.Passed(); got != (turns.Passed{Low: 7}) { // none of low could start
		t.Error(got)
	}
}

func TestKeysShareTheStartsOfEachUrgencyByWeight(t *testing.T) {
	o := turns.New(store.KeyFlow{})
	three := 3
	o.SetOverride(start, "b", store.KeyOverride{Weight: &three})
	sortUrgent(o, "b", store.UrgencyHigh, 0, 500)
	takeUrgent(o, 100) // of which its turns of the other urgencies know nothing
	sortUrgent(o, "a", store.UrgencyHigh, 0, 800)
	for _, key := range []string{"a", "b"} {
		sortUrgent(o, key, store.UrgencyNormal, 0, 500)
	}
	n := map[string]int{}
	for _, m := range takeUrgent(o, 320) {
		n[m.Key+string(m.Urgency)]++
	}
	for who, want := range map[string]int{"ahigh": 70, "bhigh": 210, "a": 10, "b": 30} {
		if n[who] < want-1 || n[who] > want+1 {
			t.Errorf("%s starts %d times, want %d", who, n[who], want)
		}
	}
}

func TestTheLimitsOfAKeyCountItsMessagesOfAllUrgencies(t *testing.T) {
	for name, limits := range map[string]store.KeyFlow{
		"concurrency": {Concurrency: 2}, "rate": {Rate: store.Rate{N: 1, Per: time.Second, Burst: 2}},
	} {
		o := turns.New(limits)
		for _, u := range urgencies {
			sortUrgent(o, "k", u, 0, 5)
		}
		if n := o.May(start, 100); n != 2 {
			t.Errorf("%s: %d may start, want 2", name, n)
		}
		if n := o.Counts(start).Waiting; n != 3 {
			t.Errorf("%s: %d keys wait, want the key in each urgency", name, n)
		}
		if n := len(takeUrgent(o, 100)); n != 2 {
			t.Errorf("%s: %d start, want 2", name, n)
		}
		c := o.Counts(start)
		if c.Waiting != 1 || c.Full+c.Resting != 1 || o.May(start, 100) != 0 {
			t.Errorf("%s: %+v", name, c)
		}
		if s := o.Key(start, "k"); s.Waiting != 13 || s.Leased != 2 {
			t.Errorf("%s: %+v", name, s)
		}
		if page := o.Keys(start, store.KeysRequest{Limit: 9}); len(page) != 1 {
			t.Errorf("%s: the key is listed %d times", name, len(page))
		}
	}
}

func TestAKeyWithAnOrderWaitsWithTheUrgencyOfItsNextMessage(t *testing.T) {
	o := turns.New(store.KeyFlow{Order: store.OrderContinue})
	sortUrgent(o, "other", store.UrgencyHigh, 0, 100)
	is := func(what, want string) {
		t.Helper()
		turns := int64(2)
		if o.Limits("k").Order == store.OrderNone {
			turns = 3
		}
		if c := o.Counts(start); c.Waiting != turns {
			t.Errorf("%s: %+v, want %d turns", what, c, turns)
		}
		for i := range 3 { // a key that joins starts soon
			o.Free(start, "other", 1)
			if got := takeUrgent(o, 1)[0]; got.Key == "k" {
				if got.ID != want || !strings.Contains(want, string(got.Urgency)) || got.Urgency == "" {
					t.Errorf("%s: %s starts as %q, want %q", what, got.ID, got.Urgency, want)
				}
				return
			} else if i == 2 && want != "" {
				t.Errorf("%s: %s does not start", what, want)
			}
		}
	}
	sortUrgent(o, "k", store.UrgencyNormal, 50, 1)
	sortUrgent(o, "k", store.UrgencyHigh, 51, 1)
	is("a message that is not urgent is before", "")
	sortUrgent(o, "k", store.UrgencyHigh, 40, 1)
	is("an earlier one that is urgent was sorted", "khigh40")
	o.Free(start, "k", 1)
	is("it was acked", "")
	o.Remove(start, turns.Message{Key: "k", Place: 50, ID: "k50"})
	is("the first one was removed", "khigh51")
	sortUrgent(o, "k", store.UrgencyLow, 30, 1)
	o.Free(start, "k", 1)
	o.Keep(start, "k", "khigh51")
	is("a message that came back holds the key", "")
	sortUrgent(o, "k", store.UrgencyHigh, 51, 1)
	is("it is ready", "khigh51")
	o.Free(start, "k", 1)
	is("it was acked", "")
	o.SetLimits(start, store.KeyFlow{})
	sortUrgent(o, "k", store.UrgencyHigh, 60, 1)
	is("the order was removed", "khigh60")
	o.SetLimits(start, store.KeyFlow{Order: store.OrderContinue})
	sortUrgent(o, "k", store.UrgencyHigh, 60, 1)
	o.Free(start, "k", 1)
	is("an order was set", "")
}

func TestAMessageThatHoldsItsKeyReturnsToItsUrgencyWithoutAnOrder(t *testing.T) {
	o := turns.New(store.KeyFlow{Order: store.OrderContinue})
	o.Keep(start, "k", "khigh2")
	sortUrgent(o, "k", store.UrgencyHigh, 2, 1)
	sortUrgent(o, "k", store.UrgencyNormal, 1, 1)
	o.SetLimits(start, store.KeyFlow{})
	for _, want := range []string{"khigh2", "k1"} {
		if got := takeUrgent(o, 1)[0]; got.ID != want {
			t.Errorf("%s starts, want %s", got.ID, want)
		}
	}
}

func TestMessagesWithoutAKeyHaveNoOrderOverUrgencies(t *testing.T) {
	o := turns.New(store.KeyFlow{Order: store.OrderContinue})
	for i, u := range urgencies {
		sortUrgent(o, "", u, 9-i, 1)
	}
	for i, m := range takeUrgent(o, 3) {
		if m.Urgency != urgencies[i] {
			t.Errorf("%q starts, want %q", m.Urgency, urgencies[i])
		}
	}
}

func TestASortedMessageKeepsItsUrgency(t *testing.T) {
	o := turns.New(store.KeyFlow{})
	for _, u := range []store.Urgency{store.UrgencyLow, store.UrgencyHigh, store.UrgencyNormal} {
		o.Sort(start, turns.Message{Key: "k", Place: 1, ID: "a", Urgency: u})
	}
	if got := takeUrgent(o, 3); len(got) != 1 || got[0].Urgency != store.UrgencyLow || o.Sorted() != 0 {
		t.Errorf("%v start, %d are left", got, o.Sorted())
	}
}

func TestAKeyHasNoCreditForTheTimeInWhichItsSlotsWereTaken(t *testing.T) {
	one := 1
	o := turns.New(store.KeyFlow{})
	o.SetOverride(start, "k", store.KeyOverride{Concurrency: &one})
	for _, key := range []string{"k", "other"} {
		sortUrgent(o, key, store.UrgencyHigh, 0, 100)
	}
	takeUrgent(o, 50)
	o.SetOverride(start, "k", store.KeyOverride{})
	n := 0
	for _, m := range takeUrgent(o, 20) {
		if m.Key == "k" {
			n++
		}
	}
	if n < 9 || n > 11 {
		t.Errorf("it gets %d of 20 starts", n)
	}
}
