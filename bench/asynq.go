package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"

	"github.com/laterq/later/internal/benchmark"
)

// asynqSubjects returns asynq with its defaults, which look for due tasks every 5 s, and asynq with the shortest useful
// intervals.
func asynqSubjects() []*subject {
	variant := func(name, title, settings string, cfg asynq.Config, workloads ...string) *subject {
		connect := func(_ context.Context, addr string) (benchmark.Queue, func() error, error) {
			return connectAsynq(addr, cfg)
		}
		return &subject{
			subjectInfo: subjectInfo{Name: name, Title: title, Settings: settings}, workloads: workloads,
			missing: redisInstalled, start: overRedis(persistNone, connect), connect: connect,
			atMost: map[string]int{"herd": 100_000},
		}
	}
	return []*subject{
		variant("asynq", "asynq", "on a Redis without persistence; a server with Concurrency 32, all else at "+
			"its defaults", asynq.Config{}, "send", "drain", "lateness", "herd", "memory", "idle",
			"clients", "single", "life", "workers", "instructions", "limit"),
		variant("asynq-tuned", "asynq, intervals 10 ms",
			"as asynq, with DelayedTaskCheckInterval and TaskCheckInterval 10 ms (defaults: 5 s and 1 s)",
			asynq.Config{DelayedTaskCheckInterval: 10 * time.Millisecond, TaskCheckInterval: 10 * time.Millisecond},
			"lateness", "herd", "idle", "limit"),
	}
}

// asynqQueue is asynq's default queue.
type asynqQueue struct {
	redis     asynq.RedisClientOpt
	cfg       asynq.Config
	client    *asynq.Client
	inspector *asynq.Inspector
	limit     *startLimit // nil for none
}

func connectAsynq(addr string, cfg asynq.Config) (benchmark.Queue, func() error, error) {
	q := &asynqQueue{redis: asynq.RedisClientOpt{Addr: addr}, cfg: cfg}
	q.client, q.inspector = asynq.NewClient(q.redis), asynq.NewInspector(q.redis)
	return q, func() error { return errors.Join(q.client.Close(), q.inspector.Close()) }, nil
}

const asynqName = "default" // of the queue

func (q *asynqQueue) Send(ctx context.Context, payload []byte, due time.Time) (string, error) {
	var opts []asynq.Option
	if !due.IsZero() {
		opts = []asynq.Option{asynq.ProcessAt(due)} // asynq rounds it down to whole seconds
	}
	info, err := q.client.EnqueueContext(ctx, asynq.NewTask(queueName, payload), opts...)
	if err != nil {
		return "", err
	}
	return info.ID, nil
}

func (q *asynqQueue) Work(ctx context.Context, handlers int, handle func(payload []byte)) error {
	cfg := q.cfg
	cfg.Concurrency = handlers
	cfg.LogLevel = asynq.FatalLevel
	if q.limit != nil {
		cfg.IsFailure = func(err error) bool { return !errors.Is(err, errRefused) }
		cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration {
			return time.Duration(rand.IntN(10)) * time.Second
		}
	}
	s := asynq.NewServer(q.redis, cfg)
	err := s.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		if q.limit.refuses() {
			return errRefused
		}
		handle(t.Payload())
		return nil
	}))
	if err != nil {
		return err
	}
	<-ctx.Done()
	s.Shutdown()
	return nil
}

// limitStarts limits the starts as asynq's example of a rate limit does,
// https://github.com/hibiken/asynq/wiki/Rate-Limiting: the handler asks a limiter of this process and fails, and the
// task is tried again in 0 to 9 s.
func (q *asynqQueue) limitStarts(_ context.Context, l *startLimit) error {
	q.limit = l
	return nil
}

func (q *asynqQueue) Left(context.Context) (int, error) {
	info, err := q.inspector.GetQueueInfo(asynqName)
	if err != nil {
		return 0, err
	}
	return info.Size, nil
}
