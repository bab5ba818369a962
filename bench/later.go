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
	versions := func() map[string]string {
		all := redisVersions()()
		all["later"] = laterVersion()
		return all
	}
	with := func(name, title, settings string, persist []string, worker later.WorkerConfig) *subject {
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
			name: name, title: title, settings: settings, versions: versions, missing: redisInstalled, settled: true,
			start: overRedis(persist, connect), connect: connect,
		}
	}
	onRedis := func(name, title, settings string, persist []string) *subject {
		return with(name, title, settings, persist, later.WorkerConfig{})
	}
	small := with("later-prefetch", "Later, MaxPrefetch 250",
		"as Later, with a worker that prefetches at most 250 messages instead of 2,000, so that its calls are short",
		persistNone, later.WorkerConfig{MaxPrefetch: 250})
	small.cannot = map[string]string{"send": "", "lateness": "", "memory": "", "idle": "", "growth": ""}
	everysec := onRedis("later-aof", "Later, Redis AOF everysec",
		"as Later, on a Redis with appendonly yes, appendfsync everysec", persistEverysec)
	always := onRedis("later-aof-always", "Later, Redis AOF always",
		"as Later, on a Redis with appendonly yes, appendfsync always", persistAlways)
	for _, s := range []*subject{everysec, always} { // these cost the same as without a log
		s.cannot = map[string]string{"memory": "", "idle": "", "growth": ""}
	}
	always.cannot["herd"] = ""
	embedded := func(name, title, settings, query string) *subject {
		return &subject{
			name: name, title: title, settings: settings, settled: true,
			versions: func() map[string]string {
				return map[string]string{"later": laterVersion(), "pebble": moduleVersion("github.com/cockroachdb/pebble/v2")}
			},
			start:  func(ctx context.Context) (*target, error) { return startEmbedded(ctx, query) },
			cannot: map[string]string{},
		}
	}
	relaxed := embedded("later-disk-100ms", "Later embedded, sync 100 ms",
		"file://, sync=100ms: an fsync every 100 ms", "?sync=100ms")
	for _, same := range []string{"herd", "growth", "memory", "idle"} {
		relaxed.cannot[same] = ""
	}
	return []*subject{
		onRedis("later-redis", "Later",
			"on a Redis without persistence; a worker with Concurrency 32, all else at its defaults", persistNone),
		small, everysec, always,
		embedded("later-disk", "Later embedded", "file://, sync=always: an fsync before every reply", ""),
		relaxed,
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
	return newTarget(benchmark.Local{Queue: benchmark.Later(c, queueName)}, nil, dir+"/store", func() error {
		return errors.Join(c.Close(), os.RemoveAll(dir))
	}), nil
}
