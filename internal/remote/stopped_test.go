package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/codec"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// patience ends a test that would hang.
const patience = 30 * time.Second

// claimBody is the request of a claim.
func claimBody(n int64) []byte {
	return codec.Append(nil, &request[claimArgs]{Session: "s", Number: n,
		Args: claimArgs{Queue: "q", Arg: store.ClaimRequest{Max: 100, Lease: time.Minute}}})
}

// sendLarge sends messages with a payload of a megabyte.
func sendLarge(t *testing.T, s store.Store, ids ...string) {
	t.Helper()
	for _, id := range ids {
		msg := store.Outgoing{Message: store.Message{ID: id, Payload: make([]byte, 1<<20), MaxAttempts: 1}}
		if sent, err := s.Send(t.Context(), "q", []store.Outgoing{msg}); err != nil || sent[0].Err != nil {
			t.Fatal(sent, err)
		}
	}
}

// wantReleased waits until a message is ready, and checks that no attempt was counted.
func wantReleased(t *testing.T, s store.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		c, err := s.Claim(ctx, "q", store.ClaimRequest{Max: 1, Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Messages) > 0 {
			if c.Messages[0].Attempt != 1 {
				t.Errorf("attempt %d, want 1", c.Messages[0].Attempt)
			}
			return
		}
		if err := s.Wait(ctx, "q"); err != nil {
			t.Fatal("the message is not released: ", err)
		}
	}
}

// closing closes a server. It fails if that takes long.
func closing(t *testing.T, s *Server) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.Close()
	}()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Fatal("Close waits for a client")
	}
}

func TestCloseDoesNotWaitForAClientThatDoesNotRead(t *testing.T) {
	s := serveSocket(t)
	sendLarge(t, s.store, "a", "b", "c")
	c := s.connect(t)
	if err := c.send([]byte("\x05claim"), claimBody(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.r.ReadByte(); err != nil { // the reply has begun, and is larger than any buffer
		t.Fatal(err)
	}
	closing(t, s.Server)
	wantReleased(t, s.store)
}

func TestCloseDoesNotWaitForAClientThatDoesNotSendItAll(t *testing.T) {
	s := serveSocket(t)
	half, large := s.connect(t), s.connect(t)
	half.begin([]byte("\x05claim"), make([]byte, 100))
	large.begin([]byte("\x04send"), make([]byte, 1<<20))
	if err := errors.Join(half.w.Flush(), large.w.Flush()); err != nil {
		t.Fatal(err)
	}
	var buffer []byte
	if status, _, err := large.receive(&buffer); err != nil || status != http.StatusContinue {
		t.Fatal(status, err)
	}
	closing(t, s.Server)
	if b := s.budgets.requests; b.free != b.size {
		t.Errorf("%d of %d bytes are free", b.free, b.size)
	}
}

// begin is the beginning of a request over HTTP.
func begin(name string, length int) string {
	return fmt.Sprintf("POST %s%s HTTP/1.1\r\nHost: h\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", Path, name,
		MediaType, length)
}

func TestCloseDoesNotWaitForAClientOfHTTPThatDoesNotReadOrSend(t *testing.T) {
	withNetwork(t, func(t *testing.T, n *network, server *Server, _ *Client) {
		sendLarge(t, server.store, "a", "b", "c")
		for _, text := range []string{ // a claim that is not read, and a send and a watch that are not sent
			begin("claim", len(claimBody(1))) + string(claimBody(1)), begin("send", 9), begin("watch", 9),
		} {
			conn, _ := n.dial(t.Context(), "", "")
			defer conn.Close()
			if _, err := io.WriteString(conn, text); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		began := time.Now()
		server.Close()
		if took := time.Since(began); took > closeWithin {
			t.Errorf("Close takes %v, want %v", took, closeWithin)
		}
	})
}

func TestAReplyThatIsNotReadEndsTheConnection(t *testing.T) {
	withSocket(t, func(t *testing.T, n *network, server *Server, _ *Client) {
		sendLarge(t, server.store, "a")
		c, err := (&connections{dial: func(ctx context.Context) (net.Conn, error) { return n.dial(ctx, "", "") }}).acquire(
			t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.send([]byte("\x05claim"), claimBody(1)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		synctest.Wait() // the message is claimed
		if err := server.store.Wait(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != maxSilence {
			t.Errorf("the message is released after %v, want %v", took, maxSilence)
		}
		wantReleased(t, server.store)
		server.Close()
	})
}

func TestALargeReplyToASlowReaderArrives(t *testing.T) {
	withSocket(t, func(t *testing.T, n *network, server *Server, _ *Client) {
		sendLarge(t, server.store, "a")
		c, err := (&connections{dial: func(ctx context.Context) (net.Conn, error) { return n.dial(ctx, "", "") }}).acquire(
			t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.send([]byte("\x05claim"), claimBody(1)); err != nil {
			t.Fatal(err)
		}
		for read := 0; read < 1<<20; {
			time.Sleep(maxSilence / 2)
			k, err := io.ReadAtLeast(c.r, make([]byte, maxWrite), maxWrite)
			if read += k; err != nil && read < 1<<20 {
				t.Fatal(read, err)
			}
		}
	})
}

// countingStore counts claims.
type countingStore struct {
	*memstore.Store
	claims atomic.Int32
}

func (s *countingStore) Claim(ctx context.Context, queue string, req store.ClaimRequest) (store.Claim, error) {
	s.claims.Add(1)
	return s.Store.Claim(ctx, queue, req)
}

func TestAClaimWhoseCallerHasGoneIsNotExecuted(t *testing.T) {
	s := serveSocket(t)
	counting := &countingStore{Store: s.store.Store}
	s.Server.store = counting
	sendLarge(t, counting, "a")
	c := s.connect(t)
	s.mu.Lock() // as if the process was stopped
	if err := c.send([]byte("\x05claim"), claimBody(1)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	s.mu.Unlock()
	for s.connected() > 0 { // no event tells
		runtime.Gosched()
	}
	closing(t, s.Server)
	if n := counting.claims.Load(); n > 0 {
		t.Errorf("%d claims were executed", n)
	}
}

func TestAClaimWhoseReplyIsNotReadIsReleased(t *testing.T) {
	s := serveSocket(t)
	sendTo(t, s.store)
	c := s.connect(t)
	if err := c.send([]byte("\x05claim"), claimBody(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Conn.Read(make([]byte, 1)); err != nil { // only the first byte of it
		t.Fatal(err)
	}
	c.Close()
	wantReleased(t, s.store)
}

func TestAClaimWhoseReplyWasReadIsNotReleased(t *testing.T) {
	s := serveSocket(t)
	sendLarge(t, s.store, "a")
	c := s.client(t)
	if claim, err := c.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Minute}); err != nil ||
		len(claim.Messages) != 1 {
		t.Fatal(len(claim.Messages), err)
	}
	c.Close()
	closing(t, s.Server)
	if stats, err := s.store.Stats(t.Context(), "q"); err != nil || stats.Leased != 1 {
		t.Errorf("%+v, %v", stats, err)
	}
}

func TestARepeatedClaimAfterItWasReleasedFindsNothing(t *testing.T) {
	s := serveSocket(t)
	sendLarge(t, s.store, "a")
	c := s.connect(t)
	if err := c.send([]byte("\x05claim"), claimBody(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.r.ReadByte(); err != nil {
		t.Fatal(err)
	}
	c.Close()
	wantReleased(t, s.store)
	var buffer []byte
	status, body, _, err := s.connect(t).call("claim", claimBody(1), &buffer)
	var answer reply[store.Claim]
	if err == nil {
		err = codec.Decode(body, &answer)
	}
	if err != nil || status != http.StatusOK || answer.Err != nil || len(answer.Result.Messages) > 0 ||
		!answer.Result.Deadline.IsZero() || answer.Result.Now.IsZero() {
		t.Errorf("%d, %+v, %v", status, answer, err)
	}
}

// goneWriter is a response that cannot be written.
type goneWriter struct{ http.ResponseWriter }

func (goneWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestAClaimOverHTTPWhoseReplyCannotBeDeliveredIsReleased(t *testing.T) {
	withNetwork(t, func(t *testing.T, _ *network, server *Server, c *Client) {
		counting := &countingStore{Store: engineOf(server)}
		server.store = counting
		sendLarge(t, counting, "a")
		for what, handle := range map[string]func(w http.ResponseWriter, r *http.Request){
			"the writer fails": func(w http.ResponseWriter, r *http.Request) { server.ServeHTTP(goneWriter{w}, r) },
			"the client left": func(w http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithCancel(r.Context())
				context.AfterFunc(ctx, func() {})
				server.ServeHTTP(leavingWriter{w, cancel}, r.WithContext(ctx))
			},
			"the client had left": func(w http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithCancel(r.Context())
				cancel()
				before := counting.claims.Load()
				server.ServeHTTP(w, r.WithContext(ctx))
				if counting.claims.Load() > before {
					t.Error("the claim of a client that had left is executed")
				}
			},
		} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, Path+"claim", strings.NewReader(string(
				claimBody(time.Now().UnixNano()))))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", MediaType)
			handle(nopWriter{http.Header{}}, r)
			if stats, err := counting.Stats(t.Context(), "q"); err != nil || stats.Ready != 1 {
				t.Errorf("%s: %+v, %v", what, stats, err)
			}
			time.Sleep(time.Nanosecond) // the next number
		}
		wantReleased(t, counting)
	})
}

// nopWriter is a response without a reader.
type nopWriter struct{ header http.Header }

func (w nopWriter) Header() http.Header            { return w.header }
func (nopWriter) WriteHeader(int)                  {}
func (nopWriter) Write(b []byte) (int, error)      { return len(b), nil }
func (nopWriter) SetWriteDeadline(time.Time) error { return nil }

// leavingWriter is a response to a client that leaves when it is written.
type leavingWriter struct {
	http.ResponseWriter
	leave func()
}

func (w leavingWriter) Write(b []byte) (int, error) {
	w.leave()
	return w.ResponseWriter.Write(b)
}

func TestACallAtASocketGoesOnWhileItsServerIsHeard(t *testing.T) {
	withSocket(t, func(t *testing.T, n *network, server *Server, c *Client) {
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

func TestACallAtASilentSocketIsRepeated(t *testing.T) {
	withSocket(t, func(t *testing.T, n *network, server *Server, c *Client) {
		if _, err := c.Stats(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
		n.fallSilent()
		began := time.Now()
		sendTo(t, c)
		if took := time.Since(began); took < maxSilence || took > maxSilence+maxPause {
			t.Errorf("the call took %v, want %v", took, maxSilence)
		}
	})
}

func TestAWatchAtASilentSocketGoesOnWithAGap(t *testing.T) {
	withSocket(t, func(t *testing.T, n *network, server *Server, c *Client) {
		w, err := c.Watch(t.Context(), []string{"q"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		var receiving sync.WaitGroup
		receiving.Go(func() {
			if event, err := w.Next(t.Context()); err != nil || string(event.Events) != "x" || !event.Gap {
				t.Errorf("%+v, %v, want a gap and an event", event, err)
			}
		})
		n.fallSilent()
		time.Sleep(maxSilence + maxPause)
		reportTo(t, server.store)
		receiving.Wait()
	})
}

func TestTheErrorOfASilentServerSaysWhichProcessItIs(t *testing.T) {
	withSocket(t, func(t *testing.T, n *network, server *Server, c *Client) {
		n.stopped.Store(true)
		began := time.Now()
		_, err := c.Stats(t.Context(), "q")
		if !errors.Is(err, store.ErrUnavailable) ||
			!strings.Contains(err.Error(), "process 123 is stopped: nothing heard") {
			t.Errorf("%v, want the process", err)
		}
		if took := time.Since(began); took > time.Minute+maxSilence+beatEvery+maxPause {
			t.Errorf("the call took %v, and is repeated for a minute", took)
		}
		cause := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), maxSilence+beatEvery, cause)
		defer cancel()
		_, err = c.Stats(ctx, "q")
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), "process 123 is stopped") {
			t.Errorf("%v, want the cause and the process", err)
		}
		_, err = c.Watch(t.Context(), []string{"q"})
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "process 123 is stopped") {
			t.Errorf("%v, want the process", err)
		}
	})
}

func TestManyLargeMessagesAreGotInPages(t *testing.T) {
	for name, with := range ways {
		t.Run(name, func(t *testing.T) {
			with(t, func(t *testing.T, _ *network, server *Server, c *Client) {
				var ids []string
				for i := range 100 {
					ids = append(ids, fmt.Sprint("m", i))
				}
				sendLarge(t, server.store, ids...)
				asked := append([]string{"unknown"}, ids...)
				infos, err := c.Get(t.Context(), "q", asked)
				if err != nil || len(infos) != len(asked) || infos[0] != nil {
					t.Fatal(len(infos), err)
				}
				for i, info := range infos[1:] {
					if info == nil || info.ID != ids[i] || len(info.Payload) != 1<<20 {
						t.Fatalf("message %d is %+v", i, info)
					}
				}
				if infos, err := c.Get(t.Context(), "q", nil); err != nil || len(infos) > 0 {
					t.Error(infos, err)
				}
			})
		})
	}
}
