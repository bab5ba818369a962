package server

import (
	"bytes"
	"context"
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
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestCopiesAreLimited(t *testing.T) {
	a := newAPI(t)
	a.fill(maxCopies)
	a.send("mail", "extra")
	first := a.change(http.MethodDelete, mail+"/extra?undoable=true", nil)
	op := a.bulk(`{"filter": {"state": "scheduled"}, "action": "cancel"}`)
	if op["changed"] != float64(maxCopies) {
		t.Fatalf("%v", op)
	}
	a.refuses(first, "changed more than can be kept") // the oldest makes room
	if got := a.undo(op["change"].(string)); got["changed"] != float64(maxCopies) || got["state"] != "done" {
		t.Errorf("%v", got)
	}
	a.send("mail", "extra")
	if err := a.client.Queue("mail").Reschedule(t.Context(), "extra", later.In(time.Hour)); err != nil {
		t.Fatal(err)
	}
	op = a.bulk(`{"filter": {"state": "scheduled"}, "action": "cancel"}`)
	if op["changed"] != float64(maxCopies+1) {
		t.Fatalf("%v", op)
	}
	a.refuses(op["change"].(string))
	if u := &a.server.undos; u.copies != 0 || u.bytes != 0 || u.movedN != 0 || len(u.all) != 0 || len(u.byID) != 0 {
		t.Errorf("%d copies, %d bytes, %d moves", u.copies, u.bytes, u.movedN)
	}
}

func TestBytesOfCopiesAreLimited(t *testing.T) {
	a := newAPI(t)
	large := bytes.Repeat([]byte("x"), store.MaxPayload)
	send := func(n int) {
		for range n {
			if _, err := a.client.Queue("mail").Send(t.Context(), large, later.In(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
	}
	send(15)
	op := a.bulk(`{"filter": {"state": "scheduled"}, "action": "cancel"}`)
	if got := a.undo(op["change"].(string)); got["changed"] != 15.0 {
		t.Errorf("%v", got)
	}
	send(2)
	op = a.bulk(`{"filter": {"state": "scheduled"}, "action": "cancel"}`)
	if op["changed"] != 17.0 {
		t.Fatalf("%v", op)
	}
	a.refuses(op["change"].(string))
}

func TestCopiesAreForgottenAfterTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newBubbleAPI(t, memstore.New())
		a.send("mail", "1", "2")
		cancel := func(id string) string {
			r := a.request(http.MethodDelete, mail+"/"+id+"?undoable=true")
			return r.header.Get("Later-Change")
		}
		first, second := cancel("1"), cancel("2")
		time.Sleep(keepCopies - time.Second)
		if r := a.request(http.MethodPost, "/v1/changes/"+first+"/undo"); r.status != http.StatusOK {
			t.Errorf("%s", r.body)
		}
		time.Sleep(2 * time.Second)
		if r := a.request(http.MethodPost, "/v1/changes/"+second+"/undo"); r.status != http.StatusConflict {
			t.Errorf("%s", r.body)
		}
		if len(a.server.undos.all) != 0 || a.server.undos.bytes != 0 {
			t.Error("copies are still in memory")
		}
	})
}

// request makes a request without a network.
func (a *api) request(method, path string) *reply {
	a.t.Helper()
	w := httptest.NewRecorder()
	a.server.ServeHTTP(w, httptest.NewRequestWithContext(a.t.Context(), method, path, nil))
	return &reply{a.t, path, w.Code, w.Header(), w.Body.String()}
}

func TestChangesAreSharedAndSurviveARestart(t *testing.T) {
	onTwoServers(t, func(a, b *api) {
		a.fill(3)
		pause := a.change(http.MethodPost, "/v1/queues/mail/pause", nil)
		moved := a.change(http.MethodPatch, mail+"/000?undoable=true", `{"in": "50h"}`)
		cancelled := a.change(http.MethodDelete, mail+"/001?undoable=true", nil)
		a.server.Close() // which writes them
		got, _ := b.changes("")
		want := "anyone message cancelled mail map[id:001]\nanyone message changed mail map[id:000]\n" +
			"anyone queue paused mail map[]\n"
		if got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		b.refuses(cancelled, "through another server: ask that one")
		for _, change := range []string{pause, moved} {
			if got := b.undo(change); got["changed"] != 1.0 {
				t.Errorf("%v", got)
			}
			b.refuses(change, "it was undone by anyone")
		}
		if names, err := b.client.Queues(t.Context()); err != nil || fmt.Sprint(names) != "[mail]" {
			t.Errorf("%v, %v", names, err)
		}
		for _, what := range []string{"/messages", "/export"} {
			b.do(http.MethodGet, "/v1/queues/changes:"+what, nil).fails(http.StatusBadRequest, "invalid", "",
				"GET /v1/changes")
		}
	})
}

func TestDamagedRecordsAreLeftOut(t *testing.T) {
	onEachStore(t, func(a *api) {
		a.change(http.MethodPost, "/v1/queues/mail/pause", nil)
		for i, text := range []string{"", "{", "[]", `{"who": 5}`, `{}`,
			`{"what": "future", "back": {"x": {}}, "right": "operate"}`} {
			_, err := a.client.Store().Send(t.Context(), reserved.Changes, []store.Outgoing{{
				Message: store.Message{ID: fmt.Sprint("damaged", i), Payload: []byte(text)},
				Due:     store.Due{At: time.Date(2130, 1, 1, 0, 0, 0, 0, time.UTC)}}})
			if err != nil {
				t.Fatal(err)
			}
		}
		got, _ := a.changes("")
		if !strings.HasSuffix(got, " queue paused mail map[]\n") && !strings.HasPrefix(got, "anyone queue paused") {
			t.Errorf("%q", got)
		}
		a.do(http.MethodPost, "/v1/changes/damaged1/undo", nil).fails(http.StatusNotFound, "not_found", "")
		a.refuses("damaged5", "made by another version")
	})
}

func TestListOfChangesIsTrimmed(t *testing.T) {
	a := newAPI(t)
	for i := range 2500 {
		a.server.Changed(t.Context(), fmt.Sprint("change ", i))
	}
	a.server.changes.Flush()
	stats, err := a.client.Store().Stats(t.Context(), reserved.Changes)
	if err != nil || stats.Scheduled > 1200 {
		t.Errorf("%+v, %v", stats, err)
	}
	got, _ := a.changes("?limit=2")
	if got != "anyone change 2499 <nil> map[]\nanyone change 2498 <nil> map[]\n" {
		t.Error(got)
	}
}

// failing is a store that cannot write its list of changes.
type failing struct {
	store.Store
	fails atomic.Bool
}

func (f *failing) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	if queue == reserved.Changes && f.fails.Load() {
		return nil, store.ErrUnavailable
	}
	return f.Store.Send(ctx, queue, msgs)
}

func TestChangesThatCannotBeWrittenAreListed(t *testing.T) {
	s := &failing{Store: memstore.New()}
	s.fails.Store(true)
	c, err := later.New(s)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	var mu sync.Mutex
	a := newAPIOver(t, c, Config{Logger: slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))})
	for range 3 {
		a.change(http.MethodPost, "/v1/queues/mail/pause", nil)
		a.server.changes.Flush()
	}
	if got, _ := a.changes("?limit=2"); strings.Count(got, "queue paused") != 2 {
		t.Error(got)
	}
	mu.Lock()
	if n := strings.Count(log.String(), "list of changes cannot be written"); n != 1 {
		t.Errorf("warned %d times", n)
	}
	mu.Unlock()
	s.fails.Store(false)
	a.server.changes.Flush()
	if got, _ := a.changes(""); strings.Count(got, "queue paused") != 3 {
		t.Error(got)
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	to *strings.Builder
}

func (w lockedWriter) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(text)
}
