package later

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/forward"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// stepFaulty is a faulty store that moves messages in one step.
type stepFaulty struct{ *faulty }

func (s stepFaulty) ForwardsTo(queue string, to store.Target) (bool, error) {
	return s.Store.(store.Forwarder).ForwardsTo(queue, to)
}

func (s stepFaulty) Forward(ctx context.Context, queue string, req store.ForwardRequest) (store.Forwarded, error) {
	return do(s.faulty, ctx, "forward", func() (store.Forwarded, error) {
		return s.Store.(store.Forwarder).Forward(ctx, queue, req)
	})
}

func (s stepFaulty) Deliver(ctx context.Context, to store.Target, msgs []store.Claimed) error {
	return s.Store.(store.Forwarder).Deliver(ctx, to, msgs)
}

// forwarding is a worker that moves the messages of one queue to another one.
type forwarding struct {
	route    forward.Route
	store    *faulty
	client   *Client
	from, to *Queue
	worker   *Worker
	log      *lockedBuffer
	events   *events
	onDead   log[string]
}

// eachRoute runs a test with each way to move messages from one queue to another one.
func eachRoute(t *testing.T, test func(t *testing.T, f *forwarding)) {
	for name, route := range map[string]forward.Route{
		"step": forward.RouteStep, "linked": forward.RouteLinked, "send": forward.RouteSend,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &forwarding{route: route, store: &faulty{Store: memstore.New()}, log: &lockedBuffer{}, events: &events{}}
				s := map[string]store.Store{"step": stepFaulty{f.store}, "linked": linkedFaulty{f.store}, "send": f.store}[name]
				f.client = newClientOn(t, s, WithObserver(f.events.add), WithLogger(f.log.logger()))
				f.from, f.to = f.client.Queue("from"), f.client.Queue("to")
				f.worker = NewWorker(f.client, WorkerConfig{OnDead: func(_ context.Context, info *Info) { f.onDead.add(info.ID) }})
				f.worker.Forward("from", ToQueue("to"))
				if got, err := ToQueue("to").route(f.client, "from"); got != route || err != nil {
					t.Fatalf("route is %v, %v; want %v", got, err, route)
				}
				test(t, f)
			})
		})
	}
}

// wantLogged checks how often the log has a text.
func wantLogged(t *testing.T, log *lockedBuffer, text string, want int) {
	t.Helper()
	if got := strings.Count(log.String(), text); got != want {
		t.Errorf("%q was logged %d times, want %d:\n%s", text, got, want, log)
	}
}

const (
	loggedOutage   = "messages cannot be forwarded"
	loggedRecovery = "messages are forwarded again"
)

func TestForwardMovesWholeMessagesWhenTheyAreDue(t *testing.T) {
	eachRoute(t, func(t *testing.T, f *forwarding) {
		const messages = 20
		start(t, f.worker)
		begin, sent := time.Now(), map[string]*Info{}
		var want []string
		for i := range messages {
			opts := []SendOption{At(begin.Add(time.Duration(messages-i) * time.Minute)), Header("k", fmt.Sprint(i)),
				MaxAttempts(3), Timeout(time.Hour), ExpireAfter(48 * time.Hour), Group("g")}
			if i%2 == 0 {
				opts = append(opts, WithID(fmt.Sprint("chosen", i)))
			}
			id := mustSend(t, f.from, fmt.Sprint("payload", i), opts...)
			info, err := f.from.Get(t.Context(), id)
			wantNoError(t, err)
			sent[id], want = info, append(want, id)
		}
		slices.Reverse(want)
		time.Sleep(time.Minute - time.Millisecond)
		for i := range int64(messages) {
			synctest.Wait()
			wantCounts(t, f.from, messages-i, 0, 0, 0)
			wantCounts(t, f.to, 0, i, 0, 0)
			time.Sleep(time.Millisecond)
			synctest.Wait()
			wantCounts(t, f.from, messages-i-1, 0, 0, 0)
			wantCounts(t, f.to, 0, i+1, 0, 0)
			time.Sleep(time.Minute - time.Millisecond)
		}
		for _, id := range want {
			got, err := f.to.Get(t.Context(), id)
			wantNoError(t, err)
			before := *sent[id]
			before.Queue, before.State = "to", StateReady
			if f.route == forward.RouteSend {
				before.DedupWindow = followUpWindow
			}
			if text := fmt.Sprintf("%+v", before); text != fmt.Sprintf("%+v", *got) {
				t.Errorf("message arrived as\n%+v, want\n%s", *got, text)
			}
		}
		var forwarded []string
		for _, e := range f.events.of(EventForwarded) {
			forwarded = append(forwarded, e.ID)
		}
		if !slices.Equal(forwarded, want) {
			t.Errorf("%q were forwarded, want %q", forwarded, want)
		}
		wantLogged(t, f.log, "guarantee", 1)
		wantLogged(t, f.log, `guarantee="exactly once"`, map[bool]int{true: 1}[f.route.Exact()])
	})
}

func TestForwardMovesALargeBacklogInOrder(t *testing.T) {
	eachRoute(t, func(t *testing.T, f *forwarding) {
		const messages = 2*store.MaxBatch + 7
		msgs := make([]Outgoing, messages)
		want := make([]string, messages)
		for i := range msgs {
			want[i] = fmt.Sprintf("%06d", i)
			msgs[messages-1-i] = Outgoing{ID: want[i], When: At(time.Now().Add(time.Duration(i) * time.Millisecond))}
		}
		_, err := f.from.SendBatch(t.Context(), msgs)
		wantNoError(t, err)
		time.Sleep(time.Minute)
		start(t, f.worker)
		synctest.Wait()
		wantCounts(t, f.from, 0, 0, 0, 0)
		wantCounts(t, f.to, 0, messages, 0, 0)
		var got []string
		for _, e := range f.events.of(EventForwarded) {
			got = append(got, e.ID)
		}
		if !slices.Equal(got, want) {
			t.Error("messages were not forwarded in the order of their due times")
		}
		info, err := f.to.Get(t.Context(), want[messages-1])
		wantNoError(t, err)
		if late := time.Since(info.Due); late < time.Minute-messages*time.Millisecond || late > time.Minute {
			t.Errorf("a message arrived with the due time %v", info.Due)
		}
	})
}

func TestForwardDropsDuplicates(t *testing.T) {
	eachRoute(t, func(t *testing.T, f *forwarding) {
		mustSend(t, f.to, "live", WithID("live"))
		mustSend(t, f.to, "", WithID("remembered"), DedupWindow(time.Hour), At(time.Unix(1, 0)))
		wantNoError(t, mustReceive(t, f.to, 1)[0].Ack(t.Context()))
		for _, id := range []string{"live", "remembered", "new"} {
			mustSend(t, f.from, "moved "+id, WithID(id))
		}
		start(t, f.worker)
		synctest.Wait()
		wantCounts(t, f.from, 0, 0, 0, 0)
		wantPayloads(t, f.to, "live", "moved new")
	})
}

func TestForwardReportsMessagesThatDie(t *testing.T) {
	eachRoute(t, func(t *testing.T, f *forwarding) {
		expired := mustSend(t, f.from, "", ExpireAfter(time.Second), At(time.Now().Add(time.Hour)))
		lost := mustSend(t, f.from, "", MaxAttempts(1))
		mustReceive(t, f.from, 1)
		moved := mustSend(t, f.from, "", At(time.Now().Add(time.Hour)))
		time.Sleep(2 * time.Hour)
		start(t, f.worker)
		synctest.Wait()
		wantCounts(t, f.from, 0, 0, 0, 2)
		wantCounts(t, f.to, 0, 1, 0, 0)
		for id, want := range map[string][]EventKind{
			expired: {EventSent, EventExpired, EventDied},
			lost:    {EventSent, EventClaimed, EventDied},
			moved:   {EventSent, EventForwarded},
		} {
			if got := f.events.kinds(id); !slices.Equal(got, want) {
				t.Errorf("events are %v, want %v", got, want)
			}
		}
		dead, want := f.onDead.list(), []string{expired, lost}
		slices.Sort(dead)
		if slices.Sort(want); !slices.Equal(dead, want) {
			t.Errorf("OnDead was called for %q, want %q", dead, want)
		}
	})
}

func TestForwardStopsWhileTheWorkerIsPaused(t *testing.T) {
	eachRoute(t, func(t *testing.T, f *forwarding) {
		f.worker.Pause()
		start(t, f.worker)
		for range 3 {
			mustSend(t, f.from, "")
			time.Sleep(time.Hour)
			wantCounts(t, f.from, 0, 1, 0, 0)
			f.worker.Resume()
			synctest.Wait()
			wantCounts(t, f.from, 0, 0, 0, 0)
			f.worker.Pause()
			synctest.Wait()
		}
		wantCounts(t, f.to, 0, 3, 0, 0)
		wantLogged(t, f.log, loggedOutage, 0)
	})
}

func TestForwardThatIsPausedEnds(t *testing.T) {
	eachRoute(t, func(t *testing.T, f *forwarding) {
		f.worker.Pause()
		stop := start(t, f.worker)
		synctest.Wait()
		begin := time.Now()
		if err := stop(); err != nil || time.Since(begin) != 0 {
			t.Errorf("Run returned %v after %v", err, time.Since(begin))
		}
	})
}

func TestForwardStopsWhileTheQueueIsPaused(t *testing.T) {
	eachRoute(t, func(t *testing.T, f *forwarding) {
		start(t, f.worker)
		synctest.Wait()
		wantNoError(t, f.from.Pause(t.Context()))
		mustSend(t, f.from, "")
		time.Sleep(time.Hour)
		wantCounts(t, f.from, 0, 1, 0, 0)
		wantNoError(t, f.from.Resume(t.Context()))
		time.Sleep(10 * time.Second)
		wantCounts(t, f.from, 0, 0, 0, 0)
		wantCounts(t, f.to, 0, 1, 0, 0)
	})
}

func TestForwardRecoversFromStoreErrors(t *testing.T) {
	for _, outage := range []time.Duration{10 * time.Second, 3 * defaultLease} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, replies lost %v", outage, lost), func(t *testing.T) {
				eachRoute(t, func(t *testing.T, f *forwarding) {
					calls := map[forward.Route][]string{
						forward.RouteStep: {"forward", "wait"}, forward.RouteLinked: {"claim", "settle", "extend", "wait"},
						forward.RouteSend: {"claim", "send", "settle", "extend", "wait"},
					}[f.route]
					start(t, f.worker)
					synctest.Wait()
					sent := int64(0)
					for _, failing := range calls {
						before := strings.Count(f.log.String(), loggedOutage)
						if f.store.set(unavailable(failing), nil); lost {
							f.store.set(nil, unavailable(failing))
						}
						for range 3 {
							mustSendTo(t, f.store.Store, "from")
						}
						time.Sleep(outage)
						f.store.set(nil, nil)
						time.Sleep(2 * time.Minute)
						for range 2 { // a wait of the outage fails, and the next one says that it is over
							mustSend(t, f.from, "")
							time.Sleep(time.Second)
						}
						sent += 5
						wantCounts(t, f.from, 0, 0, 0, 0)
						wantCounts(t, f.to, 0, sent, 0, 0)
						outages := strings.Count(f.log.String(), loggedOutage) - before
						if outages > 1 || outages == 0 && failing != "extend" && failing != "wait" {
							t.Errorf("an outage of %q was logged %d times", failing, outages)
						}
						wantLogged(t, f.log, loggedRecovery, strings.Count(f.log.String(), loggedOutage))
					}
				})
			})
		}
	}
}

func TestForwardEndsWithItsStore(t *testing.T) {
	eachRoute(t, func(t *testing.T, f *forwarding) {
		result := make(chan error, 1)
		go func() { result <- f.worker.Run(context.Background()) }()
		synctest.Wait()
		f.store.set(func(_ context.Context, call string) error { return store.ErrClosed }, nil)
		mustSendTo(t, f.store.Store, "from")
		wantError(t, <-result, ErrClosed)
		f.store.set(nil, nil)
	})
}

// mustSendTo sends a message without a client.
func mustSendTo(t *testing.T, s store.Store, queue string) {
	t.Helper()
	_, err := s.Send(t.Context(), queue, []store.Outgoing{{Message: store.Message{ID: store.NewID()}}})
	wantNoError(t, err)
}

// fullStore refuses follow-ups with ErrFull while it is full.
type fullStore struct {
	linkedFaulty
	full, whole atomic.Bool // whole refuses the whole call
}

func (s *fullStore) Settle(ctx context.Context, queue string, all []store.Settlement) ([]store.SettleResult, error) {
	if !s.full.Load() || len(all[0].Then) == 0 {
		return s.linkedFaulty.Settle(ctx, queue, all)
	}
	if s.whole.Load() {
		return nil, store.ErrFull
	}
	results := make([]store.SettleResult, len(all))
	for i := range results {
		results[i].Err = store.ErrFull
	}
	return results, nil
}

func TestForwardWithoutRoomReleasesMessages(t *testing.T) {
	for _, whole := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, text := &fullStore{linkedFaulty: linkedFaulty{&faulty{Store: memstore.New()}}}, &lockedBuffer{}
			s.full.Store(true)
			s.whole.Store(whole)
			c := newClientOn(t, s, WithLogger(text.logger()))
			w := NewWorker(c, WorkerConfig{})
			w.Forward("from", ToQueue("to"))
			start(t, w)
			backlog(t, c.Queue("from"), 5)
			for range 100 {
				time.Sleep(time.Second)
				synctest.Wait()
				wantCounts(t, c.Queue("from"), 0, 5, 0, 0)
			}
			wantLogged(t, text, loggedOutage, 1)
			if d := mustReceive(t, c.Queue("from"), 1)[0]; d.Attempt != 1 {
				t.Errorf("attempt is %d", d.Attempt)
			} else {
				wantNoError(t, d.Release(t.Context()))
			}
			s.full.Store(false)
			time.Sleep(calls.MaxPause)
			wantCounts(t, c.Queue("from"), 0, 0, 0, 0)
			wantCounts(t, c.Queue("to"), 0, 5, 0, 0)
			wantLogged(t, text, loggedRecovery, 1)
		})
	}
}

func TestForwardToAnotherStoreIsSentOnceWhenAWorkerDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &faulty{Store: memstore.New()}
		c, other := newClientOn(t, s), newClientOn(t, memstore.New())
		for i := range 3 {
			mustSend(t, c.Queue("from"), fmt.Sprint(i))
		}
		s.set(unavailable("settle"), nil)
		w := NewWorker(c, WorkerConfig{ShutdownTimeout: time.Second})
		w.Forward("from", ToQueue("to").At(other))
		stop := start(t, w)
		synctest.Wait()
		wantPayloads(t, other.Queue("to"), "0", "1", "2") // done there before the acks
		wantError(t, stop(), ErrUnavailable)
		s.set(nil, nil)
		wantCounts(t, c.Queue("from"), 0, 0, 3, 0)
		w = NewWorker(c, WorkerConfig{})
		w.Forward("from", ToQueue("to").At(other))
		start(t, w)
		time.Sleep(2 * defaultLease)
		wantCounts(t, c.Queue("from"), 0, 0, 0, 0)
		wantCounts(t, other.Queue("to"), 0, 0, 0, 0)
	})
}

func TestForwardWorksNextToHandlers(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		w := NewWorker(c, WorkerConfig{Concurrency: 1})
		var handled atomic.Int32
		for i := range 5 {
			w.Forward(fmt.Sprint(i), ToQueue(fmt.Sprint(i+1)))
		}
		w.Handle("5", func(context.Context, *Message) error { handled.Add(1); return nil })
		w.Handle("busy", func(ctx context.Context, _ *Message) error { return sleep(ctx, time.Millisecond) })
		backlog(t, c.Queue("busy"), 100)
		backlog(t, c.Queue("0"), 100)
		start(t, w)
		time.Sleep(time.Minute)
		if n := handled.Load(); n != 100 {
			t.Errorf("%d messages came through all queues", n)
		}
	})
}

func TestWorkerRunReturnsTheErrorsOfForward(t *testing.T) {
	c, other := newClientOn(t, memstore.New()), newClientOn(t, memstore.New())
	plain := newClientOn(t, &faulty{Store: memstore.New()})
	custom := To(deliverFunc(func(context.Context, []*Message) []error { return nil }))
	forward := func(queue string, to Destination) func(*Worker) { return func(w *Worker) { w.Forward(queue, to) } }
	for _, test := range []struct {
		on      *Client
		forward func(*Worker)
		want    error
		texts   []string
	}{
		{c, func(*Worker) {}, ErrInvalid, []string{"has no queue: call Handle or Forward"}},
		{c, forward("{}", ToQueue("to")), ErrInvalid, []string{"worker's Forward", "holds a brace"}},
		{c, forward("q", ToQueue("{}")), ErrInvalid, []string{`queue "q"`, "holds a brace"}},
		{c, forward("q", ToQueue("")), ErrInvalid, []string{`Forward of queue "q"`}},
		{c, forward("q", ToList("")), ErrInvalid, []string{"has no name"}},
		{c, forward("q", Destination{}), ErrInvalid, []string{"is unknown"}},
		{c, forward("q", ToQueue("q")), ErrInvalid, []string{`"q" is the queue itself`}},
		{plain, forward("q", ToQueue("q")), ErrInvalid, []string{`"q" is the queue itself`}},
		{c, forward("q", To(nil)), ErrInvalid, []string{"nil", "give a Deliverer"}},
		{c, forward("q", custom.Front()), ErrInvalid, []string{"no Front"}},
		{c, forward("q", custom.MaxLen(5)), ErrInvalid, []string{"no MaxLen"}},
		{c, forward("q", custom.At(other)), ErrInvalid, []string{"leave out At"}},
		{c, forward("q", ToQueue("to").Front()), ErrInvalid, []string{"only a list"}},
		{c, forward("q", ToList("to").MaxLen(1)), ErrInvalid, []string{"only a stream"}},
		{c, forward("q", ToStream("to").MaxLen(-1)), ErrInvalid, []string{"maximum length"}},
		{c, forward("q", ToQueue("to").At(nil)), ErrInvalid, []string{"client", "nil", "leave out At"}},
		{c, forward("q", ToList("to")), ErrUnsupported, []string{`"list:to"`, "Redis", "At"}},
		{c, forward("q", ToStream("to").At(other)), ErrUnsupported, []string{`"stream:to"`, "Redis"}},
		{plain, forward("q", ToChannel("to")), ErrUnsupported, []string{`"channel:to"`, "At"}},
		{c, forward("q", ToQueue("to").At(other).ExactlyOnce()), ErrUnsupported, []string{"different stores"}},
		{c, forward("q", custom.ExactlyOnce()), ErrUnsupported, []string{"custom destination"}},
		{c, func(w *Worker) {
			w.Handle("q", ignore)
			w.Forward("q", ToQueue("to"))
		}, ErrInvalid, []string{`"q"`, "has a handler already"}},
		{c, func(w *Worker) {
			w.Forward("q", ToQueue("to"))
			w.Forward("q", ToQueue("to"))
		}, ErrInvalid, []string{`"q"`, "has a destination"}},
		{c, func(w *Worker) {
			w.Forward("q", ToQueue("to"))
			w.Handle("q", ignore)
		}, ErrInvalid, []string{`"q"`, "has a destination"}},
		{c, func(w *Worker) {
			w.Forward("a", ToQueue("b"))
			w.Forward("b", ToQueue("c").At(c))
			w.Forward("c", ToQueue("a"))
			w.Forward("before", ToQueue("a"))
		}, ErrInvalid, []string{"circle", `"a" → "b" → "c" → "a"`}},
	} {
		w := NewWorker(test.on, WorkerConfig{})
		test.forward(w)
		err := w.Run(t.Context())
		if !errors.Is(err, test.want) {
			t.Errorf("Run returned %v; want %v with %q", err, test.want, test.texts)
			continue
		}
		for _, text := range test.texts {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("Run returned %v; want %v with %q", err, test.want, text)
			}
		}
	}
}

func TestForwardToTheSameQueueOfAnotherStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, other := newClientOn(t, memstore.New()), newClientOn(t, memstore.New())
		w := NewWorker(c, WorkerConfig{})
		w.Forward("q", ToQueue("q").At(other))
		start(t, w)
		mustSend(t, c.Queue("q"), "hello", WithID("id"))
		synctest.Wait()
		wantCounts(t, c.Queue("q"), 0, 0, 0, 0)
		wantPayloads(t, other.Queue("q"), "hello")
	})
}

func TestForwardAfterRunHasNoEffectButALog(t *testing.T) {
	eachRoute(t, func(t *testing.T, f *forwarding) {
		start(t, f.worker)
		synctest.Wait()
		f.worker.Forward("late", ToQueue("to"))
		mustSend(t, f.client.Queue("late"), "")
		time.Sleep(time.Minute)
		wantCounts(t, f.client.Queue("late"), 0, 1, 0, 0)
		wantLogged(t, f.log, "call Forward before Run", 1)
	})
}
