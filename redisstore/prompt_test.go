package redisstore

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// noticed is a connection that reports each script call that it writes.
type noticed struct {
	net.Conn
	calls chan<- struct{}
}

func (c noticed) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if bytes.Contains(p, []byte("evalsha")) {
		select {
		case c.calls <- struct{}{}:
		default:
		}
	}
	return n, err
}

// notSingle is a client that is not a *redis.Client, like that of a Cluster.
type notSingle struct{ redis.UniversalClient }

// A prompt send returns when its context ends, although the server is frozen and reads have no timeout. Afterwards
// sends work as before, and the interrupted one is repeated under the same id without harm.
func TestPromptSendReturnsWhenItsContextEnds(t *testing.T) {
	for name, of := range map[string]func(rdb *redis.Client) redis.UniversalClient{
		"single": func(rdb *redis.Client) redis.UniversalClient { return rdb },
		"other":  func(rdb *redis.Client) redis.UniversalClient { return notSingle{rdb} },
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			opt := *server.Options()
			calls := make(chan struct{}, 1)
			opt.ReadTimeout, opt.WriteTimeout = -1, -1
			opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				return noticed{conn, calls}, err
			}
			rdb := redis.NewClient(&opt)
			s := newStore(t, of(rdb))
			t.Cleanup(func() { rdb.Close() })
			send := func(ctx context.Context, id string) error {
				_, err := s.SendPromptly(ctx, "q", []store.Outgoing{{Message: store.Message{ID: id}}})
				return err
			}
			ctx, end := context.WithCancel(t.Context())
			defer end()
			if err := send(ctx, "first"); err != nil { // the queue exists, and there is an idle connection
				t.Fatal(err)
			}
			<-calls
			server.Freeze(t)
			gone := errors.New("gone")
			for _, id := range []string{"idle connection", "no idle connection"} {
				ctx, cancel := context.WithCancelCause(t.Context())
				sent := make(chan error)
				go func() { sent <- send(ctx, id) }()
				if name == "single" && id == "idle connection" {
					<-calls
				}
				cancel(gone)
				if err := <-sent; !errors.Is(err, gone) {
					t.Errorf("send with %s = %v, want %v", id, err, gone)
				}
			}
			server.Thaw(t)
			for _, id := range []string{"idle connection", "no idle connection", "last"} {
				if err := send(ctx, id); err != nil {
					t.Errorf("send of %s after the freeze = %v", id, err)
				}
			}
			if n := rdb.HLen(t.Context(), "later:{q}:messages").Val(); n != 4 {
				t.Errorf("the queue has %d messages, want 4", n)
			}
		})
	}
}

// Prompt sends one after the other share a connection, which the server may close in between.
func TestPromptSendsShareAConnection(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	ctx, end := context.WithTimeout(t.Context(), time.Hour)
	defer end()
	send := func(n int) {
		for range n {
			_, err := s.SendPromptly(ctx, "q", []store.Outgoing{{Message: store.Message{ID: store.NewID()}}})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	send(20)
	opened := func() string {
		for line := range strings.Lines(rdb.Info(t.Context(), "stats").Val()) {
			if strings.HasPrefix(line, "total_connections_received:") {
				return line
			}
		}
		return "unknown"
	}
	before := opened()
	send(20)
	if after := opened(); after != before {
		t.Errorf("20 sends opened connections: %s, before %s", after, before)
	}
	if err := rdb.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	send(1)
	if n := rdb.HLen(t.Context(), "later:{q}:messages").Val(); n != 41 {
		t.Errorf("the queue has %d messages, want 41", n)
	}
}

// A connection of a prompt send that a server has refused, closed or not accepted is not used again.
func TestPromptSendsGoOnAfterAnOutage(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	s := newStore(t, rdb, RetryFor(-1))
	send := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := s.SendPromptly(ctx, "q", []store.Outgoing{{Message: store.Message{ID: store.NewID()}}})
		return err
	}
	works := func(after string) {
		t.Helper()
		// A send may meet a connection that broke before, each at most once.
		var err error
		for range 1 + maxLines {
			if err = send(); err == nil {
				return
			}
		}
		t.Fatalf("after %s a send fails: %v", after, err)
	}
	works("the start")
	server.Kill()
	for range 2 * maxLines {
		if err := send(); !errors.Is(err, store.ErrUnavailable) || strings.Contains(err.Error(), "is closed") {
			t.Errorf("send without a server = %v", err)
		}
	}
	server.Restart(t)
	works("a restart")
	if err := rdb.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := send(); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("send to a replica = %v", err)
	}
	if err := rdb.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	works("a promotion")
	if n := len(s.lines.all) - len(s.lines.idle) + s.lines.dials; n > 0 {
		t.Errorf("%d connections are still in use", n)
	}
}

// Close ends a prompt send without a reply.
func TestCloseEndsAPromptSend(t *testing.T) {
	server := redistest.Start(t)
	opt := *server.Options()
	calls := make(chan struct{}, 1)
	opt.ReadTimeout, opt.WriteTimeout = -1, -1
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return noticed{conn, calls}, err
	}
	rdb := redis.NewClient(&opt)
	t.Cleanup(func() { rdb.Close() })
	s := newStore(t, rdb)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	send := func() error {
		_, err := s.SendPromptly(ctx, "q", []store.Outgoing{{Message: store.Message{ID: store.NewID()}}})
		return err
	}
	if err := send(); err != nil {
		t.Fatal(err)
	}
	<-calls
	server.Freeze(t)
	sent := make(chan error)
	go func() { sent <- send() }()
	<-calls
	s.Close()
	if err := <-sent; !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("send during Close = %v, want an unknown outcome", err)
	}
	server.Thaw(t)
}

// A prompt send whose context ends while the first call of a store checks the server returns, and Close ends the check.
func TestPromptSendReturnsDuringTheFirstCheck(t *testing.T) {
	server := redistest.Start(t)
	opt := *server.Options()
	dialed := make(chan struct{}, 1)
	opt.ReadTimeout, opt.WriteTimeout = -1, -1
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		select {
		case dialed <- struct{}{}:
		default:
		}
		return conn, err
	}
	rdb := redis.NewClient(&opt)
	t.Cleanup(func() { rdb.Close() })
	s := newStore(t, rdb)
	server.Freeze(t)
	gone := errors.New("gone")
	for range 2 { // the second one waits for the check of the first
		ctx, cancel := context.WithCancelCause(t.Context())
		sent := make(chan error)
		go func() {
			_, err := s.SendPromptly(ctx, "q", []store.Outgoing{{Message: store.Message{ID: "a"}}})
			sent <- err
		}()
		if len(dialed) == 0 {
			<-dialed
			dialed <- struct{}{}
		}
		cancel(gone)
		if err := <-sent; !errors.Is(err, gone) {
			t.Errorf("send = %v, want %v", err, gone)
		}
	}
	s.Close() // TestMain looks for goroutines that remain
	server.Thaw(t)
}

// Behind Sentinels go-redis alone knows the primary, so prompt sends use its connections and survive a failover.
func TestPromptSendFollowsThePrimary(t *testing.T) {
	sentinel := redistest.StartSentinel(t)
	s := openSentinel(t, sentinel)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	send := func(id string) {
		t.Helper()
		if _, err := s.SendPromptly(ctx, "q", []store.Outgoing{{Message: store.Message{ID: id}}}); err != nil {
			t.Fatalf("send of %s = %v", id, err)
		}
	}
	send("before")
	if n := len(s.lines.idle); n > 0 {
		t.Errorf("%d connections of prompt sends to the present primary, want none", n)
	}
	sentinel.Primary.Kill()
	sentinel.WaitForPrimary(t, sentinel.Replica)
	send("after")
}
