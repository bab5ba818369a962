package remote

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

var silent = slog.New(slog.DiscardHandler)

// waiterStore is a store in memory that reports when each Wait begins, and how it ends.
type waiterStore struct {
	*memstore.Store
	began chan struct{}
	ended chan error
}

func (s *waiterStore) Wait(ctx context.Context, queue string) error {
	s.began <- struct{}{}
	err := s.Store.Wait(ctx, queue)
	s.ended <- err
	return err
}

// socketServer is a server of a store, and how its clients connect.
type socketServer struct {
	*Server
	store *waiterStore
	dial  func(ctx context.Context) (net.Conn, error)
}

// serveSocket serves a store in memory at a socket.
func serveSocket(t *testing.T) *socketServer {
	s := &waiterStore{memstore.New(), make(chan struct{}, 1), make(chan error, 1)}
	server := NewServer(s, silent, true)
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	at := &httptest.Server{Listener: listener, Config: &http.Server{Handler: server}}
	at.Start()
	t.Cleanup(func() {
		server.Close()
		at.Close()
		s.Close()
	})
	return &socketServer{server, s, func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}
}

// router sends all calls to one target.
type router struct{ target *Target }

func (r router) Target(context.Context, *Target) (*Target, error) { return r.target, nil }

func (r router) Close() error {
	r.target.Close()
	return nil
}

// client returns a client that does not repeat calls.
func (s *socketServer) client(t *testing.T) *Client {
	c := NewClient(router{NewSocketTarget(s.dial, nil)}, silent, -1)
	t.Cleanup(func() { c.Close() })
	return c
}

// connect returns a connection for calls.
func (s *socketServer) connect(t *testing.T) *connection {
	return s.acquire(t, &connections{dial: s.dial})
}

func (s *socketServer) acquire(t *testing.T, cs *connections) *connection {
	c, err := cs.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// connected returns how many connections for calls the server has.
func (s *socketServer) connected() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.connections)
}

func TestCallsThroughASocketShareAConnection(t *testing.T) {
	s := serveSocket(t)
	c := s.client(t)
	payload := make([]byte, 1<<20)
	for range 3 {
		msg := store.Outgoing{Message: store.Message{ID: store.NewID(), Payload: payload}}
		if sent, err := c.Send(t.Context(), "q", []store.Outgoing{msg}); err != nil || sent[0].Err != nil {
			t.Fatalf("%+v, %v", sent, err)
		}
		if err := c.Wait(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
		<-s.store.began
		<-s.store.ended
		claim, err := c.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Minute})
		if err != nil || len(claim.Messages) != 1 || len(claim.Messages[0].Payload) != len(payload) {
			t.Fatalf("claimed %d, %v", len(claim.Messages), err)
		}
	}
	if n := s.connected(); n != 1 {
		t.Errorf("%d connections were made, want 1", n)
	}
}

func TestAWaitEndsWithItsConnection(t *testing.T) {
	s := serveSocket(t)
	c := s.connect(t)
	body := encode(&waitArgs{Queue: "q", ID: "id"})
	if err := c.send([]byte("\x04wait"), body); err != nil {
		t.Fatal(err)
	}
	<-s.store.began
	c.Close()
	if err := <-s.store.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the wait of a client that is gone ends with %v", err)
	}
}

func TestACallWhoseContextEndsDoesNotSpoilOthers(t *testing.T) {
	s := serveSocket(t)
	c := s.client(t)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-s.store.began
		cancel(enough)
	}()
	if err := c.Wait(ctx, "q"); !errors.Is(err, enough) {
		t.Errorf("the wait ends with %v", err)
	}
	<-s.store.ended
	if _, err := c.Stats(t.Context(), "q"); err != nil {
		t.Error(err)
	}
}

func TestACallOnABrokenConnectionIsRepeated(t *testing.T) {
	s := serveSocket(t)
	c := NewClient(router{NewSocketTarget(s.dial, nil)}, silent, time.Minute)
	defer c.Close()
	if _, err := c.Stats(t.Context(), "q"); err != nil {
		t.Fatal(err)
	}
	for _, call := range []func(){
		func() { sendTo(t, c) },
		func() { reportTo(t, c) }, // is repeated only because it was not sent
	} {
		s.mu.Lock()
		for connection := range s.connections {
			connection.Close()
		}
		s.mu.Unlock()
		for s.connected() > 0 { // no event tells
			runtime.Gosched()
		}
		call()
	}
}

func TestBadCallsThroughASocketAreRefused(t *testing.T) {
	s := serveSocket(t)
	for name, want := range map[string]int{
		"nothing": http.StatusNotFound, opWatch.name: http.StatusNotFound, opStats.name: http.StatusBadRequest,
	} {
		var buffer []byte
		if status, text, _, err := s.connect(t).call(name, []byte{0xff}, &buffer); err != nil || status != want {
			t.Errorf("%s: %d %s, %v, want %d", name, status, text, err, want)
		}
	}
	for what, frame := range map[string]string{
		"empty": "\x00", "shorter than its name": "\x02\x09x", "too long": "\xff\xff\xff\xff\x0f",
	} {
		c := s.connect(t)
		c.w.WriteString(frame)
		c.w.Flush()
		if _, err := c.r.ReadByte(); err == nil {
			t.Errorf("the connection stays open after a frame that is %s", what)
		}
	}
}

func TestOnlyServersForTheSameMachineCarryCalls(t *testing.T) {
	server := NewServer(memstore.New(), silent, false)
	defer server.store.Close()
	defer server.Close()
	at := httptest.NewServer(server)
	defer at.Close()
	c := NewClient(router{NewSocketTarget(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", at.Listener.Addr().String())
	}, nil)}, silent, -1)
	defer c.Close()
	if _, err := c.Stats(t.Context(), "q"); !errors.Is(err, store.ErrMisconfigured) {
		t.Errorf("%v, want ErrMisconfigured", err)
	}
}

func TestAClosedServerEndsItsConnections(t *testing.T) {
	s := serveSocket(t)
	c := s.client(t)
	if _, err := c.Stats(t.Context(), "q"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := c.Stats(t.Context(), "q"); !errors.Is(err, store.ErrUnavailable) || s.connected() > 0 {
		t.Errorf("%v, want ErrUnavailable; %d connections are left", err, s.connected())
	}
}

func TestAConnectionThatIsNotUsedForLongIsClosed(t *testing.T) {
	s := serveSocket(t)
	cs := &connections{dial: s.dial}
	defer cs.close()
	first, second := s.acquire(t, cs), s.acquire(t, cs)
	cs.release(first)
	first.used = first.used.Add(-2 * maxIdle)
	cs.release(second)
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) || len(cs.free) != 1 ||
		cs.free[0] != second {
		t.Errorf("%d connections are kept; the idle one returns %v", len(cs.free), err)
	}
}

// notifiable is a store with a Notify that is recorded.
type notifiable struct {
	store.Store
	notified []string
}

func (n *notifiable) Notify(_ context.Context, queue string) error {
	n.notified = append(n.notified, queue)
	return nil
}

// A wake-up is passed on in the store of this process as well as at a server.
func TestNotifyReachesTheStore(t *testing.T) {
	s := &notifiable{Store: memstore.New()}
	t.Cleanup(func() { s.Close() })
	target := NewSocketTarget(nil, nil)
	target.Local = s
	c := NewClient(router{target}, silent, -1)
	t.Cleanup(func() { c.Close() })
	if err := c.Notify(t.Context(), "q"); err != nil || len(s.notified) != 1 || s.notified[0] != "q" {
		t.Errorf("Notify = %v, and reached %q", err, s.notified)
	}
}
