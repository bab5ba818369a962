package redisstore

import (
	"bufio"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// waiting waits until n waiters of the queue are registered and a read blocks on the marker.
func waiting(t *testing.T, s *Store, queue string, n int) {
	t.Helper()
	eventually(t, func() bool {
		s.waker.mu.Lock()
		defer s.waker.mu.Unlock()
		q := s.waker.queues[queue]
		return q != nil && len(q.waiters) == n
	})
	rdb := s.rdb
	eventually(t, func() bool {
		clients, err := rdb.ClientList(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(clients, "cmd=bzpopmin")
	})
}

// eventually waits for a condition that has no event.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(20 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("condition not met within 20 s")
		}
	}
}

func send(t *testing.T, s *Store, queue string, id string, due store.Due) {
	t.Helper()
	if _, err := s.Send(t.Context(), queue, []store.Outgoing{{Message: store.Message{ID: id}, Due: due}}); err != nil {
		t.Fatal(err)
	}
}

func claim(t *testing.T, s *Store, queue string, max int, lease time.Duration) store.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), queue, store.ClaimRequest{Max: max, Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newStore(t *testing.T, rdb redis.UniversalClient, opts ...Option) *Store {
	s := New(rdb, opts...)
	t.Cleanup(func() { s.Close() })
	return s
}

// commandsOf returns the commands that a server receives while f runs, without those called by scripts.
func commandsOf(t *testing.T, srv *redistest.Server, f func()) []string {
	t.Helper()
	conn, err := net.Dial("tcp", srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(conn)
	lines.Scan() // OK
	rdb := srv.Client(t)
	f()
	if err := rdb.Echo(t.Context(), "the end").Err(); err != nil {
		t.Fatal(err)
	}
	var seen []string
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"the end"`) {
			return seen
		}
		if !strings.Contains(lines.Text(), " lua]") {
			seen = append(seen, lines.Text())
		}
	}
	t.Fatalf("MONITOR ended: %v", lines.Err())
	return nil
}

// A message wakes one of ten waiting processes, and the others send no command.
func TestMessageWakesOneOfManyWaiters(t *testing.T) {
	srv := redistest.Start(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	woken := make(chan *Store, 10)
	var all sync.WaitGroup
	for range 10 {
		s := newStore(t, srv.Client(t))
		claim(t, s, "q", 1, time.Minute)
		all.Go(func() {
			if s.Wait(ctx, "q") == nil {
				woken <- s
			}
		})
		waiting(t, s, "q", 1)
	}
	producer := newStore(t, srv.Client(t))
	commands := commandsOf(t, srv, func() {
		send(t, producer, "q", "m", store.Due{})
		s := <-woken
		if c := claim(t, s, "q", 1, time.Minute); len(c.Messages) != 1 {
			t.Errorf("the woken process claimed %d messages, want 1", len(c.Messages))
		}
	})
	if n := len(commands); n > 15 { // send and claim on new connections, and the next wait of the woken process
		t.Errorf("a message took %d commands with ten waiting processes:\n%s", n, strings.Join(commands, "\n"))
	}
	stop()
	all.Wait()
	if len(woken) > 0 {
		t.Errorf("%d more processes woke", len(woken))
	}
}

// A process that knows the next due time but has no waiters any more passes the marker to one that has.
func TestTimerOwnerPassesMarkerOn(t *testing.T) {
	srv := redistest.Start(t)
	first, second := newStore(t, srv.Client(t)), newStore(t, srv.Client(t))
	send(t, first, "q", "now", store.Due{})
	send(t, first, "q", "soon", store.Due{Delay: 300 * time.Millisecond})
	claim(t, second, "q", 0+1, time.Minute) // claims "now" and, being full, sets the marker
	got := make(chan error, 1)
	claim(t, first, "q", 1, time.Minute)
	go func() { got <- second.Wait(t.Context(), "q") }()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		c := claim(t, second, "q", 1, time.Minute)
		return len(c.Messages) == 1 && c.Messages[0].ID == "soon"
	})
}

// The process that held the marker is gone. Another one finds the message by its safety claim.
func TestLostMarkerDelaysBySecondsOnly(t *testing.T) {
	srv := redistest.Start(t)
	s := newStore(t, srv.Client(t))
	claim(t, s, "q", 1, time.Minute)
	got := make(chan error, 1)
	go func() { got <- s.Wait(t.Context(), "q") }()
	waiting(t, s, "q", 1)
	// Add the message without a marker, as if a process that is gone had popped it.
	rdb := srv.Client(t)
	if err := rdb.Eval(t.Context(), `redis.call('HSET', KEYS[1], 'm', '\0')
		redis.call('ZADD', KEYS[2], 1, 'm')
		redis.call('HSET', KEYS[3], 'format', ARGV[1])`,
		[]string{"later:{q}:msg", "later:{q}:due", "later:{q}:meta"}, layoutFormat).Err(); err != nil && err != redis.Nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if c := claim(t, s, "q", 1, time.Minute); len(c.Messages) != 1 {
		t.Error("the safety claim found nothing")
	}
}

func TestWaitSurvivesServerRestart(t *testing.T) {
	srv := redistest.Start(t)
	s := newStore(t, srv.Client(t))
	claim(t, s, "q", 1, time.Minute)
	got := make(chan error, 1)
	go func() {
		for {
			if err := s.Wait(t.Context(), "q"); err != nil {
				got <- err
				return
			}
			c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Minute})
			if err != nil || len(c.Messages) > 0 {
				got <- err
				return
			}
		}
	}()
	waiting(t, s, "q", 1)
	srv.Kill()
	srv.Restart(t)
	send(t, newStore(t, srv.Client(t)), "q", "m", store.Due{})
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

// A process that is closed does not lose what it knows.
func TestClosePutsMarkerBack(t *testing.T) {
	srv := redistest.Start(t)
	s := New(srv.Client(t))
	send(t, s, "q", "m", store.Due{Delay: time.Hour})
	claim(t, s, "q", 1, time.Minute)
	ended := make(chan error, 1)
	go func() { ended <- s.Wait(t.Context(), "q") }()
	eventually(t, func() bool { // the marker is popped
		n, err := srv.Client(t).Exists(t.Context(), "later:{q}:wake").Result()
		if err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
	eventually(t, func() bool {
		s.waker.mu.Lock()
		defer s.waker.mu.Unlock()
		return s.waker.queues["q"].role == timerOwner
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, store.ErrClosed) {
		t.Errorf("Wait = %v, want ErrClosed", err)
	}
	if n, err := srv.Client(t).Exists(t.Context(), "later:{q}:wake").Result(); err != nil || n != 1 {
		t.Errorf("the marker was not put back: %v", err)
	}
}

func TestWaitersOfManyQueuesShareOneConnection(t *testing.T) {
	srv := redistest.Start(t)
	s := newStore(t, srv.Client(t))
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	queues := []string{"a", "b", "c", "d"}
	woken := make(chan string, 100)
	for _, q := range queues {
		claim(t, s, q, 1, time.Minute)
		all.Go(func() {
			for s.Wait(ctx, q) == nil {
				c, err := s.Claim(ctx, q, store.ClaimRequest{Max: 1, Lease: time.Minute})
				if err == nil && len(c.Messages) == 1 {
					woken <- q
				}
			}
		})
	}
	for _, q := range slices.Backward(queues) {
		waiting(t, s, q, 1)
		send(t, s, q, "m", store.Due{})
		if got := <-woken; got != q {
			t.Errorf("want a wake-up of queue %s, got %s", got, q)
		}
	}
	clients, err := srv.Client(t).ClientList(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(clients, "cmd=bzpopmin"); n > 1 {
		t.Errorf("%d connections wait, want 1", n)
	}
	stop()
	all.Wait()
}

func TestServerClock(t *testing.T) {
	local := time.Now()
	var c serverClock
	if _, known := c.now(); known {
		t.Error("clock is known without a reading")
	}
	c.read(local, local.Add(2*time.Millisecond), local.Add(time.Hour+time.Millisecond))
	if c.offset != time.Hour {
		t.Errorf("offset is %v", c.offset)
	}
	c.read(local, local.Add(20*time.Millisecond), local.Add(time.Hour+15*time.Millisecond))
	if c.offset != time.Hour {
		t.Errorf("a less accurate consistent reading replaced a better one: offset = %v", c.offset)
	}
	c.read(local, local.Add(20*time.Millisecond), local.Add(2*time.Hour))
	if c.offset < 119*time.Minute {
		t.Errorf("a step of the clock was ignored: offset = %v", c.offset)
	}
}

// A process that was woken but does not claim, for example because its handlers are busy with other queues, passes the
// notification on.
func TestUnusedNotificationIsPassedOn(t *testing.T) {
	srv := redistest.Start(t)
	busy, free := newStore(t, srv.Client(t)), newStore(t, srv.Client(t))
	claim(t, busy, "q", 1, time.Minute)
	claim(t, free, "q", 1, time.Minute)
	woken := make(chan error, 2)
	go func() { woken <- busy.Wait(t.Context(), "q") }()
	waiting(t, busy, "q", 1)
	send(t, busy, "q", "m", store.Due{})
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	go func() { woken <- free.Wait(t.Context(), "q") }()
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
	if c := claim(t, free, "q", 1, time.Minute); len(c.Messages) != 1 {
		t.Errorf("the other process was woken after %v but claimed nothing", time.Since(began))
	}
}

// The process's own blocking read, on another connection, may pop the marker that a claim's script set before the
// claim's reply is processed. Then only this process knows when to wake.
func TestMarkerPoppedBeforeClaimReplyIsKept(t *testing.T) {
	now := time.Now()
	due := now.Add(time.Minute)
	for name, claimed := range map[string]func(w *waker, start claimStart){
		"set by a full claim": func(w *waker, s claimStart) {
			w.claimed("q", s, now, due.UnixMilli(), 1,
				true)
		},
		"set by a send after an empty claim": func(w *waker, s claimStart) { w.claimed("q", s, now, -1, 0, false) },
		"set by a send before the next event": func(w *waker, s claimStart) {
			w.claimed("q", s, now, due.Add(time.Hour).UnixMilli(), 1, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Store{}
			w := &s.waker
			w.init(s)
			defer func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.closed = true
				for _, q := range w.queues {
					if q.returnTimer != nil {
						q.returnTimer.Stop()
					}
				}
			}()
			w.clock.read(now, now, now)
			start := w.claiming("q")
			w.markerPopped("q", due)
			claimed(w, start)
			if q := w.queue("q"); q.role != timerOwner || q.next.UnixMilli() != due.UnixMilli() {
				t.Errorf("role = %d, next in %v; want timer owner (%d) in %v",
					q.role, time.Until(q.next).Round(time.Second), timerOwner, time.Minute)
			}
		})
	}
}
