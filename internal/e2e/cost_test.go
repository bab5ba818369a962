package e2e

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/redisstore"
	"github.com/laterq/later/store"
)

// TestAnIdleWorkerIsWokenAndCostsLittle: messages that are due at once reach an idle worker of another process
// by an event, not by polling.
func TestAnIdleWorkerIsWokenAndCostsLittle(t *testing.T) {
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
			t.Fatalf("message %s was started %v after it was sent", id, took)
		}
		j.await(t, 1, event{Kind: later.EventAcked, ID: id})
	}
	handleOne() // after which all connections are open and all scripts known

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
		t.Errorf("%d messages cost %d commands; want up to %d", messages, len(busy), limit)
	}

	const window = 5 * time.Second
	idle := m.during(window)
	t.Logf("%d commands of an idle worker in %v", len(idle), window)
	if len(idle) > int(window/time.Second) {
		t.Errorf("an idle worker made %d commands in %v; want one a second at most:\n%q", len(idle), window, idle)
	}
	worker.drain()
}

// TestManyMessagesDueInOneMillisecondAreDrainedInBoundedSteps, so that no other client of the server waits long.
func TestManyMessagesDueInOneMillisecondAreDrainedInBoundedSteps(t *testing.T) {
	t.Parallel()
	const burst = 20_000
	srv, j := redistest.Start(t), newJournal()
	rdb := srv.Client(t)
	replies := &replySizes{}
	rdb.AddHook(replies)
	engine := redisstore.New(rdb)
	t.Cleanup(func() { engine.Close() })
	c := later.New(engine, later.WithObserver(j.observe))
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
				t.Errorf("another client's PING: %v", err)
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
	t.Logf("%d commands of another client were answered meanwhile; the longest list of a reply was %d",
		during, replies.longest.Load())
	if during == 0 {
		t.Error("no command of another client was answered meanwhile")
	}
	if n := replies.longest.Load(); n > store.MaxBatch {
		t.Errorf("a script's reply held a list of %d; want up to %d", n, store.MaxBatch)
	}
}

// replySizes is a go-redis hook that notes the longest list in any script's reply.
type replySizes struct{ longest atomic.Int64 }

func (s *replySizes) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if script, ok := cmd.(interface{ Val() any }); ok {
			s.note(script.Val())
		}
		return err
	}
}

func (s *replySizes) note(reply any) {
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
		s.note(item)
	}
}

func (s *replySizes) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *replySizes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
