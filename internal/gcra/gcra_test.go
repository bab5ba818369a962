package gcra_test

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/laterq/later/internal/gcra"
	"github.com/laterq/later/store"
)

// history is a rate with all its starts. Its clock may differ from the time that has passed.
type history struct {
	rate   store.Rate
	state  gcra.State
	now    int64 // the clock
	passed int64 // how much time has passed; the clock may have been set back meanwhile
	starts []int64
}

// exceeds reports whether one more start now would exceed the bound in any span that ends now.
func (h *history) exceeds() bool {
	for i, at := range h.starts {
		inSpan := int64(len(h.starts) - i + 1)
		more := new(big.Int).Mul(big.NewInt(inSpan-int64(max(1, h.rate.Burst))), big.NewInt(h.rate.Per.Microseconds()))
		if more.Cmp(new(big.Int).Mul(big.NewInt(int64(h.rate.N)), big.NewInt(h.passed-at))) > 0 {
			return true
		}
	}
	return false
}

func (h *history) advance(d int64) { h.now, h.passed = h.now+d, h.passed+d }

// begin starts up to k messages and returns how many.
func (h *history) begin(k int) int {
	n := h.state.May(h.rate, h.now, k)
	h.state.Start(h.rate, h.now, n)
	for range n {
		h.starts = append(h.starts, h.passed)
	}
	return n
}

func randomRate(rnd *rand.Rand) store.Rate {
	r := store.Rate{N: 1 + rnd.IntN(9), Burst: []int{0, 1, 2, 3, 7}[rnd.IntN(5)]}
	r.Per = time.Duration(r.N+rnd.IntN(1000)) * time.Microsecond
	if rnd.IntN(4) == 0 {
		r.Per *= 1_000_003
	}
	return r
}

// step returns how long a history waits next: often not at all, or around an interval.
func step(rnd *rand.Rand, r store.Rate) int64 {
	interval := r.Per.Microseconds()/int64(r.N) + 1
	return []int64{0, 0, 1, interval, interval - 1, rnd.Int64N(3 * interval)}[rnd.IntN(6)]
}

// TestAStartIsAllowedIfAndOnlyIfNoSpanExceedsTheRate compares the state with a look at all earlier starts.
func TestAStartIsAllowedIfAndOnlyIfNoSpanExceedsTheRate(t *testing.T) {
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		h := history{rate: randomRate(rnd), now: 1_700_000_000_000_000}
		if err := h.rate.Check(); err != nil {
			t.Fatal(err)
		}
		for range 60 {
			if rnd.IntN(4) == 0 { // exactly when it says, and not before
				h.advance(max(0, h.state.Next(h.rate, h.now)-h.now-1))
				if h.exceeds() != (h.begin(1) == 0) {
					t.Fatalf("seed %d: rate %v before its next start: %+v", seed, h.rate, h)
				}
				h.advance(h.state.Next(h.rate, h.now) - h.now)
			} else {
				h.advance(step(rnd, h.rate))
			}
			for k := rnd.IntN(5); k > 0; {
				exceeds, n := h.exceeds(), h.begin(k)
				if exceeds != (n == 0) {
					t.Fatalf("seed %d: rate %v allows %d starts, exceeding is %v: %+v", seed, h.rate, n, exceeds, h)
				}
				if k -= n; n == 0 {
					break
				}
				if last := h.starts[len(h.starts)-1]; last != h.passed {
					t.Fatal("a start was not counted")
				}
			}
		}
	}
}

// TestAClockThatIsSetBackNeitherStallsNorExceedsARate looks at the time that has passed, which the clock does not show.
func TestAClockThatIsSetBackNeitherStallsNorExceedsARate(t *testing.T) {
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		h := history{rate: randomRate(rnd), now: 1_700_000_000_000_000}
		interval := h.rate.Per.Microseconds()/int64(h.rate.N) + 1
		for range 60 {
			h.advance(step(rnd, h.rate))
			if rnd.IntN(4) == 0 {
				h.now -= rnd.Int64N(20 * interval)
			}
			for exceeds := h.exceeds(); h.begin(1) == 1; exceeds = h.exceeds() {
				if exceeds {
					t.Fatalf("seed %d: rate %v is exceeded: %+v", seed, h.rate, h)
				}
			}
			if wait := h.state.Next(h.rate, h.now) - h.now; wait < 1 || wait > interval {
				t.Fatalf("seed %d: rate %v lets the next message wait %d µs", seed, h.rate, wait)
			}
		}
	}
}

// TestAChangedRateHoldsFromItsChange checks the bound since the change, and when the next start is allowed.
func TestAChangedRateHoldsFromItsChange(t *testing.T) {
	for seed := range uint64(5000) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		h := history{rate: randomRate(rnd), now: 1_700_000_000_000_000}
		for range 6 {
			for range 8 {
				h.advance(step(rnd, h.rate))
				for exceeds := h.exceeds(); h.begin(1) == 1; exceeds = h.exceeds() {
					if exceeds {
						t.Fatalf("seed %d: rate %v is exceeded: %+v", seed, h.rate, h)
					}
				}
			}
			former, was := h.rate, h.state
			if rnd.IntN(4) > 0 {
				h.rate = randomRate(rnd)
			}
			h.state = h.state.Changed(former, h.rate, h.now)
			if h.rate == former && h.state != was {
				t.Fatalf("seed %d: the rate %v was set again: %+v, then %+v", seed, h.rate, was, h.state)
			}
			h.starts = nil
			interval := h.rate.Per.Microseconds()/int64(h.rate.N) + 1
			next, slower := h.state.Next(h.rate, h.now), float64(h.rate.Per)/float64(h.rate.N) >
				float64(former.Per)/float64(former.N)
			if next > h.now+interval || !slower && next > max(h.now, was.Micros+1) {
				t.Fatalf("seed %d: from %v to %v, the next message waits %d µs", seed, former, h.rate, next-h.now)
			}
		}
	}
}

// The shares of a rate never let more messages start than the rate, also when their number changes.
func TestStartsThatAreUsedUpStayUsedUpUnderALowerRate(t *testing.T) {
	from, to := store.Rate{N: 8, Per: time.Second, Burst: 4}, store.Rate{N: 2, Per: time.Second, Burst: 3}
	now := int64(1_700_000_000_000_000)
	for used := range 5 {
		var s gcra.State
		s.Start(from, now, used)
		s = s.Changed(from, to, now)
		if got, want := s.May(to, now, 9), max(0, 3-used); got != want {
			t.Errorf("%d of 4 starts are used up: %d may start under the lower rate, want %d", used, got, want)
		}
	}
}

func TestTheLargestRatesDoNotOverflow(t *testing.T) {
	now := time.Date(2199, 12, 31, 0, 0, 0, 0, time.UTC).UnixMicro()
	for _, r := range []store.Rate{
		{N: store.MaxRate, Per: store.MaxPeriod, Burst: store.MaxRate},
		{N: store.MaxRate - 1, Per: store.MaxPeriod, Burst: store.MaxRate - 1},
		{N: 1, Per: store.MaxPeriod}, {N: store.MaxRate, Per: time.Second, Burst: store.MaxRate},
		{N: 1, Per: store.MinInterval, Burst: store.MaxRate},
	} {
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
		var s gcra.State
		s.Start(r, now, max(1, r.Burst))
		interval := (r.Per.Microseconds() + int64(r.N) - 1) / int64(r.N)
		if next := s.Next(r, now); next != now+interval {
			t.Errorf("rate %v: the next start is after %d µs, want %d", r, next-now, interval)
		}
		if s.Micros >= 1<<53 {
			t.Errorf("rate %v: the time %d is not exact as a floating-point number", r, s.Micros)
		}
	}
}

func TestNoRateAllowsEveryStart(t *testing.T) {
	var s gcra.State
	if n := s.May(store.Rate{}, 5, 500); n != 500 || s.Next(store.Rate{}, 5) != 5 {
		t.Errorf("%d of 500 may start, the next one at %d", n, s.Next(store.Rate{}, 5))
	}
	s.Start(store.Rate{}, 5, 500)
	if s != (gcra.State{}) {
		t.Errorf("the state is %+v", s)
	}
}
