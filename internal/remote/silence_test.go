package remote

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// network carries the connections between a client and a server in this process. It can fall silent: then open
// connections pass nothing on, not even their end.
type network struct {
	dialed  chan net.Conn
	closed  chan struct{}
	stopped atomic.Bool // new connections are silent, as to a process that is stopped

	mu      sync.Mutex
	open    []*cable
	swallow sync.WaitGroup
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.dialed:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error {
	close(n.closed)
	return nil
}

func (n *network) Addr() net.Addr { return &net.TCPAddr{} }

func (n *network) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	c := &cable{Conn: near, of: n}
	n.mu.Lock()
	n.open = append(n.open, c)
	n.mu.Unlock()
	n.dialed <- far
	c.cut.Store(n.stopped.Load())
	return c, nil
}

// fallSilent cuts the connections that are open.
func (n *network) fallSilent() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.open {
		c.cut.Store(true)
	}
}

// cable is the client's end of a connection.
type cable struct {
	net.Conn
	of     *network
	cut    atomic.Bool
	closed atomic.Bool
	read   sync.Mutex // held by Read
}

func (c *cable) Read(p []byte) (int, error) {
	c.read.Lock()
	defer c.read.Unlock()
	for {
		if c.closed.Load() {
			return 0, net.ErrClosed
		}
		n, err := c.Conn.Read(p)
		if err != nil || !c.cut.Load() {
			return n, err
		}
	}
}

func (c *cable) Write(p []byte) (int, error) {
	if c.cut.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *cable) Close() error {
	if !c.cut.Load() {
		return c.Conn.Close()
	}
	c.closed.Store(true)
	c.Conn.SetReadDeadline(past)
	c.of.swallow.Go(func() {
		c.read.Lock() // once a Read has ended
		c.Conn.SetReadDeadline(time.Time{})
		c.read.Unlock()
		io.Copy(io.Discard, c.Conn)
	})
	return nil
}

// withNetwork runs a test with a client of a server of a store in memory, in a bubble of synctest.
func withNetwork(t *testing.T, test func(t *testing.T, n *network, server *Server, c *Client)) {
	within(t, false, test)
}

// withSocket is withNetwork for a socket on the same machine.
func withSocket(t *testing.T, test func(t *testing.T, n *network, server *Server, c *Client)) {
	within(t, true, test)
}

func within(t *testing.T, socket bool, test func(t *testing.T, n *network, server *Server, c *Client)) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{dialed: make(chan net.Conn), closed: make(chan struct{})}
		server := NewServer(memstore.New(), silent, socket)
		at := &http.Server{Handler: server}
		go at.Serve(n)
		transport := newTransport()
		transport.DialContext = n.dial
		target := &Target{url: socketURL, http: newClient(transport)}
		if socket {
			target = NewSocketTarget(func(ctx context.Context) (net.Conn, error) { return n.dial(ctx, "", "") },
				func() string { return "process 123 is stopped" })
		}
		c := NewClient(router{target}, silent, time.Minute)
		defer func() {
			c.Close()
			at.Close()
			server.Close()
			n.swallow.Wait()
		}()
		test(t, n, server, c)
	})
}

func sendTo(t *testing.T, s store.Store) {
	t.Helper()
	_, err := s.Send(t.Context(), "q", []store.Outgoing{{Message: store.Message{ID: store.NewID()}}})
	if err != nil {
		t.Fatal(err)
	}
}

func reportTo(t *testing.T, s store.Store) {
	t.Helper()
	if _, err := s.Report(t.Context(), []store.Report{{Queue: "q", Events: []byte("x"), Number: 1}}); err != nil {
		t.Fatal(err)
	}
}

func TestAWaitOnASilentConnectionEndsSoon(t *testing.T) {
	withNetwork(t, func(t *testing.T, n *network, server *Server, c *Client) {
		s := &waiterStore{memstore.New(), make(chan struct{}, 9), make(chan error, 9)}
		server.store = s
		waited := make(chan error, 1)
		go func() { waited <- c.Wait(t.Context(), "q") }()
		<-s.began
		time.Sleep(5*beatEvery + beatEvery/2)
		select {
		case err := <-waited:
			t.Fatalf("the wait ends while beats arrive: %v", err)
		default:
		}
		n.fallSilent()
		began := time.Now()
		sendTo(t, s) // announced to the Wait, but its reply is lost
		if err := <-waited; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > maxSilence {
			t.Errorf("the wait ends after %v of silence, want %v at most", took, maxSilence)
		}
		claim, err := c.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Minute})
		if err != nil || len(claim.Messages) != 1 || time.Since(began) > maxSilence {
			t.Errorf("claimed %d after %v, %v", len(claim.Messages), time.Since(began), err)
		}
	})
}

func TestACallWithoutAReplyIsRepeatedOnAFreshConnection(t *testing.T) {
	withNetwork(t, func(t *testing.T, n *network, _ *Server, c *Client) {
		target := c.router.(router).target
		var opened []*frameReader
		for range 3 {
			frames, err := target.postForFrames(t.Context(), opSync.name, encode(&none{}))
			if err != nil {
				t.Fatal(err)
			}
			opened = append(opened, frames)
		}
		for _, frames := range opened { // leaves three connections that are not in use
			if _, err := frames.last(nil); err != nil {
				t.Fatal(err)
			}
			frames.close()
		}
		n.fallSilent()
		began := time.Now()
		if _, err := c.Stats(t.Context(), "q"); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > replyWithin+2*minPause {
			t.Errorf("the call took %v, want %v and a pause at most", took, replyWithin)
		}
	})
}

func TestARepeatedWaitEndsTheEarlierOne(t *testing.T) {
	withNetwork(t, func(t *testing.T, n *network, server *Server, c *Client) {
		s := &waiterStore{memstore.New(), make(chan struct{}, 9), make(chan error, 9)}
		server.store = s
		waited := make(chan error, 1)
		go func() { waited <- c.Wait(t.Context(), "q") }()
		<-s.began
		n.fallSilent()
		began := time.Now()
		if err := <-waited; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > maxSilence+maxPause {
			t.Errorf("the repeated wait returns after %v, want at once when nothing was heard for %v", took, maxSilence)
		}
		if err := <-s.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the earlier wait ends with %v", err)
		}
		if server.mu.Lock(); len(server.waits) > 0 {
			t.Error("the server still waits")
		}
		server.mu.Unlock()
	})
}

// slowStore takes a minute to sync.
type slowStore struct {
	*memstore.Store
	syncs atomic.Int32
}

func (s *slowStore) Sync(context.Context) error {
	s.syncs.Add(1)
	time.Sleep(time.Minute)
	return nil
}

func TestALongCallGoesOnWhileItsServerIsHeard(t *testing.T) {
	withNetwork(t, func(t *testing.T, n *network, server *Server, c *Client) {
		s := &slowStore{Store: memstore.New()}
		server.store = s
		for range 2 {
			if err := c.Sync(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if calls, connections := s.syncs.Load(), len(n.open); calls != 2 || connections != 1 {
			t.Errorf("%d calls on %d connections, want 2 on 1", calls, connections)
		}
	})
}

func TestAWatchOnASilentConnectionGoesOnWithAGap(t *testing.T) {
	for _, queue := range []string{"q", store.AllQueues} {
		t.Run(queue, func(t *testing.T) {
			withNetwork(t, func(t *testing.T, n *network, server *Server, c *Client) {
				w, err := c.Watch(t.Context(), []string{queue})
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
				if err := w.Add(t.Context(), "q"); err != nil { // which changes nothing
					t.Fatal(err)
				}
				next := make(chan store.Reported)
				go func() {
					event, err := w.Next(t.Context())
					if err != nil {
						t.Error(err)
					}
					next <- event
				}()
				time.Sleep(10 * renewWithin)
				n.fallSilent()
				time.Sleep(maxSilence + maxPause)
				reportTo(t, server.store)
				if event := <-next; string(event.Events) != "x" || !event.Gap {
					t.Errorf("%+v, want a gap and an event", event)
				}
			})
		})
	}
}

func TestAWriterThatCannotFlushIsRefused(t *testing.T) {
	server := NewServer(memstore.New(), silent, false)
	defer server.Close()
	hide := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
	})
	for _, h := range []http.Handler{hide, http.TimeoutHandler(server, time.Minute, "")} {
		at := httptest.NewServer(h)
		defer at.Close()
		target := &Target{url: at.URL + Path, http: newClient(newTransport())}
		c := NewClient(router{target}, silent, time.Minute)
		defer c.Close()
		_, watched := c.Watch(t.Context(), []string{"q"})
		for _, err := range []error{c.Wait(t.Context(), "q"), c.Sync(t.Context()), watched} {
			if !errors.Is(err, store.ErrMisconfigured) || !strings.Contains(err.Error(), "Flush") {
				t.Errorf("%v, want ErrMisconfigured and what is missing", err)
			}
		}
	}
}

func TestAWatchStaysWhileItIsOnlyIdle(t *testing.T) {
	withNetwork(t, func(t *testing.T, n *network, server *Server, c *Client) {
		w, err := c.Watch(t.Context(), []string{"q"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		time.Sleep(10 * renewWithin)
		reportTo(t, server.store)
		if event, err := w.Next(t.Context()); err != nil || event.Gap {
			t.Errorf("%+v, %v, want no gap", event, err)
		}
	})
}

func TestAWatchThatIsNotRenewedEnds(t *testing.T) {
	withNetwork(t, func(t *testing.T, n *network, server *Server, c *Client) {
		w, err := c.Watch(t.Context(), []string{"q"})
		if err != nil {
			t.Fatal(err)
		}
		n.fallSilent()
		w.Close()
		time.Sleep(renewWithin + beatEvery)
		if server.mu.Lock(); len(server.watches) > 0 {
			t.Error("the server still watches")
		}
		server.mu.Unlock()
	})
}

// engineOf returns the store in memory of a server.
func engineOf(s *Server) *memstore.Store {
	engine, _ := store.As[*memstore.Store](s.store)
	return engine
}
