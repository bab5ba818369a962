package later

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/redisstore"
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
	if err := mustNew(t, s).Close(); err != nil {
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

// closingDestination is a Deliverer that closes its client.
type closingDestination struct {
	client *Client
	closed chan error
}

func (d closingDestination) Deliver(context.Context, []*Message) []error {
	d.closed <- d.client.Close()
	return nil
}

func TestClientCloseInAHandlerReturnsAfterTheDrain(t *testing.T) {
	for name, register := range map[string]func(*Worker, *Client, chan error){
		"of a message": func(w *Worker, c *Client, closed chan error) {
			w.Handle("q", func(context.Context, *Message) error {
				closed <- c.Close()
				return nil
			})
		},
		"of a batch": func(w *Worker, c *Client, closed chan error) {
			w.HandleBatch("q", func(context.Context, []*Message) []error {
				closed <- c.Close()
				return nil
			}, BatchConfig{})
		},
		"of a destination": func(w *Worker, c *Client, closed chan error) {
			w.Forward("q", To(closingDestination{c, closed}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *Client) {
				closed := make(chan error, 1)
				w := NewWorker(c, WorkerConfig{ShutdownTimeout: time.Second})
				register(w, c, closed)
				stop := start(t, w)
				mustSend(t, c.Queue("q"), "")
				began := time.Now()
				if err := <-closed; err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("Close took %v", took)
				}
				if err := stop(); err == nil || !strings.Contains(err.Error(), "still running") {
					t.Errorf("Run returned %v", err)
				}
				if s, err := c.store.Stats(t.Context(), "q"); err != nil || s.Ready != 1 {
					t.Errorf("%+v, %v: the message was not released", s, err)
				}
			})
		})
	}
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
	for err, want := range map[error]Code{
		ErrInvalid: "invalid", ErrTooLarge: "too_large", ErrNotFound: "not_found", ErrDuplicate: "duplicate",
		ErrLeased: "leased", ErrDead: "dead", ErrLeaseLost: "lease_lost", ErrCancelled: "lease_lost", ErrFull: "full",
		ErrNotDurable: "not_durable", ErrUnavailable: "unavailable", ErrUnsupported: "unsupported",
		ErrCorrupt: "corrupt", ErrClosed: "closed", context.Canceled: "internal",
	} {
		if got := CodeOf(err); got != want {
			t.Errorf("%v has the code %q, want %q", err, got, want)
		}
	}
}

// TestEventHasTheValuesOfItsCall checks that an observer can join the trace of a sender, a receiver or a worker.
func TestEventHasTheValuesOfItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		with := func(name string) context.Context { return context.WithValue(t.Context(), key{}, name) }
		var mu sync.Mutex
		seen := map[string]bool{}
		c := newClientOn(t, memstore.New(), WithObserver(func(e Event) {
			mu.Lock()
			defer mu.Unlock()
			name, _ := e.Context.Value(key{}).(string)
			if m := MessageFromContext(e.Context); m != nil {
				name += " with message " + m.ID
			}
			seen[string(e.Kind)+" by "+name] = true
		}))
		q := c.Queue("q")
		for range 2 {
			if _, err := q.Send(with("send"), nil, WithID("a")); err != nil && !errors.Is(err, ErrDuplicate) {
				t.Fatal(err)
			}
			if _, err := q.SendBatch(with("batch"), []Outgoing{{ID: "b"}}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := q.Receive(with("receive"), 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := got[0].Nack(with("nack"), 0, nil); err != nil {
			t.Fatal(err)
		}
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", ignore)
		ctx, stop := context.WithCancel(with("run"))
		result := make(chan error)
		go func() { result <- w.Run(ctx) }()
		synctest.Wait()
		stop()
		if err := <-result; err != nil {
			t.Error(err)
		}
		for _, want := range []string{
			"sent by send", "duplicate by send", "sent by batch", "duplicate by batch", "claimed by receive",
			"nacked by nack", "claimed by run with message a", "started by run with message b",
			"acked by run with message b",
		} {
			if !seen[want] {
				t.Errorf("no event %q; seen: %v", want, slices.Sorted(maps.Keys(seen)))
			}
		}
	})
}

func TestClientWithoutObserverAllocatesNothing(t *testing.T) {
	c := newClientOn(t, memstore.New())
	m := &Message{ID: "id"}
	d := &Delivery{Message: m, queue: c.Queue("q")}
	if n := testing.AllocsPerRun(100, func() {
		d.queue.event(t.Context(), EventSent, m.ID)
		d.event(t.Context(), EventAcked, nil)
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

func TestTypedPayloadsHaveAContentType(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := TypedQueue[int](c.Queue("q"))
	own := Header("content-type", "application/vnd.number+json")
	with := func(got map[string]string, what, want string) {
		t.Helper()
		if got["content-type"] != want {
			t.Errorf("%s: headers %v, want the content type %q", what, got, want)
		}
	}
	for what, send := range map[string]func(opts ...SendOption) error{
		"Send":      func(opts ...SendOption) error { return second(q.Send(t.Context(), 1, opts...)) },
		"SendBatch": func(opts ...SendOption) error { return second(q.SendBatch(t.Context(), []int{1}, opts...)) },
		"SendSeries": func(opts ...SendOption) error {
			s := Series{Until: time.Now(), Offsets: []time.Duration{0}, Past: SendPast}
			return second(q.SendSeries(t.Context(), 1, s, opts...))
		},
		"Then": func(opts ...SendOption) error {
			mustSend(t, c.Queue("first"), "")
			return mustReceive(t, c.Queue("first"), 1)[0].AckThen(t.Context(), q.Then(1, opts...))
		},
	} {
		for want, opts := range map[string][]SendOption{"application/json": nil, "application/vnd.number+json": {own}} {
			if err := send(opts...); err != nil {
				t.Fatal(what, err)
			}
			d := mustReceive(t, q.Queue, 1)[0]
			with(d.Headers, what, want)
			if err := d.Ack(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	headers := map[string]string{"k": "v"}
	s, err := q.Schedule(Schedule{Name: "s", Headers: headers}, 1)
	if with(s.Headers, "Schedule", "application/json"); err != nil || s.Headers["k"] != "v" || len(headers) != 1 {
		t.Errorf("headers %v of %v, %v", s.Headers, headers, err)
	}
	headers["content-type"] = "a/b"
	s, _ = q.Schedule(Schedule{Name: "s", Headers: headers}, 1)
	with(s.Headers, "Schedule with a content type", "a/b")
}

func TestTypedPayloadThatCannotBeDecodedIsGivenBack(t *testing.T) {
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
		if err != nil || info.State != StateScheduled || info.Attempts != 0 ||
			!strings.Contains(info.LastError, "cannot be decoded into int") {
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
	wantError(t, second(TypedQueue[string](q).WithCodec(nil)), ErrInvalid)
	words, err := TypedQueue[string](q).WithCodec(upper{})
	if err != nil {
		t.Fatal(err)
	}
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
	if len(d.Headers) > 0 {
		t.Errorf("headers %v of a codec without a content type", d.Headers)
	}
	_, err = TypedQueue[chan int](q).Send(t.Context(), nil)
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
		"New":      second(New(memstore.New(), quiet, nil)),
		"With":     second(q.With(Durability{}, nil)),
		"Send":     second(q.Send(t.Context(), nil, In(0), nil)),
		"Receive":  second(q.Receive(t.Context(), 1, Lease(time.Second), nil)),
		"Outgoing": second(TypedQueue[int](q).Outgoing(1, In(0), nil)),
	} {
		if !errors.Is(err, ErrInvalid) || err.Error() != text {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

func TestClientNewReturnsConfigurationErrors(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	for text, s := range map[string]store.Store{
		"store is nil":                    nil,
		"option 0 is nil":                 memstore.New(nil),
		"client is nil":                   redisstore.New(nil),
		"contains a brace":                redisstore.New(rdb, redisstore.Prefix("{x}")),
		"option of redisstore.New is nil": redisstore.New(rdb, nil),
	} {
		if c, err := New(s); c != nil || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("New returned %v; want ErrInvalid with %q", err, text)
		}
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
		if !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), "client is closed") || CodeOf(err) != "closed" {
			t.Errorf("%s: error is %v", call, err)
		}
	}
}

func TestClientQueueMadeAfterCloseIsClosed(t *testing.T) {
	s := memstore.New()
	defer s.Close()
	c := mustNew(t, s)
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
		c := mustNew(t, s)
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

// A client that has used many queues does not keep them.
func TestClientForgetsUnusedQueues(t *testing.T) {
	c := mustNew(t, memstore.New())
	defer c.Close()
	kept := c.Queue("kept")
	for i := range 100 {
		if _, err := c.Queue(fmt.Sprint("q", i)).Send(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	for limit := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
		runtime.GC()
		c.mu.RLock()
		n := len(c.queues)
		c.mu.RUnlock()
		if n == 1 {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("%d queues are kept, want one", n)
		}
	}
	if c.Queue("kept") != kept {
		t.Error("a Queue in use was replaced")
	}
}

func TestSeveralObserversGetEveryEvent(t *testing.T) {
	var first, second events
	c := newClientOn(t, memstore.New(), WithObserver(first.add), WithObserver(nil), WithObserver(second.add))
	id := mustSend(t, c.Queue("q"), "")
	if len(first.kinds(id)) != 1 || len(second.kinds(id)) != 1 {
		t.Errorf("observers got %v and %v", first.kinds(id), second.kinds(id))
	}
}
