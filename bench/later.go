package main

import (
	"context"
	"errors"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	_ "github.com/laterq/later/diskstore"
	"github.com/laterq/later/internal/benchmark"
	"github.com/laterq/later/redisstore"
)

func laterSubjects() []*subject {
	onRedis := func(
		name, title, settings string, persist []string, worker later.WorkerConfig, workloads ...string,
	) *subject {
		connect := func(_ context.Context, addr string) (benchmark.Queue, func() error, error) {
			rdb := redis.NewClient(&redis.Options{Addr: addr})
			s := redisstore.New(rdb)
			c, err := later.New(s)
			if err != nil {
				return nil, nil, errors.Join(err, s.Close(), rdb.Close())
			}
			return benchmark.LaterWorker(c, queueName, worker), func() error {
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
			"send", "drain", "lateness", "herd", "growth", "memory", "idle"),
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
	return newTarget(benchmark.Local{Queue: benchmark.Later(c, queueName)}, nil, nil, dir+"/store", func() error {
		return errors.Join(c.Close(), os.RemoveAll(dir))
	}), nil
}
