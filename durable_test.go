package later

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// confirming is a store in memory that accepts every Durability. It returns the error of reached, if set, and records
// the Durability of each call.
type confirming struct {
	store.Store
	reached func(ctx context.Context, d store.Durability) error

	mu    sync.Mutex
	calls []string
}

func (s *confirming) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	asked := msgs[0].Durable
	plain := slices.Clone(msgs)
	ids := []string{}
	for i := range plain {
		if plain[i].Durable != asked {
			return nil, fmt.Errorf("a call asks for %v and %v", asked, plain[i].Durable)
		}
		plain[i].Durable = store.Durability{}
		ids = append(ids, plain[i].ID)
	}
	s.mu.Lock()
	s.calls = append(s.calls, fmt.Sprintf("%d/%v %s", asked.Replicas, asked.Timeout, strings.Join(ids, " ")))
	s.mu.Unlock()
	results, err := s.Store.Send(ctx, queue, plain)
	if err == nil && asked.Asked() && s.reached != nil {
		if failed := s.reached(ctx, asked); failed != nil {
			for i := range results {
				results[i].Err = failed
			}
		}
	}
	return results, err
}

func (s *confirming) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// never waits until the call ends and confirms nothing.
func never(ctx context.Context, _ store.Durability) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", context.Cause(ctx), ErrNotDurable)
}

func mustWith(t *testing.T, q *Queue, opts ...SendOption) *Queue {
	t.Helper()
	with, err := q.With(opts...)
	if err != nil {
		t.Fatal(err)
	}
	return with
}

func TestDurabilityClosestToTheMessageApplies(t *testing.T) {
	s := &confirming{Store: memstore.New()}
	c := newClientOn(t, s, Durable(1, time.Second))
	q := c.Queue("q")
	two := mustWith(t, q, Durable(2, time.Second))
	for _, send := range []struct {
		queue *Queue
		opts  []SendOption
		want  string
	}{
		{q, nil, "1/1s m"},
		{q, []SendOption{Durable(3, time.Minute)}, "3/1m0s m"},
		{q, []SendOption{Durability{}}, "0/0s m"},
		{two, nil, "2/1s m"},
		{two, []SendOption{Durable(0, time.Millisecond)}, "0/1ms m"},
		{mustWith(t, two, Durability{}), nil, "0/0s m"},
		{c.Queue("q"), nil, "1/1s m"}, // With did not change it
	} {
		mustSend(t, send.queue, "", append(send.opts, WithID("m"))...)
		if _, err := send.queue.SendBatch(t.Context(), []Outgoing{{ID: "n"}}); err != nil {
			t.Fatal(err)
		}
		calls := s.seen()
		if got := calls[len(calls)-2]; got != send.want {
			t.Errorf("asked %q, want %q", got, send.want)
		}
		for _, id := range []string{"m", "n"} {
			if _, err := q.Cancel(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestDurabilityRefusesInvalidValues(t *testing.T) {
	s := &confirming{Store: memstore.New()}
	q := newClientOn(t, s).Queue("q")
	for _, d := range []Durability{Durable(-1, time.Second), Durable(17, time.Second), Durable(1, 0), Durable(0, 0),
		Durable(0, time.Millisecond-1), Durable(1, time.Hour+1)} {
		for name, err := range map[string]error{
			"Send":      second(q.Send(t.Context(), nil, d)),
			"With":      second(q.With(d)),
			"SendBatch": second(q.SendBatch(t.Context(), []Outgoing{{}, {Durability: d}})),
			"Open":      second(Open(t.Context(), "mem://", quiet, d)),
			"New":       second(New(s, d)),
		} {
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "durability") {
				t.Errorf("%s with %v: %v", name, d, err)
			}
		}
	}
	wantError(t, second(q.Send(t.Context(), nil, Durable(1, time.Second), Durability{})), ErrInvalid)
	wantError(t, second(q.With(nil)), ErrInvalid)
	wantError(t, second(Open(t.Context(), "mem://", quiet, Durability{}, Durability{})), ErrInvalid)
	if calls := s.seen(); len(calls) > 0 {
		t.Errorf("refused sends reached the store: %v", calls)
	}
}

func TestDurableSendWithoutConfirmationIsSentAndARetryWaitsAgain(t *testing.T) {
	reached := error(fmt.Errorf("0 of 1 replicas: %w", ErrNotDurable))
	s := &confirming{Store: memstore.New(), reached: func(context.Context, store.Durability) error { return reached }}
	var events log[EventKind]
	c := newClientOn(t, s, Durable(1, time.Second), WithObserver(func(e Event) { events.add(e.Kind) }))
	q := c.Queue("q")
	id, err := q.Send(t.Context(), nil, WithID("m"))
	wantError(t, err, ErrNotDurable)
	if id != "m" {
		t.Errorf("id is %q", id)
	}
	_, err = q.Send(t.Context(), nil, WithID("m"))
	if !errors.Is(err, ErrNotDurable) || errors.Is(err, ErrDuplicate) || CodeOf(err) != "not_durable" {
		t.Errorf("the unconfirmed retry returned %v", err)
	}
	batch := []Outgoing{{ID: "m"}, {ID: "n"}, {ID: "o", Durability: Durable(2, time.Second)}}
	results, err := q.SendBatch(t.Context(), batch)
	wantError(t, err, ErrNotDurable)
	for i, want := range []SendResult{{ID: "m", Duplicate: true}, {ID: "n"}, {ID: "o"}} {
		if r := results[i]; r.ID != want.ID || r.Duplicate != want.Duplicate || !errors.Is(r.Err, ErrNotDurable) {
			t.Errorf("result %d is %+v", i, r)
		}
	}
	if st, err := q.Stats(t.Context()); err != nil || st.Ready != 2 {
		t.Errorf("the queue has %d messages, %v; want m and n only", st.Ready, err)
	}
	reached = nil
	_, err = q.Send(t.Context(), nil, WithID("m"))
	wantError(t, err, ErrDuplicate)
	want := []EventKind{EventSent, EventDuplicate, EventDuplicate, EventSent, EventDuplicate}
	if got := events.list(); !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

// Sends do not wait for the confirmation of sends with another Durability. Sends with the same Durability are batched
// while they wait.
func TestDurableSendsAreBatchedSeparately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		confirm := make(chan struct{})
		s := &confirming{Store: memstore.New(), reached: func(_ context.Context, d store.Durability) error {
			if d.Replicas == 1 {
				<-confirm
			}
			return nil
		}}
		q := newClientOn(t, s).Queue("q")
		var sends sync.WaitGroup
		for i := range 100 {
			sends.Go(func() { mustSend(t, q, "", WithID(fmt.Sprintf("slow-%02d", i)), Durable(1, time.Minute)) })
		}
		synctest.Wait()
		mustSend(t, q, "", WithID("plain"))
		mustSend(t, q, "", WithID("quick"), Durable(2, time.Minute))
		mustSend(t, q, "", WithID("disk"), Durable(0, time.Minute))
		close(confirm)
		sends.Wait()
		calls := s.seen()
		for _, want := range []string{"0/0s plain", "2/1m0s quick", "0/1m0s disk"} {
			if !slices.Contains(calls, want) {
				t.Errorf("no call %q", want)
			}
		}
		if n := len(calls) - 3; n > 2*8 {
			t.Errorf("100 waiting sends took %d calls; want them batched", n)
		}
	})
}

func TestDurableSendsWithManyDurabilitiesAreNotBatched(t *testing.T) {
	s := &confirming{Store: memstore.New()}
	q := newClientOn(t, s).Queue("q")
	for i := range 3 * 16 {
		mustSend(t, q, "", Durable(1, time.Second+time.Duration(i)))
	}
	if n := len(s.seen()); n != 3*16 {
		t.Errorf("%d calls", n)
	}
}

func TestDurableSendsWaitBrieflyDuringClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &confirming{Store: memstore.New(), reached: never}
		c := newClientOn(t, s)
		q := c.Queue("q")
		var sends sync.WaitGroup
		sends.Go(func() {
			_, err := q.Send(t.Context(), nil, Durable(1, time.Hour))
			wantError(t, err, ErrNotDurable)
			wantError(t, err, ErrClosed)
		})
		sends.Go(func() {
			_, err := q.SendBatch(t.Context(), []Outgoing{{Durability: Durable(2, time.Hour)}})
			wantError(t, err, ErrNotDurable)
		})
		synctest.Wait()
		began := time.Now()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != confirmGrace {
			t.Errorf("Close took %v, want %v", took, confirmGrace)
		}
		sends.Wait()
		_, err := q.Send(t.Context(), nil, Durable(3, time.Second))
		wantError(t, err, ErrClosed)
	})
}

func TestDurableSendReturnsWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newClientOn(t, &confirming{Store: memstore.New(), reached: never}).Queue("q")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		_, err := q.Send(ctx, nil, Durable(1, time.Hour))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestDurableSendsOnARealPrimaryAndReplica(t *testing.T) {
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	c, err := Open(t.Context(), primary.URL(), WithLogger(slog.New(slog.DiscardHandler)), Durable(1, 20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	q := c.Queue("q")
	var sends sync.WaitGroup
	for range 20 {
		sends.Go(func() {
			for range 20 {
				if _, err := q.Send(t.Context(), []byte("x")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	sends.Wait()
	onReplica, err := replica.Client(t).HLen(t.Context(), "later:{q}:messages").Result()
	if err != nil || onReplica != 400 {
		t.Errorf("the replica has %d messages, %v; want 400", onReplica, err)
	}
	replica.Freeze(t)
	_, err = q.Send(t.Context(), nil, WithID("m"), Durable(1, 50*time.Millisecond))
	wantError(t, err, ErrNotDurable)
	if !strings.Contains(err.Error(), "0 of 1 replicas within 50ms") {
		t.Errorf("%v does not report how many replicas confirmed", err)
	}
	replica.Thaw(t)
	_, err = q.Send(t.Context(), nil, WithID("m"))
	wantError(t, err, ErrDuplicate)
}
