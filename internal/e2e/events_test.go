package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// watcher is the role of a process that watches queues until it is killed. It reports the events as its own.
type watcher struct {
	URL    string
	Queues []string
}

func (w watcher) run() error {
	ctx := context.Background()
	client, err := later.Open(ctx, w.URL)
	if err != nil {
		return err
	}
	watch, err := client.Watch(ctx, w.Queues...)
	if err != nil {
		return err
	}
	report(event{Kind: ready})
	for {
		e, err := watch.Next(ctx)
		if err != nil {
			return err
		}
		report(event{Kind: e.Kind, ID: e.ID})
	}
}

// awaitActivity waits until processes have reported n events of a kind in the last hour.
func awaitActivity(t *testing.T, q *later.Queue, kind later.EventKind, n int64) {
	t.Helper()
	ctx := bounded(t)
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		a, err := q.Activity(ctx)
		if err != nil {
			t.Fatalf("waiting for %d %s: %v", n, kind, err)
		}
		if a.Hour.Counts[kind] >= n {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("%d %s were reported in the last hour, want %d", a.Hour.Counts[kind], kind, n)
		}
	}
}

func watch(t *testing.T, c *later.Client, queues ...string) *later.Watch {
	t.Helper()
	w, err := c.Watch(bounded(t), queues...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// onEachServer runs a test on a single server and on a Cluster.
func onEachServer(t *testing.T, f func(t *testing.T, url string, rdb redis.UniversalClient)) {
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Start(t)
		f(t, srv.URL(), srv.Client(t))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.StartCluster(t)
		f(t, cluster.URL(), cluster.Client(t))
	})
}

func TestEventsOfTwoProcessesReachAThird(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, url string, _ redis.UniversalClient) {
		j := newJournal()
		c := open(t, url)
		one, two := c.Queue("one"), c.Queue("two")
		send(t, one, doNothing, later.In(time.Hour))
		send(t, two, doNothing, later.In(time.Hour))
		w := watch(t, c, "one", "two")
		children := []*child{
			startConsumer(t, j, "first", consumer{URL: url, Queues: []string{"one"}}),
			startConsumer(t, j, "second", consumer{URL: url, Queues: []string{"two"}}),
		}
		seen := map[int]map[later.EventKind]bool{}
		for _, child := range children {
			seen[child.cmd.Process.Pid] = map[later.EventKind]bool{}
		}
		sent := time.NewTicker(20 * time.Millisecond) // messages go on until all is seen
		defer sent.Stop()
		events := make(chan later.WatchEvent)
		ctx, stop := context.WithCancel(bounded(t))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				e, err := w.Next(ctx)
				if err != nil {
					return
				}
				select {
				case events <- e:
				case <-ctx.Done():
					return
				}
			}
		}()
		defer func() { stop(); <-ended }()
		for complete := false; !complete; {
			select {
			case <-sent.C:
				send(t, one, doNothing)
				send(t, two, doNothing)
			case e := <-events:
				if kinds := seen[e.Process.PID]; kinds != nil {
					kinds[e.Kind] = true
				}
			case <-ctx.Done():
				t.Fatalf("seen: %v", seen)
			}
			complete = true
			for _, kinds := range seen {
				complete = complete && kinds[later.EventClaimed] && kinds[later.EventAcked]
			}
		}
		for _, child := range children {
			child.drain()
		}
		if a, err := one.Activity(bounded(t)); err != nil || a.Minute.Counts[later.EventAcked] == 0 {
			t.Errorf("activity %v, %v; want acks of the drained process", a.Minute.Counts, err)
		}
	})
}

func TestKilledWatcherLeavesNothing(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, url string, rdb redis.UniversalClient) {
		j := newJournal()
		q := open(t, url).Queue("q")
		send(t, q, doNothing, later.In(time.Hour))
		awaitActivity(t, q, later.EventSent, 1)
		before := keysOf(t, rdb)
		w := start(t, j, "watcher", watcher{URL: url, Queues: []string{"q"}})
		j.await(t, 1, event{From: "watcher", Kind: ready})
		if n := channels(t, rdb); n != 1 {
			t.Errorf("the server has %d channels of events, want 1", n)
		}
		w.kill()
		look := time.NewTicker(50 * time.Millisecond)
		defer look.Stop()
		for ctx := bounded(t); channels(t, rdb) > 0; {
			select {
			case <-look.C:
			case <-ctx.Done():
				t.Fatal("the server still has a channel of the killed watcher")
			}
		}
		if after := keysOf(t, rdb); after != before {
			t.Errorf("keys before:\n%s\nand after:\n%s", before, after)
		}
	})
}

// channels returns how many channels of events have watchers, on all servers.
func channels(t *testing.T, rdb redis.UniversalClient) int {
	t.Helper()
	if c, ok := rdb.(*redis.ClusterClient); ok {
		found := 0
		for _, node := range nodesOf(t, c) {
			names, err := node.PubSubShardChannels(t.Context(), "later:{*}:events*").Result()
			if err != nil {
				t.Fatal(err)
			}
			found += len(names)
		}
		return found
	}
	names, err := rdb.PubSubChannels(t.Context(), "later:{*}:events*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// nodesOf returns the primaries.
func nodesOf(t *testing.T, c *redis.ClusterClient) []*redis.Client {
	t.Helper()
	nodes := make(chan *redis.Client, 100)
	err := c.ForEachMaster(t.Context(), func(_ context.Context, node *redis.Client) error {
		nodes <- node
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	close(nodes)
	var all []*redis.Client
	for node := range nodes {
		all = append(all, node)
	}
	return all
}

// keysOf returns the names of all keys except the keys for waiting processes.
func keysOf(t *testing.T, rdb redis.UniversalClient) string {
	t.Helper()
	var names []string
	for _, name := range []string{"later:{q}:activity", "later:{q}:events", "later:queues"} {
		n, err := rdb.Exists(t.Context(), name).Result()
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			names = append(names, name)
		}
	}
	ttl, err := rdb.PTTL(t.Context(), "later:{q}:activity").Result()
	if err != nil || ttl <= 0 || ttl > 25*time.Hour {
		t.Errorf("activity ends after %v, %v", ttl, err)
	}
	return strings.Join(names, "\n")
}

// TestReportsToAFrozenServerChangeNothingForSenders stops the server while a process sends and reports.
func TestReportsToAFrozenServerChangeNothingForSenders(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := open(t, srv.URL())
	q := c.Queue("q")
	send(t, q, doNothing, later.In(time.Hour))
	w := watch(t, c, "q")
	srv.Freeze(t)
	// More than one report fails while the server is frozen.
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		if _, err := q.Send(ctx, nil, later.In(time.Hour)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Send to a frozen server returned %v", err)
		}
		cancel()
	}
	srv.Thaw(t)
	ctx := bounded(t)
	seen := make(chan error, 1)
	go func() {
		for {
			if e, err := w.Next(ctx); err != nil || e.ID == "last" {
				seen <- err
				return
			}
		}
	}()
	// A process that found no watcher looks again within a second.
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := q.Send(ctx, nil, later.WithID("last"), later.In(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Cancel(ctx, "last"); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-seen:
			if err != nil {
				t.Error(err)
			}
			return
		case <-tick.C:
		}
	}
}
