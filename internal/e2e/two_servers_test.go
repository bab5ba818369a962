package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/redisstore"
	"github.com/laterq/later/remotestore"
)

// twoServers are servers of stores on the same Redis, behind one address. The first claim is held back on its way to
// the first server, and its client takes it for lost; everything else goes to the second server.
type twoServers struct {
	first, second http.Handler

	mu   sync.Mutex
	late *http.Request
}

func (s *twoServers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/claim") && s.hold(r) {
		panic(http.ErrAbortHandler) // closes the connection
	}
	s.second.ServeHTTP(w, r)
}

// hold keeps the first request that it is given, and reports whether it did.
func (s *twoServers) hold(r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late != nil {
		return false
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		s.late = r.Clone(context.Background())
		s.late.Body = io.NopCloser(bytes.NewReader(body))
	}
	return true
}

// deliver has the first server answer the late claim. No client receives the reply.
func (s *twoServers) deliver(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	reply := httptest.NewRecorder()
	if s.first.ServeHTTP(reply, s.late); reply.Code != http.StatusOK {
		t.Errorf("the late claim is answered %d %s", reply.Code, reply.Body)
	}
}

// A client repeats a claim through another server. The first attempt arrives late, while a worker handles the message
// of the second reply, which has a successor by then. The late claim must not give the successor a second holder, and
// the worker must learn that its message was cancelled.
func TestLateClaimLeavesTheHolderAlone(t *testing.T) {
	redis := redistest.Shared(t)
	silent := slog.New(slog.DiscardHandler)
	handler := func() http.Handler {
		s := redisstore.New(redis.Client(t))
		h, err := remotestore.NewHandler(s, silent)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			h.Close()
			s.Close()
		})
		return h
	}
	servers := &twoServers{first: handler(), second: handler()}
	front := httptest.NewServer(servers)
	t.Cleanup(front.Close)
	remote, err := remotestore.New(front.URL, remotestore.WithLogger(silent))
	if err != nil {
		t.Fatal(err)
	}
	c, err := later.New(remote, later.WithLogger(silent))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	q := c.Queue(newQueueName(t))
	sendBatch(t, q, []later.Outgoing{{ID: "followed", Payload: []byte("first")}, {ID: "cancelled"}})

	started, lost, release := make(chan string, 10), make(chan error, 10), make(chan struct{})
	work(t, c, later.WorkerConfig{Concurrency: 3, Lease: 2 * time.Second, ShutdownTimeout: time.Second}, q.Name(),
		func(ctx context.Context, m *later.Message) error {
			started <- m.ID + " " + string(m.Payload)
			if string(m.Payload) == "second" {
				return nil
			}
			select {
			case <-ctx.Done():
				lost <- context.Cause(ctx)
			case <-release:
			}
			return nil
		})
	next := func() string {
		t.Helper()
		select {
		case run := <-started:
			return run
		case <-time.After(patience):
			t.Fatal("no handler started")
			return ""
		}
	}
	if a, b := next(), next(); a+b != "cancelled followed first" && b+a != "cancelled followed first" {
		t.Fatalf("handlers of %q and %q", a, b)
	}
	if _, err := q.Cancel(bounded(t), "cancelled"); err != nil {
		t.Fatal(err)
	}
	send(t, q, "second", later.WithID("followed"), later.OnDuplicate(later.Follow()))
	servers.deliver(t)

	select {
	case err := <-lost:
		if !errors.Is(err, later.ErrLeaseLost) {
			t.Errorf("the handler of the cancelled message is told %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the worker did not learn of the cancel")
	}
	if in := get(t, q, "followed"); in.State != later.StateLeased || !in.Follows || len(started) > 0 {
		t.Errorf("the followed message is %+v, and %d handlers have started", in, len(started))
	}
	close(release)
	if run := next(); run != "followed second" {
		t.Errorf("the next handler is of %q", run)
	}
	for len(lost) > 0 {
		t.Errorf("a handler lost its message: %v", <-lost)
	}
}
