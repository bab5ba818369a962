package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/internal/shard"
	"github.com/laterq/later/store"
)

// cpuOf returns the CPU time that the main threads of all nodes of a Cluster have used.
func cpuOf(b *testing.B, rdb *redis.ClusterClient) (total time.Duration) {
	var mu sync.Mutex
	err := rdb.ForEachMaster(b.Context(), func(ctx context.Context, node *redis.Client) error {
		info, err := node.Info(ctx, "cpu").Result()
		for _, line := range strings.Split(info, "\r\n") {
			for _, field := range []string{"used_cpu_user_main_thread:", "used_cpu_sys_main_thread:"} {
				if text, ok := strings.CutPrefix(line, field); ok {
					seconds, _ := strconv.ParseFloat(text, 64)
					mu.Lock()
					total += time.Duration(seconds * float64(time.Second))
					mu.Unlock()
				}
			}
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return total
}

// newSharded returns a store whose queues have shards.
func newSharded(b *testing.B, rdb *redis.ClusterClient) store.Store {
	s := shard.New(newStore(b, rdb), slog.New(slog.DiscardHandler))
	b.Cleanup(func() { shard.Stop(s) })
	return s
}

// batchOf returns messages with generated ids of one slot and 100-byte payloads.
func batchOf(n int, due store.Due) []store.Outgoing {
	var ids store.IDs
	msgs := make([]store.Outgoing, n)
	for i := range msgs {
		msgs[i] = store.Outgoing{Message: store.Message{ID: ids.New(""), Payload: make([]byte, 100)}, Due: due}
	}
	return msgs
}

func setShards(b *testing.B, s store.Store, queue string, n int) {
	err := store.SetShards(b.Context(), s, queue, n)
	for moving := true; moving && err == nil; {
		var shards store.Shards
		shards, err = store.ShardsOf(b.Context(), s, queue)
		moving = shards.Moving
	}
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkShardCost measures what a message costs the servers of a three-node Cluster, by the number of shards of its
// queue: 12,000 messages are sent in batches of 500, then claimed and acked 500 at a time, LATER_ROUNDS times (1).
func BenchmarkShardCost(b *testing.B) {
	rounds, _ := strconv.Atoi(cmp.Or(os.Getenv("LATER_ROUNDS"), "1"))
	rdb := redistest.StartCluster(b).Client(b)
	for _, n := range []int{1, 3, 12, 0} {
		name := fmt.Sprintf("shards=%d", n)
		if n == 0 {
			name = "3 queues"
		}
		b.Run(name, func(b *testing.B) {
			s := newSharded(b, rdb)
			queues := []string{fmt.Sprint("cost", n, time.Now().UnixNano())}
			if n > 0 { // a call asks the old shard first until the change is over
				changeByStep(b, s, queues[0], n)
			} else { // on the three nodes
				for i := 0; len(queues) < 3; i++ {
					name := fmt.Sprint(queues[0], "-", i)
					if !slices.ContainsFunc(queues, func(other string) bool {
						return s.(store.Placer).SameServer(b.Context(), name, other)
					}) {
						queues = append(queues, name)
					}
				}
			}
			var send, drain time.Duration
			total := 0
			for b.Loop() {
				for range rounds {
					before := cpuOf(b, rdb)
					for i := range 24 {
						if _, err := s.Send(b.Context(), queues[i%len(queues)], batchOf(500, store.Due{})); err != nil {
							b.Fatal(err)
						}
						time.Sleep(time.Millisecond) // generated ids of a millisecond have one slot
					}
					middle := cpuOf(b, rdb)
					for _, queue := range queues {
						total += drainAll(b, s, queue)
					}
					send, drain = send+middle-before, drain+cpuOf(b, rdb)-middle
				}
			}
			b.ReportMetric(float64(send.Microseconds())/float64(total), "µs/send")
			b.ReportMetric(float64(drain.Microseconds())/float64(total), "µs/claim+ack")
		})
	}
}

// drainAll claims and acks all messages of a queue.
func drainAll(b *testing.B, s store.Store, queue string) (total int) {
	for {
		claim, err := s.Claim(b.Context(), queue, store.ClaimRequest{Max: 500, Lease: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		if len(claim.Messages) == 0 && !claim.More {
			return total
		}
		total += len(claim.Messages)
		settlements := make([]store.Settlement, len(claim.Messages))
		for i, m := range claim.Messages {
			settlements[i] = store.Settlement{Receipt: m.Receipt, Action: store.Ack}
		}
		if _, err := s.Settle(b.Context(), queue, settlements); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReshard measures how long a queue with LATER_RESHARD pending messages (5,000) takes to get three shards in
// place of one, while one client sends messages and another one handles the ones that are due. The pending messages are
// due in a day, and without a key (plain) or with one of 1,000 keys that have an order (keys), or with such a key and
// due in half a minute (soon).
func BenchmarkReshard(b *testing.B) {
	pending, _ := strconv.Atoi(cmp.Or(os.Getenv("LATER_RESHARD"), "5000"))
	b.Run("plain", func(b *testing.B) { benchmarkReshard(b, pending, 0, 24*time.Hour) })
	b.Run("keys", func(b *testing.B) { benchmarkReshard(b, pending, 1000, 24*time.Hour) })
	b.Run("soon", func(b *testing.B) { benchmarkReshard(b, pending, 1000, 30*time.Second) })
}

func benchmarkReshard(b *testing.B, pending, keys int, in time.Duration) {
	rdb := redistest.StartCluster(b).Client(b)
	s, producer := newSharded(b, rdb), newSharded(b, rdb)
	made := 0
	batch := func(n int, due store.Due) []store.Outgoing {
		msgs := batchOf(n, due)
		for i := range msgs {
			if keys > 0 {
				msgs[i].Key = fmt.Sprint("customer-", made%keys)
				msgs[i].ID = new(store.IDs).New(msgs[i].Key)
			}
			made++
		}
		return msgs
	}
	for b.Loop() {
		queue := fmt.Sprint("reshard", time.Now().UnixNano())
		if keys > 0 {
			flow := store.Flow{Key: store.KeyFlow{Order: store.OrderContinue}}
			if err := s.SetFlow(b.Context(), queue, flow, nil); err != nil {
				b.Fatal(err)
			}
		}
		for range pending / 500 {
			if _, err := s.Send(b.Context(), queue, batch(500, store.Due{Delay: in})); err != nil {
				b.Fatal(err)
			}
		}
		ctx, end := context.WithCancel(b.Context())
		var load sync.WaitGroup
		var sent atomic.Int64
		var late []time.Duration
		load.Go(func() {
			for tick := time.NewTicker(10 * time.Millisecond); ctx.Err() == nil; <-tick.C {
				if _, err := producer.Send(b.Context(), queue, batch(50, store.Due{})); err != nil {
					b.Error(err)
				}
				sent.Add(50)
			}
		})
		load.Go(func() { late = consume(b, ctx, s, queue) })
		begin := time.Now()
		setShards(b, s, queue, 3)
		took := time.Since(begin)
		end()
		load.Wait()
		slices.Sort(late)
		b.ReportMetric(took.Seconds(), "s/change")
		b.ReportMetric(float64(sent.Load())/took.Seconds(), "sends/s")
		b.ReportMetric(float64(late[len(late)-1].Microseconds())/1000, "ms-late-max")
		b.ReportMetric(float64(late[len(late)*99/100].Microseconds())/1000, "ms-late-p99")
		b.ReportMetric(float64(late[len(late)/2].Microseconds())/1000, "ms-late-p50")
	}
}

// consume claims and acks messages until ctx ends, and returns how late each claim found them.
func consume(b *testing.B, ctx context.Context, s store.Store, queue string) (late []time.Duration) {
	for ctx.Err() == nil {
		claim, err := s.Claim(b.Context(), queue, store.ClaimRequest{Max: 500, Lease: time.Minute})
		if err != nil {
			b.Error(err)
			return late
		}
		settlements := make([]store.Settlement, len(claim.Messages))
		for i, m := range claim.Messages {
			late = append(late, claim.Now.Sub(m.Due))
			settlements[i] = store.Settlement{Receipt: m.Receipt, Action: store.Ack}
		}
		if _, err := s.Settle(b.Context(), queue, settlements); err != nil {
			b.Error(err)
		}
		if len(claim.Messages) == 0 && !claim.More {
			s.Wait(ctx, queue) // ends with ctx
		}
	}
	return late
}

// BenchmarkIdleShards counts the script calls of a process that waits for a queue of 12 shards in a three-node Cluster
// and is not notified, for LATER_IDLE (2s).
func BenchmarkIdleShards(b *testing.B) {
	span, err := time.ParseDuration(cmp.Or(os.Getenv("LATER_IDLE"), "2s"))
	if err != nil {
		b.Fatal(err)
	}
	rdb := redistest.StartCluster(b).Client(b)
	s := newSharded(b, rdb)
	queue := fmt.Sprint("idle", time.Now().UnixNano())
	changeByStep(b, s, queue, 12)
	for b.Loop() {
		ctx, end := context.WithTimeout(b.Context(), span+time.Second)
		var waits sync.WaitGroup
		waits.Go(func() { consume(b, ctx, s, queue) })
		time.Sleep(time.Second) // until it waits everywhere
		before := scriptCalls(b, rdb)
		time.Sleep(span)
		b.ReportMetric(float64(scriptCalls(b, rdb)-before)/span.Seconds()/12, "calls/s/shard")
		end()
		waits.Wait()
	}
}

// scriptCalls returns how many scripts the nodes of a Cluster have executed.
func scriptCalls(b *testing.B, rdb *redis.ClusterClient) (total int64) {
	var mu sync.Mutex
	err := rdb.ForEachMaster(b.Context(), func(ctx context.Context, node *redis.Client) error {
		info, err := node.Info(ctx, "commandstats").Result()
		_, text, _ := strings.Cut(info, "cmdstat_evalsha:calls=")
		text, _, _ = strings.Cut(text, ",")
		n, _ := strconv.ParseInt(text, 10, 64)
		mu.Lock()
		defer mu.Unlock()
		total += n
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return total
}
