package remotestore_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/internal/tlstest"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/redisstore"
	"github.com/laterq/later/remotestore"
	"github.com/laterq/later/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var silent = slog.New(slog.DiscardHandler)

// serve serves a store in memory, and returns the server's URL.
func serve(t testing.TB, around func(http.Handler) http.Handler) (url string) {
	t.Helper()
	return listen(t, around(handler(t, memstore.New())))
}

// handler returns a Handler for a store, which it closes in the end.
func handler(t testing.TB, s store.Store) http.Handler {
	t.Helper()
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

func listen(t testing.TB, h http.Handler) (url string) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

func plain(h http.Handler) http.Handler { return h }

func open(t testing.TB, url string, opts ...remotestore.Option) *remotestore.Store {
	t.Helper()
	s, err := remotestore.New(url, append(opts, remotestore.WithLogger(silent))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func send(t testing.TB, s store.Store, ids ...string) {
	t.Helper()
	var msgs []store.Outgoing
	for _, id := range ids {
		msgs = append(msgs, store.Outgoing{Message: store.Message{ID: id, Payload: []byte("x")}})
	}
	results, err := s.Send(t.Context(), "q", msgs)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r.Duplicate || r.Err != nil {
			t.Errorf("%s: %+v", ids[i], r)
		}
	}
}

// losing drops the reply to the first attempt at each call, after the call was executed.
func losing(h http.Handler) http.Handler { return losingFirst(h, h) }

// losingFirst is like losing, and has one handler execute the first attempts and another one the others.
func losingFirst(h, others http.Handler) http.Handler {
	var mu sync.Mutex
	lost := map[string]bool{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		mu.Lock()
		first := !lost[string(body)]
		lost[string(body)] = true
		mu.Unlock()
		if first {
			h.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler) // closes the connection
		}
		others.ServeHTTP(w, r)
	})
}

func TestCallWhoseReplyIsLostTakesEffectOnce(t *testing.T) {
	wantEffectsOnce(t, open(t, serve(t, losing)))
}

// A server may be behind a balancer, or be started again: its Redis remembers the calls that the server before it
// executed.
func TestCallWhoseReplyIsLostWithTheServerTakesEffectOnce(t *testing.T) {
	rdb := redistest.Start(t)
	opened := func() http.Handler { return handler(t, redisstore.New(rdb.Client(t), redisstore.WithLogger(silent))) }
	wantEffectsOnce(t, open(t, listen(t, losingFirst(opened(), opened()))))
}

// wantEffectsOnce makes calls of all kinds to a store that executes each several times.
func wantEffectsOnce(t *testing.T, s *remotestore.Store) {
	t.Helper()
	ctx := t.Context()
	send(t, s, "a", "b")
	c, err := s.Claim(ctx, "q", store.ClaimRequest{Max: 1, Lease: time.Minute})
	if err != nil || len(c.Messages) != 1 || c.Messages[0].ID != "a" {
		t.Fatalf("%+v, %v", c, err)
	}
	settled, err := s.Settle(ctx, "q", []store.Settlement{{Receipt: c.Messages[0].Receipt, Action: store.Ack}})
	if err != nil || settled[0].Err != nil {
		t.Errorf("%+v, %v", settled, err)
	}
	purged, err := s.Purge(ctx, "q", store.Selection{State: store.StateReady})
	if err != nil || purged.Done != 1 {
		t.Errorf("%+v, %v", purged, err)
	}
	if _, err := s.Report(ctx, []store.Report{{Queue: "q"}}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a report is not repeated, and returns %v", err)
	}
	if stats, err := s.Stats(ctx, "q"); err != nil || stats.Ready+stats.Leased != 0 {
		t.Errorf("%+v, %v", stats, err)
	}
}

func TestRepeatedRequestWaitsForTheFirst(t *testing.T) {
	// The first attempt is executed when its client has given up and asks again.
	var attempts atomic.Int32
	again := make(chan struct{})
	s := open(t, serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			switch attempts.Add(1) {
			case 1:
				panic(http.ErrAbortHandler)
			case 2:
				repeated := r.Clone(context.WithoutCancel(r.Context()))
				repeated.Body = io.NopCloser(bytes.NewReader(body))
				go func() {
					h.ServeHTTP(httptest.NewRecorder(), repeated)
					close(again)
				}()
			}
			h.ServeHTTP(w, r)
		})
	}))
	send(t, s, "a")
	<-again
	if stats, err := s.Stats(t.Context(), "q"); err != nil || stats.Ready != 1 {
		t.Errorf("%+v, %v", stats, err)
	}
}

func TestAnswersThatAreNotOfAStoreHaveTheirKind(t *testing.T) {
	for status, want := range map[int]error{
		http.StatusUnauthorized: store.ErrUnauthenticated, http.StatusForbidden: store.ErrForbidden,
		http.StatusNotFound: store.ErrMisconfigured, http.StatusFound: store.ErrMisconfigured,
		http.StatusOK: store.ErrMisconfigured, http.StatusBadRequest: store.ErrUnsupported,
		http.StatusUnsupportedMediaType: store.ErrUnsupported, http.StatusRequestEntityTooLarge: store.ErrTooLarge,
		http.StatusBadGateway: store.ErrUnavailable, http.StatusTooManyRequests: store.ErrUnavailable,
	} {
		var calls atomic.Int32
		url := serve(t, func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				w.Header().Set("Location", "/elsewhere")
				http.Error(w, "of a proxy", status)
			})
		})
		err := open(t, url, remotestore.RetryFor(-1)).Ping(t.Context())
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "of a proxy") || calls.Load() != 1 {
			t.Errorf("%d: %v after %d calls, want %v", status, err, calls.Load(), want)
		}
	}
}

func TestNothingListening(t *testing.T) {
	s := open(t, "http://127.0.0.1:1", remotestore.RetryFor(-1))
	if err := s.Ping(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	if s.Linked("q", "r") {
		t.Error("linked, without an answer")
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := open(t, "http://127.0.0.1:1").Ping(ctx); !errors.Is(err, cause) {
		t.Errorf("%v, want the cause of its context", err)
	}
}

func TestWrongURLs(t *testing.T) {
	for url, want := range map[string]string{
		"ftp://host": "cannot be read", "http://": "cannot be read", "http://h:x": "cannot be read",
		"http://user:secret@h?a=1": "xxxxx", "http://h#part": "cannot be read", "http://secret@h": "and no password",
		"http://:@h": "and no password", "http://h?tls_ca=x": "http has none", "https://h?tls=x": "https has tls_ca",
		"https://h?tls_ca=": "empty or repeated", "https://h?tls_ca=x&tls_ca=y": "empty or repeated",
		"https://h?tls_ca=/none": "tls_ca cannot be read", "https://h?tls_ca=url.go": "has no certificate in PEM",
		"https://h?tls_cert=/none": "tls_cert and tls_key cannot be used", "https://:secret@h?%": "cannot be read",
	} {
		_, err := remotestore.New(url)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want ErrInvalid with %q", url, err, want)
		}
	}
	if _, err := remotestore.New("http://h", nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a nil option: %v", err)
	}
	if _, err := remotestore.NewHandler(nil, nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a nil store: %v", err)
	}
}

func TestUserOfTheURLIsSent(t *testing.T) {
	url := serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, password, _ := r.BasicAuth(); user != "ann" || password != "pass word" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	if err := open(t, strings.Replace(url, "//", "//ann:pass%20word@", 1)).Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := open(t, url).Ping(t.Context()); !errors.Is(err, store.ErrUnauthenticated) {
		t.Errorf("without: %v", err)
	}
}

func TestTokenOrACertificateIsSentOverTLS(t *testing.T) {
	ca := tlstest.New(t)
	handler, err := remotestore.NewHandler(memstore.New(), silent)
	if err != nil {
		t.Fatal(err)
	}
	defer handler.Close()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer se/cret" && len(r.TLS.VerifiedChains) == 0 {
			problem.Write(w, http.StatusUnauthorized, fmt.Errorf("%w: give a token", store.ErrUnauthenticated))
			return
		}
		handler.ServeHTTP(w, r)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "server").Load(t)},
		ClientCAs: ca.Pool(), ClientAuth: tls.VerifyClientCertIfGiven}
	server.Config.ErrorLog = slog.NewLogLogger(silent.Handler(), slog.LevelError)
	server.StartTLS()
	defer server.Close()
	withToken := strings.Replace(server.URL, "//", "//:se%2Fcret@", 1)
	client, stranger := ca.Issue(t, "client"), tlstest.New(t).Issue(t, "client")
	certificate := func(p tlstest.Pair) string {
		return server.URL + "?tls_ca=" + ca.File + "&tls_cert=" + p.Cert + "&tls_key=" + p.Key
	}
	unknown, refused := store.ErrUnauthenticated, store.ErrMisconfigured
	for name, c := range map[string]struct {
		url  string
		kind *store.Error
		want string
	}{
		"token":       {withToken + "?tls_ca=" + ca.File, nil, ""},
		"certificate": {certificate(client), nil, ""},
		"nothing": {server.URL + "?tls_ca=" + ca.File, unknown,
			"answers 401 Unauthorized: caller is not known"},
		"other token": {strings.Replace(withToken, "cret", "crets", 1) + "?tls_ca=" + ca.File, unknown,
			"401 Unauthorized"},
		"unknown authority": {withToken, refused, "certificate signed by unknown authority"},
		"other certificate": {certificate(stranger), refused, "unknown certificate authority"},
	} {
		err := open(t, c.url).Ping(t.Context())
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "cret") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestAdministrativeChangesAreReportedOnce(t *testing.T) {
	type key struct{}
	var got []string
	handler, err := remotestore.NewHandler(memstore.New(), silent, remotestore.OnChange(
		func(ctx context.Context, c remotestore.Change) {
			got = append(got, fmt.Sprint(ctx.Value(key{}), " ", c.What, " ", c.Queue, " ", c.Count))
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer handler.Close()
	server := httptest.NewServer(losing(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), key{}, "ann")))
	})))
	defer server.Close()
	s := open(t, server.URL)
	ctx := t.Context()
	send(t, s, "a", "b")
	_, replayed := s.Replay(ctx, "q", store.Selection{State: store.StateDead}, store.Due{})
	_, purged := s.Purge(ctx, "q", store.Selection{State: store.StateReady})
	err = errors.Join(replayed, purged, s.SetPaused(ctx, "q", true), s.SetPaused(ctx, "q", false),
		s.SetDeadRetention(ctx, "q", store.Retention{MaxCount: 1}, nil),
		s.SetFlow(ctx, "q", store.Flow{Concurrency: 1}, nil), s.Delete(ctx, "q"))
	if err != nil {
		t.Error(err)
	}
	if err := s.SetPaused(ctx, "{", true); !errors.Is(err, store.ErrInvalid) {
		t.Error(err)
	}
	want := "ann replay q 0, ann purge q 2, ann pause q 0, ann resume q 0, ann retain q 0, ann flow q 0, " +
		"ann delete q 0"
	if strings.Join(got, ", ") != want {
		t.Errorf("%q, want %s", got, want)
	}
	if _, err := remotestore.NewHandler(memstore.New(), nil, nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a nil option: %v", err)
	}
}

func TestServerThatWantsACertificateRefusesTheClient(t *testing.T) {
	ca := tlstest.New(t)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "server").Load(t)},
		ClientCAs: ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert}
	server.Config.ErrorLog = slog.NewLogLogger(silent.Handler(), slog.LevelError)
	server.StartTLS()
	defer server.Close()
	// The reason can get lost with the connection, and a repeated call learns of it.
	err := open(t, server.URL+"?tls_ca="+ca.File, remotestore.RetryFor(time.Minute)).Ping(t.Context())
	if !errors.Is(err, store.ErrMisconfigured) || !strings.Contains(err.Error(), "certificate required") {
		t.Error(err)
	}
}

// restartable is a server at an address that stays the same, of a store that does too.
type restartable struct {
	t       *testing.T
	store   store.Store
	address string
	handler *remotestore.Handler
	server  *http.Server
	ended   chan struct{}
}

func (r *restartable) start() {
	r.t.Helper()
	listener, err := net.Listen("tcp", r.address)
	if err != nil {
		r.t.Fatal(err)
	}
	r.address = listener.Addr().String()
	if r.handler, err = remotestore.NewHandler(r.store, silent); err != nil {
		r.t.Fatal(err)
	}
	r.server, r.ended = &http.Server{Handler: r.handler}, make(chan struct{})
	go func() {
		defer close(r.ended)
		r.server.Serve(listener)
	}()
}

func (r *restartable) stop() {
	r.handler.Close()
	r.server.Close()
	<-r.ended
}

func TestCallsAndWatchersOutliveTheServer(t *testing.T) {
	r := &restartable{t: t, store: memstore.New(), address: "127.0.0.1:0"}
	defer r.store.Close()
	r.start()
	s := open(t, "http://"+r.address)
	w, err := s.Watch(t.Context(), []string{"q"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	waited := make(chan error, 1)
	go func() {
		for {
			if err := s.Wait(t.Context(), "q"); err != nil {
				waited <- err
				return
			}
			if c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Minute}); err != nil ||
				len(c.Messages) > 0 {
				waited <- err
				return
			}
		}
	}()
	r.stop()
	r.start()
	defer func() { r.stop() }()
	send(t, s, "a")
	if err := <-waited; err != nil {
		t.Error(err)
	}
	if err := w.Add(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Report(t.Context(), []store.Report{{Queue: "other", Events: []byte("x"), Number: 1}}); err != nil {
		t.Fatal(err)
	}
	if event, err := w.Next(t.Context()); err != nil || event.Queue != "other" || !event.Gap {
		t.Errorf("%+v, %v, want a gap", event, err)
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	url := serve(t, plain) + remotestore.Path
	for _, c := range []struct {
		method, path, kind, body string
		status                   int
	}{
		{"GET", "stats", remotestore.MediaType, "", http.StatusMethodNotAllowed},
		{"POST", "stats", "application/json", "{}", http.StatusUnsupportedMediaType},
		{"POST", "stats", "application/vnd.later.store.v1", "", http.StatusUnsupportedMediaType},
		{"POST", "nothing", remotestore.MediaType, "", http.StatusNotFound},
		{"POST", "", remotestore.MediaType, "", http.StatusNotFound},
		{"POST", "backup", remotestore.MediaType, "\x00", http.StatusNotFound},
		{"POST", "stats", remotestore.MediaType, "", http.StatusBadRequest},
		{"POST", "stats", remotestore.MediaType, "\xff\xff\xff", http.StatusBadRequest},
		{"POST", "send", remotestore.MediaType, "\x00", http.StatusBadRequest},
		{"POST", "send", remotestore.MediaType, strings.Repeat("x", 17<<20), http.StatusRequestEntityTooLarge},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, url+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", c.kind)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.status {
			t.Errorf("%s %s of %s with %.10q: %s, want %d", c.method, c.path, c.kind, c.body, resp.Status, c.status)
		}
	}
}

// FuzzHandler sends bodies to all operations that do not wait. None may crash the server.
func FuzzHandler(f *testing.F) {
	s := memstore.New()
	f.Cleanup(func() { s.Close() })
	handler, err := remotestore.NewHandler(s, silent)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(handler.Close)
	f.Add(uint8(0), []byte("\x00"))
	f.Add(uint8(3), []byte("\x13\x01s\x02\x01\x01q"))
	names := []string{"send", "claim", "settle", "extend", "cancel", "reschedule", "get", "list", "restore", "remove",
		"replay", "purge", "stats", "histogram", "set_paused", "set_dead_retention", "set_flow", "set_properties",
		"properties", "queues",
		"delete", "report", "activity", "ping", "sync", "linked", "same_server", "forwards_to", "forward", "deliver",
		"watch_add", "leave", "check"}
	f.Fuzz(func(t *testing.T, name uint8, body []byte) {
		r := httptest.NewRequest("POST", remotestore.Path+names[int(name)%len(names)], bytes.NewReader(body))
		r.Header.Set("Content-Type", remotestore.MediaType)
		handler.ServeHTTP(httptest.NewRecorder(), r)
	})
}
