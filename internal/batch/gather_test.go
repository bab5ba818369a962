package batch

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/store"
)

// crowd makes a batcher gather, and has it learn that n items are together.
func crowd(t *testing.T, n int) (b *Batcher[string, string], g *gate, add func(item string)) {
	t.Helper()
	g = newGate()
	b = newBatcher(g.call, stringSize, testConfig)
	b.linger, b.gathers = gatherFor, true
	add = func(item string) {
		go func() {
			if r, err := b.Do(t.Context(), item); r != item || err != nil {
				t.Errorf("item %q: got %q, %v", item, r, err)
			}
		}()
		synctest.Wait()
	}
	for i := range n {
		add("first " + strconv.Itoa(i))
	}
	close(g.open)
	synctest.Wait()
	return b, g, add
}

func TestBatcherSendsHalfOfACrowdTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g, add := crowd(t, 12)
		begin, before := time.Now(), len(g.seen())
		for i := range 6 {
			if calls := len(g.seen()) - before; calls != 0 {
				t.Fatalf("%d calls for the first %d of 12 items", calls, i)
			}
			add(strconv.Itoa(i))
		}
		if calls := g.seen()[before:]; len(calls) != 1 || len(calls[0]) != 6 || time.Since(begin) != 0 {
			t.Errorf("calls %v after %v; want one, at once", calls, time.Since(begin))
		}
		b.Close()
	})
}

func TestBatcherWaitsFromTheFirstOfEachCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g, add := crowd(t, 12)
		for i := range 6 { // sent at once
			add(strconv.Itoa(i))
		}
		time.Sleep(gatherFor / 2)
		before := len(g.seen())
		add("first of the next")
		time.Sleep(gatherFor - time.Nanosecond)
		synctest.Wait()
		if calls := g.seen()[before:]; len(calls) != 0 {
			t.Errorf("calls before the others had time to come: %v", calls)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if calls := g.seen()[before:]; len(calls) != 1 {
			t.Errorf("calls %v; want one", calls)
		}
		b.Close()
	})
}

// sendAgain is a completer that adds another item when it is answered.
type sendAgain struct {
	b     *Batcher[string, string]
	times int
}

func (s *sendAgain) Complete(string, error) {
	if s.times--; s.times >= 0 {
		_ = s.b.Put("again", s, nil) // which fails only after close
	}
}

func TestBatcherCountsWhoIsAnsweredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, _ := crowd(t, 12)
		for range 12 {
			if err := b.Put("first", &sendAgain{b, 3}, nil); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		b.mu.Lock()
		learned := b.crowd
		b.mu.Unlock()
		if learned != 12 {
			t.Errorf("12 senders that send again when they are answered are taken for %d", learned)
		}
		b.Close()
	})
}

func TestBatcherEndsACrowdThatDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g, add := crowd(t, 12)
		before := len(g.seen())
		add("alone")
		time.Sleep(gatherFor - time.Nanosecond)
		synctest.Wait()
		if calls := g.seen()[before:]; len(calls) != 0 {
			t.Errorf("calls before the others had time to come: %v", calls)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		add("next")
		if calls := g.seen()[before:]; len(calls) != 2 {
			t.Errorf("calls %v; want one for the first that was alone, and one for the next at once", calls)
		}
		b.Close()
	})
}

func TestBatcherWithFewSendersWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g, add := crowd(t, minCrowd-1)
		before := len(g.seen())
		add("alone")
		if calls := g.seen()[before:]; len(calls) != 1 {
			t.Errorf("calls %v; want one", calls)
		}
		b.Close()
	})
}

func TestBatcherSendsAFullBatchAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g, add := crowd(t, 40)
		b.size = func(string) int { return store.MaxBatchBytes/2 + 1 }
		before := len(g.seen())
		for i := range 5 {
			add(strconv.Itoa(i))
			if calls := len(g.seen()) - before; calls != i {
				t.Errorf("%d calls for %d full batches", calls, i)
			}
			time.Sleep(gatherFor * 9 / 10)
		}
		b.Close()
	})
}

func TestBatcherSendsSoManyOfALargeCrowdAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g, add := crowd(t, 4*maxGathered)
		before, begin := len(g.seen()), time.Now()
		for i := range maxGathered {
			add(strconv.Itoa(i))
		}
		calls := g.seen()[before:]
		if len(calls) != 1 || len(calls[0]) != maxGathered || time.Since(begin) != 0 {
			t.Errorf("%d calls after %v, want one of %d at once", len(calls), time.Since(begin), maxGathered)
		}
		b.Close()
	})
}

func TestBatcherLearnsThatACrowdShrinksALittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, add := crowd(t, 16)
		release := make(chan struct{})
		b.call = func(_ context.Context, items []string) ([]string, error) {
			<-release
			return items, nil
		}
		for i := range 8 + 3 { // 8 are sent, and 3 wait in vain for more
			add(strconv.Itoa(i))
		}
		time.Sleep(gatherFor)
		synctest.Wait()
		b.mu.Lock()
		if b.crowd != 14 {
			t.Errorf("expects %d together, want 14", b.crowd)
		}
		b.mu.Unlock()
		close(release)
		b.Close()
	})
}
