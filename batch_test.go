package later

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/store"
)

// gate is a call of a batcher that waits until it is let through, and notes what it was given.
type gate struct {
	open  chan struct{} // a value lets one call through
	mu    sync.Mutex
	calls [][]string
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

// call echoes the items; one called "bad" has an error of its own, "fail" fails the whole call.
func (g *gate) call(ctx context.Context, items []string) ([]string, error) {
	g.mu.Lock()
	g.calls = append(g.calls, slices.Clone(items))
	g.mu.Unlock()
	select {
	case <-g.open:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if slices.Contains(items, "fail") {
		return nil, store.ErrFull
	}
	return slices.Clone(items), nil
}

func (g *gate) seen() [][]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.calls)
}

func stringSize(s string) int { return len(s) }

type outcome struct {
	item, result string
	err          error
}

// blockedBatcher gives a batcher with all its flights on their way, and a func that adds an item and reports
// its outcome.
func blockedBatcher(t *testing.T) (b *batcher[string, string], g *gate, add func(context.Context, string), done *log[outcome]) {
	t.Helper()
	g, done = newGate(), &log[outcome]{}
	b = newBatcher(g.call, stringSize)
	add = func(ctx context.Context, item string) {
		go func() {
			r, err := b.do(ctx, item)
			done.add(outcome{item, r, err})
		}()
		synctest.Wait()
	}
	add(t.Context(), "first")
	add(t.Context(), "second")
	return b, g, add, done
}

func TestBatcherSendsALoneItemAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		b := newBatcher(g.call, stringSize)
		go func() { g.open <- struct{}{} }()
		if r, err := b.do(t.Context(), "lone"); r != "lone" || err != nil {
			t.Errorf("got %q, %v", r, err)
		}
		b.close()
	})
}

func TestBatcherGathersWhileItsFlightsAreOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g, add, done := blockedBatcher(t)
		for _, item := range []string{"a", "b", "c"} {
			add(t.Context(), item)
		}
		if got := g.seen(); len(got) != maxInFlight {
			t.Fatalf("calls on their way: %v; want %d", got, maxInFlight)
		}
		close(g.open)
		b.close()
		synctest.Wait()
		if got := g.seen(); len(got) != 3 || !slices.Equal(got[2], []string{"a", "b", "c"}) {
			t.Errorf("calls: %v; want the last to be a b c, in order", got)
		}
		if got := done.list(); len(got) != 5 {
			t.Errorf("outcomes: %v; want 5", got)
		}
	})
}

func TestBatcherKeepsToTheLimitsOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g, add, done := blockedBatcher(t)
		for range store.MaxBatch + 1 {
			add(t.Context(), "x")
		}
		large := strings.Repeat("y", store.MaxBatchBytes/2+1)
		add(t.Context(), large)
		add(t.Context(), large)
		close(g.open)
		b.close()
		synctest.Wait()
		var sizes []int
		for _, call := range g.seen()[maxInFlight:] {
			sizes = append(sizes, len(call))
		}
		slices.Sort(sizes)
		if want := []int{1, 2, store.MaxBatch}; !slices.Equal(sizes, want) {
			t.Errorf("calls have %v items; want %v", sizes, want)
		}
		if got := len(done.list()); got != 2+store.MaxBatch+1+2 {
			t.Errorf("%d outcomes", got)
		}
	})
}

func TestBatcherWithdrawsAnItemThatIsNotOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g, add, done := blockedBatcher(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		add(t.Context(), "stays")
		add(ctx, "goes")
		reason := errors.New("caller has gone")
		cancel(reason)
		synctest.Wait()
		if got := done.list(); len(got) != 1 || got[0].item != "goes" || got[0].err != reason {
			t.Errorf("outcomes: %v; want the cause alone", got)
		}
		close(g.open)
		b.close()
		synctest.Wait()
		if got := g.seen(); !slices.Equal(got[2], []string{"stays"}) {
			t.Errorf("calls: %v; want the last without the withdrawn item", got)
		}
	})
}

func TestBatcherSaysThatTheOutcomeOfAnItemOnItsWayIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, done := newGate(), &log[outcome]{}
		b := newBatcher(g.call, stringSize)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			r, err := b.do(ctx, "item")
			done.add(outcome{"item", r, err})
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		got := done.list()
		if len(got) != 1 || !errors.Is(got[0].err, context.Canceled) || !strings.Contains(got[0].err.Error(), "outcome unknown") {
			t.Errorf("outcomes: %v", got)
		}
		// The late answer must reach nobody else.
		close(g.open)
		if r, err := b.do(t.Context(), "next"); r != "next" || err != nil {
			t.Errorf("next item got %q, %v", r, err)
		}
		b.close()
	})
}

func TestBatcherFailsTheItemsOfAFailedCallOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g, add, done := blockedBatcher(t)
		add(t.Context(), "fail")
		close(g.open)
		b.close()
		synctest.Wait()
		for _, o := range done.list() {
			if failed := o.err != nil; failed != (o.item == "fail") {
				t.Errorf("item %q: %v", o.item, o.err)
			}
		}
	})
}

func TestBatcherTreatsAShortAnswerAsCorrupt(t *testing.T) {
	b := newBatcher(func(context.Context, []string) ([]string, error) { return nil, nil }, stringSize)
	_, err := b.do(t.Context(), "item")
	wantError(t, err, ErrCorrupt)
	b.close()
}

func TestBatcherEndsACallThatIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatcher(newGate().call, stringSize)
		_, err := b.do(t.Context(), "item")
		wantError(t, err, context.DeadlineExceeded)
		b.close()
	})
}

func TestBatcherRefusesItemsAfterClose(t *testing.T) {
	b := newBatcher(newGate().call, stringSize)
	b.close()
	_, err := b.do(t.Context(), "item")
	wantError(t, err, ErrClosed)
}

func TestBatcherUnderManyCallersLosesNothing(t *testing.T) {
	var mu sync.Mutex
	seen := map[int]int{}
	b := newBatcher(func(_ context.Context, items []int) ([]int, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, i := range items {
			seen[i]++
		}
		return slices.Clone(items), nil
	}, func(int) int { return 1 })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var sent sync.WaitGroup
	var acknowledged log[int]
	for g := range 100 {
		sent.Go(func() {
			for i := range 100 {
				n := g*100 + i
				if n == 5000 {
					cancel() // in the midst of it
				}
				if r, err := b.do(ctx, n); err == nil {
					if r != n {
						t.Errorf("item %d got the result of %d", n, r)
					}
					acknowledged.add(n)
				}
			}
		})
	}
	sent.Wait()
	b.close()
	for _, n := range acknowledged.list() {
		if seen[n] != 1 {
			t.Errorf("item %d was sent %d times", n, seen[n])
		}
	}
}

// heard is a completer that notes what it is told.
type heard struct {
	item string
	log  *log[outcome]
}

func (h heard) complete(result string, err error) { h.log.add(outcome{h.item, result, err}) }

func TestAGroupGoesWhenItIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, done := newGate(), &log[outcome]{}
		close(g.open)
		b := newBatcher(g.call, stringSize)
		lease := &ackGroup{pending: 3}
		begin := time.Now()
		for _, item := range []string{"a", "b", "c"} {
			if got := g.seen(); len(got) > 0 {
				t.Fatalf("before %s went %v", item, got)
			}
			b.put(item, heard{item, done}, lease)
			synctest.Wait()
		}
		if got := g.seen(); len(got) != 1 || !slices.Equal(got[0], []string{"a", "b", "c"}) || time.Since(begin) > 0 {
			t.Errorf("calls %v after %v", got, time.Since(begin))
		}
		b.close()
		if got := done.list(); len(got) != 3 || got[2] != (outcome{"c", "c", nil}) {
			t.Errorf("outcomes: %v", got)
		}
	})
}

func TestAGroupWaitsForItsRestOnlySoLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, done := newGate(), &log[outcome]{}
		close(g.open)
		b := newBatcher(g.call, stringSize)
		lease, other := &ackGroup{pending: 500}, &ackGroup{pending: 500}
		for _, round := range []string{"first", "second"} { // the timer is set again
			b.put(round, heard{round, done}, lease)
			b.put("other "+round, heard{round, done}, other)
			b.put("lone "+round, heard{round, done}, nil)
			synctest.Wait()
			if got := g.seen(); len(got) == 0 || !slices.Equal(got[len(got)-1], []string{"lone " + round}) {
				t.Errorf("at once went %v", got)
			}
			time.Sleep(linger - time.Nanosecond)
			synctest.Wait()
			calls := len(g.seen())
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if got := g.seen(); len(got) != calls+1 || !slices.Equal(got[calls], []string{round, "other " + round}) {
				t.Errorf("after the time went %v", got)
			}
		}
		b.put("last", heard{"last", done}, lease)
		b.close()
		if got := g.seen(); !slices.Equal(got[len(got)-1], []string{"last"}) || len(done.list()) != 7 {
			t.Errorf("at the end went %v", got)
		}
	})
}

func TestWholeGroupsTravelTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g, _, done := blockedBatcher(t)
		for i := range 5 { // of 120, of which four fit into a call
			lease := &ackGroup{pending: store.MaxBatch/4 - 5}
			for range lease.pending {
				b.put(strconv.Itoa(i), heard{"", done}, lease)
			}
			b.put("rest", heard{"", done}, &ackGroup{pending: 2})
		}
		g.open <- struct{}{}
		synctest.Wait()
		var want []string
		for i := range 4 {
			want = append(want, slices.Repeat([]string{strconv.Itoa(i)}, store.MaxBatch/4-5)...)
		}
		if got := g.seen(); len(got) != maxInFlight+1 || !slices.Equal(got[maxInFlight], want) {
			t.Errorf("calls: %v; want the last to be four groups, in order", got)
		}
		close(g.open)
		b.close()
		synctest.Wait()
		if got, want := len(done.list()), 5*(store.MaxBatch/4-5)+5+maxInFlight; got != want {
			t.Errorf("%d outcomes, want %d", got, want)
		}
	})
}
