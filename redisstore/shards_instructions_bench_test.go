package redisstore

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/internal/shard"
	"github.com/laterq/later/store"
)

// BenchmarkShardInstructions counts the instructions that a message costs Redis, by the number of shards of its queue.
// All shards are on one server under valgrind, so that the caches and cores that several servers share do not count.
// Each shard has 1,000 ready messages; then 12,000 are sent 500 at a time, all are claimed 500 at a time, and acked,
// LATER_ROUNDS times (1).
func BenchmarkShardInstructions(b *testing.B) {
	if err := redistest.CannotCount(); err != nil {
		b.Skip(err)
	}
	rounds, _ := strconv.Atoi(cmp.Or(os.Getenv("LATER_ROUNDS"), "1"))
	server := redistest.Start(b, redistest.Under(redistest.Callgrind...))
	engine := newStore(b, server.Client(b))
	count := func(calls func() error) float64 {
		kIr, err := server.Instructions(b.Context(), calls)
		if err != nil {
			b.Fatal(err)
		}
		return kIr
	}
	for _, n := range []int{1, 3, 12} {
		b.Run(fmt.Sprintf("shards=%d", n), func(b *testing.B) {
			s := shard.New(engine, slog.New(slog.DiscardHandler))
			b.Cleanup(func() { shard.Stop(s) })
			queue := fmt.Sprint("instructions", n, time.Now().UnixNano())
			changeByStep(b, s, queue, n)
			send := func(batches int) error {
				for range batches {
					if _, err := s.Send(b.Context(), queue, batchOf(500, store.Due{})); err != nil {
						return err
					}
					time.Sleep(time.Millisecond) // generated ids of a millisecond have one slot
				}
				return nil
			}
			var sends, drains float64
			sent := 0
			for b.Loop() {
				for range rounds {
					if err := send(2 * n); err != nil {
						b.Fatal(err)
					}
					sends += count(func() error { return send(24) })
					sent += 24 * 500
					all := 0
					drained := count(func() error {
						all = drainAll(b, s, queue)
						return nil
					})
					drains += drained * 24 * 500 / float64(all)
				}
			}
			b.ReportMetric(sends/float64(sent), "kIr/send")
			b.ReportMetric(drains/float64(sent), "kIr/claim+ack")
		})
	}
}

// changeByStep changes the number of shards of a queue without messages, to the end of the change.
func changeByStep(b *testing.B, s store.Store, queue string, n int) {
	if n == 1 {
		return
	}
	shard.Stepwise(s)
	err := store.SetShards(b.Context(), s, queue, n)
	for ended := false; !ended && err == nil; {
		ended, err = shard.Step(b.Context(), s, queue, n)
	}
	if err != nil {
		b.Fatal(err)
	}
}
