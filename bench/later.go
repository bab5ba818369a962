package main

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	_ "github.com/laterq/later/diskstore"
	"github.com/laterq/later/internal/benchmark"
	"github.com/laterq/later/redisstore"
	"github.com/laterq/later/store"
)

func laterSubjects() []*subject {
	onRedis := func(
		name, title, settings string, persist []string, worker later.WorkerConfig, workloads ...string,
	) *subject {
		connect := func(_ context.Context, addr string) (benchmark.Queue, func() error, error) {
			rdb := redis.NewClient(&redis.Options{Addr: addr})
			s := &countingStore{Store: redisstore.New(rdb)}
			c, err := later.New(s)
			if err != nil {
				return nil, nil, errors.Join(err, s.Close(), rdb.Close())
			}
			return &laterQueue{benchmark.LaterWorker(c, queueName, worker), s}, func() error {
				return errors.Join(c.Close(), s.Close(), rdb.Close())
			}, nil
		}
		return &subject{
			subjectInfo: subjectInfo{Name: name, Title: title, Settings: settings}, workloads: workloads,
			missing: redisInstalled, settled: true, start: overRedis(persist, connect), connect: connect,
		}
	}
	embedded := func(name, title, settings, query string, workloads ...string) *subject {
		return &subject{
			subjectInfo: subjectInfo{Name: name, Title: title, Settings: settings}, workloads: workloads, settled: true,
			start: func(ctx context.Context, _ []string) (*target, error) { return startEmbedded(ctx, query) },
		}
	}
	usual := later.WorkerConfig{}
	return []*subject{
		onRedis("later-redis", "Later",
			"on a Redis without persistence; a worker with Concurrency 32, all else at its defaults", persistNone,
			usual, workloadNames()...),
		onRedis("later-prefetch", "Later, MaxPrefetch 250",
			"as Later, with a worker that prefetches at most 250 messages instead of 2,000, so that its calls are "+
				"short", persistNone, later.WorkerConfig{MaxPrefetch: 250}, "drain", "herd"),
		onRedis("later-aof", "Later, Redis AOF everysec",
			"as Later, on a Redis with appendonly yes, appendfsync everysec", persistEverysec, usual, "send", "drain",
			"lateness", "herd"),
		onRedis("later-aof-always", "Later, Redis AOF always",
			"as Later, on a Redis with appendonly yes, appendfsync always", persistAlways, usual, "send", "drain",
			"lateness"),
		embedded("later-disk", "Later embedded", "file://, sync=always: an fsync before every reply", "",
			"send", "drain", "lateness", "herd", "growth", "memory", "idle", "keys", "ordered", "parked", "crowd", "urgent"),
		embedded("later-disk-100ms", "Later embedded, sync 100 ms", "file://, sync=100ms: an fsync every 100 ms",
			"?sync=100ms", "send", "drain", "lateness"),
	}
}

func startEmbedded(ctx context.Context, query string) (*target, error) {
	dir, err := os.MkdirTemp("", "later-bench-")
	if err != nil {
		return nil, err
	}
	c, err := later.Open(ctx, "file://"+dir+"/store"+query)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	q := &laterQueue{LaterQueue: benchmark.Later(c, queueName)}
	return newTarget(benchmark.Local{Queue: q}, nil, nil, dir+"/store", func() error {
		return errors.Join(c.Close(), os.RemoveAll(dir))
	}), nil
}

// laterQueue is a queue of Later. Its store is nil if it is embedded.
type laterQueue struct {
	*benchmark.LaterQueue
	store *countingStore
}

// limitStarts gives the queue a limit.
func (q *laterQueue) limitStarts(ctx context.Context, l *startLimit) error {
	rate := later.Rate{N: l.perSecond, Per: time.Second, Burst: l.burst}
	return q.Queue().SetFlow(ctx, later.Flow{Rate: rate})
}

// countingStore counts claims.
type countingStore struct {
	*redisstore.Store
	claims atomic.Int64
}

func (s *countingStore) Claim(ctx context.Context, queue string, req store.ClaimRequest) (store.Claim, error) {
	s.claims.Add(1)
	return s.Store.Claim(ctx, queue, req)
}
