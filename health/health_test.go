package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later"
	_ "github.com/laterq/later/diskstore"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func get(t *testing.T, h http.Handler) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	return w
}

func wantOK(t *testing.T, h http.Handler) {
	t.Helper()
	w := get(t, h)
	if w.Code != http.StatusOK || w.Body.String() != `{"status":"ok"}`+"\n" ||
		w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("GET replied %d, %s, %v; want ok", w.Code, w.Body, w.Header())
	}
}

func wantProblem(t *testing.T, h http.Handler, code store.Code) {
	t.Helper()
	w := get(t, h)
	var p problem.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("%s: %v", w.Body, err)
	}
	if w.Code != http.StatusServiceUnavailable || p.Status != w.Code || p.Code != code || p.Detail == "" ||
		w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("GET replied %d, %s, %v; want 503 and code %q", w.Code, w.Body, w.Header(), code)
	}
}

func open(t *testing.T, url string) *later.Client {
	t.Helper()
	c, err := later.Open(t.Context(), url, later.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestReadyDetectsADeadStore(t *testing.T) {
	server := redistest.Start(t)
	c := open(t, server.URL())
	ready := eventually(func() http.Handler { return Ready(c) })
	wantOK(t, ready)
	server.Freeze(t)
	wantProblem(t, Ready(c), store.ErrUnavailable.Code)
	server.Thaw(t)
	wantOK(t, ready)
	server.Kill()
	wantProblem(t, Ready(c), store.ErrUnavailable.Code)
	server.Restart(t)
	wantOK(t, ready)
	c.Close()
	wantProblem(t, Ready(c), store.ErrClosed.Code)
}

// eventually returns a handler that replies as soon as new probes reply with ok: a busy machine can delay one.
func eventually(probe func() http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 100 {
			recorder := httptest.NewRecorder()
			if probe().ServeHTTP(recorder, r); recorder.Code == http.StatusOK {
				maps.Copy(w.Header(), recorder.Header())
				w.Write(recorder.Body.Bytes())
				return
			}
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
}

func TestReadyOfAnEmbeddedStore(t *testing.T) {
	c := open(t, "file://"+t.TempDir())
	wantOK(t, eventually(func() http.Handler { return Ready(c) }))
	c.Close()
	wantProblem(t, Ready(c), store.ErrClosed.Code)
}

// slowStore counts pings, which take a while and then return an error.
type slowStore struct {
	store.Store
	pings atomic.Int64
	takes atomic.Int64 // ns
	err   atomic.Pointer[error]
	deaf  bool // a ping does not look at its context
}

func (s *slowStore) Ping(ctx context.Context) error {
	s.pings.Add(1)
	var ended <-chan struct{}
	if !s.deaf {
		ended = ctx.Done()
	}
	select {
	case <-time.After(time.Duration(s.takes.Load())):
	case <-ended:
		return context.Cause(ctx)
	}
	if err := s.err.Load(); err != nil {
		return *err
	}
	return nil
}

func inBubble(t *testing.T, takes time.Duration, test func(t *testing.T, s *slowStore, ready http.Handler)) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{Store: memstore.New()}
		s.takes.Store(int64(takes))
		c, err := later.New(s)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		test(t, s, Ready(c))
	})
}

func TestStoppedEmbeddedStoreIsNeitherLiveNorReady(t *testing.T) {
	dir := t.TempDir()
	client := open(t, "file://"+dir)
	live := func() http.Handler { return LiveStore(client) } // a new one asks anew
	wantOK(t, live())
	if err := os.Remove(filepath.Join(dir, "LOCK")); err != nil {
		t.Fatal(err)
	}
	for client.Ping(t.Context()) == nil { // it looks every second
		runtime.Gosched()
	}
	wantProblem(t, live(), store.ErrUnavailable.Code)
	wantProblem(t, Ready(client), store.ErrUnavailable.Code)
	wantOK(t, Live())
}

func TestProbesShareOnePingASecond(t *testing.T) {
	inBubble(t, 100*time.Millisecond, func(t *testing.T, s *slowStore, ready http.Handler) {
		for second := range 3 {
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() { wantOK(t, ready) })
			}
			all.Wait()
			time.Sleep(cacheFor - time.Millisecond)
			wantOK(t, ready)
			if n := s.pings.Load(); n != int64(second+1) {
				t.Errorf("%d pings after %d rounds", n, second+1)
			}
			time.Sleep(time.Millisecond)
		}
		down := error(later.ErrUnavailable)
		s.err.Store(&down)
		for range 100 {
			wantProblem(t, ready, store.ErrUnavailable.Code)
		}
		if n := s.pings.Load(); n != 4 {
			t.Errorf("%d pings; a failure is shared too", n)
		}
	})
}

func TestReadyRepliesWithinItsLimit(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		inBubble(t, 10*time.Second, func(t *testing.T, s *slowStore, ready http.Handler) {
			s.deaf = deaf
			begun := time.Now()
			wantProblem(t, ready, store.ErrUnavailable.Code)
			wantProblem(t, ready, store.ErrUnavailable.Code)
			if took := time.Since(begun); took > 2*limit {
				t.Errorf("two probes took %v", took)
			}
			if n := s.pings.Load(); n != 1 {
				t.Errorf("%d pings at the same time", n)
			}
			time.Sleep(10 * time.Second)
			s.takes.Store(0)
			wantOK(t, ready)
		})
	}
}

func TestProbeWhoseClientIsGoneEnds(t *testing.T) {
	inBubble(t, 500*time.Millisecond, func(t *testing.T, _ *slowStore, ready http.Handler) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begun := time.Now()
		ready.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/readyz", nil))
		if took := time.Since(begun); took != 0 {
			t.Errorf("the handler returned after %v", took)
		}
	})
}

func TestProbeShowsNoDetails(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, s *slowStore, ready http.Handler) {
		secret := fmt.Errorf("dial redis-1.internal:6379: %w", later.ErrMisconfigured)
		s.err.Store(&secret)
		want := `{"type":"` + problem.TypePrefix +
			`misconfigured","title":"Service Unavailable","status":503,"code":"misconfigured",` +
			`"detail":"the store does not work"}`
		if got := get(t, ready).Body.String(); got != want+"\n" {
			t.Errorf("the reply is %s; want %s", got, want)
		}
	})
}

func TestProbeRefusesOtherMethods(t *testing.T) {
	w := httptest.NewRecorder()
	Live().ServeHTTP(w, httptest.NewRequest("POST", "/healthz", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST replied %d, %v", w.Code, w.Header())
	}
}

func TestLiveIsAboutTheProcessAndNotTheStore(t *testing.T) {
	server := redistest.Start(t)
	c := open(t, server.URL())
	w := later.NewWorker(c, later.WorkerConfig{})
	w.Handle("q", func(context.Context, *later.Message) error { return nil })
	live := eventually(func() http.Handler { return Live(w) })
	wantOK(t, eventually(func() http.Handler { return Live() }))
	wantOK(t, live) // before Run
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	<-w.Claimed()
	server.Kill()
	wantOK(t, live)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestLiveDetectsAStuckWorker(t *testing.T) {
	stuck := &probe{what: "a worker", check: func(context.Context) error { return errors.New("worker is stuck") }}
	wantProblem(t, stuck, store.Internal)
}
