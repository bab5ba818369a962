package diskstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

func limit(t testing.TB, s *Store, f store.Flow) {
	t.Helper()
	if err := s.SetFlow(t.Context(), "q", f, nil); err != nil {
		t.Fatal(err)
	}
}

func flowOf(t testing.TB, s *Store) store.FlowState {
	t.Helper()
	stats, err := s.Stats(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	return stats.Flow
}

// claimUpTo claims up to n messages.
func claimUpTo(t testing.TB, s *Store, n int) []store.Claimed {
	t.Helper()
	c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: n, Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return c.Messages
}

func wantClaimed(t testing.TB, s *Store, n int) []store.Claimed {
	t.Helper()
	got := claimUpTo(t, s, n+5)
	if len(got) != n {
		t.Fatalf("claimed %d messages, want %d", len(got), n)
	}
	return got
}

func ids(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("m%05d", i))
	}
	return all
}

// sendPast sends messages that were due a day ago.
func sendPast(t testing.TB, s *Store, clock *manualClock, all ...string) {
	t.Helper()
	for _, id := range all {
		m := store.Outgoing{Message: store.Message{ID: id}, Due: store.Due{At: clock.Now().Add(-24 * time.Hour)}}
		if _, err := s.Send(t.Context(), "q", []store.Outgoing{m}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEveryStartIsChargedAfterACrash crashes at every write. Wherever a claimed message is leased or acked, its start
// is counted, and wherever it is ready, it is not.
func TestEveryStartIsChargedAfterACrash(t *testing.T) {
	const sent, interval = 40, int64(time.Hour / time.Microsecond)
	clock := newManualClock()
	c := newCrashPoints(vfs.NewCrashableMem())
	s := openOn(t, c, clock, withMemTable(64<<10))
	limit(t, s, store.Flow{Concurrency: 10, Rate: store.Rate{N: 1, Per: time.Hour, Burst: 100}})
	begin := clock.Now().UnixMicro()
	send(t, s, ids(sent)...)
	c.take(func() {
		for i := range 12 {
			got := claimUpTo(t, s, 1+i%3)
			for _, m := range got[:len(got)/2] {
				ack := store.Settlement{Receipt: m.Receipt, Action: store.Ack}
				if r, err := s.Settle(t.Context(), "q", []store.Settlement{ack}); err != nil || r[0].Err != nil {
					t.Fatal(r, err)
				}
			}
		}
	})
	s.Close()
	different := map[int64]bool{}
	for i, fs := range c.left {
		s := openOn(t, fs, clock)
		started := sent - int64(len(listed(t, s, "q", store.StateReady)))
		leased := len(listed(t, s, "q", store.StateLeased))
		charged := int64(0)
		execute(t, s, func(t *tx) {
			if at := t.s.queues["q"].flow.State.Micros; at > 0 {
				charged = (at - begin) / interval
			}
		})
		if charged != started || flowOf(t, s).Leased != leased {
			t.Errorf("crash before %s: %d starts are charged, and %d messages count; %d were started and %d are leased",
				c.ops[i], charged, flowOf(t, s).Leased, started, leased)
		}
		different[started] = true
		wantSound(t, s)
		s.Close()
	}
	if len(different) < 5 {
		t.Errorf("the crashes left %d different numbers of starts, want more", len(different))
	}
}

func TestLimitsAndTheirStateAreKeptOverAReopen(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	clock.Advance(567 * time.Microsecond)
	s := openOn(t, fs, clock)
	defer func() { s.Close() }()
	send(t, s, ids(20)...)
	claimUpTo(t, s, 2) // before the queue has limits
	limit(t, s, store.Flow{Concurrency: 4, Rate: store.Rate{N: 7, Per: time.Second, Burst: 6}})
	wantClaimed(t, s, 4)
	for range 3 {
		before := flowOf(t, s)
		s.Close()
		s = openOn(t, fs, clock)
		if got := flowOf(t, s); got != before || got.Leased != 4 {
			t.Errorf("after a reopen the flow is %+v, was %+v", got, before)
		}
		wantClaimed(t, s, 0)
		wantSound(t, s)
	}
	limit(t, s, store.Flow{})
	s.Close()
	s = openOn(t, fs, clock)
	if got := flowOf(t, s); got.Flow != (store.Flow{}) || got.Leased != 0 {
		t.Errorf("after a reopen the plain queue has the flow %+v", got)
	}
	limit(t, s, store.Flow{Concurrency: 1})
	s.Close()
	s = openOn(t, fs, clock)
	wantClaimed(t, s, 1) // what was leased before does not count
	wantSound(t, s)
}

// A cancelled message counts over a reopen, also where the rest of its lease has been stored again since.
func TestCancelledMessagesCountOverAReopen(t *testing.T) {
	for name, rewrite := range map[string]func(s *Store){
		"":                          func(*Store) {},
		"that is stored again":      func(s *Store) { follow(t, s, "m00002") },
		"with a refused settlement": func(s *Store) { follow(t, s, "m00002"); follow(t, s, "m00003") },
	} {
		t.Run("lease "+name, func(t *testing.T) {
			fs, clock := vfs.NewMem(), newManualClock()
			s := openOn(t, fs, clock)
			defer func() { s.Close() }()
			reopen := func() {
				s.Close()
				s = openOn(t, fs, clock)
			}
			send(t, s, ids(10)...)
			limit(t, s, store.Flow{Concurrency: 4})
			held := wantClaimed(t, s, 4)
			if _, err := s.Cancel(t.Context(), "q", store.CancelRequest{IDs: ids(2)}); err != nil {
				t.Fatal(err)
			}
			rewrite(s)
			reopen()
			wantClaimed(t, s, 0)
			refused := store.Settlement{Receipt: held[1].Receipt, Action: store.Ack}
			r, err := s.Settle(t.Context(), "q", []store.Settlement{refused})
			if err != nil || !errors.Is(r[0].Err, store.ErrLeaseLost) {
				t.Fatal(r, err)
			}
			reopen()
			wantSound(t, s)
			wantClaimed(t, s, 1)
			e, err := s.Extend(t.Context(), "q", []store.Extension{{Lease: held[0].Receipt.Lease, For: time.Hour}})
			if err != nil || len(e[0].Lost) != 1 || e[0].Lost[0].ID != "m00000" {
				t.Fatal(e, err)
			}
			reopen()
			wantSound(t, s)
			wantClaimed(t, s, 1)
		})
	}
}

// follow sends a successor of a leased message.
func follow(t *testing.T, s *Store, id string) {
	t.Helper()
	next := store.Outgoing{Message: store.Message{ID: id}, OnDuplicate: store.OnDuplicate{Mode: store.DuplicateFollow}}
	if r, err := s.Send(t.Context(), "q", []store.Outgoing{next}); err != nil || !r[0].Follows {
		t.Fatal(r, err)
	}
}

// The engine's clock, in microseconds, does not go back where that of the machine does by less than a minute. After a
// larger step the next start is one interval away.
func TestRateAfterTheClockWasSetBack(t *testing.T) {
	for name, reopens := range map[string]bool{"while the store is open": false, "while it is closed": true} {
		t.Run(name, func(t *testing.T) {
			fs, clock := vfs.NewMem(), newManualClock()
			clock.Advance(567 * time.Microsecond)
			s := openOn(t, fs, clock)
			defer func() { s.Close() }()
			set := func(by time.Duration) {
				if reopens {
					s.Close()
					clock.Advance(by)
					s = openOn(t, fs, clock)
					return
				}
				clock.Advance(by)
			}
			sendPast(t, s, clock, ids(10)...)
			limit(t, s, store.Flow{Rate: store.Rate{N: 1, Per: time.Second, Burst: 2}})
			wantClaimed(t, s, 2)
			before := flowOf(t, s)
			for _, back := range []time.Duration{100 * time.Microsecond, 20 * time.Second} {
				set(-back)
				if got := flowOf(t, s); got.Now.Before(before.Now) || !got.Next.Equal(before.Next) {
					t.Errorf("%v back, the flow is %+v, was %+v", back, got, before)
				}
				wantClaimed(t, s, 0)
				set(back)
			}
			set(-time.Hour)
			if got := flowOf(t, s); got.Next.Sub(got.Now) != time.Second {
				t.Errorf("an hour back, the next start is in %v", got.Next.Sub(got.Now))
			}
			clock.Advance(time.Second - time.Microsecond)
			wantClaimed(t, s, 0)
			clock.Advance(time.Microsecond)
			wantClaimed(t, s, 1)
			wantSound(t, s)
		})
	}
}

func TestWaitEndsAtTheMicrosecondOfTheNextStart(t *testing.T) {
	clock := newManualClock()
	s := openOn(t, vfs.NewMem(), clock)
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	send(t, s, ids(10)...)
	limit(t, s, store.Flow{Rate: store.Rate{N: 3, Per: time.Second}})
	wantClaimed(t, s, 1)
	for range 4 {
		waited := make(chan error, 1)
		go func() { waited <- s.Wait(ctx, "q") }()
		for s.asleep("q") == 0 {
			runtime.Gosched()
		}
		clock.Advance(333_333 * time.Microsecond)
		send(t, s, fmt.Sprint("new", clock.Now())) // wakes no waiter
		if s.asleep("q") == 0 {
			t.Fatal("the wait ended early")
		}
		clock.Advance(time.Microsecond)
		if err := <-waited; err != nil {
			t.Fatal(err)
		}
		wantClaimed(t, s, 1)
	}
}

// A waiter notices within seconds that the clock was set back, although no call tells the store.
func TestWaitUnderARateSeesThatTheClockWasSetBack(t *testing.T) {
	clock := newSteppedClock()
	s := openOn(t, vfs.NewMem(), clock)
	defer s.Close()
	sendPast(t, s, clock.manualClock, "a", "b")
	limit(t, s, store.Flow{Rate: store.Rate{N: 1, Per: time.Minute}})
	wantClaimed(t, s, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	wait := func() <-chan error {
		waited := make(chan error, 1)
		go func() { waited <- s.Wait(ctx, "q") }()
		<-clock.set
		return waited
	}
	waited := wait()
	clock.Advance(-time.Hour)
	clock.pass(checkEvery)
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	wantClaimed(t, s, 0)
	waited = wait()
	clock.pass(time.Minute)
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	wantClaimed(t, s, 1)
}

// Of many waiters each start wakes one, whether a rate or the end of an earlier message allows it.
func TestOneStartWakesOneOfManyWaiters(t *testing.T) {
	const waiters, starts = 200, 50
	for name, f := range map[string]store.Flow{
		"rate":        {Rate: store.Rate{N: 10, Per: time.Second}},
		"concurrency": {Concurrency: 1},
		"turns":       {Concurrency: 1, Fair: true},
	} {
		t.Run(name, func(t *testing.T) {
			clock := newManualClock()
			s := openOn(t, vfs.NewMem(), clock)
			defer s.Close()
			limit(t, s, f)
			ctx, cancel := context.WithCancel(t.Context())
			var claims atomic.Int64
			var all sync.WaitGroup
			got := make(chan string)
			for range waiters {
				all.Go(func() {
					if err := consume(ctx, s, &claims, got); !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				})
			}
			allWait := func() {
				for s.waiters.Load() < waiters {
					runtime.Gosched()
				}
			}
			allWait()
			before := claims.Load()
			send(t, s, ids(starts)...)
			for range starts {
				<-got
				if f.Rate.N > 0 {
					allWait()
					clock.Advance(100 * time.Millisecond)
				}
			}
			allWait()
			if n := claims.Load() - before; n > 3*starts {
				t.Errorf("%d messages took %d claims", starts, n)
			}
			cancel()
			all.Wait()
		})
	}
}

func TestRecoverKeepsTheLimits(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	places(t, s)
	want := store.Flow{Concurrency: 2, Rate: store.Rate{N: 1, Per: time.Hour, Burst: 2}}
	limit(t, s, want)
	wantClaimed(t, s, 2)
	before := flowOf(t, s)
	s.Close()
	s = recoveredStore(t, fs, clock)
	defer s.Close()
	if got := flowOf(t, s); got.Flow != want || got.Leased != 0 || !got.Next.Equal(before.Next) {
		t.Errorf("the recovered flow is %+v, was %+v", got, before)
	}
	wantClaimed(t, s, 0) // the rate counts what was started
	wantSound(t, s)
}

func TestCheckFindsWrongLimits(t *testing.T) {
	for name, c := range map[string]struct {
		live, loaded string // the issue while the store is open, and after a reopen
		damage       func(r raw)
	}{
		"count": {"leased under the limits is 3 instead of 2", "", func(r raw) {
			execute(r.t, r.s, func(t *tx) { t.s.queues["q"].leased++ })
		}},
		"other limits": {"the limits are", "", func(r raw) { r.meta(func(m *meta) { m.Flow.Concurrency++ }) }},
		"no limits":    {"the limits are", "", func(r raw) { r.meta(func(m *meta) { m.Flow = flow{} }) }},
		"limits that cannot be": {"cannot be read", "cannot be read", func(r raw) {
			r.meta(func(m *meta) { m.Flow.Rate.Per = -1000 })
		}},
		"start that cannot be": {"cannot be read", "cannot be read", func(r raw) {
			r.meta(func(m *meta) { m.Flow.State.Part = 5 })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			fs, clock := vfs.NewMem(), newManualClock()
			s := openOn(t, fs, clock)
			defer func() { s.Close() }()
			send(t, s, ids(5)...)
			limit(t, s, store.Flow{Concurrency: 2, Rate: store.Rate{N: 1, Per: time.Hour, Burst: 3}})
			wantClaimed(t, s, 2)
			wantSound(t, s)
			c.damage(raw{t, s, s.queues["q"].number})
			wantIssue(t, s, "counters", c.live)
			s.Close()
			s = openOn(t, fs, clock)
			wantIssue(t, s, "counters", c.loaded)
			_, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Hour})
			if errors.Is(err, store.ErrCorrupt) != (c.loaded != "") {
				t.Errorf("claim returns %v", err)
			}
		})
	}
}

// wantIssue checks that a check of the store finds one issue with a text, or none if the text is "".
func wantIssue(t *testing.T, s *Store, check, text string) {
	t.Helper()
	issues := issuesOf(checked(t, s))
	if text == "" && len(issues) == 0 {
		return
	}
	wantIssues(t, issues, check)
	if len(issues) == 0 || !strings.Contains(issues[0].Text, text) {
		t.Errorf("check reports %+v, want %q", issues, text)
	}
}

// A claim that is repeated because its reply was lost starts nothing again.
func TestRepeatedClaimIsChargedOnce(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	defer func() { s.Close() }()
	send(t, s, ids(5)...)
	limit(t, s, store.Flow{Concurrency: 5, Rate: store.Rate{N: 1, Per: time.Hour, Burst: 3}})
	ctx := store.WithRequest(t.Context(), store.Request{Session: "session", Number: 1})
	for range 3 {
		c, err := s.Claim(ctx, "q", store.ClaimRequest{Max: 2, Lease: time.Hour})
		if err != nil || len(c.Messages) != 2 || !c.Limited {
			t.Fatal(c, err)
		}
		s.Close()
		s = openOn(t, fs, clock)
	}
	if n := flowOf(t, s).Leased; n != 2 {
		t.Errorf("%d messages count, want 2", n)
	}
	wantClaimed(t, s, 1)
}
