package benchmark

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/redisstore"
	"github.com/laterq/later/store"
)

// Redis measures the cost of a workload for a Redis, and how long the workload keeps other clients waiting. For a
// Cluster it adds up all primaries.
type Redis struct {
	url      string
	store    *redisstore.Store // nil for WatchRedis
	rdb      redis.UniversalClient
	requests atomic.Int64 // sent by the connections of Counted
}

// OpenRedis connects to the Redis of a store URL, separately from the client that is measured.
func OpenRedis(ctx context.Context, url string) (*Redis, error) {
	opened, err := store.Open(ctx, url, store.OpenConfig{})
	if err != nil {
		return nil, err
	}
	s, ok := opened.(*redisstore.Store)
	if !ok {
		opened.Close()
		return nil, store.Invalid("store URL %s is not a Redis URL", store.RedactURL(url))
	}
	return &Redis{url: url, store: s, rdb: s.Client()}, nil
}

// WatchRedis measures a Redis through rdb, which Close closes. Counted does not work with it.
func WatchRedis(rdb redis.UniversalClient) *Redis { return &Redis{rdb: rdb} }

// Close closes the connections.
func (r *Redis) Close() error {
	if r.store == nil {
		return r.rdb.Close()
	}
	return r.store.Close()
}

// Usage is the resource usage of a Redis, according to INFO.
type Usage struct {
	CPU    time.Duration // of all threads
	Memory int64         // bytes, without client buffers
}

// Usage returns the current usage.
func (r *Redis) Usage(ctx context.Context) (Usage, error) {
	var mu sync.Mutex
	var sum Usage
	err := r.each(ctx, func(ctx context.Context, node *redis.Client) error {
		// One call per section: servers before 7.0 do not accept several, and a replica replies the same.
		cpu, err := node.Info(ctx, "cpu").Result()
		if err != nil {
			return err
		}
		memory, err := node.Info(ctx, "memory").Result()
		if err != nil {
			return err
		}
		user, err1 := strconv.ParseFloat(infoField(cpu, "used_cpu_user"), 64)
		system, err2 := strconv.ParseFloat(infoField(cpu, "used_cpu_sys"), 64)
		used, err3 := strconv.ParseInt(infoField(memory, "used_memory"), 10, 64)
		buffers, _ := strconv.ParseInt(infoField(memory, "mem_clients_normal"), 10, 64)
		if err1 != nil || err2 != nil || err3 != nil {
			return fmt.Errorf("%w: INFO has no used_cpu_user, used_cpu_sys or used_memory", store.ErrUnsupported)
		}
		mu.Lock()
		defer mu.Unlock()
		sum.CPU += time.Duration((user + system) * float64(time.Second))
		sum.Memory += used - buffers
		return nil
	})
	return sum, err
}

// ScriptCalls returns how many scripts clients have called, or 0 if there is no Redis.
func (r *Redis) ScriptCalls(ctx context.Context) (int64, error) {
	if r == nil {
		return 0, nil
	}
	var sum atomic.Int64
	err := r.each(ctx, func(ctx context.Context, node *redis.Client) error {
		info, err := node.Info(ctx, "commandstats").Result()
		for _, command := range []string{"eval", "evalsha", "fcall"} {
			calls, _, _ := strings.Cut(strings.TrimPrefix(infoField(info, "cmdstat_"+command), "calls="), ",")
			n, _ := strconv.ParseInt(calls, 10, 64) // absent if there were none
			sum.Add(n)
		}
		return err
	})
	return sum.Load(), err
}

// Version returns the server's name and version, such as "Redis 7.0.15".
func (r *Redis) Version(ctx context.Context) (version string, err error) {
	var mu sync.Mutex
	err = r.each(ctx, func(ctx context.Context, node *redis.Client) error {
		info, err := node.Info(ctx, "server").Result()
		mu.Lock()
		defer mu.Unlock()
		if version = "Redis " + infoField(info, "redis_version"); infoField(info, "valkey_version") != "" {
			version = "Valkey " + infoField(info, "valkey_version")
		}
		return err
	})
	return version, err
}

// each calls f for each primary. For a Cluster the calls are concurrent.
func (r *Redis) each(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	switch rdb := r.rdb.(type) {
	case *redis.Client:
		return f(ctx, rdb)
	case *redis.ClusterClient:
		return rdb.ForEachMaster(ctx, f)
	}
	return fmt.Errorf("%w: Redis client type %T", store.ErrUnsupported, r.rdb)
}

func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// pingEvery is the time between two PINGs.
const pingEvery = 200 * time.Microsecond

// WorstPing sends PINGs until ctx is done, and returns the longest time a reply took. Run it in a separate process,
// like another client, because the measured process is busy.
func (r *Redis) WorstPing(ctx context.Context) (time.Duration, error) {
	worst := time.Duration(0)
	ticks := time.NewTicker(pingEvery)
	defer ticks.Stop()
	for {
		begin := time.Now()
		err := r.each(context.WithoutCancel(ctx), func(ctx context.Context, node *redis.Client) error {
			return node.Ping(ctx).Err()
		})
		if err != nil {
			return worst, err
		}
		worst = max(worst, time.Since(begin))
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return worst, nil
		}
	}
}

// Counted returns a store on separate connections, and counts its requests. closeAll closes the store and the
// connections. Counted returns ErrUnsupported for a Cluster.
func (r *Redis) Counted() (s store.Store, closeAll func() error, err error) {
	single, ok := r.rdb.(*redis.Client)
	if !ok || r.store == nil {
		return nil, nil, fmt.Errorf("%w: requests to a Cluster cannot be counted", store.ErrUnsupported)
	}
	options := *single.Options()
	dial := options.Dialer
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countedConn{conn, &r.requests}, nil
	}
	prefix := redisstore.DefaultPrefix
	if u, err := url.Parse(r.url); err == nil && u.Query().Has("prefix") {
		prefix = u.Query().Get("prefix")
	}
	rdb := redis.NewClient(&options)
	counted := redisstore.New(rdb, redisstore.Prefix(prefix), redisstore.AllowEviction())
	return counted, func() error { return errors.Join(counted.Close(), rdb.Close()) }, nil
}

// Requests returns the number of commands or pipelines sent by the stores of Counted.
func (r *Redis) Requests() int64 { return r.requests.Load() }

// countedConn counts writes, because go-redis writes each request at once.
type countedConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}
