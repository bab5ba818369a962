package redisstore

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// BenchmarkFar measures the cost of messages due within a day but more than an hour ahead, next to some that are due
// soon. Per message it reports Redis' own CPU time in µs, from the fifth of the calls with the least disturbance, and
// the growth of the append-only file; per bucket, the cost of counting.
//
//	go test ./redisstore -run '^$' -bench Far -benchtime 200x
//
// LATER_FAR_BYTES sets another bucket size, LATER_FAR_PENDING other numbers of pending messages, and LATER_FAR_AOF=no
// turns off the append-only file.
func BenchmarkFar(b *testing.B) {
	constants := maps.Clone(luaConstants)
	if bytes := os.Getenv("LATER_FAR_BYTES"); bytes != "" {
		constants["BUCKET_BYTES"] = bytes
	}
	pending := []string{"10000", "1000000"}
	if text := os.Getenv("LATER_FAR_PENDING"); text != "" {
		pending = strings.Split(text, ",")
	}
	for _, text := range pending {
		n, err := strconv.Atoi(text)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("pending="+text, func(b *testing.B) {
			rdb := redistest.Start(b).Client(b)
			if err := rdb.ConfigSet(b.Context(), "auto-aof-rewrite-percentage", "0").Err(); err != nil {
				b.Fatal(err)
			}
			if file := os.Getenv("LATER_FAR_AOF"); file != "" {
				if err := rdb.ConfigSet(b.Context(), "appendonly", file).Err(); err != nil {
					b.Fatal(err)
				}
			}
			x := &bucketBench{newWith(b, loadScripts("", constants), rdb), rdb}
			before := x.number(b, "memory", "used_memory")
			for sent := 0; sent < n; sent += store.MaxBatch {
				x.send(b, "far", store.MaxBatch, withinADay)
			}
			filled := x.number(b, "memory", "used_memory")
			for _, size := range []int{store.MaxBatch, 1} {
				for what, due := range map[string]func() time.Duration{"far": withinADay, "rising": inAnHour(),
					"near": withinAMinute} {
					x.run(b, fmt.Sprintf("send %s by %d", what, size), size, func(*testing.B) func() {
						return func() { x.send(b, what, size, due) }
					})
				}
				x.run(b, fmt.Sprintf("cancel by %d", size), size, func(b *testing.B) func() {
					var ids []string
					for range b.N {
						ids = append(ids, x.send(b, "far", size, withinADay)...)
					}
					rand.Shuffle(len(ids), func(i, k int) { ids[i], ids[k] = ids[k], ids[i] })
					return func() {
						if _, err := x.s.Cancel(b.Context(), "far", store.CancelRequest{IDs: ids[:size]}); err != nil {
							b.Fatal(err)
						}
						ids = ids[size:]
					}
				})
			}
			buckets, err := rdb.HLen(b.Context(), DefaultPrefix+"{far}:buckets").Result()
			if err != nil {
				b.Fatal(err)
			}
			x.run(b, "histogram by buckets", int(buckets), func(b *testing.B) func() {
				return func() {
					now := time.Now()
					bounds := store.HistogramBounds(now, now.Add(26*time.Hour), 100)
					if _, err := x.s.Histogram(b.Context(), "far", bounds); err != nil {
						b.Fatal(err)
					}
				}
			})
			x.run(b, "number of all by buckets", int(buckets), func(b *testing.B) func() {
				return func() {
					c := x.s.newCall("check", "far", 3)
					c.add("packed_messages", "0", "0")
					if _, err := x.s.run(b.Context(), "far", c); err != nil {
						b.Fatal(err)
					}
				}
			})
			for _, what := range []string{"near", "far"} {
				x.run(b, "claim what was "+what, store.MaxBatch, func(b *testing.B) func() {
					queue := fmt.Sprintf("%s-%d", what, b.N)
					s := newWith(b, loadScripts(frozenClock, constants), rdb)
					advance(rdb)(b, queue, 0)
					due := map[string]func() time.Duration{"near": withinAMinute, "far": withinADay}[what]
					for range b.N {
						(&bucketBench{s, rdb}).send(b, queue, store.MaxBatch, due)
					}
					advance(rdb)(b, queue, 48*time.Hour)
					return func() {
						c, err := s.Claim(b.Context(), queue,
							store.ClaimRequest{Max: store.MaxBatch, Lease: 24 * time.Hour})
						if err != nil || len(c.Messages) < store.MaxBatch/2 { // a call promotes fewer than a batch
							b.Fatal(err, len(c.Messages))
						}
					}
				})
			}
			b.Run("fill", func(b *testing.B) { b.ReportMetric((filled-before)/float64(n)-100, "bytes-above/msg") })
		})
	}
}

type bucketBench struct {
	s   *Store
	rdb *redis.Client
}

func withinADay() time.Duration { return time.Hour + rand.N(24*time.Hour) }

func withinAMinute() time.Duration { return rand.N(time.Minute) }

// inAnHour always returns the same delay, the most common case.
func inAnHour() func() time.Duration { return func() time.Duration { return time.Hour } }

func (x *bucketBench) send(b *testing.B, queue string, n int, due func() time.Duration) (ids []string) {
	b.Helper()
	msgs := make([]store.Outgoing, n)
	for i := range msgs {
		msgs[i] = store.Outgoing{Message: store.Message{ID: store.NewID(), Payload: make([]byte, 100)},
			Due: store.Due{Delay: due()}}
		ids = append(ids, msgs[i].ID)
	}
	if _, err := x.s.Send(b.Context(), queue, msgs); err != nil {
		b.Fatal(err)
	}
	return ids
}

// run measures calls of size messages each; begin prepares them and returns the call.
func (x *bucketBench) run(b *testing.B, name string, size int, begin func(b *testing.B) func()) {
	b.Run(name, func(b *testing.B) {
		call := begin(b)
		b.ResetTimer()
		least, written := math.Inf(1), x.number(b, "persistence", "aof_current_size")
		const parts = 5
		for part := range parts {
			cpu, calls := x.cpu(b), (part+1)*b.N/parts-part*b.N/parts
			for range calls {
				call()
			}
			least = min(least, (x.cpu(b)-cpu)*1e6/float64(calls*size))
		}
		b.ReportMetric(least, "redis-µs/msg")
		b.ReportMetric((x.number(b, "persistence", "aof_current_size")-written)/float64(b.N*size), "aof-bytes/msg")
	})
}

func (x *bucketBench) cpu(b *testing.B) float64 {
	return x.number(b, "cpu", "used_cpu_user") + x.number(b, "cpu", "used_cpu_sys")
}

// number returns a field of INFO.
func (x *bucketBench) number(b *testing.B, section, field string) float64 {
	b.Helper()
	info, err := x.rdb.Info(b.Context(), section).Result()
	if err != nil {
		b.Fatal(err)
	}
	_, rest, known := strings.Cut(info, "\n"+field+":")
	if !known {
		return 0 // without an append-only file
	}
	text, _, _ := strings.Cut(rest, "\r")
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		b.Fatal(field, err)
	}
	return v
}
