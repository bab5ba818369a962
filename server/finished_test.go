package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

// newFinishedAPI is newBubbleAPI with lists of finished messages.
func newFinishedAPI(t *testing.T, s store.Store, cfg FinishedConfig) *api {
	t.Helper()
	c, err := later.New(s)
	if err != nil {
		t.Fatal(err)
	}
	server, err := New(c, Config{Logger: slog.New(slog.DiscardHandler), Finished: cfg})
	if err != nil {
		t.Fatal(err)
	}
	server.WatchFinished()
	t.Cleanup(func() {
		server.Close()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return &api{t: t, client: c, server: server}
}

// finish sends a message and settles it.
func (a *api) finish(queue, id string, settle func(*later.Delivery) error) {
	a.t.Helper()
	if _, err := a.client.Queue(queue).Send(a.t.Context(), []byte("secret payload"), later.WithID(id),
		later.Header("h", "secret header")); err != nil {
		a.t.Fatal(err)
	}
	a.settle(queue, settle)
}

func (a *api) settle(queue string, settle func(*later.Delivery) error) {
	a.t.Helper()
	got, err := a.client.Queue(queue).Receive(a.t.Context(), 1)
	if err != nil || len(got) != 1 {
		a.t.Fatal(len(got), err)
	}
	if err := settle(got[0]); err != nil {
		a.t.Fatal(err)
	}
}

// reported waits until the events of this process have arrived.
func reported() {
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

func ackIt(t *testing.T) func(*later.Delivery) error {
	return func(d *later.Delivery) error { return d.Ack(t.Context()) }
}

// outcomes describes finished messages.
func outcomes(r *reply) (text string) {
	r.t.Helper()
	for _, item := range list(r.is(http.StatusOK), "items") {
		text += fmt.Sprintf("%v %v; ", item["id"], item["outcome"])
	}
	return text
}

const finishedMail = "/v1/queues/mail/finished"

func TestFinishedMessagesAreListedWithTheirOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFinishedAPI(t, memstore.New(), FinishedConfig{Queues: []string{"mail", "orders*"}})
		q := a.client.Queue("mail")
		begin := time.Now()
		a.finish("mail", "acked", func(d *later.Delivery) error {
			time.Sleep(3 * time.Second)
			return d.Ack(t.Context())
		})
		a.finish("mail", "buried", func(d *later.Delivery) error { return d.Bury(t.Context(), errors.New("no such user")) })
		if _, err := q.Send(t.Context(), nil, later.WithID("died"), later.MaxAttempts(2)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			a.settle("mail", func(d *later.Delivery) error { return d.Nack(t.Context(), 0, errors.New("timeout")) })
		}
		for _, id := range []string{"cancelled", "expired"} {
			if _, err := q.Send(t.Context(), nil, later.WithID(id), later.In(time.Minute),
				later.ExpireAfter(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := q.Cancel(t.Context(), "cancelled"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		a.finish("mail", "last", ackIt(t)) // this claim finds the expired one
		if _, err := q.PurgeDead(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.finish("orders-7", "o", ackIt(t))
		a.finish("other", "x", ackIt(t))
		reported()

		got := a.get(t.Context(), finishedMail)
		if want := "<nil> purged; last acked; expired expired; cancelled cancelled; died died; buried buried; acked " +
			"acked; "; outcomes(got) != want {
			t.Errorf("got %s\nwant %s", outcomes(got), want)
		}
		if strings.Contains(got.body, "secret") {
			t.Errorf("a payload or header is kept: %s", got.body)
		}
		page := got.is(http.StatusOK)
		items := list(page, "items")
		acked, buried, died, purged := items[6], items[5], items[4], items[0]
		if acked["sent_at"] != wire.FormatTime(begin) || acked["due"] != wire.FormatTime(begin) || acked["attempt"] != 1.0 ||
			acked["time"] != wire.FormatTime(begin.Add(3*time.Second)) || acked["process"] == nil || acked["queue"] != "mail" {
			t.Errorf("%v", acked)
		}
		if buried["error"] != "no such user" || died["attempt"] != 2.0 || died["error"] != "timeout" ||
			purged["count"] != 3.0 {
			t.Errorf("%v\n%v\n%v", buried, died, purged)
		}
		if page["kept"] != 7.0 || page["missed"] != 0.0 || page["gaps"] != 0.0 || page["since"] != wire.FormatTime(begin) ||
			page["max_count"] != 10_000.0 || page["max_age"] != "24h0m0s" {
			t.Errorf("%v", page)
		}
		for query, want := range map[string]string{
			"?outcome=acked":                     "last acked; acked acked; ",
			"?outcome=died&outcome=buried":       "died died; buried buried; ",
			"?id=ed&limit=2":                     "expired expired; cancelled cancelled; ",
			"?id=ed&limit=2&cursor=3":            "buried buried; acked acked; ",
			"?finished_before=" + date(begin, 3): "",
			"?finished_before=" + date(begin, 4): "cancelled cancelled; died died; buried buried; acked acked; ",
			"?finished_after=" + date(begin, 4):  "<nil> purged; last acked; expired expired; ",
			"/died":                              "died died; ",
		} {
			if got := outcomes(a.get(t.Context(), finishedMail+query)); got != want {
				t.Errorf("%s: got %s, want %s", query, got, want)
			}
		}
		if next := a.get(t.Context(), finishedMail+"?id=ed&limit=2").is(http.StatusOK)["next"]; next != "4" {
			t.Error(next)
		}
		if got := outcomes(a.get(t.Context(), "/v1/queues/orders-7/finished")); got != "o acked; " {
			t.Error(got)
		}
		a.get(t.Context(), "/v1/queues/other/finished").fails(http.StatusNotFound, "not_found", "")
		a.get(t.Context(), "/v1/queues/orders-none/finished").fails(http.StatusNotFound, "not_found", "")
		a.get(t.Context(), finishedMail+"/none").fails(http.StatusNotFound, "not_found", "")
		a.get(t.Context(), finishedMail+"?outcome=x").fails(http.StatusBadRequest, "invalid", "query.outcome")
		a.get(t.Context(), finishedMail+"?cursor=x").fails(http.StatusBadRequest, "invalid", "query.cursor")
	})
}

// date returns a time some seconds after another one, for a query.
func date(begin time.Time, seconds int) string {
	return wire.FormatTime(begin.Add(time.Duration(seconds) * time.Second))
}

func TestFinishedMessagesOfAReplayAreBothListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFinishedAPI(t, memstore.New(), FinishedConfig{Queues: []string{"*"}})
		a.finish("mail", "a", func(d *later.Delivery) error { return d.Bury(t.Context(), errors.New("x")) })
		if _, err := a.client.Queue("mail").Replay(t.Context(), later.In(0), "a"); err != nil {
			t.Fatal(err)
		}
		a.settle("mail", ackIt(t))
		reported()
		if got := outcomes(a.get(t.Context(), finishedMail+"/a")); got != "a acked; a buried; " {
			t.Error(got)
		}
		found := a.get(t.Context(), "/v1/find?q=a").body
		if strings.Count(found, `"finished":{`) != 1 || !strings.Contains(found, `"outcome":"acked"`) {
			t.Error(found)
		}
		if _, err := a.client.Queue("mail").Send(t.Context(), nil, later.WithID("a")); err != nil {
			t.Fatal(err)
		}
		if found := a.get(t.Context(), "/v1/find?q=a").body; strings.Contains(found, `"finished":{`) {
			t.Errorf("a live message is shown as finished: %s", found)
		}
	})
}

func TestFinishedCountsMissedEvents(t *testing.T) {
	f := &finishedLists{FinishedConfig: FinishedConfig{Queues: []string{"mail"}, MaxCount: 10, MaxAge: time.Hour},
		maxBytes: maxFinishedBytes}
	for _, e := range []wire.Event{{Missed: 5}, {Missed: 2, Queue: "mail"}, {Queue: "mail"}, {Missed: 9, Queue: "other"},
		{}} {
		e.Kind = later.EventMissed
		f.add(&e, time.Now())
	}
	page, _ := f.page(t.Context(), "mail", 0, 10, func(*finishedEntry) bool { return true })
	if page.Missed != 7 || page.Gaps != 2 || len(f.queues) != 1 {
		t.Errorf("%+v", page)
	}
}

// TestFinishedFollowsASlowFeed has more events than a feed keeps before they are read.
func TestFinishedFollowsASlowFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed := &feed{ended: make(chan struct{})}
		const n = maxRecent + 1000
		for i := range n {
			feed.add(wire.Event{Kind: later.EventAcked, Queue: "mail", ID: fmt.Sprint(i)})
		}
		f := &finishedLists{FinishedConfig: FinishedConfig{Queues: []string{"mail"}, MaxCount: 10_000, MaxAge: time.Hour},
			maxBytes: maxFinishedBytes}
		close(feed.ended)
		f.follow(t.Context(), feed)
		f.follow(t.Context(), feed) // as if it had come back
		if l := f.queues["mail"]; len(l.entries) != 2*maxRecent || f.gaps != 2 {
			t.Errorf("%d messages, %d missed, %d gaps", len(l.entries), f.missed, f.gaps)
		}
	})
}

// interrupted is a store that can end its watches.
type interrupted struct {
	store.Store
	end chan struct{}
}

type endingWatcher struct {
	store.Watcher
	end chan struct{}
}

func (s *interrupted) Watch(ctx context.Context, queues []string) (store.Watcher, error) {
	w, err := s.Store.Watch(ctx, queues)
	return &endingWatcher{w, s.end}, err
}

func (w *endingWatcher) Next(ctx context.Context) (store.Reported, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-w.end:
			cancel()
		case <-ctx.Done():
		}
	}()
	defer func() { <-ended }()
	defer cancel()
	return w.Watcher.Next(ctx)
}

func TestFinishedGoesOnAfterAnInterruption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &interrupted{memstore.New(), make(chan struct{})}
		a := newFinishedAPI(t, s, FinishedConfig{Queues: []string{"mail"}})
		a.finish("mail", "before", ackIt(t))
		reported()
		s.end <- struct{}{} // the watch ends as if the store had closed it
		synctest.Wait()
		a.finish("mail", "between", ackIt(t))
		time.Sleep(time.Minute)
		a.finish("mail", "after", ackIt(t))
		reported()
		got := a.get(t.Context(), finishedMail)
		page := got.is(http.StatusOK)
		if text := outcomes(got); !strings.HasPrefix(text, "after acked; ") || !strings.HasSuffix(text, "before acked; ") ||
			strings.Count(text, "before") != 1 || page["gaps"] != 1.0 {
			t.Errorf("%s %v", text, page)
		}
	})
}

// A queue without a list has an error that says how to get one.
func TestQueuesWithoutFinishedMessagesSayWhatToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFinishedAPI(t, memstore.New(), FinishedConfig{Queues: []string{"mail"}})
		a.send("sms", "1")
		if _, err := a.client.Topic("news").Publish(t.Context(), nil, later.In(time.Hour)); err != nil {
			t.Fatal(err)
		}
		for queue, todo := range map[string]string{"sms": "start it with --keep-finished sms",
			"topic:news": "give another one"} {
			a.get(t.Context(), "/v1/queues/"+queue+"/finished").fails(http.StatusNotFound, "not_found", "", todo)
		}
	})
}

func TestDeletedQueuesHaveNoFinishedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFinishedAPI(t, memstore.New(), FinishedConfig{Queues: []string{"*"}})
		for _, queue := range []string{"here", "asked", "elsewhere", "stays"} {
			a.finish(queue, "a", ackIt(t))
		}
		reported()
		a.server.finished.lock(func() {
			if n := len(a.server.finished.queues); n != 4 {
				t.Fatalf("%d lists", n)
			}
		})
		for _, queue := range []string{"asked", "elsewhere"} {
			if err := a.client.Queue(queue).Delete(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := a.server.deleteQueue(t.Context(), &QueuePath{Queue: "here"}); err != nil {
			t.Fatal(err)
		}
		a.get(t.Context(), "/v1/queues/asked/finished").fails(http.StatusNotFound, "not_found", "")
		a.server.finished.lock(func() {
			if a.server.finished.queues["here"] != nil || a.server.finished.queues["asked"] != nil {
				t.Error("a deleted queue has finished messages")
			}
		})
		time.Sleep(2 * sweepEvery)
		synctest.Wait()
		a.server.finished.lock(func() {
			if len(a.server.finished.queues) != 1 || a.server.finished.queues["stays"] == nil {
				t.Errorf("%v", a.server.finished.queues)
			}
		})
	})
}

func TestFinishedMessagesAreForThoseWhoMayLookAtTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFinishedAPI(t, memstore.New(), FinishedConfig{Queues: []string{"mail", "secret*"}})
		bury := func(d *later.Delivery) error { return d.Bury(t.Context(), errors.New("for ann@example.org")) }
		a.finish("mail", "a", bury)
		a.finish("secret", "a", bury)
		for _, queue := range []string{"mail", "secret"} {
			if _, err := a.client.Queue(queue).Cancel(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		}
		reported()
		as := func(who access.Identity) context.Context { return access.NewContext(t.Context(), who) }
		const secret = "/v1/queues/secret/finished"
		reader := as(access.Identity{Name: "r", Role: access.RoleRead, Queues: []string{"mail", "sms"}})
		if got := outcomes(a.get(reader, finishedMail)); got != "a cancelled; a buried; " {
			t.Error(got)
		}
		a.get(reader, secret).fails(http.StatusForbidden, "forbidden", "")
		a.get(reader, secret+"/a").fails(http.StatusForbidden, "forbidden", "")
		if found := a.get(reader, "/v1/find?q=a").body; strings.Count(found, `"finished":{`) != 1 ||
			strings.Contains(found, "secret") {
			t.Error(found)
		}
		sender := as(access.Identity{Name: "s", Role: access.RoleSend})
		a.get(sender, finishedMail).fails(http.StatusForbidden, "forbidden", "")
		hider := as(access.Identity{Name: "h", Role: access.RoleRead, HidePayloads: true})
		for _, path := range []string{finishedMail, finishedMail + "/a", "/v1/find?q=a"} {
			if shown := a.get(t.Context(), path).body; !strings.Contains(shown, "ann@") && !strings.Contains(path, "find") {
				t.Errorf("%s: nothing to hide: %s", path, shown)
			}
			if hidden := a.get(hider, path); hidden.status != http.StatusOK || strings.Contains(hidden.body, "ann@") {
				t.Errorf("%s: %s", path, hidden.body)
			}
		}
		for _, c := range []struct {
			ctx  context.Context
			want string
		}{
			{t.Context(), "[mail secret*]"}, {hider, "[mail secret*]"}, {reader, "[mail]"},
			{as(access.Identity{Role: access.RoleRead, Queues: []string{"sec*", "x*"}}), "[sec*]"},
			{as(access.Identity{Role: access.RoleSend}), "<nil>"},
		} {
			if got := fmt.Sprint(a.get(c.ctx, "/v1/server").is(http.StatusOK)["keeps_finished"]); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		}
	})
}

func TestFinishedConfigIsChecked(t *testing.T) {
	c, err := later.Open(t.Context(), "mem://")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for text, cfg := range map[string]FinishedConfig{
		"holds a brace":                     {Queues: []string{"a{"}},
		"with no * but at its end":          {Queues: []string{"a*b"}},
		"that is not Later's own":           {Queues: []string{"topic:news"}},
		"number of finished messages is -1": {Queues: []string{"a"}, MaxCount: -1},
		"give 1 to 1000000, or 0 for 10000": {Queues: []string{"a"}, MaxCount: 1_000_001},
		"age of finished messages is 1ms":   {Queues: []string{"a"}, MaxAge: time.Millisecond},
		"queue name is empty":               {Queues: []string{""}},
	} {
		_, err := New(c, Config{Finished: cfg})
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// BenchmarkFinished measures what a finished message costs: the time to take its events, and the memory.
func BenchmarkFinished(b *testing.B) {
	f := &finishedLists{FinishedConfig: FinishedConfig{Queues: []string{"*"}, MaxCount: 1_000_000, MaxAge: time.Hour},
		maxBytes: maxFinishedBytes}
	process := &wire.Process{Host: "web-1", PID: 4711, Name: "mailer"}
	now := time.Now()
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for b.Loop() {
		e := wire.Event{Queue: "mail", ID: store.NewID(), Time: wire.FormatTime(now), Attempt: 1, Process: process}
		for _, kind := range []store.EventKind{later.EventSent, later.EventClaimed, later.EventAcked} {
			e.Kind = kind
			f.add(&e, now)
		}
	}
	kept := len(f.queues["mail"].entries)
	b.ReportMetric(float64(heap()-before)/(1<<20), "heap-MiB")
	b.ReportMetric(float64(f.bytes)/float64(kept), "bytes/message")
	b.ReportMetric(float64(kept), "messages")
}
