package redisstore

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// BenchmarkDues sends batches of 500 messages with different distributions of due times, b.N messages each, and then
// asks for a histogram of 500 parts over all of them. It reports the server's CPU time in µs per message in the tenth
// of the calls with the least disturbance, the CPU time in ms of the call that took the most, the bytes of the
// append-only file and of memory per message, and for the histogram the time of the server in all calls and in the
// longest one. "rescheduled" counts each send and each of the two reschedules that follow it as a message.
//
//	go test ./redisstore -run '^$' -bench Dues -benchtime 200000x
func BenchmarkDues(b *testing.B) {
	const day = 24 * time.Hour
	at := func(d time.Duration) store.Due { return store.Due{At: time.Now().Add(d)} }
	moment := time.Now().Add(day)
	for _, dist := range []struct {
		name string
		due  func(i int) store.Due // of the i-th message
	}{
		{"half an hour", func(int) store.Due { return store.Due{Delay: 30 * time.Minute} }},
		{"a day", func(int) store.Due { return store.Due{Delay: day} }},
		{"one moment", func(int) store.Due { return store.Due{At: moment} }},
		{"one second", func(int) store.Due { return store.Due{At: moment.Add(rand.N(time.Second))} }},
		{"one minute", func(int) store.Due { return store.Due{At: moment.Add(rand.N(time.Minute))} }},
		{"one minute in a month", func(int) store.Due {
			return store.Due{At: moment.Add(29*day + rand.N(time.Minute))}
		}},
		{"one hour", func(int) store.Due { return store.Due{At: moment.Add(rand.N(time.Hour))} }},
		{"one day", func(int) store.Due { return at(2*time.Hour + rand.N(day)) }},
		{"two days", func(int) store.Due { return at(2*time.Hour + rand.N(2*day)) }},
		{"one month", func(int) store.Due { return at(2*time.Hour + rand.N(30*day)) }},
		{"increasing", func(i int) store.Due { return store.Due{At: moment.Add(time.Duration(i) * time.Millisecond)} }},
		{"decreasing", func(i int) store.Due {
			return store.Due{At: moment.Add(10*day - time.Duration(i)*time.Millisecond)}
		}},
		{"rescheduled", func(int) store.Due { return at(2*time.Hour + rand.N(day)) }},
		{"alternating", func(i int) store.Due {
			if i%2 == 0 {
				return at(rand.N(time.Minute))
			}
			return at(2*time.Hour + rand.N(day))
		}},
		{"half crowded", func(i int) store.Due {
			if i%2 == 0 {
				return store.Due{At: moment.Add(rand.N(time.Minute))}
			}
			return at(2*time.Hour + rand.N(day))
		}},
	} {
		b.Run(dist.name, func(b *testing.B) {
			rdb := redistest.Start(b).Client(b)
			x := &bucketBench{newWith(b, production(), rdb), rdb}
			for _, kv := range [][2]string{{"auto-aof-rewrite-percentage", "0"}, {"slowlog-log-slower-than", "500"},
				{"slowlog-max-len", "100000"}} {
				if err := rdb.ConfigSet(b.Context(), kv[0], kv[1]).Err(); err != nil {
					b.Fatal(err)
				}
			}
			memory, file := x.number(b, "memory", "used_memory"), x.number(b, "persistence", "aof_current_size")
			began, n, least, most := time.Now(), 0, math.Inf(1), 0.0
			measure := func(calls ...func() error) {
				for _, call := range calls {
					cpu := x.mainThread(b)
					if err := call(); err != nil {
						b.Fatal(err)
					}
					most = max(most, x.mainThread(b)-cpu)
				}
			}
			perMessage := 1
			b.ResetTimer()
			for n < b.N {
				cpu, from := x.cpu(b), n
				for n < b.N && n < from+max(b.N/10, store.MaxBatch) {
					msgs, ids := make([]store.Outgoing, store.MaxBatch), make([]string, store.MaxBatch)
					for i := range msgs {
						msgs[i] = store.Outgoing{Message: store.Message{ID: store.NewID(), Payload: make([]byte, 100)},
							Due: dist.due(n)}
						ids[i] = msgs[i].ID
						n++
					}
					calls := []func() error{func() error {
						_, err := x.s.Send(b.Context(), "far", msgs)
						return err
					}}
					for _, delay := range []time.Duration{time.Minute, day} {
						if dist.name == "rescheduled" {
							calls = append(calls, func() error {
								_, err := x.s.Reschedule(b.Context(), "far", ids, store.Due{Delay: delay})
								return err
							})
						}
					}
					measure(calls...)
					perMessage = len(calls)
				}
				least = min(least, (x.cpu(b)-cpu)*1e6/float64((n-from)*perMessage))
			}
			b.StopTimer()
			sent := float64(n)
			b.ReportMetric(least, "redis-µs/msg")
			b.ReportMetric(most*1000, "ms-most")
			x.longest(b)
			b.ReportMetric((x.number(b, "memory", "used_memory")-memory)/sent-100, "bytes-above/msg")
			b.ReportMetric((x.number(b, "persistence", "aof_current_size")-file)/sent, "aof-bytes/msg")
			span := 32 * day
			if dist.name == "two days" {
				span = 51 * time.Hour
			}
			took := (&scriptBench{x.s, rdb}).scriptMicros(b)
			counts, err := x.s.Histogram(b.Context(), "far", store.HistogramBounds(began, began.Add(span), 500))
			if err != nil {
				b.Fatal(err)
			}
			var sum int64
			for _, count := range counts {
				sum += count
			}
			if sum != int64(n) {
				b.Errorf("the histogram counts %d of %d messages", sum, n)
			}
			b.ReportMetric(((&scriptBench{x.s, rdb}).scriptMicros(b)-took)/1000, "ms-histogram")
			b.ReportMetric(x.longest(b), "ms-longest-histogram")
			stats, err := rdb.HLen(b.Context(), DefaultPrefix+"{far}:buckets").Result()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(stats), "buckets")
		})
	}
}

// mainThread returns the CPU time in s of the server's main thread.
func (x *bucketBench) mainThread(b *testing.B) float64 {
	return x.number(b, "cpu", "used_cpu_user_main_thread") + x.number(b, "cpu", "used_cpu_sys_main_thread")
}

// longest returns the ms of the longest script since the last time.
func (x *bucketBench) longest(b *testing.B) float64 {
	b.Helper()
	logs, err := x.rdb.SlowLogGet(b.Context(), -1).Result()
	if err != nil {
		b.Fatal(err)
	}
	most := 0.0
	for _, entry := range logs {
		if entry.Args[0] == "evalsha" {
			most = max(most, float64(entry.Duration.Microseconds())/1000)
		}
	}
	if err := x.rdb.SlowLogReset(b.Context()).Err(); err != nil {
		b.Fatal(err)
	}
	return most
}
