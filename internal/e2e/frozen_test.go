package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// TestFrozenClusterNodeDelaysOnlyItsOwnQueues stops one of three nodes with SIGSTOP while a worker with few slots
// handles many queues. Other queues may wait half a second; the test allows for a busy machine, and the claims of a
// worker that waits for the frozen node hang for three seconds and more.
func TestFrozenClusterNodeDelaysOnlyItsOwnQueues(t *testing.T) {
	t.Parallel()
	const (
		queues  = 30
		every   = 5 * time.Millisecond
		frozen  = 7 * time.Second // half of cluster-node-timeout, when the Cluster declares a node dead
		allowed = 2 * time.Second
	)
	cluster := redistest.StartCluster(t)
	c := open(t, cluster.URL())
	victim := cluster.Nodes[0]

	var mu sync.Mutex
	worst, handled, again := time.Duration(0), map[string]bool{}, 0
	healthy, all := map[string]bool{}, make(chan struct{})
	sent, done := 0, false
	w := later.NewWorker(c, later.WorkerConfig{Concurrency: 10})
	var names []string
	for i := range queues {
		name := fmt.Sprint("q", i)
		names = append(names, name)
		healthy[name] = cluster.Node(t, "{"+name+"}") != victim
		w.Handle(name, func(_ context.Context, m *later.Message) error {
			mu.Lock()
			defer mu.Unlock()
			if m.Attempt > 1 {
				again++
			}
			handled[m.Queue+m.ID] = true
			if healthy[m.Queue] {
				worst = max(worst, m.Lateness)
			}
			if done && len(handled) == sent {
				close(all)
				done = false
			}
			return nil
		})
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	sendTo := func(name string) {
		if _, err := c.Queue(name).Send(bounded(t), nil); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		sent++
	}
	for _, name := range names {
		for range 3 {
			sendTo(name)
		}
	}
	for _, node := range cluster.Nodes { // else the others refuse all calls once they consider the victim dead
		if err := node.Client(t).ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err(); err != nil {
			t.Fatal(err)
		}
	}
	victim.Freeze(t)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i, begin := 0, time.Now(); time.Since(begin) < frozen; i++ {
		<-tick.C
		if name := names[i%queues]; healthy[name] {
			sendTo(name)
		}
	}
	victim.Thaw(t)
	mu.Lock()
	sent++ // the next message
	done = true
	mu.Unlock()
	if _, err := c.Queue(names[0]).Send(bounded(t), nil); err != nil {
		t.Error(err)
	}
	select {
	case <-all:
	case <-time.After(patience):
		t.Error("not all messages were handled")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	t.Logf("worst lateness on healthy nodes: %v, of %d messages", worst, sent)
	if worst > allowed {
		t.Errorf("a message on a healthy node was %v late; want at most %v", worst, allowed)
	}
	if again > 0 {
		t.Errorf("%d attempts were counted for messages that no handler had failed", again)
	}
}
