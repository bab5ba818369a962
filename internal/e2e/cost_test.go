package e2e

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/redisstore"
	"github.com/laterq/later/store"
)

// TestIdleWorkerIsNotifiedAtLittleCost checks that messages that are due at once reach an idle worker in another
// process by a notification, not by polling.
func TestIdleWorkerIsNotifiedAtLittleCost(t *testing.T) {
	t.Parallel()
	srv, j := redistest.Start(t), newJournal()
	q := open(t, srv.URL()).Queue(newQueueName(t))
	worker := startConsumer(t, j, "worker", consumer{URL: srv.URL(), Queues: []string{q.Name()}})
	handleOne := func() {
		t.Helper()
		asked := time.Now()
		id := send(t, q, doNothing)
		started := j.await(t, 1, event{Kind: later.EventStarted, ID: id})[0]
		if took := started.Time.Sub(asked); took > onTime {
			t.Fatalf("message %s started %v after it was sent", id, took)
		}
		j.await(t, 1, event{Kind: later.EventAcked, ID: id})
	}
	handleOne() // opens all connections and loads all scripts

	m := startMonitor(t, srv)
	const messages = 50
	for range messages {
		handleOne()
	}
	const mark = "the messages are done"
	if err := srv.Client(t).Echo(bounded(t), mark).Err(); err != nil {
		t.Fatal(err)
	}
	busy := m.until(mark)
	t.Logf("%d commands for %d messages, sent one by one", len(busy), messages)
	if limit := 6 * messages; len(busy) > limit {
		t.Errorf("%d messages cost %d commands; want at most %d", messages, len(busy), limit)
	}

	// Both processes report their events for a second after the last one.
	awaitActivity(t, q, later.EventSent, messages+1)
	awaitActivity(t, q, later.EventAcked, messages+1)
	const settled = "the processes are idle"
	if err := srv.Client(t).Echo(bounded(t), settled).Err(); err != nil {
		t.Fatal(err)
	}
	m.until(settled)

	const window = 5 * time.Second
	idle := m.during(window)
	t.Logf("an idle worker sent %d commands in %v", len(idle), window)
	// A beat and a look for topics every two seconds, one of each at the edges of the window, a claim to be safe, and
	// one record of the worker.
	if limit := int(window/time.Second) + 4; len(idle) > limit {
		t.Errorf("an idle worker sent %d commands in %v; want at most %d:\n%q", len(idle), window, limit, idle)
	}
	for _, command := range idle {
		if strings.Contains(command, "}:activity") {
			t.Errorf("an idle worker reports: %q", command)
		}
	}
	worker.drain()
}

// TestManyMessagesDueInOneMillisecondAreDrainedInBoundedSteps checks that other clients of the server do not wait long.
func TestManyMessagesDueInOneMillisecondAreDrainedInBoundedSteps(t *testing.T) {
	t.Parallel()
	const burst = 20_000
	srv, j := redistest.Start(t), newJournal()
	rdb := srv.Client(t)
	replies := &replySizes{}
	rdb.AddHook(replies)
	engine := redisstore.New(rdb)
	t.Cleanup(func() { engine.Close() })
	c, err := later.New(engine, later.WithObserver(j.observe))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	q := c.Queue("burst")
	msgs := make([]later.Outgoing, burst)
	at := later.At(time.Now())
	for i := range msgs {
		msgs[i].When = at
	}
	sendBatch(t, q, msgs)

	var pings atomic.Int64
	other, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func(client *redis.Client) {
		defer close(ended)
		for other.Err() == nil {
			if err := client.Ping(other).Err(); err == nil {
				pings.Add(1)
			} else if other.Err() == nil {
				t.Errorf("PING of another client: %v", err)
			}
		}
	}(srv.Client(t))
	work(t, c, later.WorkerConfig{}, q.Name(), func(context.Context, *later.Message) error { return nil })
	j.await(t, 1, event{Kind: later.EventStarted})
	before := pings.Load()
	j.await(t, burst, event{Kind: later.EventAcked})
	during := pings.Load() - before
	end()
	<-ended

	j.wantOnce(t, burst)
	wantEmpty(t, q, rdb, 0)
	t.Logf("%d commands of another client were served meanwhile; the longest list in a reply had %d items",
		during, replies.longest.Load())
	if during == 0 {
		t.Error("no command of another client was served meanwhile")
	}
	if n := replies.longest.Load(); n > store.MaxBatch {
		t.Errorf("the longest list in a reply had %d items; want at most %d", n, store.MaxBatch)
	}
}

// replySizes is a go-redis hook that records the length of the longest list in any script's reply.
type replySizes struct{ longest atomic.Int64 }

func (s *replySizes) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if script, ok := cmd.(interface{ Val() any }); ok {
			s.record(script.Val())
		}
		return err
	}
}

func (s *replySizes) record(reply any) {
	list, ok := reply.([]any)
	if !ok {
		return
	}
	for n := int64(len(list)); ; {
		before := s.longest.Load()
		if n <= before || s.longest.CompareAndSwap(before, n) {
			break
		}
	}
	for _, item := range list {
		s.record(item)
	}
}

func (s *replySizes) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *replySizes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
