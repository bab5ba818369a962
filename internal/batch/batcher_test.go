package batch

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/store"
)

// gate provides a batcher's call that waits until it is let through, and records its items.
type gate struct {
	open  chan struct{} // a value lets one call through
	mu    sync.Mutex
	calls [][]string
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

// call echoes the items. It returns an error for the whole call if one of them is "fail".
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

// The caller of PutHere sends its item, unless as many calls as allowed are in flight.
func TestPutHereLeavesTheCallToTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		b := newBatcher(g.call, stringSize, Config{Timeout: time.Hour, Closed: store.ErrClosed})
		put := func(item string) bool {
			send, err := b.PutHere(item, &waiter[string]{answered: make(chan answer[string], 1)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return send
		}
		for _, item := range []string{"a", "b"} {
			if !put(item) {
				t.Errorf("%s is sent without its caller", item)
			}
		}
		if put("c") {
			t.Error("a third call is to be made at the same time")
		}
		if calls := g.seen(); len(calls) > 0 {
			t.Errorf("calls were made before Send: %q", calls)
		}
		close(g.open)
		b.Send()
		b.Send()
		if calls := g.seen(); len(calls) != 1 || len(calls[0]) != 3 {
			t.Errorf("the calls were %q; want one with all items", calls)
		}
		b.Close()
		if send, err := b.PutHere("late", nil, nil); send || !errors.Is(err, store.ErrClosed) {
			t.Errorf("PutHere after Close returned %v, %v", send, err)
		}
	})
}

// blockedBatcher returns a batcher with the maximum number of calls in flight, and a func that adds an item
// and records its outcome in done.
func blockedBatcher(t *testing.T) (
	b *Batcher[string, string], g *gate, add func(context.Context, string), done *log[outcome],
) {
	t.Helper()
	g, done = newGate(), &log[outcome]{}
	b = newBatcher(g.call, stringSize, testConfig)
	add = func(ctx context.Context, item string) {
		go func() {
			r, err := b.Do(ctx, item)
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
		b := newBatcher(g.call, stringSize, testConfig)
		go func() { g.open <- struct{}{} }()
		if r, err := b.Do(t.Context(), "lone"); r != "lone" || err != nil {
			t.Errorf("got %q, %v", r, err)
		}
		b.Close()
	})
}

func TestBatcherSendsALoneItemOnItsCallersGoroutine(t *testing.T) {
	own := false
	call := func(_ context.Context, items []string) ([]string, error) {
		own = strings.Contains(string(debug.Stack()), "OnItsCallersGoroutine(")
		return items, nil
	}
	for _, c := range []struct {
		ctx          context.Context
		prompt, want bool
	}{
		{context.WithoutCancel(t.Context()), false, true},
		{t.Context(), false, false}, // do must return when it ends
		{t.Context(), true, true},
	} {
		b := newBatcher(call, stringSize, testConfig)
		if c.prompt {
			b.prompt = call
		}
		if _, err := b.Do(c.ctx, "lone"); err != nil || own != c.want {
			t.Errorf("prompt %t: sent on its caller's goroutine: %t, %v", c.prompt, own, err)
		}
		b.Close()
	}
}

// A call that ends with the caller's context reports what the caller needs to know.
func TestBatcherReportsAnUnknownOutcomeOfAPromptCall(t *testing.T) {
	b := newBatcher[string, string](nil, stringSize, testConfig)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	b.prompt = func(ctx context.Context, items []string) ([]string, error) {
		cancel(gone)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if _, err := b.Do(ctx, "lone"); !errors.Is(err, gone) || !strings.Contains(err.Error(), "outcome unknown") {
		t.Errorf("got %v, want an unknown outcome because of %v", err, gone)
	}
	b.call = func(_ context.Context, items []string) ([]string, error) { return items, nil }
	if r, err := b.Do(t.Context(), "batched until the store answers"); err != nil {
		t.Errorf("got %q, %v", r, err)
	}
	b.running.Wait()
	refused := errors.New("refused")
	b.prompt = func(context.Context, []string) ([]string, error) { return nil, refused }
	if _, err := b.Do(t.Context(), "lone"); err != refused {
		t.Errorf("got %v, want %v", err, refused)
	}
	b.Close()
}

func TestBatcherSendsWhatComesWhileALoneItemIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, done := newGate(), &log[outcome]{}
		b := newBatcher(g.call, stringSize, testConfig)
		for _, item := range []string{"lone", "second", "a", "b"} {
			go func() {
				r, err := b.Do(context.WithoutCancel(t.Context()), item)
				done.add(outcome{item, r, err})
			}()
			synctest.Wait()
		}
		g.open <- struct{}{} // for the lone item or the second
		synctest.Wait()
		if got := g.seen(); len(got) != 3 || !slices.Equal(got[2], []string{"a", "b"}) || len(done.list()) != 1 {
			t.Errorf("calls: %v, outcomes: %v; want a and b in one call", got, done.list())
		}
		close(g.open)
		b.Close()
		synctest.Wait()
		for _, o := range done.list() {
			if o.result != o.item || o.err != nil {
				t.Errorf("outcome: %v", o)
			}
		}
		if n := len(done.list()); n != 4 {
			t.Errorf("%d outcomes", n)
		}
	})
}

func TestBatcherCombinesItemsWhileCallsAreInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g, add, done := blockedBatcher(t)
		for _, item := range []string{"a", "b", "c"} {
			add(t.Context(), item)
		}
		if got := g.seen(); len(got) != maxInFlight {
			t.Fatalf("calls in flight: %v; want %d", got, maxInFlight)
		}
		close(g.open)
		b.Close()
		synctest.Wait()
		if got := g.seen(); len(got) != 3 || !slices.Equal(got[2], []string{"a", "b", "c"}) {
			t.Errorf("calls: %v; want the last to be a, b, c in order", got)
		}
		if got := done.list(); len(got) != 5 {
			t.Errorf("outcomes: %v; want 5", got)
		}
	})
}

func TestBatcherKeepsWithinTheLimitsOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g, add, done := blockedBatcher(t)
		for range store.MaxBatch + 1 {
			add(t.Context(), "x")
		}
		large := strings.Repeat("y", store.MaxBatchBytes/2+1)
		add(t.Context(), large)
		add(t.Context(), large)
		close(g.open)
		b.Close()
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

func TestBatcherWithdrawsAnItemThatIsNotInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g, add, done := blockedBatcher(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		add(t.Context(), "stays")
		add(ctx, "goes")
		reason := errors.New("caller has gone")
		cancel(reason)
		synctest.Wait()
		if got := done.list(); len(got) != 1 || got[0].item != "goes" || got[0].err != reason {
			t.Errorf("outcomes: %v; want only the withdrawn item with its cause", got)
		}
		close(g.open)
		b.Close()
		synctest.Wait()
		if got := g.seen(); !slices.Equal(got[2], []string{"stays"}) {
			t.Errorf("calls: %v; want the last without the withdrawn item", got)
		}
	})
}

func TestBatcherReportsAnUnknownOutcomeForAnItemInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, done := newGate(), &log[outcome]{}
		b := newBatcher(g.call, stringSize, testConfig)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			r, err := b.Do(ctx, "item")
			done.add(outcome{"item", r, err})
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		got := done.list()
		if len(got) != 1 || !errors.Is(got[0].err, context.Canceled) ||
			!strings.Contains(got[0].err.Error(), "outcome unknown") {
			t.Errorf("outcomes: %v", got)
		}
		// The late reply must not reach another caller.
		close(g.open)
		if r, err := b.Do(t.Context(), "next"); r != "next" || err != nil {
			t.Errorf("next item got %q, %v", r, err)
		}
		b.Close()
	})
}

func TestBatcherDoesNotReuseAWaiterWhoseOutcomeIsUnknown(t *testing.T) {
	for range 20 { // a sync.Pool may drop what it is given, and does so at random under the race detector
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			b := newBatcher(g.call, stringSize, testConfig)
			var made []*waiter[string]
			create := b.waiters.New
			b.waiters.New = func() any {
				w := create().(*waiter[string])
				made = append(made, w)
				return w
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			// On this goroutine, so that the pool would return the waiter that do has put back.
			_, err := b.Do(ctx, "item")
			next := b.waiters.Get().(*waiter[string])
			if err == nil || len(made) == 0 || next == made[0] {
				t.Errorf("error %v; the waiter of the call in flight is reused", err)
			}
			close(g.open)
			b.Close()
		})
	}
}

func TestBatcherFailsOnlyTheItemsOfAFailedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g, add, done := blockedBatcher(t)
		add(t.Context(), "fail")
		close(g.open)
		b.Close()
		synctest.Wait()
		for _, o := range done.list() {
			if failed := o.err != nil; failed != (o.item == "fail") {
				t.Errorf("item %q: %v", o.item, o.err)
			}
		}
	})
}

func TestBatcherTreatsAShortReplyAsCorrupt(t *testing.T) {
	b := newBatcher(func(context.Context, []string) ([]string, error) { return nil, nil }, stringSize, testConfig)
	_, err := b.Do(t.Context(), "item")
	wantError(t, err, store.ErrCorrupt)
	b.Close()
}

func TestBatcherEndsACallWithoutAReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatcher(newGate().call, stringSize, testConfig)
		_, err := b.Do(t.Context(), "item")
		wantError(t, err, context.DeadlineExceeded)
		b.Close()
	})
}

func TestBatcherRefusesItemsAfterClose(t *testing.T) {
	b := newBatcher(newGate().call, stringSize, testConfig)
	b.Close()
	_, err := b.Do(t.Context(), "item")
	wantError(t, err, store.ErrClosed)
}

func TestBatcherLosesNothingUnderManyCallers(t *testing.T) {
	var mu sync.Mutex
	seen := map[int]int{}
	b := newBatcher(func(_ context.Context, items []int) ([]int, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, i := range items {
			seen[i]++
		}
		return slices.Clone(items), nil
	}, func(int) int { return 1 }, testConfig)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var sent sync.WaitGroup
	var acknowledged log[int]
	for g := range 100 {
		sent.Go(func() {
			for i := range 100 {
				n := g*100 + i
				if n == 5000 {
					cancel() // while items are in flight
				}
				if r, err := b.Do(ctx, n); err == nil {
					if r != n {
						t.Errorf("item %d got the result of %d", n, r)
					}
					acknowledged.add(n)
				}
			}
		})
	}
	sent.Wait()
	b.Close()
	for _, n := range acknowledged.list() {
		if seen[n] != 1 {
			t.Errorf("item %d was sent %d times", n, seen[n])
		}
	}
}

// recorder is a completer that records the outcome.
type recorder struct {
	item string
	log  *log[outcome]
}

func (r recorder) Complete(result string, err error) { r.log.add(outcome{r.item, result, err}) }

func TestBatcherSendsAGroupOnceItIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, done := newGate(), &log[outcome]{}
		close(g.open)
		b := newBatcher(g.call, stringSize, testConfig)
		lease := &Group{pending: 3}
		begin := time.Now()
		for _, item := range []string{"a", "b", "c"} {
			if got := g.seen(); len(got) > 0 {
				t.Fatalf("calls before item %s: %v", item, got)
			}
			b.Put(item, recorder{item, done}, lease)
			synctest.Wait()
		}
		if got := g.seen(); len(got) != 1 || !slices.Equal(got[0], []string{"a", "b", "c"}) || time.Since(begin) > 0 {
			t.Errorf("calls %v after %v", got, time.Since(begin))
		}
		b.Close()
		if got := done.list(); len(got) != 3 || got[2] != (outcome{"c", "c", nil}) {
			t.Errorf("outcomes: %v", got)
		}
	})
}

func TestBatcherLingersForAnIncompleteGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, done := newGate(), &log[outcome]{}
		close(g.open)
		b := newBatcher(g.call, stringSize, testConfig)
		lease, other := &Group{pending: 500}, &Group{pending: 500}
		for _, round := range []string{"first", "second"} { // the timer is reset
			b.Put(round, recorder{round, done}, lease)
			b.Put("other "+round, recorder{round, done}, other)
			b.Put("lone "+round, recorder{round, done}, nil)
			synctest.Wait()
			if got := g.seen(); len(got) == 0 || !slices.Equal(got[len(got)-1], []string{"lone " + round}) {
				t.Errorf("calls without delay: %v; want the lone item last", got)
			}
			time.Sleep(linger - time.Nanosecond)
			synctest.Wait()
			calls := len(g.seen())
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if got := g.seen(); len(got) != calls+1 || !slices.Equal(got[calls], []string{round, "other " + round}) {
				t.Errorf("calls after lingering: %v; want both groups in one", got)
			}
		}
		b.Put("last", recorder{"last", done}, lease)
		b.Close()
		if got := g.seen(); !slices.Equal(got[len(got)-1], []string{"last"}) || len(done.list()) != 7 {
			t.Errorf("calls after close: %v; want the incomplete group last", got)
		}
	})
}

func TestBatcherCombinesCompleteGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g, _, done := blockedBatcher(t)
		for i := range 5 { // groups of 120 items; four of them fit into one call
			lease := &Group{pending: store.MaxBatch/4 - 5}
			for range lease.pending {
				b.Put(strconv.Itoa(i), recorder{"", done}, lease)
			}
			b.Put("rest", recorder{"", done}, &Group{pending: 2})
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
		b.Close()
		synctest.Wait()
		if got, want := len(done.list()), 5*(store.MaxBatch/4-5)+5+maxInFlight; got != want {
			t.Errorf("%d outcomes, want %d", got, want)
		}
	})
}

func TestBatcherForgetsTheBytesOfAWithdrawnItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g, add, _ := blockedBatcher(t)
		ctx, cancel := context.WithCancel(t.Context())
		big := strings.Repeat("x", store.MaxBatchBytes-1)
		add(ctx, big)
		cancel()
		synctest.Wait()
		add(t.Context(), "a")
		add(t.Context(), "bc")
		close(g.open)
		b.Close()
		if calls := g.seen(); len(calls) != 3 || !slices.Equal(calls[2], []string{"a", "bc"}) {
			t.Errorf("%d calls, want one for both items", len(calls))
		}
	})
}

func TestBatcherRefusesALoneItemAfterClose(t *testing.T) {
	g := newGate()
	close(g.open)
	b := newBatcher(g.call, stringSize, testConfig)
	b.Close()
	if _, err := b.Do(context.Background(), "x"); !errors.Is(err, store.ErrClosed) || len(g.seen()) != 0 {
		t.Errorf("%v after %d calls", err, len(g.seen()))
	}
}

func TestBatcherSendsNothingForACallerThatHasGone(t *testing.T) {
	g := newGate()
	close(g.open)
	b := newBatcher(g.call, stringSize, testConfig)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	for range 100 {
		if _, err := b.Do(ctx, "x"); err != gone {
			t.Fatal(err)
		}
	}
	b.Close()
	if _, err := b.Do(ctx, "x"); err != gone {
		t.Errorf("after close: %v", err)
	}
	if calls := g.seen(); len(calls) != 0 {
		t.Errorf("%d calls", len(calls))
	}
}

func TestBatcherKeepsFewEmptyBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g, add, _ := blockedBatcher(t)
		for range 3 * maxSpare { // each fills a batch
			add(t.Context(), strings.Repeat("x", store.MaxBatchBytes))
		}
		close(g.open)
		b.Close()
		if n := len(b.spare); n > maxSpare {
			t.Errorf("keeps %d empty batches, want up to %d", n, maxSpare)
		}
	})
}
