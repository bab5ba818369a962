package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/activity"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

func report(t *testing.T, s *Store, r store.Report) int {
	t.Helper()
	results, err := s.Report(t.Context(), []store.Report{r})
	if err != nil {
		t.Fatal(err)
	}
	if results[0].Err != nil {
		t.Fatal(results[0].Err)
	}
	return results[0].Watchers
}

func watch(t *testing.T, s *Store, queues ...string) store.Watcher {
	t.Helper()
	w, err := s.Watch(t.Context(), queues)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func nextEvents(t *testing.T, w store.Watcher) store.Reported {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := w.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var anEvent = store.Report{Queue: "q", Events: []byte("x"), Number: 1}

// Databases of a server share its channels.
func TestWatchersHearOnlyTheirDatabase(t *testing.T) {
	srv := redistest.Start(t)
	opt := *srv.Options()
	opt.DB = 3
	third := redis.NewClient(&opt)
	t.Cleanup(func() { third.Close() })
	zero, three := newStore(t, srv.Client(t)), newStore(t, third)
	w := watch(t, three, "q")
	if n := report(t, zero, anEvent); n != 0 {
		t.Errorf("%d watchers in database 0", n)
	}
	if n := report(t, three, store.Report{Queue: "q", Events: []byte("three"), Number: 1}); n != 1 {
		t.Errorf("%d watchers in database 3", n)
	}
	if r := nextEvents(t, w); string(r.Events) != "three" {
		t.Errorf("got %q", r.Events)
	}
}

func TestActivityIsBoundedAndEnds(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s, queue := newFrozenClock(t, rdb), "activity-is-bounded"
	move := advance(rdb)
	send(t, s, queue, "m", store.Due{})
	counts := map[store.EventKind]int64{"sent": 1e6, "claimed": 1e6, "acked": 1e6, "nacked": 1e4, "snoozed": 1e3,
		"died": 1e3, "lease_lost": 100, "cancelled": 1e3}
	for range 300 {
		report(t, s, store.Report{Queue: queue, Counts: counts})
		move(t, queue, 7*time.Minute+3*time.Second)
	}
	for range activity.Spans[0].Slots {
		report(t, s, store.Report{Queue: queue, Counts: counts})
		move(t, queue, 10*time.Second)
	}
	key := s.keys.key(queue, activityKey)
	bytes, err := rdb.MemoryUsage(t.Context(), key, 0).Result()
	if t.Logf("%d bytes", bytes); err != nil || bytes > 12<<10 {
		t.Errorf("the activity takes %d bytes, %v; the docs say up to 12 KB", bytes, err)
	}
	if n, err := rdb.HLen(t.Context(), key).Result(); err != nil || n > activity.MaxBuckets {
		t.Errorf("%d buckets, %v; want at most %d", n, err, activity.MaxBuckets)
	}
	if ttl, err := rdb.PTTL(t.Context(), key).Result(); err != nil || ttl <= 24*time.Hour || ttl > activity.KeepFor {
		t.Errorf("the activity ends after %v, %v", ttl, err)
	}
	if err := s.Delete(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	if n, err := rdb.Exists(t.Context(), key).Result(); err != nil || n != 0 {
		t.Errorf("%d keys are left, %v", n, err)
	}
}

func TestReportByAUserWithoutChannelsCounts(t *testing.T) {
	srv := redistest.Start(t)
	var log syncLog
	logged := WithLogger(slog.New(slog.NewTextHandler(&log, nil)))
	s := newStore(t, limitedUser(t, srv), logged)
	send(t, s, "q", "m", store.Due{})
	w := watch(t, newStore(t, srv.Client(t)), "q")
	for range 3 {
		r := anEvent
		r.Counts = map[store.EventKind]int64{"sent": 1}
		if n := report(t, s, r); n != 0 {
			t.Errorf("%d watchers were reached", n)
		}
	}
	a, err := s.Activity(t.Context(), "q")
	if err != nil || a.Minute.Counts["sent"] != 3 {
		t.Errorf("activity %v, %v", a.Minute.Counts, err)
	}
	if !log.contains("its events cannot be watched") {
		t.Error("the process did not log that nobody can watch it")
	}
	if n := strings.Count(log.text.String(), "may not publish"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := w.Next(ctx); err == nil {
		t.Errorf("the watcher got %+v", r)
	}
}

func TestWatchByAUserWithoutChannelsIsRefused(t *testing.T) {
	srv := redistest.Start(t)
	s := newStore(t, limitedUser(t, srv), WithLogger(slog.New(slog.DiscardHandler)))
	send(t, s, "q", "m", store.Due{})
	_, err := s.Watch(t.Context(), []string{"q"})
	if !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "ACL SETUSER <user> &later:*") {
		t.Errorf("Watch returned %v", err)
	}
}

// A watcher reports a gap when its connection breaks, and then receives events again.
func TestWatcherReconnects(t *testing.T) {
	for _, e := range []struct {
		name  string
		start func(t *testing.T) (client func(testing.TB) redis.UniversalClient, kill func(t *testing.T))
	}{
		{"alone", func(t *testing.T) (func(testing.TB) redis.UniversalClient, func(t *testing.T)) {
			srv := redistest.Start(t)
			return func(t testing.TB) redis.UniversalClient { return srv.Client(t) },
				func(t *testing.T) { killListeners(t, srv.Client(t)) }
		}},
		{"cluster", func(t *testing.T) (func(testing.TB) redis.UniversalClient, func(t *testing.T)) {
			cluster := redistest.StartCluster(t)
			return func(t testing.TB) redis.UniversalClient { return cluster.Client(t) },
				func(t *testing.T) {
					for _, node := range cluster.Nodes {
						killListeners(t, node.Client(t))
					}
				}
		}},
	} {
		t.Run(e.name, func(t *testing.T) {
			client, kill := e.start(t)
			s := newStore(t, client(t))
			w := watch(t, newStore(t, client(t)), "q", "other")
			kill(t)
			if r := nextEvents(t, w); !r.Gap {
				t.Errorf("got %+v, want a gap", r)
			}
			for _, queue := range []string{"q", "other"} {
				r := store.Report{Queue: queue, Events: []byte(queue), Number: 1}
				eventually(t, func() bool { return report(t, s, r) == 1 })
				got := nextEvents(t, w)
				for got.Gap && got.Queue == "" { // each server's connection broke
					got = nextEvents(t, w)
				}
				if string(got.Events) != queue {
					t.Errorf("got %+v", got)
				}
			}
		})
	}
}

// killListeners closes all connections that listen to channels.
func killListeners(t *testing.T, rdb *redis.Client) {
	t.Helper()
	if err := rdb.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err(); err != nil {
		t.Fatal(err)
	}
}

// A queue that moves to another node takes its watchers with it.
func TestWatcherFollowsAMovedSlot(t *testing.T) {
	cluster := redistest.StartCluster(t)
	rdb := cluster.Client(t)
	queue := "moves"
	s := newStore(t, rdb)
	w := watch(t, newStore(t, cluster.Client(t)), queue)
	if n := report(t, s, store.Report{Queue: queue, Events: []byte("before"), Number: 1}); n != 1 {
		t.Fatalf("%d watchers", n)
	}
	if r := nextEvents(t, w); string(r.Events) != "before" {
		t.Fatalf("got %+v", r)
	}
	slot, err := rdb.ClusterKeySlot(t.Context(), queue).Result()
	if err != nil {
		t.Fatal(err)
	}
	from := cluster.Node(t, "{"+queue+"}")
	to := cluster.Nodes[0]
	if to == from {
		to = cluster.Nodes[1]
	}
	owner, err := to.Client(t).Do(t.Context(), "CLUSTER", "MYID").Text()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range append([]*redistest.Server{to}, cluster.Nodes...) { // the queue has no keys
		if err := n.Client(t).Do(t.Context(), "CLUSTER", "SETSLOT", slot, "NODE", owner).Err(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() bool {
		results, err := s.Report(t.Context(), []store.Report{{Queue: queue, Events: []byte("after"), Number: 1}})
		return err == nil && results[0].Watchers == 1
	})
	r := nextEvents(t, w)
	gap := r.Gap
	for string(r.Events) == "" {
		r = nextEvents(t, w)
		gap = gap || r.Gap
	}
	if string(r.Events) != "after" || !gap {
		t.Errorf("got %+v, gap %t", r, gap)
	}
}

// A watcher uses one connection to a server, however many queues it watches.
func TestWatcherUsesOneConnectionPerServer(t *testing.T) {
	srv := redistest.Start(t)
	var queues []string
	for i := range 500 {
		queues = append(queues, fmt.Sprint("q", i))
	}
	w := watch(t, newStore(t, srv.Client(t)), queues...)
	rdb := srv.Client(t)
	clients, err := rdb.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
	if err != nil || strings.Count(clients, "\n") != 1 {
		t.Errorf("listening connections, %v, want 1:\n%s", err, clients)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		names, err := rdb.PubSubChannels(t.Context(), "*").Result()
		return err == nil && len(names) == 0
	})
}
