package later

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

type deliverFunc func(ctx context.Context, msgs []*Message) []error

func (f deliverFunc) Deliver(ctx context.Context, msgs []*Message) []error { return f(ctx, msgs) }

// delivering is a worker that moves the messages of a queue to a custom destination.
type delivering struct {
	store  *faulty
	client *Client
	q      *Queue
	log    *lockedBuffer
	events *events
}

func inDelivering(t *testing.T, test func(t *testing.T, f *delivering)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &delivering{store: &faulty{Store: memstore.New()}, log: &lockedBuffer{}, events: &events{}}
		f.client = newClientOn(t, f.store, WithObserver(f.events.add), WithLogger(f.log.logger()))
		f.q = f.client.Queue("q")
		test(t, f)
	})
}

func (f *delivering) start(t *testing.T, cfg WorkerConfig, d deliverFunc) (stop func() error) {
	t.Helper()
	w := NewWorker(f.client, cfg)
	w.Forward("q", To(d))
	return start(t, w)
}

func (f *delivering) get(t *testing.T, id string) *Info {
	t.Helper()
	info, err := f.q.Get(t.Context(), id)
	wantNoError(t, err)
	return info
}

// wantHeld checks that no message can be claimed.
func (f *delivering) wantHeld(t *testing.T) {
	t.Helper()
	got, err := f.store.Store.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Second})
	if len(got.Messages) > 0 || err != nil {
		t.Error("the lease has ended", err)
	}
}

// same returns an error for each message.
func same(msgs []*Message, err error) []error {
	errs := make([]error, len(msgs))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func TestDelivererGetsBatchesInOrder(t *testing.T) {
	inDelivering(t, func(t *testing.T, f *delivering) {
		const messages = 2*store.MaxBatch + 7
		msgs := make([]Outgoing, messages)
		want := make([]string, messages)
		for i := range msgs {
			want[i] = fmt.Sprintf("%06d", i)
			msgs[messages-1-i] = Outgoing{
				ID: want[i], When: At(time.Now().Add(time.Duration(i) * time.Millisecond)),
				Headers: map[string]string{"k": want[i]},
			}
		}
		_, err := f.q.SendBatch(t.Context(), msgs)
		wantNoError(t, err)
		time.Sleep(time.Minute)
		var running gauge
		var sizes log[int]
		var got log[string]
		f.start(t, WorkerConfig{}, func(ctx context.Context, msgs []*Message) []error {
			running.in()
			defer running.out()
			sizes.add(len(msgs))
			for _, m := range msgs {
				got.add(m.ID)
				if m.Queue != "q" || m.Attempt != 1 || m.Headers["k"] != m.ID || m.Lateness < 50*time.Second {
					t.Errorf("message is %+v", m)
				}
			}
			if err := sleep(ctx, time.Second); err != nil {
				t.Error(err)
			}
			return nil
		})
		time.Sleep(time.Minute)
		if got := sizes.list(); !slices.Equal(got, []int{store.MaxBatch, store.MaxBatch, 7}) {
			t.Errorf("batches have %v messages", got)
		}
		if !slices.Equal(got.list(), want) {
			t.Error("messages are not in the order of their due times")
		}
		if running.most.Load() != 1 {
			t.Errorf("%d calls at a time", running.most.Load())
		}
		wantCounts(t, f.q, 0, 0, 0, 0)
		if n := len(f.events.of(EventForwarded)); n != messages {
			t.Errorf("%d messages were reported as forwarded", n)
		}
	})
}

func TestDelivererErrorsSettleTheirMessages(t *testing.T) {
	inDelivering(t, func(t *testing.T, f *delivering) {
		results := map[string]error{
			"ok": nil, "fail": errors.New("no luck"), "retry": fmt.Errorf("later: %w", RetryIn(time.Hour)),
			"snooze": Snooze(2 * time.Hour), "bury": Bury(errors.New("bad")), "last": errors.New("at last"),
		}
		for id := range results {
			attempts := 20
			if id == "last" {
				attempts = 1
			}
			mustSend(t, f.q, "", WithID(id), MaxAttempts(attempts))
		}
		var dead log[string]
		cfg := WorkerConfig{
			Backoff: ConstantBackoff(3 * time.Hour), OnDead: func(_ context.Context, info *Info) { dead.add(info.ID) },
		}
		begin := time.Now()
		f.start(t, cfg, func(_ context.Context, msgs []*Message) []error {
			errs := make([]error, len(msgs))
			for i, m := range msgs {
				errs[i] = results[m.ID]
			}
			return errs
		})
		synctest.Wait()
		for id, want := range map[string]Info{
			"fail":   {State: StateScheduled, Due: begin.Add(3 * time.Hour), Attempts: 1, LastError: "no luck"},
			"retry":  {State: StateScheduled, Due: begin.Add(time.Hour), Attempts: 1, LastError: "later: retry in 1h0m0s"},
			"snooze": {State: StateScheduled, Due: begin.Add(2 * time.Hour)},
			"bury":   {State: StateDead, Due: begin, Attempts: 1, LastError: "bad"},
			"last":   {State: StateDead, Due: begin, Attempts: 1, LastError: "at last"},
		} {
			got := f.get(t, id)
			if got.State != want.State || got.Due.Sub(want.Due).Abs() > time.Millisecond || got.Attempts != want.Attempts ||
				got.LastError != want.LastError {
				t.Errorf("%s: %+v, want %+v", id, got, want)
			}
		}
		_, err := f.q.Get(t.Context(), "ok")
		wantError(t, err, ErrNotFound)
		for id, want := range map[string][]EventKind{
			"ok": {EventSent, EventForwarded}, "fail": {EventSent, EventNacked}, "snooze": {EventSent, EventSnoozed},
			"bury": {EventSent, EventBuried, EventDied}, "last": {EventSent, EventNacked, EventDied},
		} {
			if got := f.events.kinds(id); !slices.Equal(got, want) {
				t.Errorf("%s has the events %v, want %v", id, got, want)
			}
		}
		if got := dead.list(); len(got) != 2 || !slices.Contains(got, "bury") || !slices.Contains(got, "last") {
			t.Errorf("OnDead was called for %q", got)
		}
		wantLogged(t, f.log, loggedOutage, 0)
	})
}

func TestDelivererThatMisbehavesFailsTheAttempt(t *testing.T) {
	for want, deliver := range map[string]deliverFunc{
		"destination returned 1 errors for 3 messages": func(context.Context, []*Message) []error { return make([]error, 1) },
		"destination returned 0 errors for 3 messages": func(context.Context, []*Message) []error { return []error{} },
		"destination returned 4 errors for 3 messages": func(context.Context, []*Message) []error { return make([]error, 4) },
		"panic: oops":    func(context.Context, []*Message) []error { panic("oops") },
		"runtime.Goexit": func(context.Context, []*Message) []error { runtime.Goexit(); return nil },
	} {
		t.Run(want, func(t *testing.T) {
			inDelivering(t, func(t *testing.T, f *delivering) {
				var ids []string
				for range 3 {
					ids = append(ids, mustSend(t, f.q, ""))
				}
				var calls atomic.Int32
				cfg := WorkerConfig{Backoff: ConstantBackoff(time.Minute)}
				f.start(t, cfg, func(ctx context.Context, msgs []*Message) []error {
					if calls.Add(1) > 1 {
						return nil
					}
					return deliver(ctx, msgs)
				})
				synctest.Wait()
				for _, id := range ids {
					if info := f.get(t, id); info.Attempts != 1 || !strings.Contains(info.LastError, want) {
						t.Errorf("%+v, want one failed attempt with %q", info, want)
					}
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				wantCounts(t, f.q, 0, 0, 0, 0)
			})
		})
	}
}

func TestDelivererWhoseBackoffPanicsIsRetried(t *testing.T) {
	inDelivering(t, func(t *testing.T, f *delivering) {
		var calls atomic.Int32
		cfg := WorkerConfig{Backoff: func(int, error) time.Duration { panic("no backoff") }}
		f.start(t, cfg, func(_ context.Context, msgs []*Message) []error {
			if calls.Add(1) == 1 {
				return same(msgs, errors.New("no luck"))
			}
			return nil
		})
		mustSend(t, f.q, "")
		time.Sleep(time.Minute)
		wantCounts(t, f.q, 0, 0, 0, 0)
		wantLogged(t, f.log, "Backoff panicked", 1)
	})
}

func TestDelivererThatSnoozesCanResetTheAttempts(t *testing.T) {
	inDelivering(t, func(t *testing.T, f *delivering) {
		var calls atomic.Int32
		f.start(t, WorkerConfig{Backoff: ConstantBackoff(time.Second)}, func(_ context.Context, msgs []*Message) []error {
			if calls.Add(1) == 1 {
				return same(msgs, errors.New("no luck"))
			}
			return same(msgs, Snooze(time.Hour, ResetAttempts))
		})
		id := mustSend(t, f.q, "")
		time.Sleep(time.Minute)
		synctest.Wait()
		if info := f.get(t, id); info.Attempts != 0 || calls.Load() != 2 {
			t.Errorf("%+v after %d calls, want no attempts after 2", info, calls.Load())
		}
	})
}

func TestDelivererThatIsAwayKeepsMessagesUncounted(t *testing.T) {
	for _, away := range []error{ErrUnavailable, ErrFull} {
		inDelivering(t, func(t *testing.T, f *delivering) {
			var down atomic.Bool
			var made atomic.Int32
			down.Store(true)
			f.start(t, WorkerConfig{}, func(_ context.Context, msgs []*Message) []error {
				made.Add(1)
				errs := make([]error, len(msgs))
				for i, m := range msgs {
					if m.Attempt != 1 {
						t.Errorf("attempt is %d", m.Attempt)
					}
					if down.Load() && string(m.Payload) != "first" {
						errs[i] = fmt.Errorf("it is away: %w", away)
					}
				}
				return errs
			})
			for outage := 1; outage <= 2; outage++ {
				down.Store(true)
				made.Store(0)
				mustSend(t, f.q, "first")
				id := mustSend(t, f.q, "second", MaxAttempts(1))
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				wantCounts(t, f.q, 0, 1, 0, 0)
				// Pauses of 25 ms to 2 s.
				if n := made.Load(); n < 10*60/2 || n > 10*60+10 {
					t.Errorf("%d calls in 10 minutes", n)
				}
				wantLogged(t, f.log, loggedOutage, outage)
				wantLogged(t, f.log, "it is away", outage)
				if info := f.get(t, id); info.Attempts != 0 || info.Delivered {
					t.Errorf("%+v, want no attempt counted", info)
				}
				down.Store(false)
				time.Sleep(calls.MaxPause)
				synctest.Wait()
				wantCounts(t, f.q, 0, 0, 0, 0)
				wantLogged(t, f.log, loggedRecovery, outage)
			}
			if n := len(f.events.of(EventForwarded)); n != 4 {
				t.Errorf("%d messages were reported as forwarded", n)
			}
		})
	}
}

func TestDelivererThatIsSlowKeepsItsMessages(t *testing.T) {
	inDelivering(t, func(t *testing.T, f *delivering) {
		var calls atomic.Int32
		f.start(t, WorkerConfig{Lease: time.Second}, func(ctx context.Context, _ []*Message) []error {
			calls.Add(1)
			if err := sleep(ctx, time.Hour); err != nil {
				t.Error(err)
			}
			return nil
		})
		backlog(t, f.q, 3)
		synctest.Wait()
		for range 100 {
			time.Sleep(30 * time.Second)
			wantCounts(t, f.q, 0, 0, 3, 0)
			f.wantHeld(t)
		}
		time.Sleep(time.Hour)
		wantCounts(t, f.q, 0, 0, 0, 0)
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls", n)
		}
	})
}

func TestDelivererSurvivesAShortOutageOfTheStore(t *testing.T) {
	inDelivering(t, func(t *testing.T, f *delivering) {
		var delivered log[int]
		f.start(t, WorkerConfig{Lease: 30 * time.Second}, func(ctx context.Context, msgs []*Message) []error {
			delivered.add(len(msgs))
			return same(msgs, sleep(ctx, time.Minute))
		})
		backlog(t, f.q, 3)
		time.Sleep(5 * time.Second)
		f.store.set(unavailable(), nil)
		time.Sleep(20 * time.Second) // two of the three heartbeats of a lease
		f.store.set(nil, nil)
		time.Sleep(30 * time.Second)
		f.store.set(unavailable("settle"), nil)
		time.Sleep(time.Minute) // longer than the lease, which is extended
		f.store.set(nil, unavailable("settle"))
		time.Sleep(10 * time.Second)
		f.store.set(nil, nil)
		time.Sleep(5 * time.Minute)
		wantCounts(t, f.q, 0, 0, 0, 0)
		if got := delivered.list(); !slices.Equal(got, []int{3}) {
			t.Errorf("%v messages were delivered; want each once", got)
		}
		wantLogged(t, f.log, loggedOutage, 1)
		wantLogged(t, f.log, loggedRecovery, 1)
		if n := len(f.events.of(EventForwarded)); n != 3 {
			t.Errorf("%d messages were reported as forwarded", n)
		}
	})
}

func TestDelivererContextEndsWithTheLease(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, f *delivering, id string){
		"unreachable": func(_ *testing.T, f *delivering, _ string) { f.store.set(unavailable("extend"), nil) },
		"cancelled": func(t *testing.T, f *delivering, id string) {
			_, err := f.q.Cancel(t.Context(), id)
			wantNoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inDelivering(t, func(t *testing.T, f *delivering) {
				var attempts log[int]
				var running gauge
				ended := make(chan error, 1)
				f.start(t, WorkerConfig{}, func(ctx context.Context, msgs []*Message) []error {
					running.in()
					defer running.out()
					attempts.add(msgs[0].Attempt)
					if len(attempts.list()) > 1 {
						return nil
					}
					err := sleep(ctx, time.Hour)
					ended <- err
					time.Sleep(20 * time.Second) // cleanup
					return same(msgs, err)
				})
				id := mustSend(t, f.q, "")
				synctest.Wait()
				begin := time.Now()
				lose(t, f, id)
				wantError(t, <-ended, ErrLeaseLost)
				if took := time.Since(begin); took > defaultLease+time.Second {
					t.Errorf("the context ended after %v", took)
				}
				f.store.set(nil, nil)
				time.Sleep(time.Minute)
				wantCounts(t, f.q, 0, 0, 0, 0)
				if running.most.Load() != 1 {
					t.Error("Deliver was called before it had returned")
				}
				want := []int{1}
				if name == "unreachable" {
					want = []int{1, 2} // a lease that ends is an attempt
				}
				if got := attempts.list(); !slices.Equal(got, want) {
					t.Errorf("attempts are %v, want %v", got, want)
				}
				if n := len(f.events.of(EventLeaseLost)); n != 1 {
					t.Errorf("%d lost leases were reported", n)
				}
			})
		})
	}
}

// A claim can take most of its lease; the rest of the lease is extended in time.
func TestDelivererKeepsMessagesOfALateClaim(t *testing.T) {
	inDelivering(t, func(t *testing.T, f *delivering) {
		f.store.set(nil, func(_ context.Context, call string) error {
			if call == "claim" {
				time.Sleep(25 * time.Second)
			}
			return nil
		})
		backlog(t, f.q, 3)
		f.start(t, WorkerConfig{}, func(ctx context.Context, msgs []*Message) []error {
			return same(msgs, sleep(ctx, time.Minute))
		})
		time.Sleep(60 * time.Second)
		f.wantHeld(t)
		time.Sleep(time.Minute)
		wantCounts(t, f.q, 0, 0, 0, 0)
	})
}

func TestDelivererMayFinishWithinTheShutdownTimeout(t *testing.T) {
	inDelivering(t, func(t *testing.T, f *delivering) {
		var calls atomic.Int32
		stop := f.start(t, WorkerConfig{Lease: time.Second}, func(ctx context.Context, msgs []*Message) []error {
			calls.Add(1)
			return same(msgs, sleep(ctx, 20*time.Second))
		})
		backlog(t, f.q, store.MaxBatch+1)
		synctest.Wait()
		begin := time.Now()
		if err := stop(); err != nil || time.Since(begin) != 20*time.Second {
			t.Errorf("Run returned %v after %v", err, time.Since(begin))
		}
		wantCounts(t, f.q, 0, 1, 0, 0)
		if n := calls.Load(); n != 1 {
			t.Errorf("%d batches were delivered; want only the one that had begun", n)
		}
	})
}

func TestDelivererIsEndedAfterTheShutdownTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		5 * time.Second: 5500 * time.Millisecond, -1: time.Second / 2,
	} {
		inDelivering(t, func(t *testing.T, f *delivering) {
			causes := make(chan error, 1)
			stop := f.start(t, WorkerConfig{ShutdownTimeout: timeout}, func(ctx context.Context, msgs []*Message) []error {
				err := sleep(ctx, time.Hour)
				time.Sleep(time.Second / 2) // cleanup
				causes <- err
				return same(msgs, err)
			})
			id := mustSend(t, f.q, "", MaxAttempts(1))
			synctest.Wait()
			begin := time.Now()
			if err := stop(); err != nil || time.Since(begin) != want {
				t.Errorf("Run returned %v after %v, want %v", err, time.Since(begin), want)
			}
			wantError(t, <-causes, ErrShutdown)
			wantCounts(t, f.q, 0, 1, 0, 0)
			if info := f.get(t, id); info.Attempts != 0 || info.Delivered {
				t.Errorf("%+v; a release must not count as an attempt", info)
			}
			wantLogged(t, f.log, loggedOutage, 0)
		})
	}
}

func TestDelivererThatIgnoresItsContextIsLeftRunning(t *testing.T) {
	inDelivering(t, func(t *testing.T, f *delivering) {
		let := make(chan struct{})
		stop := f.start(t, WorkerConfig{ShutdownTimeout: 5 * time.Second}, func(context.Context, []*Message) []error {
			<-let
			return nil
		})
		backlog(t, f.q, 2)
		synctest.Wait()
		begin := time.Now()
		err := stop()
		if err == nil || !strings.Contains(err.Error(), "Deliver ignored") || time.Since(begin) != 6*time.Second {
			t.Errorf("Run returned %v after %v", err, time.Since(begin))
		}
		wantCounts(t, f.q, 0, 2, 0, 0) // other workers can claim them
		close(let)
		synctest.Wait()
		wantCounts(t, f.q, 0, 2, 0, 0) // a late result changes nothing
	})
}
