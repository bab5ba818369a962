package pagetest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/server"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/server/page"
)

// site is a server with the page, and a client of its store.
type site struct {
	testing.TB
	client *later.Client
	url    string // without a slash at its end
	*traffic
}

// traffic counts the requests to the API of a site.
type traffic struct {
	requests, bytes atomic.Int64 // requests other than streams, and the bytes of all replies
	streams         atomic.Int64 // under way
}

// count counts the requests to a handler.
func (c *traffic) count(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case !strings.HasPrefix(path, "/v1/"):
		case path == "/v1/events", path == "/v1/overview/watch":
			c.streams.Add(1)
			defer c.streams.Add(-1)
		default:
			c.requests.Add(1)
		}
		h.ServeHTTP(&countedReply{w, c}, r)
	})
}

// countedReply counts its bytes.
type countedReply struct {
	http.ResponseWriter
	traffic *traffic
}

func (r *countedReply) Write(text []byte) (int, error) {
	r.traffic.bytes.Add(int64(len(text)))
	return r.ResponseWriter.Write(text)
}

func (r *countedReply) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// awaitStreams waits until so many streams are under way.
func (s *site) awaitStreams(n int64) {
	s.Helper()
	limit := time.After(eventTimeout)
	for tick := time.NewTicker(10 * time.Millisecond); s.streams.Load() != n; {
		select {
		case <-tick.C:
		case <-limit:
			s.Fatalf("%d streams are under way, want %d", s.streams.Load(), n)
		}
	}
}

// newSite serves a store, in memory if its URL is "", under a path, and with the access control of a file unless that
// is "".
func newSite(t testing.TB, store, path, config string) *site {
	t.Helper()
	if store == "" {
		store = "mem://"
	}
	client, err := later.Open(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	return newSiteOf(t, client, path, config)
}

// newSiteOf is newSite with a client, which it closes.
func newSiteOf(t testing.TB, client *later.Client, path, config string) *site {
	t.Helper()
	return newSiteKeeping(t, client, path, config, server.FinishedConfig{})
}

// newSiteKeeping is newSiteOf with lists of finished messages.
func newSiteKeeping(t testing.TB, client *later.Client, path, config string, finished server.FinishedConfig) *site {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	api, err := server.New(client, server.Config{Logger: log, Finished: finished})
	if err != nil {
		t.Fatal(err)
	}
	api.WatchFinished()
	control, err := access.New(access.Config{File: config, Loopback: true, Page: true, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+access.LoginPath, control.Login)
	mux.HandleFunc("POST "+access.LogoutPath, control.Logout)
	mux.Handle("/", page.Handler(api))
	outer := http.NewServeMux()
	counts := &traffic{}
	outer.Handle(path+"/", http.StripPrefix(path, counts.count(control.Handler(mux))))
	web := httptest.NewServer(outer)
	t.Cleanup(func() {
		api.Close()
		web.Close()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return &site{TB: t, client: client, url: web.URL + path, traffic: counts}
}

// with returns the site for a part of its test.
func (s *site) with(t testing.TB) *site {
	return &site{TB: t, client: s.client, url: s.url, traffic: s.traffic}
}

// send sends a message.
func (s *site) send(queue, payload string, options ...later.SendOption) (id string) {
	s.Helper()
	id, err := s.client.Queue(queue).Send(s.Context(), []byte(payload), options...)
	if err != nil {
		s.Fatal(err)
	}
	return id
}

// get returns a message.
func (s *site) get(queue, id string) *later.Info {
	s.Helper()
	m, err := s.client.Queue(queue).Get(s.Context(), id)
	if err != nil {
		s.Fatal(err)
	}
	return m
}

// due returns the due time of a message.
func (s *site) due(queue, id string) time.Time {
	s.Helper()
	return s.get(queue, id).Due
}

// wantDue checks the due time of a message.
func (s *site) wantDue(queue, id string, want time.Time) {
	s.Helper()
	if got := s.due(queue, id); !got.Equal(want) {
		s.Errorf("%s is due %v, want %v", id, got, want)
	}
}

// work runs a worker until stop is called, which returns when it has ended.
func (s *site) work(cfg later.WorkerConfig, queue string, handler later.HandlerFunc) (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	w := later.NewWorker(s.client, cfg)
	w.Handle(queue, handler)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() {
		s.Helper()
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			s.Error(err)
		}
	}
}

// schedule stores a schedule of the queue reports with a cron expression.
func (s *site) schedule(name, cron string) {
	s.Helper()
	_, err := s.client.Schedules().Put(s.Context(), later.Schedule{Name: name, Queue: "reports",
		When: recurrence.Spec{Cron: cron, TimeZone: "Europe/Berlin"}, Payload: []byte(`{"report":1}`)})
	if err != nil {
		s.Fatal(err)
	}
}
