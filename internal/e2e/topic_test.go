package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// TestWorkersKilledAtAnyPointDistributeEachMessageOnce kills workers that distribute a topic's messages to many queues,
// and handle one of the queues. On a single server the step of the ack writes the copies. In a Cluster, and with many
// queues, they are sent before it. The other queues are away, and find each message once.
func TestWorkersKilledAtAnyPointDistributeEachMessageOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		url           string
		subscriptions int
	}{
		"redis":             {redistest.Shared(t).URL(), store.MaxFollowUpQueues - 1},
		"redis, many steps": {redistest.Shared(t).URL(), 100},
		"cluster":           {redistest.SharedCluster(t).URL(), 100},
		"embedded":          {"file://" + filepath.ToSlash(t.TempDir()) + "/store", store.MaxFollowUpQueues - 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const messages, rounds = 60, 4
			url := c.url
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			name := fmt.Sprint("orders", seed)
			handled, away := newQueueName(t), make([]string, c.subscriptions-1)
			inClient(t, url, func(c *later.Client) {
				topic := c.Topic(name)
				if err := topic.Configure(bounded(t), later.TopicConfig{HistoryCount: 10_000}); err != nil {
					t.Fatal(err)
				}
				for i := range away {
					away[i] = newQueueName(t)
				}
				for _, queue := range append(away, handled) {
					if err := topic.Subscribe(bounded(t), queue); err != nil {
						t.Fatal(err)
					}
				}
			})
			j := newJournal()
			for round := range rounds {
				msgs := make([]later.Outgoing, messages)
				for i := range msgs {
					msgs[i] = later.Outgoing{ID: fmt.Sprint(round, "-", i), Payload: []byte(doNothing)}
				}
				inClient(t, url, func(c *later.Client) {
					if _, err := c.Topic(name).PublishBatch(bounded(t), msgs); err != nil {
						t.Fatal(err)
					}
				})
				victim := fmt.Sprint("victim", round)
				c := startConsumer(t, j, victim, consumer{URL: url, Queues: []string{handled}, Concurrency: 8,
					Lease: time.Second})
				j.await(t, 1+random.IntN(messages/2), event{From: victim, Kind: later.EventAcked})
				c.kill()
			}
			inClient(t, url, func(c *later.Client) {
				distributeAll(t, c, name, handled)
				for _, queue := range away {
					s, err := c.Queue(queue).Stats(bounded(t))
					if err != nil {
						t.Fatal(err)
					}
					if s.Ready != rounds*messages || s.Scheduled+s.Leased+s.Dead != 0 {
						t.Errorf("a queue has %+v, want %d messages", s, rounds*messages)
					}
				}
				history := 0
				for cursor := ""; ; {
					page, err := c.Topic(name).History(bounded(t), later.ListOptions{Limit: 100, Cursor: cursor})
					if err != nil {
						t.Fatal(err)
					}
					history += len(page.Messages)
					if cursor = page.Next; cursor == "" {
						break
					}
				}
				if history != rounds*messages {
					t.Errorf("the history has %d messages, want %d", history, rounds*messages)
				}
			})
			for round := range rounds {
				for i := range messages {
					if acks := j.find(event{Kind: later.EventAcked, ID: fmt.Sprint(round, "-", i)}); len(acks) > 1 {
						t.Errorf("message %d-%d was acked %d times: %v", round, i, len(acks), acks)
					}
				}
			}
		})
	}
}

// distributeAll runs a worker until the topic and the queue that it handles are empty.
func distributeAll(t *testing.T, c *later.Client, topic, handled string) {
	t.Helper()
	ctx, stop := context.WithCancel(bounded(t))
	defer stop()
	w := later.NewWorker(c, later.WorkerConfig{Lease: time.Second})
	w.Handle(handled, func(context.Context, *later.Message) error { return nil })
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for left := int64(1); left > 0; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%d messages are left", left)
		}
		left = 0
		for _, q := range []*later.Queue{c.Topic(topic).Queue(), c.Queue(handled)} {
			s, err := q.Stats(ctx)
			if err != nil {
				t.Fatal(err)
			}
			left += s.Scheduled + s.Ready + s.Leased
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestSubscribedQueueOfTheWrongTypeStopsNoOthers damages a queue of a topic and repairs it.
func TestSubscribedQueueOfTheWrongTypeStopsNoOthers(t *testing.T) {
	t.Parallel()
	alone, cluster := redistest.Shared(t), redistest.SharedCluster(t)
	for name, server := range map[string]struct {
		url string
		rdb redis.UniversalClient
	}{
		"redis":   {alone.URL(), alone.Client(t)},
		"cluster": {cluster.URL(), cluster.Client(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb, ctx := server.rdb, bounded(t)
			good, bad := newQueueName(t), newQueueName(t)
			inClient(t, server.url, func(c *later.Client) {
				topic := c.Topic(good)
				for _, queue := range []string{good, bad} {
					if err := topic.Subscribe(ctx, queue); err != nil {
						t.Fatal(err)
					}
				}
				key := "later:{" + bad + "}:due"
				if err := rdb.Set(ctx, key, "wrong", 0).Err(); err != nil {
					t.Fatal(err)
				}
				got := make(chan string, 10)
				w := later.NewWorker(c, later.WorkerConfig{})
				for _, queue := range []string{good, bad} {
					w.Handle(queue, func(_ context.Context, m *later.Message) error {
						got <- m.Queue + " " + string(m.Payload)
						return nil
					})
				}
				running, stop := context.WithCancel(ctx)
				ended := make(chan error, 1)
				go func() { ended <- w.Run(running) }()
				want := func(text string) {
					t.Helper()
					select {
					case is := <-got:
						if is != text {
							t.Errorf("received %q, want %q", is, text)
						}
					case <-ctx.Done():
						t.Fatalf("%q was not received", text)
					}
				}
				for _, payload := range []string{"1", "2"} {
					if _, err := topic.Publish(ctx, []byte(payload)); err != nil {
						t.Fatal(err)
					}
					want(good + " " + payload)
				}
				if err := rdb.Del(ctx, key).Err(); err != nil {
					t.Fatal(err)
				}
				received := map[string]bool{<-got: true, <-got: true}
				if !received[bad+" 1"] || !received[bad+" 2"] {
					t.Errorf("received %v when the queue was repaired", received)
				}
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
