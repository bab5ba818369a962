package redisstore

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// BenchmarkScripts measures the cost of the most frequent calls for the server: µs of one script, without network, by
// INFO commandstats, from the tenth of the calls with the least disturbance. To compare two commits on a busy machine,
// build a test binary of each with go test -c and run them alternately. LATER_SUB_QUEUES=1 measures sub-queues.
//
//	go test ./redisstore -run '^$' -bench Scripts -benchtime 2000x
func BenchmarkScripts(b *testing.B) {
	rdb := redistest.Start(b).Client(b)
	if err := rdb.ConfigSet(b.Context(), "appendonly", "no").Err(); err != nil {
		b.Fatal(err)
	}
	x := &scriptBench{newWith(b, production(), rdb), rdb}
	for _, size := range []int{1, store.MaxBatch} {
		for _, due := range []time.Duration{0, 2 * time.Hour} {
			b.Run(fmt.Sprintf("send of %d in %v", size, due), func(b *testing.B) {
				queue := x.queue(b, fmt.Sprintf("send-%d-%v-%d", size, due, b.N))
				x.run(b, func() { x.send(b, queue, size, due) }, nil)
				if err := x.s.Delete(b.Context(), queue); err != nil {
					b.Fatal(err)
				}
			})
		}
		var claimed store.Claim
		queue := x.queue(b, fmt.Sprint("claim-", size))
		claim := func(b *testing.B) {
			c, err := x.s.Claim(b.Context(), queue, store.ClaimRequest{Max: size, Lease: time.Hour})
			if err != nil || len(c.Messages) != size {
				b.Fatal(err, len(c.Messages))
			}
			claimed = c
		}
		settle := func(b *testing.B, action store.Action) {
			var settlements []store.Settlement
			for _, m := range claimed.Messages {
				settlements = append(settlements, store.Settlement{Receipt: m.Receipt, Action: action})
			}
			if _, err := x.s.Settle(b.Context(), queue, settlements); err != nil {
				b.Fatal(err)
			}
		}
		sendClaimed := func(b *testing.B) { x.send(b, queue, size, 0); claim(b) }
		b.Run(fmt.Sprint("claim of ", size), func(b *testing.B) {
			x.run(b, func() { claim(b) }, func(before bool) {
				if before {
					x.send(b, queue, size, 0)
				} else {
					settle(b, store.Ack)
				}
			})
		})
		for _, action := range []store.Action{store.Ack, store.Release} {
			b.Run(fmt.Sprintf("%v of %d", action, size), func(b *testing.B) {
				x.run(b, func() { settle(b, action) }, func(before bool) {
					if before {
						sendClaimed(b)
					} else if action != store.Ack {
						claim(b)
						settle(b, store.Ack)
					}
				})
			})
		}
	}
}

type scriptBench struct {
	s   *Store
	rdb *redis.Client
}

// queue returns the name of a queue, or that of a sub-queue, which it creates.
func (x *scriptBench) queue(b *testing.B, name string) string {
	if os.Getenv("LATER_SUB_QUEUES") == "" {
		return name
	}
	name = store.SubQueue(name, "g1", "1")
	if err := x.s.Create(b.Context(), name, store.Settings{}); err != nil {
		b.Fatal(err)
	}
	return name
}

func (x *scriptBench) send(b *testing.B, queue string, n int, due time.Duration) {
	msgs := make([]store.Outgoing, n)
	for i := range msgs {
		msgs[i] = store.Outgoing{Message: store.Message{ID: store.NewID(), Payload: make([]byte, 100)},
			Due: store.Due{Delay: due + time.Duration(i)*min(due, time.Minute)}}
	}
	if _, err := x.s.Send(b.Context(), queue, msgs); err != nil {
		b.Fatal(err)
	}
}

// run measures call. around is called before and after each call, and not measured.
func (x *scriptBench) run(b *testing.B, call func(), around func(before bool)) {
	least := math.Inf(1)
	const parts = 10
	for range parts {
		var sum float64
		n := max(1, b.N/parts)
		for range n {
			if around == nil {
				break
			}
			around(true)
			from := x.scriptMicros(b)
			call()
			sum += x.scriptMicros(b) - from
			around(false)
		}
		if around == nil {
			from := x.scriptMicros(b)
			for range n {
				call()
			}
			sum = x.scriptMicros(b) - from
		}
		least = min(least, sum/float64(n))
	}
	b.ReportMetric(least, "redis-µs/call")
}

// scriptMicros returns the µs that the server has spent in scripts.
func (x *scriptBench) scriptMicros(b *testing.B) float64 {
	info, err := x.rdb.Info(b.Context(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "cmdstat_evalsha:")
	_, rest, _ = strings.Cut(rest, "usec=")
	text, _, _ := strings.Cut(rest, ",")
	if text == "" {
		return 0
	}
	micros, err := strconv.ParseFloat(text, 64)
	if err != nil {
		b.Fatal(err)
	}
	return micros
}
