package later

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/report"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func mustWatch(t *testing.T, c *Client, queues ...string) *Watch {
	t.Helper()
	w, err := c.Watch(t.Context(), queues...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// nextEvent returns the next event of a watch, which must come within a minute.
func nextEvent(t *testing.T, w *Watch) WatchEvent {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e, err := w.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// quietWatch fails if the watch has an event.
func quietWatch(t *testing.T, w *Watch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if e, err := w.Next(ctx); err == nil {
		t.Errorf("unexpected event %+v", e)
	}
}

func TestWatchShowsEveryEventOfAQuietQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		watching, c := newClientOn(t, s), newClientOn(t, s)
		q := c.Queue("q")
		mustSend(t, q, "", WithID("earlier"), In(time.Hour))
		time.Sleep(time.Minute)
		w := mustWatch(t, watching, "q")
		began := time.Now()
		worker := NewWorker(c, WorkerConfig{Backoff: ConstantBackoff(time.Hour)})
		worker.Handle("q", func(context.Context, *Message) error {
			time.Sleep(time.Second)
			return errors.New("out of paper")
		})
		start(t, worker)
		mustSend(t, q, "", WithID("m"))
		seen := map[EventKind]WatchEvent{}
		for range 3 { // the claim may precede the return of Send
			e := nextEvent(t, w)
			seen[e.Kind] = e
		}
		for _, want := range []EventKind{EventSent, EventClaimed, EventNacked} {
			e := seen[want]
			if e.ID != "m" || e.Queue != "q" {
				t.Fatalf("got %+v, want %s of m", e, want)
			}
			if e.Time.Before(began.Add(-time.Millisecond)) || e.Time.After(time.Now().Add(time.Millisecond)) {
				t.Errorf("%s happened at %v", want, e.Time)
			}
			if e.Process.PID != os.Getpid() || e.Process.Host == "" || e.Process.Name == "" {
				t.Errorf("%s happened in %v", want, e.Process)
			}
			if want != EventSent && e.Attempt != 1 {
				t.Errorf("%s has attempt %d", want, e.Attempt)
			}
			if want == EventNacked && (e.Error != "out of paper" || e.Duration != time.Second) {
				t.Errorf("%+v", e)
			}
		}
		if _, err := q.Cancel(t.Context(), "earlier"); err != nil {
			t.Fatal(err)
		}
		if e := nextEvent(t, w); e.Kind != EventCancelled || e.ID != "earlier" {
			t.Errorf("got %+v", e)
		}
		if err := q.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e := nextEvent(t, w); e.Kind != EventPaused || e.ID != "" {
			t.Errorf("got %+v", e)
		}
		if n, err := q.Purge(t.Context()); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		if e := nextEvent(t, w); e.Kind != EventPurged || e.Count != 1 {
			t.Errorf("got %+v", e)
		}
		quietWatch(t, w)
	})
}

func TestWatchIsNoticedByABusyProcessWithinASecond(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		ctx, cancel := context.WithCancel(t.Context())
		busy := make(chan struct{})
		go func() {
			defer close(busy)
			for ctx.Err() == nil {
				mustSend(t, q, "", In(time.Hour))
				time.Sleep(time.Millisecond)
			}
		}()
		time.Sleep(5 * time.Second)
		began := time.Now()
		w := mustWatch(t, c, "q")
		nextEvent(t, w)
		if d := time.Since(began); d > report.Every+2*report.DetailsEvery {
			t.Errorf("the first event came after %v", d)
		}
		for range 1000 {
			if e := nextEvent(t, w); e.Kind != EventSent || time.Since(e.Time) > 2*report.DetailsEvery {
				t.Fatalf("event of %v ago: %+v", time.Since(e.Time), e)
			}
		}
		cancel()
		<-busy
	})
}

func TestWatchThatDoesNotReadMissesEventsAndDelaysNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		mustSend(t, q, "", In(time.Hour))
		time.Sleep(time.Minute)
		w := mustWatch(t, c, "q")
		began := time.Now()
		sent := 0
		for range 2000 {
			msgs := make([]Outgoing, 50)
			for i := range msgs {
				msgs[i].When = In(time.Hour)
			}
			if _, err := q.SendBatch(t.Context(), msgs); err != nil {
				t.Fatal(err)
			}
			sent += len(msgs)
			time.Sleep(report.DetailsEvery)
		}
		if d := time.Since(began); d != 2000*report.DetailsEvery {
			t.Errorf("sends took %v", d-2000*report.DetailsEvery)
		}
		time.Sleep(time.Minute)
		seen, missed, marks := 0, 0, 0
		for seen+missed < sent {
			e := nextEvent(t, w)
			if e.Kind != EventMissed {
				seen++
				continue
			}
			missed += e.Missed
			marks++
		}
		if seen+missed != sent || missed == 0 || seen < 1000 {
			t.Errorf("%d events were seen and %d missed, in %d marks, of %d", seen, missed, marks, sent)
		}
		quietWatch(t, w)
	})
}

func TestWatchOfAFloodKeepsRoomForRareEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		mustSend(t, q, "", In(time.Hour), WithID("m"))
		time.Sleep(time.Minute)
		w := mustWatch(t, c, "q")
		var msgs []Outgoing
		for range 5 * report.MaxDetails {
			msgs = append(msgs, Outgoing{When: In(time.Hour)})
		}
		if _, err := q.SendBatch(t.Context(), msgs); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Cancel(t.Context(), "m"); err != nil {
			t.Fatal(err)
		}
		seen, missed := 0, 0
		var rare []EventKind
		for seen+missed < len(msgs)+1 {
			switch e := nextEvent(t, w); e.Kind {
			case EventMissed:
				missed += e.Missed
			case EventSent:
				seen++
			default:
				seen++
				rare = append(rare, e.Kind)
			}
		}
		if len(rare) != 1 || rare[0] != EventCancelled || missed == 0 {
			t.Errorf("%d events were seen and %d missed; rare ones: %v", seen, missed, rare)
		}
	})
}

func TestWatchOfAllQueuesReceivesTheEventThatCreatesOne(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		w := mustWatch(t, c)
		mustSend(t, c.Queue("new"), "", WithID("1"))
		if e := nextEvent(t, w); e.Kind != EventSent || e.Queue != "new" || e.ID != "1" {
			t.Errorf("got %+v", e)
		}
	})
}

// toldStore can only watch queues that it is told, like a Redis Cluster.
type toldStore struct{ *memstore.Store }

func (s toldStore) Watch(ctx context.Context, queues []string) (store.Watcher, error) {
	if slices.Contains(queues, store.AllQueues) {
		return nil, store.ErrUnsupported
	}
	return s.Store.Watch(ctx, queues)
}

func TestWatchOfAllQueuesFindsNewOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := toldStore{memstore.New()}
		c, watching := newClientOn(t, s), newClientOn(t, s)
		mustSend(t, c.Queue("old"), "")
		time.Sleep(time.Minute)
		w := mustWatch(t, watching)
		mustSend(t, c.Queue("old"), "", WithID("1"))
		mustSend(t, c.Queue("new"), "", WithID("2"))
		time.Sleep(2 * report.FollowEvery)
		mustSend(t, c.Queue("new"), "", WithID("3"))
		seen := map[string]bool{}
		for !seen["new/3"] {
			e := nextEvent(t, w)
			seen[e.Queue+"/"+e.ID] = true
		}
		if !seen["old/1"] {
			t.Errorf("seen: %v", seen)
		}
	})
}

func TestEventsCarryHeadersOnRequest(t *testing.T) {
	for name, test := range map[string]struct {
		opts []Option
		want map[string]string
	}{
		"none":  {nil, nil},
		"some":  {[]Option{WithEventHeaders("customer", "unknown")}, map[string]string{"customer": "7"}},
		"other": {[]Option{WithEventHeaders("unknown")}, nil},
		"all":   {[]Option{WithEventHeaders()}, map[string]string{"customer": "7", "secret": "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen events
				s := memstore.New()
				c := newClientOn(t, s, append(test.opts, WithObserver(seen.add))...)
				q := c.Queue("q")
				mustSend(t, q, "", WithID("first"), In(time.Hour)) // so that the queue exists
				w := mustWatch(t, newClientOn(t, s), "q")
				worker := NewWorker(c, WorkerConfig{})
				worker.Handle("q", func(context.Context, *Message) error { return nil })
				start(t, worker)
				time.Sleep(time.Minute)
				mustSend(t, q, "", WithID("id"), Header("customer", "7"), Header("secret", "x"))
				for kind := EventKind(""); kind != EventAcked; {
					e := nextEvent(t, w)
					if kind = e.Kind; e.ID == "id" && !maps.Equal(e.Headers, test.want) {
						t.Errorf("the watch's %s has headers %q, want %q", e.Kind, e.Headers, test.want)
					}
				}
				for _, e := range append(seen.of(EventSent), seen.of(EventAcked)...) {
					if e.ID == "id" && !maps.Equal(e.Headers, test.want) {
						t.Errorf("the observer's %s has headers %q, want %q", e.Kind, e.Headers, test.want)
					}
				}
			})
		})
	}
}

func TestWatchOfAQueueReceivesTheEventThatCreatesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c, watching := newClientOn(t, s), newClientOn(t, s)
		w := mustWatch(t, watching, "other", "new")
		mustSend(t, c.Queue("new"), "", WithID("1"))
		if e := nextEvent(t, w); e.Kind != EventSent || e.Queue != "new" || e.ID != "1" {
			t.Errorf("got %+v", e)
		}
	})
}

func TestWatchRefusesNamesThatAreNotAllowed(t *testing.T) {
	c := newClientOn(t, memstore.New())
	_, err := c.Watch(t.Context(), "no\nname")
	wantError(t, err, ErrInvalid)
}

func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mustNew(t, memstore.New(), quiet)
		ends := func(w *Watch, end func()) {
			t.Helper()
			ended := make(chan error)
			go func() {
				_, err := w.Next(context.Background())
				ended <- err
			}()
			synctest.Wait()
			end()
			wantError(t, <-ended, ErrClosed)
			_, err := w.Next(t.Context())
			wantError(t, err, ErrClosed)
		}
		w := mustWatch(t, c)
		ends(w, func() {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
		ends(mustWatch(t, c), func() { c.Close() })
		_, err := c.Watch(t.Context())
		wantError(t, err, ErrClosed)
	})
}

func TestWatchEndsNextWithItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		w := mustWatch(t, c)
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		if _, err := w.Next(ctx); !errors.Is(err, cause) {
			t.Errorf("Next returned %v", err)
		}
	})
}

// gapStore has a watcher that lost its connection.
type gapStore struct{ store.Store }

type gapWatcher struct{ store.Watcher }

func (s gapStore) Watch(ctx context.Context, queues []string) (store.Watcher, error) {
	w, err := s.Store.Watch(ctx, queues)
	return gapWatcher{w}, err
}

func (w gapWatcher) Next(ctx context.Context) (store.Reported, error) {
	r, err := w.Watcher.Next(ctx)
	r.Gap, r.Missed = true, 3
	return r, err
}

func TestWatchReportsAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClientOn(t, gapStore{memstore.New()})
		mustSend(t, c.Queue("q"), "")
		time.Sleep(time.Minute)
		w := mustWatch(t, c, "q")
		mustSend(t, c.Queue("q"), "")
		if e := nextEvent(t, w); e.Kind != EventMissed || e.Missed != 0 {
			t.Errorf("got %+v, want an unknown number of missed events", e)
		}
		if e := nextEvent(t, w); e.Kind != EventSent {
			t.Errorf("got %+v", e)
		}
	})
}
