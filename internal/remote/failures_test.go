package remote

import (
	"context"
	"errors"
	"net"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestCloseWaitsForCallsThatAreExecuted(t *testing.T) {
	for name, with := range ways {
		t.Run(name, func(t *testing.T) {
			with(t, func(t *testing.T, _ *network, server *Server, c *Client) {
				server.store = &slowStore{Store: memstore.New()}
				go c.Sync(t.Context())
				synctest.Wait()
				began := time.Now()
				server.Close()
				if took := time.Since(began); took < time.Minute {
					t.Errorf("Close returns after %v, while the store is in use", took)
				}
			})
		})
	}
}

// endlessStore syncs until the call is ended.
type endlessStore struct{ *memstore.Store }

func (endlessStore) Sync(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestCloseEndsLongCallsAndTheirClientsGoOnElsewhere(t *testing.T) {
	for name, with := range ways {
		t.Run(name, func(t *testing.T) {
			with(t, func(t *testing.T, _ *network, server *Server, c *Client) {
				server.store = endlessStore{memstore.New()}
				synced := make(chan error, 1)
				go func() { synced <- c.Sync(t.Context()) }()
				synctest.Wait()
				began := time.Now()
				server.Close()
				if took := time.Since(began); took > 0 {
					t.Errorf("Close takes %v", took)
				}
				if err := <-synced; !errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.Canceled) ||
					time.Since(began) < time.Minute {
					t.Errorf("%v after %v, want ErrUnavailable after a minute of attempts", err, time.Since(began))
				}
			})
		})
	}
}

func TestCloseLetsClientsReadTheirReplies(t *testing.T) {
	s := serveSocket(t)
	sendLarge(t, s.store, "a", "b")
	c := s.connect(t)
	if err := c.send([]byte("\x05claim"), claimBody(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.r.Peek(1); err != nil { // the reply has begun, and is larger than any buffer
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.Close()
	}()
	<-s.closing.Done()
	var buffer []byte
	if status, body, err := c.receive(&buffer); err != nil || status != http.StatusOK || len(body) < 2<<20 {
		t.Errorf("%d, %d bytes, %v", status, len(body), err)
	}
	<-closed
}

func TestAClaimThatWasReadStaysWhenALaterReplyIsNotRead(t *testing.T) {
	s := serveSocket(t)
	sendLarge(t, s.store, "a")
	c := s.connect(t)
	var buffer []byte
	if status, _, _, err := c.call("claim", claimBody(1), &buffer); status != http.StatusOK || err != nil {
		t.Fatal(status, err)
	}
	if err := c.send([]byte("\x07nothing"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Conn.Read(make([]byte, 1)); err != nil { // the rest is not read
		t.Fatal(err)
	}
	c.Close()
	for s.connected() > 0 { // no event tells
		runtime.Gosched()
	}
	if stats, err := s.store.Stats(t.Context(), "q"); err != nil || stats.Leased != 1 {
		t.Errorf("%+v, %v", stats, err)
	}
}

// notifiedStore tells of notifications that are passed on.
type notifiedStore struct {
	*memstore.Store
	notified chan string
}

func (s notifiedStore) Notify(_ context.Context, queue string) error {
	s.notified <- queue
	return nil
}

func TestANotificationIsPassedOnWhenTheCallerOfAWaitLeaves(t *testing.T) {
	for name, with := range ways {
		t.Run(name, func(t *testing.T) {
			with(t, func(t *testing.T, _ *network, server *Server, c *Client) {
				s := notifiedStore{memstore.New(), make(chan string, 1)}
				server.store = s
				ctx, leave := context.WithTimeout(t.Context(), time.Second)
				defer leave()
				if err := c.Wait(ctx, "q"); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				time.Sleep(leaveWithin)
				select {
				case queue := <-s.notified:
					if queue != "q" {
						t.Errorf("the notification is of queue %s", queue)
					}
				default:
					t.Error("the notification is not passed on")
				}
			})
		})
	}
}

func TestAWaitReturnsNowAndThen(t *testing.T) {
	for name, with := range ways {
		t.Run(name, func(t *testing.T) {
			with(t, func(t *testing.T, _ *network, server *Server, c *Client) {
				began := time.Now()
				if err := c.Wait(t.Context(), "q"); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took != maxWait {
					t.Errorf("after %v, want %v", took, maxWait)
				}
			})
		})
	}
}

func TestAnIdleConnectionStaysOpen(t *testing.T) {
	withSocket(t, func(t *testing.T, n *network, _ *Server, c *Client) {
		for range 3 {
			if _, err := c.Stats(t.Context(), "q"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * maxSilence)
		}
		if len(n.open) != 1 {
			t.Errorf("%d connections were made, want 1", len(n.open))
		}
	})
}

func TestACallThatIsNotRepeatedIsSentAgainIfItWasNotSent(t *testing.T) {
	withSocket(t, func(t *testing.T, n *network, server *Server, c *Client) {
		n.stopped.Store(true) // the connection is not made
		time.AfterFunc(maxSilence/2, func() { n.stopped.Store(false) })
		reportTo(t, c)
		n.fallSilent() // the call may have arrived
		_, err := c.Report(t.Context(), []store.Report{{Queue: "q", Events: []byte("x"), Number: 1}})
		if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, errSilent) {
			t.Errorf("%v, want ErrUnavailable", err)
		}
	})
}

func TestLargeCallsAreRefusedBeforeTheyAreSent(t *testing.T) {
	s := serveSocket(t)
	var buffer []byte
	c := s.connect(t)
	status, text, sent, err := c.call("nothing", make([]byte, 1<<20), &buffer)
	if status != http.StatusNotFound || sent || err != nil {
		t.Errorf("%d %s, sent: %t, %v", status, text, sent, err)
	}
	if status, _, _, err := c.call(opPing.name, encode(&none{}), &buffer); status != http.StatusOK || err != nil {
		t.Errorf("the next call: %d, %v", status, err)
	}
	huge := []store.Outgoing{{Message: store.Message{ID: "a", Payload: make([]byte, maxRequest)}}}
	if _, err := s.client(t).Send(t.Context(), "q", huge); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("%v, want ErrTooLarge", err)
	}
}

func TestTheRoomOfAClientThatHasGoneIsFree(t *testing.T) {
	s := serveSocket(t)
	b := s.budgets.requests
	all, err := b.take(t.Context(), b.size)
	if err != nil {
		t.Fatal(err)
	}
	c := s.connect(t)
	c.begin([]byte("\x04send"), make([]byte, 1<<20))
	if err := c.w.Flush(); err != nil {
		t.Fatal(err)
	}
	for waits := false; !waits; {
		b.mu.Lock()
		waits = len(b.waiting) == 1
		b.mu.Unlock()
	}
	c.Close()
	b.give(all)
	closing(t, s.Server)
	if b.free != b.size {
		t.Errorf("%d of %d bytes are free", b.free, b.size)
	}
}

func TestLargeRepliesGiveTheirRoomBack(t *testing.T) {
	for name, with := range ways {
		t.Run(name, func(t *testing.T) {
			with(t, func(t *testing.T, _ *network, server *Server, c *Client) {
				sendLarge(t, server.store, "a", "b")
				if infos, err := c.Get(t.Context(), "q", []string{"a", "b"}); err != nil || len(infos) != 2 {
					t.Fatal(len(infos), err)
				}
				synctest.Wait()
				if b := server.budgets.replies; b.free != b.size {
					t.Errorf("%d of %d bytes are free", b.free, b.size)
				}
			})
		})
	}
}

func TestAConnectionThatIsReleasedAfterCloseIsClosed(t *testing.T) {
	s := serveSocket(t)
	cs := &connections{dial: s.dial}
	c := s.acquire(t, cs)
	cs.close()
	cs.release(c)
	if _, err := c.Conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it is open: %v", err)
	}
}
