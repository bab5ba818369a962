package later

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/outcome"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/memstore"
)

type wrapper = func(HandlerFunc) HandlerFunc

// tracing returns middleware that records a name before each message.
func tracing(seen *log[string], name string) wrapper {
	return func(next HandlerFunc) HandlerFunc {
		return func(ctx context.Context, m *Message) error {
			seen.add(name)
			return next(ctx, m)
		}
	}
}

func TestKindIsAHeaderAndIsChecked(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		mustSend(t, q, "", Kind("order.cancel"))
		if m := mustReceive(t, q, 1)[0]; m.Kind() != "order.cancel" || m.Headers["kind"] != "order.cancel" {
			t.Errorf("kind is %q, headers are %v", m.Kind(), m.Headers)
		}
		for text, opts := range map[string][]SendOption{
			"kind is empty":                 {Kind("")},
			"a *, which belongs to pattern": {Kind("order.*")},
			`header "kind" is given twice`:  {Header(KindHeader, "a"), Kind("b")},
		} {
			_, err := q.Send(t.Context(), nil, opts...)
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), text) {
				t.Errorf("error is %v; want an ErrInvalid with %q", err, text)
			}
		}
	})
}

func TestMuxCallsTheMostSpecificPattern(t *testing.T) {
	var called string
	mux := NewMux()
	for _, pattern := range []string{"*", "order.*", "order.item.*", "order.item", "order.cancel", "", "mail"} {
		mux.Handle(pattern, func(context.Context, *Message) error { called = pattern; return nil })
	}
	h, err := mux.handler(outcome.NewMisfits("q", 0, slog.Default()))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"order.cancel": "order.cancel", "order.cancel.late": "order.*", "order.x": "order.*", "order": "*",
		"order.item": "order.item", "order.item.add": "order.item.*", "order.item.add.x": "order.item.*",
		"mail": "mail", "mail.x": "*", "orders.x": "*", "": "", "*": "*", "order.": "order.*", ".": "*",
		"order." + strings.Repeat("x.", 10_000): "order.*", strings.Repeat(".", 10_000): "*",
	} {
		called = "nothing"
		if err := h(t.Context(), &Message{Headers: map[string]string{KindHeader: name}}); err != nil || called != want {
			t.Errorf("kind %.30q: %q was called, %v; want %q", name, called, err, want)
		}
	}
	called = "nothing"
	if err := h(t.Context(), &Message{}); err != nil || called != "" {
		t.Errorf("no kind: %q was called, %v; want the empty pattern", called, err)
	}
}

func TestMuxRunReturnsWhatIsConfiguredWrongly(t *testing.T) {
	c := newClientOn(t, memstore.New())
	none := func(HandlerFunc) HandlerFunc { return nil }
	for text, configure := range map[string]func(*Mux){
		`mux's Handle: pattern "a" has a handler already`:  func(m *Mux) { m.Handle("a", ignore) },
		`mux's Handle: pattern "a*" has a * within`:        func(m *Mux) { m.Handle("a*", ignore) },
		`handler of pattern "b" is nil`:                    func(m *Mux) { m.Handle("b", Handler[string](nil)) },
		`handler of pattern "" (messages without a kind)`:  func(m *Mux) { m.Handle("", nil) },
		`middleware 1 of pattern "b" is nil`:               func(m *Mux) { m.Handle("b", ignore, tracing(nil, ""), nil) },
		`mux's Use: middleware 0 is nil`:                   func(m *Mux) { m.Use(nil) },
		`mux's Unknown: policy is 9: give UnknownRelease`:  func(m *Mux) { m.Unknown(9) },
		`mux's middleware 0 returned nil for pattern "a"`:  func(m *Mux) { m.Use(none) },
		`worker's HandleMux of queue "q": mux's Unknown: `: func(m *Mux) { m.Unknown(9); m.Handle("a", nil) },
	} {
		mux, w := NewMux(), NewWorker(c, WorkerConfig{})
		mux.Handle("a", ignore)
		w.HandleMux("q", mux)
		configure(mux)
		if err := w.Run(t.Context()); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("Run returned %v; want ErrInvalid with %q", err, text)
		}
	}
	for text, handle := range map[string]func(*Worker){
		"mux has no handler":             func(w *Worker) { w.HandleMux("q", new(Mux)) },
		`HandleMux: mux of queue "q" is`: func(w *Worker) { w.HandleMux("q", nil) },
		"has a handler already":          func(w *Worker) { w.Handle("q", ignore); w.HandleMux("q", NewMux()) },
		"has a handler already: give": func(w *Worker) {
			w.HandleMux("q", NewMux())
			w.Forward("q", ToQueue("p"))
		},
	} {
		w := NewWorker(c, WorkerConfig{})
		handle(w)
		if err := w.Run(t.Context()); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("Run returned %v; want ErrInvalid with %q", err, text)
		}
	}
}

func TestMuxChangeAfterRunHasBegunIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged lockedBuffer
		c := newClientOn(t, memstore.New(), WithLogger(logged.logger()))
		var mux Mux
		mux.Handle("*", ignore)
		w := NewWorker(c, WorkerConfig{})
		w.HandleMux("q", &mux)
		start(t, w)
		synctest.Wait()
		mux.Handle("a", func(context.Context, *Message) error { t.Error("the late handler was called"); return nil })
		mustSend(t, c.Queue("q"), "", Kind("a"))
		synctest.Wait()
		if !strings.Contains(logged.String(), "a change of a mux has no effect") {
			t.Errorf("log is %q", logged.String())
		}
		wantCounts(t, c.Queue("q"), 0, 0, 0, 0)
	})
}

func TestMuxMiddlewareRunsFromTheWorkersToThePatterns(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		var seen log[string]
		mux := NewMux()
		mux.Handle("a", ignore, tracing(&seen, "a1"), tracing(&seen, "a2"))
		mux.Handle("b", ignore)
		mux.Use(tracing(&seen, "use1"), tracing(&seen, "use2")) // also for patterns registered before
		w := NewWorker(c, WorkerConfig{Concurrency: 1, Middleware: []func(HandlerFunc) HandlerFunc{tracing(&seen, "worker")}})
		w.HandleMux("q", mux)
		for _, name := range []string{"a", "b", "unknown"} {
			mustSend(t, c.Queue("q"), "", Kind(name))
		}
		start(t, w)
		synctest.Wait()
		want := "worker use1 use2 a1 a2 worker use1 use2 worker"
		if got := strings.Join(seen.list(), " "); got != want {
			t.Errorf("middleware ran as %q, want %q", got, want)
		}
	})
}

func TestMuxTypedHandlersDecode(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		type order struct{ Number int }
		q := c.Queue("q")
		var got log[int]
		mux := NewMux()
		mux.Handle("order.cancel", Handler(func(_ context.Context, o order, _ *Message) error {
			got.add(o.Number)
			return nil
		}))
		w := NewWorker(c, WorkerConfig{})
		w.HandleMux("q", mux)
		start(t, w)
		if _, err := TypedQueue[order](q).Send(t.Context(), order{7}, Kind("order.cancel")); err != nil {
			t.Fatal(err)
		}
		mustSend(t, q, "no JSON", Kind("order.cancel"), WithID("bad"))
		synctest.Wait()
		if info, err := q.Get(t.Context(), "bad"); err != nil || info.State != StateScheduled || info.Attempts != 0 {
			t.Errorf("Get returned %+v, %v; want it given back", info, err)
		}
		if !slices.Equal(got.list(), []int{7}) {
			t.Errorf("decoded %v", got.list())
		}
	})
}

func TestMuxGivesUnknownKindsBackForANewerVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged lockedBuffer
		c := newClientOn(t, memstore.New(), WithLogger(logged.logger()))
		q, begin := c.Queue("q"), time.Now()
		var tries log[time.Duration]
		observed := func(next HandlerFunc) HandlerFunc {
			return func(ctx context.Context, m *Message) error {
				tries.add(time.Since(begin))
				if m.Attempt != 1 {
					t.Errorf("attempt is %d; giving a message back must not count as one", m.Attempt)
				}
				return next(ctx, m)
			}
		}
		old := NewMux()
		old.Handle("order.create", ignore)
		w := NewWorker(c, WorkerConfig{Middleware: []func(HandlerFunc) HandlerFunc{observed}})
		w.HandleMux("q", old)
		stop := start(t, w)
		mustSend(t, q, "", Kind("order.cancel"), MaxAttempts(1))
		time.Sleep(time.Hour)
		// Twice a delay of up to a second, then ever longer ones, then up to a minute.
		at := tries.list()
		if n := len(at); n < 60 || n > 150 {
			t.Errorf("the message was tried %d times in an hour; want about 80", n)
		}
		for i := 1; i < len(at); i++ {
			if d := at[i] - at[i-1]; d < outcome.MinGiveBack/2 || d > outcome.MaxGiveBack {
				t.Errorf("try %d came %v after the one before", i, d)
			}
		}
		if first, last := at[1]-at[0], at[len(at)-1]-at[len(at)-2]; first > time.Second || last < 30*time.Second {
			t.Errorf("the first delay is %v and the last %v", first, last)
		}
		text := logged.String()
		if n := strings.Count(text, "kind without a handler"); n < 30 || n > 60 {
			t.Errorf("%d log messages in an hour; want at most one a minute", n)
		}
		for _, part := range []string{"queue=q", "kind=order.cancel", "patterns=[order.create]", "another version"} {
			if !strings.Contains(text, part) {
				t.Errorf("the log lacks %q: %.300s", part, text)
			}
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		handled := make(chan struct{})
		newer := NewMux()
		newer.Handle("order.cancel", func(context.Context, *Message) error { close(handled); return nil })
		w = NewWorker(c, WorkerConfig{})
		w.HandleMux("q", newer)
		start(t, w)
		<-handled
		synctest.Wait()
		wantCounts(t, q, 0, 0, 0, 0)
	})
}

func TestMuxUnknownFailAndBury(t *testing.T) {
	for policy, want := range map[UnknownPolicy]DeadReason{UnknownFail: DeadFailed, UnknownBury: DeadBuried} {
		inBubble(t, func(t *testing.T, c *Client) {
			q := c.Queue("q")
			mux := NewMux()
			mux.Handle("known", ignore)
			mux.Unknown(policy)
			w := NewWorker(c, WorkerConfig{Backoff: ConstantBackoff(time.Second)})
			w.HandleMux("q", mux)
			mustSend(t, q, "", WithID("kind"), Kind("other"), MaxAttempts(3))
			mustSend(t, q, "", WithID("none"), MaxAttempts(3))
			start(t, w)
			time.Sleep(time.Minute)
			attempts := map[UnknownPolicy]int{UnknownFail: 3, UnknownBury: 1}[policy]
			for id, text := range map[string]string{"kind": `kind "other" has no handler`, "none": "message has no kind"} {
				info, err := q.Get(t.Context(), id)
				if err != nil || info.DeadReason != want || info.Attempts != attempts ||
					!strings.Contains(info.LastError, text) {
					t.Errorf("policy %d, message %q: %+v, %v", policy, id, info, err)
				}
			}
		})
	}
}

// A fleet is replaced: workers of the old and of the new version share a queue on Redis.
func TestMuxOldAndNewVersionsShareAQueueOnRedis(t *testing.T) {
	server := redistest.Start(t)
	c, err := Open(t.Context(), server.URL(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const n = 100
	handled := make(chan string, 3*n)
	handler := func(version string) HandlerFunc {
		return func(_ context.Context, m *Message) error {
			handled <- version + " " + m.Kind()
			return nil
		}
	}
	older, newer := NewMux(), NewMux()
	older.Handle("mail.send", handler("old"))
	newer.Handle("mail.*", handler("new"))
	for range n {
		mustSend(t, c.Queue("q"), "", Kind("mail.send"))
		mustSend(t, c.Queue("q"), "", Kind("mail.retract"), MaxAttempts(1))
	}
	run := func(mux *Mux) func() error {
		w := NewWorker(c, WorkerConfig{})
		w.HandleMux("q", mux)
		return start(t, w)
	}
	stopOld := run(older)
	counts := map[string]int{}
	timeout := time.After(30 * time.Second)
	next := func() {
		select {
		case what := <-handled:
			counts[what]++
		case <-timeout:
			t.Fatalf("handled %v", counts)
		}
	}
	for range n {
		next() // a kind that the old version knows
	}
	stopNew := run(newer)
	if err := stopOld(); err != nil {
		t.Error(err)
	}
	for range n {
		next()
	}
	if err := stopNew(); err != nil {
		t.Error(err)
	}
	if want := map[string]int{"old mail.send": n, "new mail.retract": n}; !maps.Equal(counts, want) {
		t.Errorf("handled %v, want %v", counts, want)
	}
	wantCounts(t, c.Queue("q"), 0, 0, 0, 0)
}
