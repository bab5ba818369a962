package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// breakable is a connection of which a test sets how many more bytes it writes and reads before it breaks, and what it
// reads after its next reply.
type breakable struct {
	net.Conn
	mu            sync.Mutex
	writes, reads int // -1 for no limit
	extra         string
}

func (c *breakable) limit(writes, reads int, extra string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes, c.reads, c.extra = writes, reads, extra
}

// allow returns how many of n bytes may pass.
func (c *breakable) allow(n int, left *int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *left >= 0 {
		n = min(n, *left)
		*left -= n
	}
	return n
}

func (c *breakable) Write(p []byte) (int, error) {
	n := c.allow(len(p), &c.writes)
	written, err := c.Conn.Write(p[:n])
	if err == nil && n < len(p) {
		c.Conn.Close()
		err = net.ErrClosed
	}
	return written, err
}

func (c *breakable) Read(p []byte) (int, error) {
	n := c.allow(len(p), &c.reads)
	if n == 0 {
		c.Conn.Close()
		return 0, io.EOF
	}
	read, err := c.Conn.Read(p[:n])
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reads >= 0 {
		c.reads += n - read
	}
	read += copy(p[read:], c.extra)
	c.extra = ""
	return read, err
}

// breakableStore returns a store with short calls on lines, and a func that returns the connection of its idle line.
func breakableStore(t *testing.T, opts ...Option) (s *Store, line func() *breakable) {
	opt := *redistest.Shared(t).Options()
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &breakable{Conn: conn, writes: -1, reads: -1}, err
	}
	rdb := redis.NewClient(&opt)
	t.Cleanup(func() { rdb.Close() })
	s = newStore(t, rdb, append(opts, Prefix(store.NewID()+":"))...)
	s.shortOnLines = true
	return s, func() *breakable {
		t.Helper()
		if n := len(s.lines.idle); n != 1 {
			t.Fatalf("%d lines are idle, want 1", n)
		}
		return s.lines.idle[0].conn.Conn.(*breakable)
	}
}

// sendPromptly sends a message, which must be new.
func sendPromptly(t *testing.T, s *Store, id string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	results, err := s.SendPromptly(ctx, "q", []store.Outgoing{{Message: store.Message{ID: id}}})
	if err != nil || !results[0].Added() {
		t.Fatalf("send of %s: %+v, %v", id, results, err)
	}
}

// claimAndAck claims a message, calls between and acks it.
func claimAndAck(t *testing.T, s *Store, id string, between ...func()) {
	t.Helper()
	claim, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Minute})
	if err != nil || len(claim.Messages) != 1 || claim.Messages[0].ID != id || claim.Messages[0].Attempt != 1 {
		t.Fatalf("claim of %s: %+v, %v", id, claim.Messages, err)
	}
	for _, f := range between {
		f()
	}
	results, err := s.Settle(t.Context(), "q", []store.Settlement{{Receipt: claim.Messages[0].Receipt, Action: store.Ack}})
	if err != nil || results[0].Err != nil {
		t.Fatalf("ack of %s: %+v, %v", id, results, err)
	}
}

// A connection may break at any byte of a call and its reply: each call is executed once.
func TestCallsOnALineThatBreaksAreExecutedOnce(t *testing.T) {
	s, line := breakableStore(t)
	n := 0
	life := func(writes, reads int) {
		n++
		id := fmt.Sprint("m", n)
		limit := func() {
			if len(s.lines.idle) == 0 { // a claim or an ack is not repeated on a line
				sendPromptly(t, s, "another")
				claimAndAck(t, s, "another")
			}
			for of := range commonCases {
				s.keys.of("q").common[of].skip.Store(0)
			}
			line().limit(writes, reads, "")
		}
		limit()
		sendPromptly(t, s, id)
		limit()
		claimAndAck(t, s, id, limit)
	}
	sendPromptly(t, s, "first") // the queue exists
	claimAndAck(t, s, "first")
	for _, bytes := range []int{-1, 0, 1, 2, 3, 4, 5, 17, 60, 100, 150} {
		life(-1, bytes)
	}
	for _, bytes := range []int{0, 1, 30, 300, 600} {
		life(bytes, -1)
	}
	stats, err := s.Stats(t.Context(), "q")
	if err != nil || stats.Ready+stats.Scheduled+stats.Leased+stats.Dead != 0 {
		t.Errorf("%+v, %v after all were acked", stats, err)
	}
}

// What the server sends after a reply, except pushes, ends the line, so that no other call takes it for its reply. The
// line ends before its next call if pushes come first.
func TestUnexpectedBytesEndALine(t *testing.T) {
	s, line := breakableStore(t)
	for _, id := range []string{"a", "b", "c"} {
		sendPromptly(t, s, id)
	}
	for extra, keeps := range map[string]bool{
		">1\r\n+x\r\n": true, ">1\r\n+x\r\n>0\r\n": true, ">1\r\n+x\r\n:1\r\n": true, ">1\r\n+x\r\nx": true,
		"+x\r\n": false, ":7\r\n": false, "x": false,
	} {
		line().limit(-1, -1, extra)
		sendPromptly(t, s, "with "+extra)
		if kept := len(s.lines.idle) == 1; kept != keeps {
			t.Errorf("after %q the line is kept: %v", extra, kept)
		}
		sendPromptly(t, s, "after "+extra)
	}
}

// A line over TLS to a server that does not read is closed at once, although TLS would tell the server first.
func TestBrokenLinesAreClosedAtOnce(t *testing.T) {
	server := redistest.Start(t, redistest.TLS(t))
	opt := *server.Client(t).Options()
	config := opt.TLSConfig.Clone()
	config.ServerName = "127.0.0.1"
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return tls.Client(conn, config), conn.(*net.TCPConn).SetWriteBuffer(16 << 10)
	}
	rdb := redis.NewClient(&opt)
	t.Cleanup(func() { rdb.Close() })
	s := newStore(t, rdb)
	for _, id := range []string{"a", "b", "c"} {
		sendPromptly(t, s, id)
	}
	server.Freeze(t)
	defer server.Thaw(t)
	long := []store.Outgoing{}
	for i := range 4 {
		message := store.Message{ID: fmt.Sprint("long ", i), Payload: make([]byte, store.MaxPayload)}
		long = append(long, store.Outgoing{Message: message})
	}
	gone := errors.New("gone")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, gone)
	defer cancel()
	began := time.Now()
	_, err := s.SendPromptly(ctx, "q", long)
	took := time.Since(began)
	if !errors.Is(err, gone) || !strings.Contains(err.Error(), "write") || took > 4*time.Second {
		t.Errorf("send = %v after %v, want the cause at once", err, took)
	}
}

// The server's refusals leave a line usable, other errors do not.
func TestLinesKeepTheirConnectionAfterRefusals(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	s := newStore(t, rdb, RetryFor(-1))
	s.shortOnLines = true
	for i := range 3 {
		sendPromptly(t, s, fmt.Sprint("m", i))
	}
	of := s.lines.idle[0]
	if err := rdb.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	sendPromptly(t, s, "n, after a flush") // the last one, also if it is due in the same millisecond
	claimAndAck(t, s, "m0")
	set := func(name, value string) {
		t.Helper()
		if err := rdb.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("maxmemory", "1")
	_, err := s.SendPromptly(t.Context(), "q", []store.Outgoing{{Message: store.Message{ID: "full"}}})
	if !errors.Is(err, store.ErrFull) {
		t.Errorf("send to a full server: %v", err)
	}
	set("maxmemory", "0")
	sendPromptly(t, s, "after it was full")
	if idle := s.lines.idle; len(idle) != 1 || idle[0] != of || of.client != nil {
		t.Error("the line was closed")
	}
	if err := rdb.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	_, err = s.SendPromptly(t.Context(), "q", []store.Outgoing{{Message: store.Message{ID: "replica"}}})
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "READONLY") || len(s.lines.idle) > 0 {
		t.Errorf("send to a replica: %v, %d lines", err, len(s.lines.idle))
	}
}

// go-redis prepares a line as all options of the client say.
func TestLinesUseTheOptionsOfTheClient(t *testing.T) {
	server := redistest.Start(t, redistest.TLS(t))
	admin := server.Client(t)
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "default", "resetpass").Err(); err != nil {
		t.Fatal(err)
	}
	for protocol := 2; protocol <= 3; protocol++ {
		opt := *server.Options()
		opt.TLSConfig, opt.Protocol, opt.Username, opt.Password, opt.DB, opt.ClientName =
			admin.Options().TLSConfig, protocol, "app", "secret", 3, "shop"
		rdb := redis.NewClient(&opt)
		s := newStore(t, rdb, Prefix(fmt.Sprint("resp", protocol, ":")))
		s.shortOnLines = true
		for _, id := range []string{"a", "b", "c"} {
			sendPromptly(t, s, id)
		}
		claimAndAck(t, s, "a")
		if idle := s.lines.idle; len(idle) != 1 || idle[0].client != nil {
			t.Errorf("RESP%d: lines %v", protocol, idle)
		}
		found := false
		for client := range strings.Lines(rdb.ClientList(t.Context()).Val()) {
			if strings.Contains(client, " name=shop-send ") {
				found = strings.Contains(client, " db=3 ") && strings.Contains(client, " user=app ")
			}
		}
		if !found {
			t.Errorf("RESP%d: no line has the options: %s", protocol, rdb.ClientList(t.Context()).Val())
		}
		s.Close()
		rdb.Close()
	}
}

// limiter counts what it allows, and what it is told.
type limiter struct{ allowed, reported int }

func (l *limiter) Allow() error           { l.allowed++; return nil }
func (l *limiter) ReportResult(err error) { l.reported++ }

// A limiter sees each call, also on lines; hooks see every call but prompt ones.
func TestLimitersAndHooksSeeWhatTheyShould(t *testing.T) {
	opt := *redistest.Shared(t).Options()
	limiter := &limiter{}
	opt.Limiter = limiter
	rdb := redis.NewClient(&opt)
	t.Cleanup(func() { rdb.Close() })
	hook := &countingHook{}
	rdb.AddHook(hook)
	s := newStore(t, rdb, Prefix(store.NewID()+":"))
	sendPromptly(t, s, "a")
	claimAndAck(t, s, "a") // the server knows the scripts
	sendPromptly(t, s, "b")
	before, seen := *limiter, hook.n
	sendPromptly(t, s, "c")
	if limiter.allowed != before.allowed+1 || limiter.reported != before.reported+1 || hook.n != seen {
		t.Errorf("for a send: limiter %+v, before %+v, hook %d, before %d", *limiter, before, hook.n, seen)
	}
	before, seen = *limiter, hook.n
	claimAndAck(t, s, "b")
	if limiter.allowed != before.allowed+2 || limiter.reported != before.reported+2 || hook.n != seen+2 {
		t.Errorf("for a claim and an ack: limiter %+v, before %+v, hook %d, before %d", *limiter, before, hook.n, seen)
	}
}

type countingHook struct{ n int }

func (h *countingHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *countingHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.n++
		return next(ctx, cmd)
	}
}
func (h *countingHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A call on a line ends at the deadline of its context, also if there is no other timeout and the context has no timer.
func TestCallsOnALineEndAtTheirDeadline(t *testing.T) {
	server := redistest.Start(t)
	opt := *server.Options()
	opt.ReadTimeout = -1
	rdb := redis.NewClient(&opt)
	t.Cleanup(func() { rdb.Close() })
	s := newStore(t, rdb)
	for _, id := range []string{"a", "b", "c"} {
		sendPromptly(t, s, id)
	}
	server.Freeze(t)
	defer server.Thaw(t)
	caller, cancel := context.WithCancel(t.Context())
	defer cancel()
	ctx := calls.Limit(caller, 30*time.Millisecond)
	defer ctx.End()
	_, err := s.SendPromptly(ctx, "q", []store.Outgoing{{Message: store.Message{ID: "d"}}})
	if !errors.Is(err, context.DeadlineExceeded) || caller.Err() != nil {
		t.Errorf("send = %v, want the end of the deadline", err)
	}
}

// deadlines is a connection that records its deadline.
type deadlines struct {
	net.Conn
	set []time.Time
}

func (d *deadlines) SetDeadline(t time.Time) error { d.set = append(d.set, t); return nil }

func TestDeadlinesOfALineAreSetSeldom(t *testing.T) {
	conn := &deadlines{}
	l := &line{timeout: 8 * time.Second}
	l.conn.Conn = conn
	start := time.Now()
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	for _, call := range []struct {
		now, end int // 0 for a context without an end
		deadline int
		sets     bool
	}{
		{0, 0, 9, true}, {1, 0, 9, false}, {2, 0, 11, true}, {3, 40, 11, false}, {3, 5, 5, true}, {3, 0, 12, true},
		{4, 12, 12, false}, {4, 11, 11, true}, {4, 13, 13, true},
	} {
		ctx := t.Context()
		if call.end > 0 {
			timed, cancel := context.WithDeadline(ctx, at(call.end))
			defer cancel()
			ctx = timed
		}
		before := len(conn.set)
		err := l.limit(ctx, at(call.now))
		if last := conn.set[len(conn.set)-1]; err != nil || !last.Equal(at(call.deadline)) ||
			len(conn.set)-before != map[bool]int{true: 1}[call.sets] {
			t.Errorf("%+v: deadline %v after %v, %v", call, last.Sub(start), conn.set, err)
		}
	}
}

// Idle lines are at most maxLines, which grow old.
func TestLinesAreLimitedAndRenewed(t *testing.T) {
	s := newStore(t, redistest.Shared(t).Client(t), Prefix(store.NewID()+":"))
	sendPromptly(t, s, "first")
	var sending sync.WaitGroup
	for i := range 4 * maxLines {
		sending.Go(func() { sendPromptly(t, s, fmt.Sprint("m", i)) })
	}
	sending.Wait()
	if n := len(s.lines.idle); n == 0 || n > maxLines || n != len(s.lines.all) || s.lines.dials != 0 {
		t.Errorf("%d lines are idle, of %d and %d", n, len(s.lines.all), s.lines.dials)
	}
	old := s.lines.idle
	for _, l := range old {
		l.createdAt = l.createdAt.Add(-maxConnAge)
	}
	sendPromptly(t, s, "last")
	if n := len(s.lines.idle); n != 1 || s.lines.idle[0].createdAt.Before(time.Now().Add(-maxConnAge)) {
		t.Errorf("%d lines are idle after a minute", n)
	}
}
