package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

func TestFleetHandlesEveryMessageOnce(t *testing.T) {
	t.Parallel()
	t.Run("one server", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Shared(t)
		f := startFleet(t, srv.URL(), 1)
		f.handleAll(3000)
		f.drain(srv.Client(t))
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.SharedCluster(t)
		f := startFleet(t, cluster.URL(), 4) // so that not all are on one node
		f.handleAll(1000)
		f.drain(cluster.Client(t))
	})
}

// TestFleetContinuesAfterSentinelFailover checks that messages acknowledged after the promotion are delivered. Messages
// acknowledged just before may be lost or delivered twice, because replication is asynchronous.
func TestFleetContinuesAfterSentinelFailover(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	f := startFleet(t, sentinel.URL(), 2)
	f.handleAll(500)

	sentinel.Primary.Kill()
	const after = 100
	for i := range after {
		// The old primary is dead, so only the new one can acknowledge.
		f.sendUntilAcknowledged(i, fmt.Sprint("after ", i))
	}
	for i := range after {
		f.journal.await(t, 1, event{Kind: later.EventAcked, ID: fmt.Sprint("after ", i)})
	}
	for _, worker := range f.workers {
		worker.drain()
	}
}

// fleet is three worker processes that share some queues.
type fleet struct {
	t       *testing.T
	journal *journal
	queues  []*later.Queue
	workers []*child
}

func startFleet(t *testing.T, url string, queues int) *fleet {
	t.Helper()
	f := &fleet{t: t, journal: newJournal()}
	c := open(t, url)
	role := consumer{URL: url}
	for range queues {
		role.Queues = append(role.Queues, newQueueName(t))
		f.queues = append(f.queues, c.Queue(role.Queues[len(f.queues)]))
	}
	for i := range 3 {
		f.workers = append(f.workers, startConsumer(t, f.journal, fmt.Sprint("worker", i), role))
	}
	return f
}

// handleAll sends n messages with random due times and checks that each is handled once and on time.
func (f *fleet) handleAll(n int) {
	f.t.Helper()
	due, queue := map[string]time.Time{}, map[string]int{}
	batches := make([][]later.Outgoing, len(f.queues))
	for i := range n {
		m := later.Outgoing{ID: fmt.Sprint("m", i)}
		due[m.ID] = time.Now().Add(rand.N(time.Second))
		m.When = later.At(due[m.ID])
		queue[m.ID] = i % len(batches)
		batches[queue[m.ID]] = append(batches[queue[m.ID]], m)
	}
	for i, q := range f.queues {
		sendBatch(f.t, q, batches[i])
	}
	f.journal.await(f.t, n, event{Kind: later.EventAcked})
	f.journal.wantOnce(f.t, n)
	started := f.journal.find(event{Kind: later.EventStarted}) // all processes and the server share one clock
	slices.SortFunc(started, func(a, b event) int { return a.Time.Compare(b.Time) })
	before := make([]time.Time, len(f.queues))
	for _, e := range started {
		wantOnTime(f.t, e.ID, due[e.ID], before[queue[e.ID]], e.Time)
		before[queue[e.ID]] = e.Time
	}
}

// sendUntilAcknowledged sends a message to one of the queues, chosen by i, and retries until the outcome is known.
func (f *fleet) sendUntilAcknowledged(i int, id string) {
	f.t.Helper()
	ctx := bounded(f.t)
	for {
		_, err := f.queues[i%len(f.queues)].Send(ctx, []byte(doNothing), later.WithID(id))
		if err == nil || later.CodeOf(err) == later.CodeOf(later.ErrDuplicate) {
			return
		}
		if ctx.Err() != nil {
			f.t.Fatalf("message %s was not sent within %v: %v", id, patience, err)
		}
	}
}

// drain stops the workers and checks that the queues are empty.
func (f *fleet) drain(rdb redis.UniversalClient) {
	f.t.Helper()
	for _, worker := range f.workers {
		worker.drain()
	}
	for _, q := range f.queues {
		wantEmpty(f.t, q, rdb, 0)
	}
}
