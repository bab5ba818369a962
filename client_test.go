package later

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestClientClosesTheStoreOnlyAfterOpen(t *testing.T) {
	c, err := Open(t.Context(), "mem://owned")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.store.Stats(t.Context(), "q"); err == nil {
		t.Error("Close did not close the store that Open opened")
	}
	s := memstore.New()
	defer s.Close()
	if err := New(s).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stats(t.Context(), "q"); err != nil {
		t.Errorf("Close closed the store that the caller opened: %v", err)
	}
}

func TestClientOpenRefusesAnUnknownScheme(t *testing.T) {
	_, err := Open(t.Context(), "mongodb://localhost")
	wantError(t, err, ErrInvalid)
}

func TestClientQueueIsTheSameForAName(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q, again, p := c.Queue("q"), c.Queue("q"), c.Queue("p")
	if q != again || q == p || q.Name() != "q" {
		t.Error("Queue did not return one Queue for each name")
	}
}

func TestClientCloseCompletesSendsInFlightAndRefusesNewOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		q := c.Queue("q")
		let := make(chan struct{})
		f.set(func(_ context.Context, call string) error {
			if call == "send" {
				<-let
			}
			return nil
		}, nil)
		var sends sync.WaitGroup
		for range 100 {
			sends.Go(func() { mustSend(t, q, "") })
		}
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- c.Close() }()
		synctest.Wait()
		_, err := q.Send(t.Context(), nil)
		wantError(t, err, ErrClosed)
		_, err = q.SendBatch(t.Context(), []Outgoing{{}})
		wantError(t, err, ErrClosed)
		_, err = q.Get(t.Context(), "id")
		wantError(t, err, ErrClosed)
		close(let)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		sends.Wait()
		if s, err := f.Stats(t.Context(), "q"); err != nil || s.Ready != 100 {
			t.Errorf("%d messages, %v; want 100", s.Ready, err)
		}
	})
}

func TestClientCloseDrainsItsWorkers(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q, done := c.Queue("q"), false
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", func(ctx context.Context, m *Message) error {
			time.Sleep(time.Second)
			// A handler can still send.
			if _, err := q.Send(ctx, nil, In(time.Hour)); err != nil {
				t.Errorf("Send while closing: %v", err)
			}
			done = true
			return nil
		})
		stop := start(t, w)
		mustSend(t, q, "")
		synctest.Wait()
		if err := c.Close(); err != nil || !done {
			t.Errorf("Close returned %v; handler done: %v", err, done)
		}
		wantError(t, stop(), ErrClosed)
		if s, err := c.store.Stats(t.Context(), "q"); err != nil || s.Leased != 0 || s.Scheduled != 1 {
			t.Errorf("%+v, %v", s, err)
		}
		wantError(t, NewWorker(c, WorkerConfig{}).Run(t.Context()), ErrClosed)
	})
}

func TestErrorsHaveStableCodes(t *testing.T) {
	for err, want := range map[error]string{
		ErrInvalid: "invalid", ErrTooLarge: "too_large", ErrNotFound: "not_found", ErrDuplicate: "duplicate",
		ErrLeased: "leased", ErrDead: "dead", ErrLeaseLost: "lease_lost", ErrCancelled: "lease_lost", ErrFull: "full",
		ErrNotDurable: "not_durable", ErrUnavailable: "unavailable", ErrUnsupported: "unsupported",
		ErrCorrupt: "corrupt", ErrClosed: "closed", context.Canceled: "internal",
	} {
		if got := CodeOf(err).Name; got != want {
			t.Errorf("%v has the code %q, want %q", err, got, want)
		}
	}
}

func TestClientWithoutObserverAllocatesNothing(t *testing.T) {
	c := newClientOn(t, memstore.New())
	m := &Message{ID: "id"}
	d := &Delivery{Message: m, queue: c.Queue("q")}
	if n := testing.AllocsPerRun(100, func() {
		d.queue.event(EventSent, m.ID)
		d.event(EventAcked, nil)
	}); n != 0 {
		t.Errorf("%v allocations; want 0", n)
	}
}

func TestTypedValuesTravelAsJSON(t *testing.T) {
	type order struct{ Number int }
	inBubble(t, func(t *testing.T, c *Client) {
		orders := TypedQueue[order](c.Queue("orders"))
		var got log[order]
		w := NewWorker(c, WorkerConfig{})
		w.Handle("orders", Handler(func(_ context.Context, o order, m *Message) error {
			if m.Queue != "orders" {
				t.Errorf("message of queue %q", m.Queue)
			}
			got.add(o)
			return nil
		}))
		start(t, w)
		if _, err := orders.Send(t.Context(), order{1}); err != nil {
			t.Fatal(err)
		}
		if r, err := orders.SendBatch(t.Context(), []order{{2}, {3}}, In(time.Second)); err != nil || len(r) != 2 {
			t.Fatal(r, err)
		}
		time.Sleep(time.Minute)
		if l := got.list(); len(l) != 3 || l[0].Number != 1 || l[1].Number+l[2].Number != 5 {
			t.Errorf("orders %v", l)
		}
		o, err := orders.Outgoing(order{4}, WithID("four"))
		if err != nil || o.ID != "four" || string(o.Payload) != `{"Number":4}` {
			t.Errorf("%+v, %v", o, err)
		}
		_, err = orders.Outgoing(order{4}, WithID(""))
		wantError(t, err, ErrInvalid)
	})
}

func TestTypedPayloadThatCannotBeDecodedIsBuried(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", Handler(func(context.Context, int, *Message) error {
			t.Error("handler was called")
			return nil
		}))
		start(t, w)
		mustSend(t, q, "no number", WithID("id"))
		synctest.Wait()
		info, err := q.Get(t.Context(), "id")
		if err != nil || info.DeadReason != DeadBuried || !strings.Contains(info.LastError, "cannot be decoded into int") {
			t.Errorf("Get returned %+v, %v", info, err)
		}
	})
}

// upper is a Codec for strings.
type upper struct{}

func (upper) Encode(v any) ([]byte, error) { return []byte(strings.ToUpper(v.(string))), nil }
func (upper) Decode(p []byte, v any) error { *v.(*string) = strings.ToLower(string(p)); return nil }

func TestTypedCodecAndUnencodableValue(t *testing.T) {
	q := newClientOn(t, memstore.New()).Queue("q")
	words := TypedQueue[string](q).WithCodec(upper{})
	if _, err := words.Send(t.Context(), "word"); err != nil {
		t.Fatal(err)
	}
	d := mustReceive(t, q, 1)[0]
	if word, err := words.Decode(d.Message); string(d.Payload) != "WORD" || word != "word" || err != nil {
		t.Errorf("payload %q, value %q, %v", d.Payload, word, err)
	}
	if err := words.Handler(func(_ context.Context, word string, _ *Message) error {
		if word != "word" {
			t.Errorf("handler got %q", word)
		}
		return nil
	})(t.Context(), d.Message); err != nil {
		t.Error(err)
	}
	_, err := TypedQueue[chan int](q).Send(t.Context(), nil)
	wantError(t, err, ErrInvalid)
	_, err = TypedQueue[chan int](q).SendBatch(t.Context(), []chan int{nil})
	wantError(t, err, ErrInvalid)
}

var _ store.Store = (*faulty)(nil)

func TestClientRefusesNilOptions(t *testing.T) {
	const text = "option 1 is nil: leave it out"
	q := newClientOn(t, memstore.New()).Queue("q")
	for name, err := range map[string]error{
		"Open":     second(Open(t.Context(), "mem://", quiet, nil)),
		"Send":     second(q.Send(t.Context(), nil, In(0), nil)),
		"Receive":  second(q.Receive(t.Context(), 1, LeaseFor(time.Second), nil)),
		"Outgoing": second(TypedQueue[int](q).Outgoing(1, In(0), nil)),
	} {
		if !errors.Is(err, ErrInvalid) || err.Error() != text {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	if got, want := panicOf(func() { New(memstore.New(), quiet, nil) }), "later: New: "+text; got != want {
		t.Errorf("New panicked with %q; want %q", got, want)
	}
}

func TestClientErrorsAfterCloseSayThatItIsClosed(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := c.Queue("q")
	mustSend(t, q, "")
	d := mustReceive(t, q, 1)[0]
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for call, err := range map[string]error{
		"Send":    second(q.Send(t.Context(), nil)),
		"Receive": second(q.Receive(t.Context(), 1)),
		"Get":     second(q.Get(t.Context(), "id")),
		"Ack":     d.Ack(t.Context()),
		"Run":     NewWorker(c, WorkerConfig{}).Run(t.Context()),
	} {
		if !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), "client is closed") || CodeOf(err).Name != "closed" {
			t.Errorf("%s: error is %v", call, err)
		}
	}
}

func TestClientQueueMadeAfterCloseIsClosed(t *testing.T) {
	s := memstore.New()
	defer s.Close()
	c := New(s)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := c.Queue("new").Send(t.Context(), []byte("m"))
	wantError(t, err, ErrClosed)
	if stats, err := s.Stats(t.Context(), "new"); err != nil || stats.Exists {
		t.Errorf("the store has %+v, %v: the closed client sent", stats, err)
	}
}

// Queues that are made while the client closes are closed with it, whoever comes first.
func TestClientCloseWhileQueuesAreMade(t *testing.T) {
	for range 20 {
		s := memstore.New()
		c := New(s)
		var makers sync.WaitGroup
		for i := range 8 {
			makers.Go(func() {
				if _, err := c.Queue(strings.Repeat("q", i+1)).Send(t.Context(), nil); err != nil && !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			})
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		makers.Wait()
		s.Close()
	}
}
