package benchmark

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/quota"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

// These benchmarks measure features of Later that other queues lack, on a Redis without persistence. b.N is the number
// of messages, for example with -benchtime 100000x. With LATER_STORE they measure that store instead.

const (
	featureSize     = 100 // payload bytes
	featureHandlers = 32
	featureLimit    = time.Minute
)

// onStore opens the store to measure. r is nil if it is not a Redis.
func onStore(b *testing.B) (c *later.Client, r *Redis) {
	url := os.Getenv("LATER_STORE")
	if url == "" {
		url = redistest.Start(b, redistest.Args("--appendonly", "no")).URL()
	}
	c, err := later.Open(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	if r, err = OpenRedis(b.Context(), url); errors.Is(err, store.ErrInvalid) {
		return c, nil
	} else if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { r.Close() })
	return c, r
}

// newName returns a name for a queue, a topic or schedules of this run.
func newName() string { return "bench-" + store.NewID() }

// cleaning returns a context for the cleanup at the end of a benchmark, when the context of b has ended.
func cleaning(b *testing.B) context.Context { return context.WithoutCancel(b.Context()) }

func must(b *testing.B, errs ...error) {
	b.Helper()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
}

func perSecond(b *testing.B, n int, took time.Duration, unit string) {
	b.ReportMetric(float64(n)/took.Seconds(), unit+"/s")
	b.ReportMetric(0, "ns/op") // without meaning here
}

func reportLateness(b *testing.B, d Delivered, err error) {
	b.Helper()
	if err == nil && (d.Early > 0 || d.Missing > 0 || d.Doubles > 0) {
		err = fmt.Errorf("of %d messages %d were early, %d missing, %d doubles", d.Sent, d.Early, d.Missing, d.Doubles)
	}
	must(b, err)
	b.ReportMetric(Millis(Quantile(d.Samples, 0.5)), "p50-ms")
	b.ReportMetric(Millis(Quantile(d.Samples, 0.99)), "p99-ms")
	b.ReportMetric(Millis(Quantile(d.Samples, 1)), "max-ms")
	b.ReportMetric(0, "ns/op") // without meaning here
}

// latenessOf sends b.N messages at a rate.
func latenessOf(b *testing.B, rate int) LatenessConfig {
	return LatenessConfig{Rate: rate, For: time.Duration(b.N) * time.Second / time.Duration(rate),
		Longest: min(3*time.Second, time.Duration(b.N)*10*time.Millisecond), Size: featureSize,
		Handlers: featureHandlers,
		Limit:    featureLimit}
}

// forwarded is a queue with a worker that forwards its messages to a list of the same Redis, exactly once. One
// goroutine pops them from the list and handles them.
type forwarded struct {
	LaterQueue
	rdb redis.UniversalClient
	key string
}

func (q *forwarded) forward(ctx context.Context) error {
	w := later.NewWorker(q.client, later.WorkerConfig{Logger: slog.New(slog.DiscardHandler)})
	w.Forward(q.queue.Name(), later.ToList(q.key).ExactlyOnce())
	return w.Run(ctx)
}

func (q *forwarded) Work(ctx context.Context, _ int, handle func(payload []byte)) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	moved := make(chan error, 1)
	go func() { moved <- q.forward(working) }()
	for ctx.Err() == nil {
		payloads, err := q.rdb.LPopCount(ctx, q.key, store.MaxBatch).Result()
		if errors.Is(err, redis.Nil) {
			var first []string // the key and a payload
			if first, err = q.rdb.BLPop(ctx, time.Second, q.key).Result(); err == nil {
				payloads = first[1:]
			}
		}
		if err != nil && !errors.Is(err, redis.Nil) && ctx.Err() == nil {
			return err
		}
		for _, p := range payloads {
			handle([]byte(p))
		}
	}
	stop()
	return <-moved
}

// bareMove moves members of a sorted set that are due to a list, as programs without Later do.
var bareMove = redis.NewScript(`
local due = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, ARGV[2])
if #due == 0 then return 0 end
redis.call('RPUSH', KEYS[2], unpack(due))
redis.call('ZREM', KEYS[1], unpack(due))
return #due`)

// BenchmarkForward measures how fast a worker moves messages that are due to a list, and as a fraction of the bare
// script; and how late messages at 500 a second are when they are popped from the list.
func BenchmarkForward(b *testing.B) {
	c, r := onStore(b)
	if r == nil {
		b.Skip("the store is no Redis and has no lists")
	}
	newQueue := func(b *testing.B) *forwarded {
		name := newName()
		q := &forwarded{LaterQueue{client: c, queue: c.Queue(name)}, r.rdb, "{" + name + "}:list"}
		b.Cleanup(func() { must(b, q.queue.Delete(cleaning(b)), r.rdb.Unlink(cleaning(b), q.key).Err()) })
		return q
	}
	b.Run("moves", func(b *testing.B) {
		q, ctx := newQueue(b), b.Context()
		set := q.key + ":set"
		for i := 0; i < b.N; i += store.MaxBatch {
			var members []redis.Z
			for k := i; k < min(i+store.MaxBatch, b.N); k++ {
				members = append(members, redis.Z{Score: 1, Member: NewPayload(featureSize, k, time.Time{})})
			}
			must(b, r.rdb.ZAdd(ctx, set, members...).Err())
		}
		begin := time.Now()
		for left := b.N; left > 0; {
			n, err := bareMove.Run(ctx, r.rdb, []string{set, q.key}, time.Now().UnixMilli(), store.MaxBatch).Int()
			must(b, err)
			left -= n
		}
		bare := time.Since(begin)
		must(b, r.rdb.Unlink(ctx, q.key).Err(), Fill(ctx, q, b.N, featureSize, AtOnce))
		working, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		begin = time.Now()
		go func() { ended <- q.forward(working) }()
		for n := int64(0); n < int64(b.N); {
			var err error
			n, err = r.rdb.LLen(ctx, q.key).Result()
			must(b, err, sleepUntil(ctx, time.Now().Add(time.Millisecond)))
		}
		took := time.Since(begin)
		perSecond(b, b.N, took, "msg")
		b.ReportMetric(bare.Seconds()/took.Seconds(), "of-bare-script")
		stop()
		must(b, <-ended)
	})
	b.Run("lateness", func(b *testing.B) {
		d, err := Local{newQueue(b)}.Lateness(b.Context(), latenessOf(b, 500))
		reportLateness(b, d, err)
	})
}

// BenchmarkTopic measures how fast the handlers of all subscribed queues receive the messages of a topic, next to a
// stream with as many consumer groups.
func BenchmarkTopic(b *testing.B) {
	c, r := onStore(b)
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("subscriptions=%d", n), func(b *testing.B) {
			messages := max(1, b.N/n)
			if r != nil {
				perSecond(b, messages*n, r.stream(b, n, messages), "stream-deliveries")
			}
			topic, ctx := c.Topic(newName()), b.Context()
			worker := later.NewWorker(c, later.WorkerConfig{Concurrency: featureHandlers})
			all, handled := make(chan struct{}), atomic.Int64{}
			for i := range n {
				name := fmt.Sprint(topic.Name(), "-", i)
				b.Cleanup(func() { must(b, c.Queue(name).Delete(cleaning(b))) })
				must(b, topic.Subscribe(ctx, name))
				worker.Handle(name, func(context.Context, *later.Message) error {
					if handled.Add(1) == int64(messages*n) {
						close(all)
					}
					return nil
				})
			}
			b.Cleanup(func() { must(b, topic.Delete(cleaning(b))) })
			working, stop := context.WithCancel(ctx)
			ended := make(chan error, 1)
			begin := time.Now()
			go func() { ended <- worker.Run(working) }()
			for i := 0; i < messages; i += store.MaxBatch {
				batch := make([]later.Outgoing, min(store.MaxBatch, messages-i))
				for k := range batch {
					batch[k].Payload = make([]byte, featureSize)
				}
				_, err := topic.PublishBatch(ctx, batch)
				must(b, err)
			}
			<-all
			perSecond(b, messages*n, time.Since(begin), "deliveries")
			stop()
			must(b, <-ended)
		})
	}
}

// stream returns how long it takes to send messages to a stream, and to receive and ack them in n consumer groups at
// the same time.
func (r *Redis) stream(b *testing.B, n, messages int) time.Duration {
	ctx, key := b.Context(), newName()
	defer r.rdb.Unlink(cleaning(b), key)
	for i := range n {
		must(b, r.rdb.XGroupCreateMkStream(ctx, key, strconv.Itoa(i), "0").Err())
	}
	begin := time.Now()
	var group atomic.Int64
	err := inParallel(ctx, n+1, func(ctx context.Context) error {
		name := strconv.FormatInt(group.Add(1)-1, 10)
		if name == strconv.Itoa(n) { // the sender
			for i := 0; i < messages; i += store.MaxBatch {
				_, err := r.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
					for range min(store.MaxBatch, messages-i) {
						p.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []any{"payload", make([]byte, featureSize)}})
					}
					return nil
				})
				if err != nil {
					return err
				}
			}
			return nil
		}
		for left := messages; left > 0; {
			streams, err := r.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
				Group: name, Consumer: "bench", Streams: []string{key, ">"}, Count: store.MaxBatch, Block: time.Second,
			}).Result()
			if errors.Is(err, redis.Nil) {
				continue
			}
			if err != nil {
				return err
			}
			var ids []string
			for _, m := range streams[0].Messages {
				ids = append(ids, m.ID)
			}
			if err := r.rdb.XAck(ctx, key, name, ids...).Err(); err != nil {
				return err
			}
			left -= len(ids)
		}
		return nil
	})
	must(b, err)
	return time.Since(begin)
}

// BenchmarkEvents measures the rates of 32 senders and of a worker without reports of events, with reports, and with a
// watcher. The three take turns. It reports medians relative to the rates without reports.
func BenchmarkEvents(b *testing.B) {
	c, _ := onStore(b)
	off, err := later.New(c.Store(), later.WithoutActivity())
	must(b, err)
	defer off.Close()
	const rounds = 5
	modes := []string{"off", "on", "watched"}
	sends, drains := map[string][]float64{}, map[string][]float64{}
	for round := range rounds {
		for i := range modes {
			mode := modes[(i+round)%len(modes)]
			client := c
			if mode == "off" {
				client = off
			}
			q := LaterWorker(client, newName(), later.WorkerConfig{})
			must(b, q.queue.SetDeadRetention(b.Context(), later.Retention{})) // creates the queue
			stop := func() {}
			if mode == "watched" {
				stop = watch(b, c, q.queue.Name())
			}
			sent, err := Local{q}.Send(b.Context(), SendConfig{Messages: b.N, Goroutines: 32, Size: featureSize})
			must(b, err)
			_, err = q.queue.Purge(b.Context())
			must(b, err)
			d, err := Local{q}.Drain(b.Context(), DrainConfig{
				Messages: b.N, Size: featureSize, Handlers: featureHandlers, Limit: featureLimit,
			})
			stop()
			must(b, err, q.queue.Delete(b.Context()))
			sends[mode], drains[mode] = append(sends[mode], sent.PerSecond()), append(drains[mode], d.PerSecond())
		}
	}
	median := func(rates map[string][]float64, mode string) float64 {
		return slices.Sorted(slices.Values(rates[mode]))[rounds/2]
	}
	b.ReportMetric(median(sends, "off"), "sends/s")
	b.ReportMetric(median(drains, "off"), "drained/s")
	for _, mode := range modes[1:] {
		b.ReportMetric(median(sends, mode)/median(sends, "off"), "sends-"+mode)
		b.ReportMetric(median(drains, mode)/median(drains, "off"), "drained-"+mode)
	}
}

// watch reads the events of a queue until stop is called.
func watch(b *testing.B, c *later.Client, queue string) (stop func()) {
	w, err := c.Watch(b.Context(), queue)
	must(b, err)
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			if _, err := w.Next(b.Context()); err != nil {
				return
			}
		}
	})
	return func() {
		w.Close()
		reading.Wait()
	}
}

// BenchmarkSchedules measures b.N schedules: how fast they are stored, and their runs sent when all are due at once,
// and the longest of 50 times that it takes to compute the next hundred runs of all, or to read a page of a hundred.
func BenchmarkSchedules(b *testing.B) {
	c, _ := onStore(b)
	s, queue, ctx := c.Schedules(), c.Queue(newName()), b.Context()
	all := func(ctx context.Context, f func(ctx context.Context, name string) error) error {
		var next atomic.Int64
		return inParallel(ctx, 64, func(ctx context.Context) error {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := f(ctx, fmt.Sprintf("%s-%07d", queue.Name(), i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	stats, err := queue.Stats(ctx)
	must(b, err)
	begin := time.Now()
	// Later than all of them are stored, unless that takes much longer than it should.
	due := time.Duration(b.N)*time.Millisecond + 2*time.Second
	defer func() { must(b, all(cleaning(b), s.Delete), queue.Delete(cleaning(b))) }()
	must(b, all(ctx, func(ctx context.Context, name string) error {
		_, err := s.Put(ctx, later.Schedule{Name: name, Queue: queue.Name(), Payload: make([]byte, featureSize),
			When: recurrence.Spec{Every: 24 * time.Hour, Start: stats.Now.Add(due).Truncate(time.Millisecond)}})
		return err
	}))
	perSecond(b, b.N, time.Since(begin), "put")
	cursor := ""
	for unit, f := range map[string]func() error{
		"next-100-ms": func() error { _, err := s.Upcoming(ctx, 100); return err },
		"page-ms": func() error {
			page, err := s.List(ctx, cursor, 100)
			cursor = page.Next
			return err
		},
	} {
		var longest time.Duration
		for range 50 {
			called := time.Now()
			must(b, f())
			longest = max(longest, time.Since(called))
		}
		b.ReportMetric(Millis(longest), unit)
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running) }()
	must(b, sleepUntil(ctx, begin.Add(due)))
	begin = time.Now()
	for stats.Ready < int64(b.N) {
		stats, err = queue.Stats(ctx)
		must(b, err, sleepUntil(ctx, time.Now().Add(5*time.Millisecond)))
	}
	perSecond(b, b.N, time.Since(begin), "runs")
	stop()
	must(b, <-ended)
}

// manyQueues are queues that one worker serves. As a Queue, it sends each message to a random one of them.
type manyQueues struct {
	LaterQueue
	names  []string
	handle atomic.Pointer[func(payload []byte)]
}

func (q *manyQueues) Send(ctx context.Context, payload []byte, due time.Time) (string, error) {
	return q.client.Queue(q.names[rand.IntN(len(q.names))]).Send(ctx, payload, later.At(due))
}

// Work has the worker, which runs already, call handle.
func (q *manyQueues) Work(ctx context.Context, _ int, handle func(payload []byte)) error {
	q.handle.Store(&handle)
	<-ctx.Done()
	return nil
}

// BenchmarkQueues measures one worker of many queues, 1,000 or as many as LATER_QUEUES says: its cost when idle, and
// the lateness of 1,000 messages a second to random ones of them.
func BenchmarkQueues(b *testing.B) {
	_, r := onStore(b)
	if r == nil {
		b.Skip("the store is no Redis, whose requests can be counted")
	}
	counted, closeAll, err := r.Counted()
	must(b, err)
	defer closeAll()
	c, err := later.New(counted)
	must(b, err)
	defer c.Close()
	n, err := strconv.Atoi(os.Getenv("LATER_QUEUES"))
	if err != nil {
		n = 1000
	}
	q := &manyQueues{LaterQueue: LaterQueue{client: c}}
	memory := inUse()
	w := later.NewWorker(c, later.WorkerConfig{Concurrency: featureHandlers})
	for i := range n {
		q.names = append(q.names, fmt.Sprint(newName(), "-", i))
		w.Handle(q.names[i], func(_ context.Context, m *later.Message) error {
			if handle := q.handle.Load(); handle != nil {
				(*handle)(m.Payload)
			}
			return nil
		})
	}
	defer func() {
		for _, name := range q.names {
			must(b, c.Queue(name).Delete(cleaning(b)))
		}
	}()
	working, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	idle := 5 * time.Second
	if b.N == 1 { // a check that it works
		idle = 100 * time.Millisecond
	}
	must(b, sleepUntil(b.Context(), time.Now().Add(idle))) // until it has made its first claims
	b.ReportMetric(float64(inUse()-memory)/float64(n), "B/queue")
	requests := r.Requests()
	client, _ := quota.ProcessCPU()
	server, err := r.Usage(b.Context())
	must(b, err, sleepUntil(b.Context(), time.Now().Add(idle)))
	clientNow, _ := quota.ProcessCPU()
	serverNow, err := r.Usage(b.Context())
	must(b, err)
	b.ReportMetric(float64(r.Requests()-requests)/idle.Seconds(), "idle-commands/s")
	b.ReportMetric(100*(clientNow-client).Seconds()/idle.Seconds(), "idle-worker-CPU-%")
	b.ReportMetric(100*(serverNow.CPU-server.CPU).Seconds()/idle.Seconds(), "idle-server-CPU-%")
	d, err := Local{q}.Lateness(b.Context(), latenessOf(b, 1000))
	stop()
	must(b, <-ended)
	reportLateness(b, d, err)
}

// inUse returns the bytes of the heap and of stacks that are in use.
func inUse() int64 {
	runtime.GC()
	runtime.GC() // the first shrinks stacks, the second empties pools
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc + stats.StackInuse)
}
