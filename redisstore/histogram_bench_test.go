package redisstore

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// BenchmarkHistogram asks for histograms of 500 parts of 1,000,000 messages due within a month, over spans of several
// lengths. It reports the server's ms in all calls and in the longest one, from the least disturbed histogram.
//
//	go test ./redisstore -run '^$' -bench Histogram -benchtime 20x
//
// LATER_HISTOGRAM_PENDING sets another number of messages. 10,000,000 take 2.3 GB and some minutes to send.
func BenchmarkHistogram(b *testing.B) {
	pending := 1_000_000
	if text := os.Getenv("LATER_HISTOGRAM_PENDING"); text != "" {
		var err error
		if pending, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	rdb := redistest.Start(b).Client(b)
	for key, value := range map[string]string{"appendonly": "no", "save": "", "slowlog-log-slower-than": "0",
		"slowlog-max-len": "1000"} {
		if err := rdb.ConfigSet(b.Context(), key, value).Err(); err != nil {
			b.Fatal(err)
		}
	}
	x := &bucketBench{newWith(b, production(), rdb), rdb}
	const month = 30 * 24 * time.Hour
	began := time.Now()
	for sent := 0; sent < pending; sent += store.MaxBatch {
		x.send(b, "far", store.MaxBatch, func() time.Duration { return 2*time.Hour + rand.N(month-2*time.Hour) })
	}
	x.longest(b)
	for _, span := range []time.Duration{month + time.Since(began), 7 * 24 * time.Hour, 24 * time.Hour, time.Hour,
		time.Minute, time.Second} {
		b.Run(fmt.Sprint("span=", span.Round(time.Second)), func(b *testing.B) {
			least, longest := math.Inf(1), math.Inf(1)
			for range b.N {
				from := began
				if span < month {
					from = from.Add(2*time.Hour + rand.N(month-2*time.Hour-span))
				}
				took := (&scriptBench{x.s, rdb}).scriptMicros(b)
				counts, err := x.s.Histogram(b.Context(), "far",
					store.HistogramBounds(from, from.Add(span), store.MaxBuckets))
				if err != nil {
					b.Fatal(err)
				}
				least = min(least, ((&scriptBench{x.s, rdb}).scriptMicros(b)-took)/1000)
				longest = min(longest, x.longest(b))
				var sum int64
				for _, n := range counts {
					sum += n
				}
				if span > month && sum != int64(pending) {
					b.Errorf("the histogram counts %d of %d messages", sum, pending)
				}
			}
			b.ReportMetric(least, "redis-ms/op")
			b.ReportMetric(longest, "redis-ms-longest-call")
		})
	}
}
