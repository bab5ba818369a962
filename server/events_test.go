package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

// eventReader reads a stream of events.
type eventReader struct {
	t      testing.TB
	lines  *bufio.Reader
	cancel context.CancelFunc
	id     string // the last one
}

// watch opens a stream, and waits until it is watching.
func (a *api) watch(path string, headers ...string) *eventReader {
	a.t.Helper()
	ctx, cancel := context.WithCancel(a.t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+path, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	answer, err := a.http.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		a.t.Fatalf("%s: %v", path, answer)
	}
	a.t.Cleanup(func() {
		cancel()
		answer.Body.Close()
	})
	return &eventReader{t: a.t, lines: bufio.NewReader(answer.Body), cancel: cancel}
}

// block reads the text up to a blank line and returns its data, which is empty for a heartbeat.
func (r *eventReader) block() (data string) {
	r.t.Helper()
	for {
		line, err := r.lines.ReadString('\n')
		if err != nil {
			r.t.Fatal(err)
		}
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			return data
		}
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			r.id = id
		}
		if text, ok := strings.CutPrefix(line, "data: "); ok {
			data = text
		}
	}
}

// next returns the next event. It skips the send of "before", which creates the queue.
func (r *eventReader) next() map[string]any {
	r.t.Helper()
	for {
		data := r.block()
		if data == "" {
			continue
		}
		var e map[string]any
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			r.t.Fatalf("%v in %s", err, data)
		}
		if e["kind"] == "sent" && e["id"] == "before" {
			continue
		}
		return e
	}
}

// expects reads events of a kind and of these ids.
func (r *eventReader) expects(kind string, ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		if e := r.next(); e["kind"] != kind || e["id"] != id {
			r.t.Fatalf("%v, want %s of %s", e, kind, id)
		}
	}
}

func (a *api) send(queue string, ids ...string) {
	a.t.Helper()
	for _, id := range ids {
		if _, err := a.client.Queue(queue).Send(a.t.Context(), []byte("x"), later.WithID(id)); err != nil {
			a.t.Fatal(err)
		}
	}
}

func TestEventsArriveAsTheyHappen(t *testing.T) {
	a := newAPI(t)
	a.send("mail", "before")
	all, mail := a.watch("/v1/events"), a.watch("/v1/events?queue=mail&kind=sent&kind=cancelled")
	one := a.watch("/v1/events?id=2")
	for _, r := range []*eventReader{all, mail, one} {
		r.block()
	}
	a.send("mail", "1", "2")
	a.do(http.MethodPost, "/v1/queues/mail/messages/1/run", nil).is(http.StatusOK)
	a.do(http.MethodDelete, "/v1/queues/mail/messages/2", nil).is(http.StatusOK)
	all.expects("sent", "1", "2")
	all.expects("rescheduled", "1")
	all.expects("cancelled", "2")
	mail.expects("sent", "1", "2")
	mail.expects("cancelled", "2")
	one.expects("sent", "2")
	one.expects("cancelled", "2")
}

func TestEventsGoOnAfterTheLastEventID(t *testing.T) {
	a := newAPI(t)
	a.send("mail", "before")
	r := a.watch("/v1/events?queue=mail")
	r.block()
	a.send("mail", "1")
	r.expects("sent", "1")
	r.cancel()
	a.send("mail", "2", "3")
	again := a.watch("/v1/events?queue=mail", "Last-Event-ID", r.id)
	again.expects("sent", "2", "3")
	for _, unknown := range []string{"nonsense", r.id + "0000000", "other-1"} {
		lost := a.watch("/v1/events?queue=mail", "Last-Event-ID", unknown)
		if e := lost.next(); e["kind"] != "missed" || e["missed"] != nil {
			t.Errorf("after %s: %v", unknown, e)
		}
	}
}

func TestHeartbeatsMoveTheLastEventID(t *testing.T) {
	a := newAPI(t)
	a.server.heartbeat = time.Millisecond
	a.send("mail", "before")
	r := a.watch("/v1/events?kind=acked")
	r.block()
	first := r.id
	a.send("mail", "1")
	for r.id == first {
		if data := r.block(); data != "" {
			t.Fatal(data)
		}
	}
}

func TestEventsOfAQueueBeginBeforeItExists(t *testing.T) {
	a := newAPI(t)
	r := a.watch("/v1/events?queue=new")
	a.send("new", "a")
	r.expects("sent", "a")
}

func TestEventsRequestsThatAreWrongNameTheField(t *testing.T) {
	a := newAPI(t)
	a.do(http.MethodGet, "/v1/events?kind=snet", nil).fails(http.StatusBadRequest, "invalid", "query.kind", "snoozed")
	a.do(http.MethodGet, "/v1/events?queue=a%7B", nil).fails(http.StatusBadRequest, "invalid", "query.queue")
	a.do(http.MethodGet, "/v1/events?all=1", nil).fails(http.StatusBadRequest, "invalid", "query.all")
}

func TestEventsOfOthersAreNotShown(t *testing.T) {
	a := newAPI(t)
	a.send("mail", "before")
	a.send("orders", "before")
	limited := a.as(access.Identity{Name: "page", Role: access.RoleRead, Queues: []string{"mail"}, HidePayloads: true})
	limited.do(http.MethodGet, "/v1/events?queue=orders", nil).fails(http.StatusForbidden, "forbidden", "query.queue")
	r := limited.watch("/v1/events")
	r.block()
	open := a.watch("/v1/events?kind=buried")
	open.block()
	a.send("orders", "o")
	a.bury("mail", "secret")
	if e := open.next(); e["error"] != "secret" {
		t.Errorf("%v", e)
	}
	r.expects("claimed", "before")
	if e := r.next(); e["kind"] != "buried" || e["error"] != nil {
		t.Errorf("%v", e)
	}
}

// counted counts calls of Watch.
type counted struct {
	store.Store
	watches atomic.Int32
}

func (s *counted) Watch(ctx context.Context, queues []string) (store.Watcher, error) {
	s.watches.Add(1)
	return s.Store.Watch(ctx, queues)
}

func TestManyClientsShareAWatch(t *testing.T) {
	s := &counted{Store: memstore.New()}
	c, err := later.New(s)
	if err != nil {
		t.Fatal(err)
	}
	server, err := New(c, Config{})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(server)
	t.Cleanup(func() {
		server.Close()
		h.Close()
		c.Close()
	})
	a := &api{t: t, client: c, server: server, url: h.URL, http: h.Client()}
	a.send("mail", "before")
	readers := make([]*eventReader, 100)
	var begun sync.WaitGroup
	for i := range readers {
		begun.Go(func() { readers[i] = a.watch("/v1/events"); readers[i].block() })
	}
	begun.Wait()
	a.send("mail", "1")
	for _, r := range readers {
		r.expects("sent", "1")
	}
	if n := s.watches.Load(); n != 1 {
		t.Errorf("%d watches", n)
	}
	for i := range maxFeeds + 10 { // further sets of queues share that of all
		queue := fmt.Sprintf("q%d", i)
		a.send(queue, "before")
		r := a.watch("/v1/events?queue=" + queue)
		r.block()
		r.cancel()
	}
	if n := s.watches.Load(); n != maxFeeds {
		t.Errorf("%d watches, want %d", n, maxFeeds)
	}
}

// stalled is a client that reads nothing from its connection until it is released.
type stalled struct {
	*httptest.ResponseRecorder
	writing  chan struct{} // has an item for each write that waits
	release  chan error    // the result of the next write
	deadline time.Time
}

func (w *stalled) SetWriteDeadline(t time.Time) error {
	w.deadline = t
	return nil
}

func (w *stalled) Write(text []byte) (int, error) {
	w.writing <- struct{}{}
	if err := <-w.release; err != nil {
		return 0, err
	}
	return w.ResponseRecorder.Write(text)
}

func TestSlowReaderOfEventsDelaysNobody(t *testing.T) {
	f := &feed{epoch: "e"}
	w := &stalled{ResponseRecorder: httptest.NewRecorder(), writing: make(chan struct{}), release: make(chan error)}
	stream := &eventStream{feed: f, filter: &eventFilter{see: visible(t.Context())},
		sseWriter: sseWriter{w: w, control: http.NewResponseController(w)}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stream.run(t.Context(), time.Hour)
	}()
	<-w.writing
	for i := range maxRecent + 5 { // while the reader is stalled
		f.add(wire.Event{Kind: later.EventSent, ID: fmt.Sprint(i)})
	}
	w.release <- nil
	<-w.writing
	w.release <- nil
	<-w.writing
	if !strings.Contains(w.Body.String(), `"kind":"missed","missed":5}`) {
		t.Errorf("%.200s", w.Body)
	}
	w.release <- os.ErrDeadlineExceeded
	<-ended
	if until := time.Until(w.deadline); until <= 0 || until > stallTimeout {
		t.Errorf("a write may take %v", until)
	}
}

func TestFeedCountsWhatAReaderMissed(t *testing.T) {
	f := &feed{epoch: "e"}
	for i := range maxRecent + 10 {
		f.add(wire.Event{Kind: later.EventSent, ID: fmt.Sprint(i)})
	}
	events, missed := f.read(0, f.streams.join())
	if missed != 10 || len(events) != maxRead || events[0].ID != "10" {
		t.Errorf("missed %d, then %d from %s", missed, len(events), events[0].ID)
	}
	if events, missed = f.read(maxRecent+9, f.streams.join()); missed != 0 || len(events) != 1 ||
		events[0].ID != fmt.Sprint(maxRecent+9) {
		t.Errorf("missed %d, then %v", missed, events)
	}
	if n, known := f.position("e-7"); n != 7 || !known {
		t.Errorf("%d, %v", n, known)
	}
	w := httptest.NewRecorder()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stream := &eventStream{feed: f, filter: &eventFilter{see: visible(ctx), id: "none"},
		sseWriter: sseWriter{w: w, control: http.NewResponseController(w)}}
	stream.run(ctx, time.Hour)
	if !strings.Contains(w.Body.String(), `"kind":"missed","missed":10}`) || stream.next != maxRecent+10 {
		t.Errorf("at %d: %s", stream.next, w.Body)
	}
}

func TestCloseEndsEvents(t *testing.T) {
	a := newAPIWith(t, "mem://", Config{MaxWaits: 1})
	a.send("mail", "before")
	r := a.watch("/v1/events")
	r.block()
	a.do(http.MethodGet, "/v1/events", nil).fails(http.StatusServiceUnavailable, "unavailable", "")
	a.server.Close()
	if rest, err := r.lines.ReadString(0); rest != "" || err == nil {
		t.Errorf("%q, %v", rest, err)
	}
	a.do(http.MethodGet, "/v1/events", nil).fails(http.StatusServiceUnavailable, "closed", "")
}
