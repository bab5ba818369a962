package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

// describe returns the numbers of messages in the buckets of the bands that have some.
func (o *Overview) describe() string {
	var text []string
	for _, b := range o.Bands {
		for i, n := range b.Counts {
			if n > 0 {
				text = append(text, fmt.Sprintf("%s/%d %d: %d", b.Name, len(b.Counts), i, n))
			}
		}
	}
	return strings.Join(text, ", ")
}

func (a *api) sendDue(queue string, due ...time.Time) {
	a.t.Helper()
	for _, at := range due {
		if _, err := a.client.Queue(queue).Send(a.t.Context(), nil, later.At(at)); err != nil {
			a.t.Fatal(err)
		}
	}
}

// bury receives a message of a queue and buries it with an error.
func (a *api) bury(queue, text string) {
	a.t.Helper()
	got, err := a.client.Queue(queue).Receive(a.t.Context(), 1)
	if err != nil {
		a.t.Fatal(err)
	}
	if err := got[0].Bury(a.t.Context(), errors.New(text)); err != nil {
		a.t.Fatal(err)
	}
}

// newBubbleAPI is newAPI for a bubble: requests need no network.
func newBubbleAPI(t *testing.T, s store.Store) *api {
	t.Helper()
	c, err := later.New(s)
	if err != nil {
		t.Fatal(err)
	}
	server, err := New(c, Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Close()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return &api{t: t, client: c, server: server}
}

// get makes a request without a network.
func (a *api) get(ctx context.Context, path string) *reply {
	a.t.Helper()
	w := httptest.NewRecorder()
	a.server.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
	return &reply{a.t, path, w.Code, w.Header(), w.Body.String()}
}

// post makes a request with a body of JSON, without a network.
func (a *api) post(ctx context.Context, path, body string) *reply {
	a.t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	a.server.ServeHTTP(w, r)
	return &reply{a.t, path, w.Code, w.Header(), w.Body.String()}
}

// overviewOf returns an overview.
func (a *api) overviewOf(ctx context.Context, query string) (o Overview) {
	a.t.Helper()
	got := a.get(ctx, "/v1/overview"+query)
	got.is(http.StatusOK)
	if err := json.Unmarshal([]byte(got.body), &o); err != nil {
		a.t.Fatal(err)
	}
	return o
}

func TestOverviewCountsEachMessageOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newBubbleAPI(t, memstore.New())
		now := time.Now()
		a.sendDue("mail", now.Add(-time.Hour), now.Add(-time.Millisecond), now, now.Add(2*time.Second-1),
			now.Add(time.Minute-time.Millisecond), now.Add(time.Minute), now.Add(time.Hour), now.Add(24*time.Hour-1))
		a.sendDue("orders", now.Add(24*time.Hour), now.Add(31*24*time.Hour-time.Millisecond), now.Add(31*24*time.Hour),
			now.Add(1000*24*time.Hour))
		o := a.overviewOf(t.Context(), "")
		want := "overdue/1 0: 2, minute/30 0: 1, minute/30 1: 1, minute/30 29: 1, hour/59 0: 1, day/46 0: 1, " +
			"month/60 0: 2, month/60 59: 1, later/1 0: 2"
		if got := o.describe(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if o.Counts != (wire.StateCounts{Scheduled: 9, Ready: 3}) || o.QueueCount != 2 || len(o.Queues) != 2 {
			t.Errorf("%+v", o)
		}
		for what, got := range map[string]string{
			o.Time: wire.FormatTime(now), o.OldestDue: wire.FormatTime(now.Add(-time.Hour)),
			o.NextDue: wire.FormatTime(now.Add(2 * time.Second)), o.Queues[0].OldestDue: o.OldestDue,
			o.Bands[0].To: o.Time, o.Bands[1].From: o.Time, o.Bands[2].From: o.Bands[1].To,
			o.Bands[5].From: o.Bands[4].To,
		} {
			if what != got || got == "" {
				t.Errorf("%s and %s", what, got)
			}
		}
		ranged := a.overviewOf(t.Context(), fmt.Sprintf("?queue=mail&from=%s&to=%s&buckets=2", wire.FormatTime(now),
			wire.FormatTime(now.Add(2*time.Minute))))
		if got := ranged.describe(); got != "range/2 0: 3, range/2 1: 1" ||
			ranged.Bands[0].From != wire.FormatTime(now) {
			t.Error(got)
		}
	})
}

func TestOverviewOfAQueueHasItsRatesAndHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newBubbleAPI(t, memstore.New())
		a.send("mail", "1")
		a.overviewOf(t.Context(), "") // from now on events are sampled
		time.Sleep(10 * time.Second)
		a.send("mail", "2", "3", "4")
		for i := range 3 {
			time.Sleep(5 * time.Second)
			got, err := a.client.Queue("mail").Receive(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				err = got[0].Nack(t.Context(), time.Hour, fmt.Errorf("full"))
			} else {
				err = got[0].Ack(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		q := a.overviewOf(t.Context(), "").Queues[0]
		for what, counts := range map[string][]int64{"sent 3 0 0 0 0": q.History.Sent,
			"handled 0 0 1 1 0": q.History.Handled, "failed 0 1 0 0 0": q.History.Failed} {
			name, want, _ := strings.Cut(what, " ")
			if got := strings.Trim(fmt.Sprint(counts[55:]), "[]"); len(counts) != 60 || got != want {
				t.Errorf("%s: %v, want %s at the end", name, counts, want)
			}
		}
		if q.LatenessSamples != 3 || q.LatenessP50 != 15e9 || q.LatenessP99 != 15e9 {
			t.Errorf("%d: %v, %v", q.LatenessSamples, q.LatenessP50, q.LatenessP99)
		}
		if q.SentPerSecond < 4/70.0 || q.SentPerSecond > 4/60.0 || q.HandledPerSecond < 2/70.0 ||
			q.FailedPerSecond > 1/60.0 {
			t.Errorf("%+v", q)
		}
		time.Sleep(5 * time.Minute)
		q = a.overviewOf(t.Context(), "").Queues[0]
		if q.LatenessSamples != 0 || q.History != nil {
			t.Errorf("later %+v", q)
		}
	})
}

func TestOverviewSamplesABoundedNumberOfQueues(t *testing.T) {
	s := &samples{queues: map[string]*sample{}}
	begin := time.Unix(1_000_000, 0)
	sent := func(queue string, at time.Time) {
		s.add([]recentEvent{{Event: wire.Event{Kind: later.EventSent, Queue: queue}}}, 0, at)
	}
	for i := range maxSampled + 10 {
		sent(fmt.Sprint(i), begin)
	}
	sent("0", begin.Add(historySlots*historyStep))
	if n := len(s.queues); n != maxSampled {
		t.Errorf("%d queues", n)
	}
	sent("new", begin.Add(historySlots*historyStep))
	if n := len(s.queues); n != 2 {
		t.Errorf("%d queues, want 0 and new", n)
	}
	for i := range 2 * maxLatenesses {
		s.add([]recentEvent{{Event: wire.Event{Kind: later.EventClaimed, Queue: "new", Lateness: wire.Duration(i)}}},
			0, begin)
	}
	var q OverviewQueue
	s.of([]string{"new"}, begin)["new"].show(&q)
	if q.LatenessSamples != maxLatenesses || q.LatenessP50 != 383 || q.LatenessP99 != 509 {
		t.Errorf("%+v", q)
	}
}

func TestOverviewHasOnlyVisibleQueues(t *testing.T) {
	a := newAPI(t)
	a.send("mail", "1")
	a.send("orders", "1", "2")
	for name, queue := range map[string]string{"a": "mail", "b": "orders"} {
		put := later.Schedule{Name: name, Queue: queue, When: recurrence.Spec{Every: time.Hour}}
		if _, err := a.client.Schedules().Put(t.Context(), put); err != nil {
			t.Fatal(err)
		}
	}
	seen := func(who *access.Identity, query string) string {
		ctx := t.Context()
		if who != nil {
			ctx = access.NewContext(ctx, *who)
		}
		o := a.overviewOf(ctx, query)
		text := fmt.Sprint(o.Counts.Ready, o.QueueCount)
		for _, q := range o.Queues {
			text += " " + q.Queue
		}
		for _, run := range o.Runs[:min(2, len(o.Runs))] {
			text += " " + run.Schedule + ">" + run.Queue
		}
		return text
	}
	limited := &access.Identity{Name: "x", Role: access.RoleRead, Queues: []string{"mail"}}
	scheduler := &access.Identity{Name: "x", Role: access.RoleRead, Queues: []string{"orders", "schedules:"}}
	for _, c := range []struct {
		who         *access.Identity
		query, want string
	}{
		{nil, "", "3 2 mail orders a>mail b>orders"},
		{nil, "?queue=mail", "1 1 mail a>mail a>mail"},
		{nil, "?queue=none", "0 0"},
		{nil, "?queue=schedules:", "0 1 schedules:"},
		{limited, "", "1 1 mail"},
		{scheduler, "", "2 1 orders b>orders b>orders"},
	} {
		got := seen(c.who, c.query)
		if c.who == nil && c.query == "" { // both are due at the same time
			got = strings.Replace(got, "b>orders a>mail", "a>mail b>orders", 1)
		}
		if got != c.want {
			t.Errorf("%v%s: got %q, want %q", c.who, c.query, got, c.want)
		}
	}
	all, named := &overviewRequest{}, &overviewRequest{who: access.Identity{Queues: []string{"all"}}, controlled: true}
	if all.key() == named.key() {
		t.Error("a token for a queue named all shares the overview of all queues")
	}
	a.as(*limited).do(http.MethodGet, "/v1/overview/watch?queue=orders", nil).
		fails(http.StatusForbidden, "forbidden", "query.queue")
	sender := a.as(access.Identity{Name: "x", Role: access.RoleSend})
	sender.do(http.MethodGet, "/v1/overview/watch", nil).fails(http.StatusForbidden, "forbidden", "")
}

func TestOverviewReadsABoundedNumberOfQueues(t *testing.T) {
	a := newAPI(t)
	for i := range maxOverviewQueues + 7 {
		a.send(fmt.Sprintf("q%03d", i), "1")
	}
	o := a.overviewOf(t.Context(), "")
	if len(o.Queues) != maxOverviewQueues || o.QueueCount != maxOverviewQueues+7 || o.QueuesLeftOut != 7 ||
		o.Counts.Ready != maxOverviewQueues || o.Queues[0].Queue != "q000" {
		t.Errorf("%d of %d queues, %d left out, %+v", len(o.Queues), o.QueueCount, o.QueuesLeftOut, o.Counts)
	}
}

// tested is a store that counts the readings of overviews, delays them, and has them fail if that is wanted.
type tested struct {
	store.Store
	readings atomic.Int32
	failure  atomic.Pointer[error]
	delay    time.Duration
}

// Stats is called once by each reading for the store's clock.
func (s *tested) Stats(ctx context.Context, queue string) (store.Stats, error) {
	if queue == reserved.Schedules {
		s.readings.Add(1)
		time.Sleep(s.delay)
		if err := s.failure.Load(); err != nil {
			return store.Stats{}, *err
		}
	}
	return s.Store.Stats(ctx, queue)
}

// overviewStream collects the data that a client of the stream receives.
type overviewStream struct {
	*httptest.ResponseRecorder
	mu     sync.Mutex
	events []string
	// problems are the latest problems of the store, and times how often they came.
	problems string
	times    int
	block    chan struct{} // if it is not nil, each write waits for it
}

func (w *overviewStream) Write(text []byte) (int, error) {
	if w.block != nil {
		<-w.block
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for block := range strings.SplitSeq(string(text), "\n\n") {
		if list, ok := strings.CutPrefix(block, "event: problems\ndata: "); ok {
			w.problems = list
			w.times++
		} else if strings.HasPrefix(block, "event: ") {
			w.events = append(w.events, block)
		}
	}
	return len(text), nil
}

// take returns the events since the last call.
func (w *overviewStream) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return events
}

// watchOverview begins to watch in a bubble.
func (a *api) watchOverview(w *overviewStream, query string) (end func()) {
	w.ResponseRecorder = httptest.NewRecorder()
	ctx, cancel := context.WithCancel(a.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.server.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/overview/watch"+query, nil))
	}()
	return func() {
		cancel()
		<-ended
	}
}

func TestOverviewWatchersShareAReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tested{Store: memstore.New()}
		a := newBubbleAPI(t, s)
		a.send("mail", "1")
		watchers := make([]overviewStream, 100)
		for i := range watchers {
			defer a.watchOverview(&watchers[i], "")()
		}
		time.Sleep(10*time.Second - time.Millisecond)
		synctest.Wait()
		if n := s.readings.Load(); n != 20 {
			t.Errorf("%d readings in 10 s, want 20", n)
		}
		for i := range watchers {
			if events := watchers[i].take(); len(events) != 20 || !strings.HasPrefix(events[19], `event: overview
data: {"time":"`) || !strings.Contains(events[19], `"ready":1`) {
				t.Fatalf("watcher %d: %d, %s", i, len(events), events)
			}
		}
	})
}

func TestOverviewIsReadLessOftenIfThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tested{Store: memstore.New(), delay: 200 * time.Millisecond}
		a := newBubbleAPI(t, s)
		w := &overviewStream{}
		defer a.watchOverview(w, "")()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := len(w.take()); n != 10 {
			t.Errorf("%d overviews in 20 s, want one each 2 s", n)
		}
	})
}

func TestOverviewOfASlowClientIsTheLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newBubbleAPI(t, memstore.New())
		slow, quick := &overviewStream{block: make(chan struct{})}, &overviewStream{}
		endSlow, endQuick := a.watchOverview(slow, ""), a.watchOverview(quick, "")
		defer endQuick()
		defer endSlow()
		defer close(slow.block)
		synctest.Wait()
		a.send("mail", "1")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := len(quick.take()); n < 20 {
			t.Errorf("a slow client delays others: %d", n)
		}
		slow.block <- struct{}{} // the first one, of before
		slow.block <- struct{}{}
		synctest.Wait()
		events := slow.take()
		if last := events[len(events)-1]; len(events) > 2 || !strings.Contains(last, `"ready":1`) {
			t.Errorf("%q", events)
		}
	})
}

func TestOverviewWatchersLearnOfProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tested{Store: memstore.New()}
		a := newBubbleAPI(t, s)
		w := &overviewStream{}
		defer a.watchOverview(w, "")()
		time.Sleep(250 * time.Millisecond)
		w.take()
		failure := error(store.ErrUnavailable)
		s.failure.Store(&failure)
		time.Sleep(10 * time.Second)
		events := w.take()
		const want = "event: problem\n" + `data: {"type":"` + problem.TypePrefix +
			`unavailable","title":"Service Unavailable","status":503,`
		if len(events) != 3 || !strings.HasPrefix(events[0], want) || events[2] != events[0] ||
			strings.Contains(events[0], overviewTimeout.String()) {
			t.Errorf("%q", events)
		}
		s.failure.Store(nil)
		time.Sleep(time.Second)
		if events = w.take(); len(events) != 2 || !strings.HasPrefix(events[0], "event: overview\n") {
			t.Errorf("%q", events)
		}
	})
}

func TestOverviewsThatDifferAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newBubbleAPI(t, memstore.New())
		var ends []func()
		for i := range maxOverviews / 2 { // the other half is for others
			ends = append(ends, a.watchOverview(&overviewStream{}, fmt.Sprintf("?queue=q%d", i)))
		}
		synctest.Wait()
		a.get(t.Context(), "/v1/overview/watch?queue=more").fails(http.StatusTooManyRequests, "unavailable", "")
		again := &overviewStream{}
		endAgain := a.watchOverview(again, "?queue=q7")
		synctest.Wait()
		if len(again.take()) == 0 {
			t.Error("an overview that is watched already is refused")
		}
		for _, end := range append(ends, endAgain) {
			end()
		}
		if n := len(a.server.overviews.all) + int(a.server.waits.Taken()); n != 0 {
			t.Errorf("%d are left", n)
		}
	})
}

func TestCloseEndsOverviews(t *testing.T) {
	a := newAPI(t)
	r := a.watch("/v1/overview/watch")
	for r.block() == "" {
	}
	a.server.Close()
	for {
		if _, err := r.lines.ReadString('\n'); err != nil {
			break
		}
	}
}
