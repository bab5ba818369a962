package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// TestWorkersKilledAtAnyPointDistributeEachMessageOnce kills workers that distribute a topic's messages to many queues,
// of which they handle one: where copies are written in the step of the ack, and in a Cluster, where they are sent
// before it. The other queues are away, and find each message once.
func TestWorkersKilledAtAnyPointDistributeEachMessageOnce(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"redis":    redistest.Shared(t).URL(),
		"cluster":  redistest.SharedCluster(t).URL(),
		"embedded": "file://" + filepath.ToSlash(t.TempDir()) + "/store",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const subscriptions, messages, rounds = 100, 60, 4
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			name := fmt.Sprint("orders", seed)
			handled, away := newQueueName(t), make([]string, subscriptions-1)
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
				c := startConsumer(t, j, victim, consumer{URL: url, Queues: []string{handled}, Concurrency: 8, Lease: time.Second})
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
					page, err := c.Topic(name).History(bounded(t), later.HistoryOptions{Limit: 100, Cursor: cursor})
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
