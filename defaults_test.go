package later

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestQueueDefaultsApplyWhereASendSetsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		begin := time.Now()
		headers := map[string]string{"a": "default", "b": "default"}
		q, err := c.Queue("q").With(In(time.Hour), MaxAttempts(3), Timeout(time.Second), ExpireAfter(time.Minute),
			DedupWindow(time.Hour), Headers(headers))
		if err != nil {
			t.Fatal(err)
		}
		own := map[string]string{"b": "own", "c": "own"}
		mustSend(t, q, "", WithID("plain"))
		mustSend(t, q, "", WithID("own"), In(2*time.Hour), MaxAttempts(4), Timeout(2*time.Second),
			ExpireAt(begin.Add(24*time.Hour)), DedupWindow(2*time.Hour), Headers(own))
		if _, err := q.SendBatch(t.Context(), []Outgoing{{ID: "batch", Headers: own}}); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(own, map[string]string{"b": "own", "c": "own"}) {
			t.Errorf("the caller's headers were changed: %v", own)
		}
		mustSend(t, c.Queue("q"), "", WithID("without"))

		merged := map[string]string{"a": "default", "b": "own", "c": "own"}
		for id, want := range map[string]Info{
			"plain": {Due: begin.Add(time.Hour), MaxAttempts: 3, Timeout: time.Second, ExpireAfter: time.Minute,
				DedupWindow: time.Hour, Headers: headers},
			"own": {Due: begin.Add(2 * time.Hour), MaxAttempts: 4, Timeout: 2 * time.Second,
				ExpireAt: begin.Add(24 * time.Hour), DedupWindow: 2 * time.Hour, Headers: merged},
			"batch": {Due: begin.Add(time.Hour), MaxAttempts: 3, Timeout: time.Second, ExpireAfter: time.Minute,
				DedupWindow: time.Hour, Headers: merged},
			"without": {Due: begin, MaxAttempts: store.DefaultMaxAttempts},
		} {
			got, err := c.Queue("q").Get(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if !got.Due.Equal(want.Due) || got.MaxAttempts != want.MaxAttempts || got.Timeout != want.Timeout ||
				got.ExpireAfter != want.ExpireAfter || !got.ExpireAt.Equal(want.ExpireAt) ||
				got.DedupWindow != want.DedupWindow || !maps.Equal(got.Headers, want.Headers) {
				t.Errorf("%s: got  %+v\nwant %+v", id, got, want)
			}
		}
	})
}

func TestDefaultsOfTheClientAreBelowThoseOfTheQueue(t *testing.T) {
	c, err := New(memstore.New(), WithDefaults(MaxAttempts(3), Header("of", "client"), Timeout(time.Minute)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	q, err := c.Queue("q").With(MaxAttempts(4), Header("of", "queue"))
	if err != nil {
		t.Fatal(err)
	}
	if q, err = q.With(Timeout(time.Hour)); err != nil { // on top of the others
		t.Fatal(err)
	}
	mustSend(t, q, "", WithID("queue"))
	mustSend(t, c.Queue("q"), "", WithID("client"))
	for id, want := range map[string]Info{
		"queue":  {MaxAttempts: 4, Timeout: time.Hour, Headers: map[string]string{"of": "queue"}},
		"client": {MaxAttempts: 3, Timeout: time.Minute, Headers: map[string]string{"of": "client"}},
	} {
		got, err := q.Get(t.Context(), id)
		if err != nil || got.MaxAttempts != want.MaxAttempts || got.Timeout != want.Timeout ||
			!maps.Equal(got.Headers, want.Headers) {
			t.Errorf("%s: %+v, %v", id, got, err)
		}
	}
}

func TestBadDefaultsAreRefused(t *testing.T) {
	c := newClientOn(t, memstore.New())
	for name, opts := range map[string][]SendOption{
		"id \"a\" is given as a default": {WithID("a")},
		"option 1 is nil":                {MaxAttempts(1), nil},
		"max attempts is 0":              {MaxAttempts(0)},
		"max attempts is given twice":    {MaxAttempts(1), MaxAttempts(2)},
		"header name is empty":           {Header("", "x")},
	} {
		_, err := c.Queue("q").With(opts...)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("With: error is %v; want an ErrInvalid with %q", err, name)
		}
		_, err = New(memstore.New(), WithDefaults(opts...))
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("WithDefaults: error is %v; want an ErrInvalid with %q", err, name)
		}
	}
	_, err := New(memstore.New(), WithDefaults(), WithDefaults())
	wantError(t, err, ErrInvalid)
	_, err = New(memstore.New(), Durable(1, time.Second), WithDefaults(Durable(1, time.Second)))
	wantError(t, err, ErrInvalid)
	_, err = New(memstore.New(), WithSendMiddleware(nil))
	wantError(t, err, ErrInvalid)
}

func TestSendMiddlewareSeesAndChangesEverySend(t *testing.T) {
	refused := errors.New("refused")
	var seen []string
	c, err := New(memstore.New(), WithDefaults(MaxAttempts(3)),
		WithSendMiddleware(func(ctx context.Context, o *Outgoing) error {
			if o.MaxAttempts != 3 {
				t.Errorf("the defaults were not filled in: %+v", o)
			}
			if string(o.Payload) == "refused" {
				return refused
			}
			o.Headers["trace"], _ = ctx.Value(traceKey{}).(string)
			return nil
		}, func(_ context.Context, o *Outgoing) error {
			seen = append(seen, o.Queue+" "+string(o.Payload)+" "+o.Headers["trace"])
			return nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := context.WithValue(t.Context(), traceKey{}, "t1")
	q := c.Queue("q")
	own := map[string]string{"own": "1"}
	if _, err := q.Send(ctx, []byte("one"), WithID("one")); err != nil {
		t.Fatal(err)
	}
	two, three := Outgoing{Payload: []byte("two"), Headers: own}, Outgoing{Payload: []byte("three")}
	if _, err := q.SendBatch(ctx, []Outgoing{two, three}); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Send(ctx, []byte("refused")); !errors.Is(err, refused) {
		t.Errorf("Send returned %v", err)
	}
	four := Outgoing{Payload: []byte("four")}
	if _, err := q.SendBatch(ctx, []Outgoing{four, {Payload: []byte("refused")}}); !errors.Is(err, refused) {
		t.Errorf("SendBatch returned %v", err)
	}
	d := mustReceive(t, q, 1)[0]
	if d.Headers["trace"] != "t1" {
		t.Errorf("headers %v", d.Headers)
	}
	if err := d.AckThen(ctx, Then("next", []byte("five"))); err != nil {
		t.Fatal(err)
	}
	if got := mustReceive(t, c.Queue("next"), 1)[0]; got.Headers["trace"] != "t1" || got.MaxAttempts != 3 {
		t.Errorf("follow-up %+v", got.Message)
	}
	want := "q one t1, q two t1, q three t1, q four t1, next five t1"
	if got := strings.Join(seen, ", "); got != want {
		t.Errorf("saw  %s\nwant %s", got, want)
	}
	if len(own) != 1 {
		t.Errorf("the caller's headers were changed: %v", own)
	}
	wantCounts(t, q, 0, 2, 0, 0) // a refused batch sends nothing
}

type traceKey struct{}

// TestDedupWindowNeedsAnID shows that a window is refused with a generated id, which no send repeats, except as a
// default, which is for messages with ids of their own.
func TestDedupWindowNeedsAnID(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		ctx, window := t.Context(), DedupWindow(time.Hour)
		q, err := c.Queue("q").With(window)
		if err != nil {
			t.Fatal(err)
		}
		named, err := New(c.Store(), WithSendMiddleware(func(_ context.Context, o *Outgoing) error {
			o.ID = "of middleware"
			return nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer named.Close()
		const refused = "dedup window is 1h0m0s and there is no id: give the id that repeated sends share"
		for name, send := range map[string]func() error{
			"Send":           func() error { _, err := c.Queue("q").Send(ctx, nil, window); return err },
			"Send of With":   func() error { _, err := q.Send(ctx, nil, window); return err },
			"SendBatch":      func() error { _, err := q.SendBatch(ctx, []Outgoing{{DedupWindow: time.Hour}}); return err },
			"Publish":        func() error { _, err := c.Topic("t").Publish(ctx, nil, window); return err },
			"Outgoing.Check": func() error { return (&Outgoing{DedupWindow: time.Hour}).Check() },
		} {
			if err := send(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), refused) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for q, want := range map[*Queue]time.Duration{q: 0, named.Queue("q"): time.Hour} {
			var opts []SendOption
			if want > 0 {
				opts = append(opts, window)
			}
			id := mustSend(t, q, "", opts...)
			if got, err := q.Get(ctx, id); err != nil || got.DedupWindow != want {
				t.Errorf("%q: window %v, %v; want %v", id, got.DedupWindow, err, want)
			}
		}
	})
}
