package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// sleeper is a store with one waiter that makes no safety claims.
type sleeper struct {
	*Store
	t     *testing.T
	queue string
	woken chan error
}

// newSleeper returns one that is in the queue's list.
func newSleeper(t *testing.T, s *Store, queue string) *sleeper {
	t.Helper()
	x := &sleeper{Store: s, t: t, queue: queue, woken: make(chan error, 1)}
	claim(t, s, queue, 1, time.Minute)
	go func() { x.woken <- s.Wait(t.Context(), queue) }()
	waiting(t, s, queue, 1)
	x.state(func(q *queueWake) {
		q.safety = time.Now().Add(time.Hour)
		s.waker.arm(q)
	})
	return x
}

// state calls f with the state of the queue.
func (x *sleeper) state(f func(q *queueWake)) {
	x.waker.mu.Lock()
	defer x.waker.mu.Unlock()
	f(x.waker.queues[x.queue])
}

// receives checks that the waiter wakes and claims a message. It may wake a little early, and then waits again.
func (x *sleeper) receives(id string) {
	x.t.Helper()
	for {
		select {
		case err := <-x.woken:
			if err != nil {
				x.t.Fatal(err)
			}
		case <-time.After(20 * time.Second):
			x.t.Fatalf("the waiter sleeps on after message %q became ready", id)
		}
		c := claim(x.t, x.Store, x.queue, 1, time.Minute)
		if len(c.Messages) == 1 && c.Messages[0].ID == id {
			return
		}
		if len(c.Messages) > 0 {
			x.t.Fatalf("claimed %+v, want message %q", c.Messages, id)
		}
		x.state(func(q *queueWake) {
			if q != nil { // it is remembered while it is listed
				q.safety = time.Now().Add(time.Hour)
			}
		})
		go func() { x.woken <- x.Wait(x.t.Context(), x.queue) }()
	}
}

// promised waits until the process has promised to claim.
func (x *sleeper) promised() {
	x.t.Helper()
	eventually(x.t, func() (ok bool) {
		x.state(func(q *queueWake) { ok = q.listing == listed && !q.next.IsZero() })
		return ok
	})
}

// A waiting process gets a message that was sent after its connection was killed and before it has a new one.
func TestKilledConnectionDelaysBySecondsOnly(t *testing.T) {
	srv := redistest.Start(t)
	x := newSleeper(t, newStore(t, srv.Client(t)), "q")
	if n, err := srv.Client(t).ClientKillByFilter(t.Context(), "TYPE", "pubsub").Result(); err != nil || n != 1 {
		t.Fatalf("%d connections were killed, %v; want the only one that listens", n, err)
	}
	send(t, newStore(t, srv.Client(t)), "q", "m", store.Due{})
	x.receives("m")
}

// The connection stays, but nothing arrives on it any more.
func TestDeafConnectionIsReplaced(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	x := newSleeper(t, newStore(t, rdb), "q")
	x.waker.mu.Lock()
	v := x.waker.servers[""]
	epoch := v.epoch
	v.channel = "later:wake:nobody" // its messages go elsewhere
	x.waker.mu.Unlock()
	eventually(t, func() bool {
		x.waker.mu.Lock()
		defer x.waker.mu.Unlock()
		return v.epoch > epoch
	})
	send(t, newStore(t, rdb), "q", "m", store.Due{})
	x.receives("m")
}

// The server has forgotten the waiting processes.
func TestWaitSurvivesFlushAll(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	s := newStore(t, rdb)
	x := newSleeper(t, s, "q")
	eventually(t, func() bool { return rdb.ZCard(t.Context(), "later:processes").Val() == 1 }) // it has sent a beat
	if err := rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return rdb.ZCard(t.Context(), "later:{q}:wake").Val() == 1 })
	producer := newStore(t, rdb)
	send(t, producer, "q", "m", store.Due{})
	x.receives("m")
}

// A process that promised to claim is gone when another one begins to wait, or dies while the other one waits.
func TestPromiseOfDeadProcessIsTakenOver(t *testing.T) {
	const dead = -time.Minute
	for _, before := range []bool{true, false} {
		t.Run(fmt.Sprint("before the other waits: ", before), func(t *testing.T) {
			rdb := redistest.Start(t).Client(t)
			s := newStore(t, rdb)
			send(t, s, "q", "m", store.Due{Delay: 5 * time.Second})
			due := time.Now().Add(5 * time.Second)
			p := newListener(t, rdb, "q", float64(due.UnixMilli()-500))
			if before {
				p.sub.Close()
				eventually(t, func() bool { return rdb.Publish(t.Context(), p.channel, "").Val() == 0 })
			}
			x := newSleeper(t, s, "q")
			if !before { // its machine has lost power, so that its connection remains
				x.state(func(q *queueWake) {
					if !q.next.IsZero() {
						t.Errorf("two processes have the same timer")
					}
				})
				beat := redis.Z{Score: float64(time.Now().Add(dead).UnixMilli()), Member: p.channel}
				if err := rdb.ZAdd(t.Context(), "later:processes", beat).Err(); err != nil {
					t.Fatal(err)
				}
			}
			x.promised()
			x.receives("m")
			if rank := rdb.ZRank(t.Context(), "later:{q}:wake", p.channel); !before && rank.Err() != redis.Nil {
				t.Errorf("the dead process is still in the list: %v", rank)
			}
		})
	}
}

// A process that hangs was notified of a message and did not claim it.
func TestBrokenPromiseIsNoticedByNextMessage(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	x := newSleeper(t, s, "q")
	newListener(t, rdb, "q", float64(time.Now().Add(-2*brokenAfter).UnixMilli()))
	send(t, s, "q", "m", store.Due{})
	x.receives("m")
}

// Ready messages go to the process that has waited longest.
func TestIdleProcessesTakeTurns(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	producer := newStore(t, rdb)
	var idle []*sleeper
	for range 3 {
		idle = append(idle, newSleeper(t, newStore(t, rdb), "q"))
	}
	for i := range 6 {
		x := idle[i%3]
		id := fmt.Sprint("m", i)
		send(t, producer, "q", id, store.Due{})
		select {
		case err := <-x.woken:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("message %d did not wake process %d", i, i%3)
		}
		c := claim(t, x.Store, "q", 1, time.Minute)
		acks := []store.Settlement{{Receipt: c.Messages[0].Receipt, Action: store.Ack}}
		if _, err := x.Settle(t.Context(), "q", acks); err != nil {
			t.Fatal(err)
		}
		idle[i%3] = newSleeper(t, x.Store, "q")
	}
}

// A claim that leaves messages behind because it was full notifies another process, and so does the end of a promise.
func TestFullClaimNotifiesNextProcess(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	first, second := newSleeper(t, newStore(t, rdb), "q"), newSleeper(t, newStore(t, rdb), "q")
	due := store.Due{At: time.Now().Add(500 * time.Millisecond)}
	_, err := newStore(t, rdb).Send(t.Context(), "q", []store.Outgoing{
		{Message: store.Message{ID: "a"}, Due: due}, {Message: store.Message{ID: "b"}, Due: due},
	})
	if err != nil {
		t.Fatal(err)
	}
	first.receives("a")
	second.receives("b")
}

// syncLog collects the lines of a log.
type syncLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *syncLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *syncLog) contains(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// limitedUser returns a client of a user without channels.
func limitedUser(t *testing.T, srv *redistest.Server, rules ...any) *redis.Client {
	t.Helper()
	rdb := srv.Client(t)
	args := append([]any{"ACL", "SETUSER", "limited", "on", ">secret", "~later:*", "resetchannels", "+@all"}, rules...)
	if err := rdb.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	opt := *rdb.Options()
	opt.Username, opt.Password = "limited", "secret"
	limited := redis.NewClient(&opt)
	t.Cleanup(func() { limited.Close() })
	return limited
}

// A producer that may not publish cannot wake anyone, but leaves a mark, so that others claim often.
func TestProducerWithoutChannelsIsNoticed(t *testing.T) {
	srv := redistest.Start(t)
	var log syncLog
	logged := WithLogger(slog.New(slog.NewTextHandler(&log, nil)))
	s := newStore(t, srv.Client(t))
	x := newSleeper(t, s, "q")
	send(t, newStore(t, limitedUser(t, srv), logged), "q", "m", store.Due{})
	if !log.contains("ACL SETUSER <user> &later:*") {
		t.Error("the producer did not log what to do")
	}
	x.receives("m")
	x.waker.mu.Lock()
	defer x.waker.mu.Unlock()
	if v := x.waker.servers[""]; !v.muted || !v.deaf() {
		t.Error("the consumer does not know that notifications may not arrive")
	}
}

// A consumer that may not listen claims often.
func TestConsumerWithoutChannelsReceives(t *testing.T) {
	srv := redistest.Start(t)
	var log syncLog
	s := newStore(t, limitedUser(t, srv), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	claim(t, s, "q", 1, time.Minute)
	woken := make(chan error, 1)
	go func() { woken <- s.Wait(t.Context(), "q") }()
	eventually(t, func() bool { return log.contains("may not listen") })
	send(t, newStore(t, srv.Client(t)), "q", "m", store.Due{})
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
	if c := claim(t, s, "q", 1, time.Minute); len(c.Messages) != 1 {
		t.Errorf("claimed %d messages", len(c.Messages))
	}
}

func TestCheckReportsAUserWithoutChannels(t *testing.T) {
	srv := redistest.Start(t)
	for _, c := range []struct {
		rule string
		want []string
	}{
		{"resetchannels", []string{"may not publish to channels", "may not listen to channels"}},
		{"-publish", []string{"may not publish to channels"}},
		{"-subscribe", []string{"may not listen to channels"}},
		{"+@all", nil},
	} {
		rules := []any{"&later:*", c.rule}
		s := newStore(t, limitedUser(t, srv, rules...), WithLogger(slog.New(slog.DiscardHandler)))
		var found []string
		err := s.Check(t.Context(), store.CheckOptions{}, func(r store.CheckResult) {
			if r.Check != "channels" {
				return
			}
			found = append(found, r.Text)
			if r.Severity != store.SeverityWarning || !strings.Contains(r.Advice, "ACL SETUSER <user> &later:*") {
				t.Errorf("%s: %+v", c.rule, r)
			}
		})
		if err != nil {
			t.Errorf("%s: %v", c.rule, err)
		}
		if !slices.EqualFunc(found, c.want, strings.Contains) {
			t.Errorf("with %s: %q, want %q", c.rule, found, c.want)
		}
	}
}

// In a Cluster there is one connection to each primary for all queues, also if the user may not call INFO.
func TestClusterWaitersShareOneConnectionPerPrimary(t *testing.T) {
	cluster := redistest.StartCluster(t)
	for _, node := range cluster.Nodes {
		err := node.Client(t).Do(t.Context(), "ACL", "SETUSER", "limited", "on", ">secret", "~later:*",
			"&later:*", "+@all", "-@dangerous").Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	opt := *cluster.Client(t).Options()
	opt.Username, opt.Password = "limited", "secret"
	rdb := redis.NewClusterClient(&opt)
	t.Cleanup(func() { rdb.Close() })
	s := newStore(t, rdb, WithLogger(slog.New(slog.DiscardHandler)))
	var sleepers []*sleeper
	for i := range 60 {
		sleepers = append(sleepers, newSleeper(t, s, fmt.Sprint("q", i)))
	}
	for _, node := range cluster.Nodes {
		clients, err := node.Client(t).Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
		if err != nil || strings.Count(clients, "\n") != 1 {
			t.Errorf("listening connections, %v, want 1:\n%s", err, clients)
		}
	}
	producer := newStore(t, cluster.Client(t))
	for _, x := range sleepers {
		send(t, producer, x.queue, "m", store.Due{})
		x.receives("m")
	}
	s.waker.mu.Lock()
	defer s.waker.mu.Unlock()
	if n := len(s.waker.servers); n != len(cluster.Nodes) {
		t.Errorf("%d clocks are estimated, want %d", n, len(cluster.Nodes))
	}
}

// Nothing is left of queues that a process does not use any more, here or on the server.
func TestUnusedQueuesAreForgotten(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	const n = 300
	for i := range n {
		queue := fmt.Sprint("q", i)
		send(t, s, queue, "m", store.Due{})
		claim(t, s, queue, 2, time.Minute)
		all.Go(func() { s.Wait(ctx, queue) })
	}
	for i := range n {
		waiting(t, s, fmt.Sprint("q", i), 1)
	}
	for i := range n {
		if err := s.Delete(t.Context(), fmt.Sprint("q", i)); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	all.Wait()
	eventually(t, func() bool {
		s.waker.mu.Lock()
		defer s.waker.mu.Unlock()
		return len(s.waker.queues) == 0 && s.waker.waiting == 0
	})
	names := 0
	s.keys.queues.Range(func(any, any) bool { names++; return true })
	s.registered.Range(func(any, any) bool { names++; return true })
	if names > 0 {
		t.Errorf("%d names of deleted queues are kept", names)
	}
	keys, err := rdb.Keys(t.Context(), "later:*").Result()
	if err != nil || !slices.Equal(keys, []string{"later:processes"}) {
		t.Errorf("keys are left: %q, %v", keys, err)
	}
}

// A store that is closed leaves the lists, so that another process claims in its place.
func TestClosePassesPromisesOn(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	other := newStore(t, rdb)
	send(t, other, "q", "m", store.Due{Delay: time.Hour})
	newSleeper(t, s, "q").promised()
	x := newSleeper(t, other, "q")
	x.state(func(q *queueWake) {
		if !q.next.IsZero() {
			t.Error("two processes have the same timer")
		}
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	x.promised()
	if n, err := rdb.ZCard(t.Context(), "later:processes").Result(); err != nil || n != 1 {
		t.Errorf("%d processes are alive, %v; want 1", n, err)
	}
}
