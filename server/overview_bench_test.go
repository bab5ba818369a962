package server

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// BenchmarkOverview reads overviews of 200 and 1,000 queues in Redis with 1,000,000 messages, most of them due within
// 40 days. It reads each overview either for the first time or repeatedly, as a watch does. It reports the cost of a
// reading for Redis: the CPU time of its main thread, the elapsed time of scripts and their number, and the ms of the
// longest one in the least disturbed reading.
//
//	go test ./server -run '^$' -bench Overview -benchtime 20x
func BenchmarkOverview(b *testing.B) {
	for _, queues := range []int{200, 1000} {
		b.Run(fmt.Sprint("queues=", queues), func(b *testing.B) { benchmarkOverview(b, queues, 1_000_000/queues) })
	}
}

func benchmarkOverview(b *testing.B, queues, each int) {
	const part = 1000
	rs := redistest.Start(b)
	x := redisCost{rs.Client(b)}
	for key, value := range map[string]string{"appendonly": "no", "save": "", "slowlog-log-slower-than": "200",
		"slowlog-max-len": "1000"} {
		if err := x.rdb.ConfigSet(b.Context(), key, value).Err(); err != nil {
			b.Fatal(err)
		}
	}
	c, err := later.Open(b.Context(), rs.URL(), later.WithoutActivity())
	if err != nil {
		b.Fatal(err)
	}
	server, err := New(c, Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	defer server.Close()
	now := time.Now()
	for i := range queues {
		for done := 0; done < each; done += part {
			batch := make([]later.Outgoing, part)
			for j := range batch { // the same number in each minute, hour and so on, on a logarithmic scale
				share := float64(done+j) / float64(each)
				due := time.Duration(float64(time.Second) * math.Pow(40*24*3600, share))
				batch[j] = later.Outgoing{Payload: []byte("x"), When: later.At(now.Add(due - 10*time.Second))}
			}
			if _, err := c.Queue(fmt.Sprintf("q%03d", i)).SendBatch(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
		}
	}
	for name, query := range map[string]string{
		"all": "", "range": "?buckets=500&from=" + now.Add(time.Hour).UTC().Format(time.RFC3339) +
			"&to=" + now.Add(240*time.Hour).UTC().Format(time.RFC3339), "one": "?queue=q007",
	} {
		b.Run(name, func(b *testing.B) {
			x.measure(b, func() {
				w := httptest.NewRecorder()
				server.ServeHTTP(w, httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/v1/overview"+query,
					nil))
				if w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
			})
		})
	}
	b.Run("watched", func(b *testing.B) {
		var kept keptDetails
		read := func() {
			if _, err := server.readOverview(b.Context(), &overviewRequest{}, &kept, nil); err != nil {
				b.Fatal(err)
			}
		}
		read()
		x.measure(b, read)
	})
}

// redisCost reads the counters of a Redis.
type redisCost struct{ rdb *redis.Client }

// measure calls read, and reports its cost for Redis.
func (x redisCost) measure(b *testing.B, read func()) {
	cpu, scripts, calls, longest := x.cpu(b), x.scripts(b), x.calls(b), math.Inf(1)
	x.longest(b)
	for b.Loop() {
		read()
		b.StopTimer()
		longest = min(longest, x.longest(b))
		b.StartTimer()
	}
	n := float64(b.N)
	b.ReportMetric((x.cpu(b)-cpu)*1000/n, "redis-cpu-ms/op")
	b.ReportMetric((x.scripts(b)-scripts)/1000/n, "redis-scripts-ms/op")
	b.ReportMetric((x.calls(b)-calls)/n, "redis-calls/op")
	b.ReportMetric(longest, "redis-ms-longest-call")
}

// cpu returns the CPU time in s of the main thread.
func (x redisCost) cpu(b *testing.B) float64 {
	return x.number(b, "cpu", "used_cpu_user_main_thread:") + x.number(b, "cpu", "used_cpu_sys_main_thread:")
}

// calls returns the number of scripts.
func (x redisCost) calls(b *testing.B) float64 {
	return x.number(b, "commandstats", "cmdstat_evalsha:calls=")
}

// scripts returns the µs of all scripts.
func (x redisCost) scripts(b *testing.B) float64 {
	calls := strconv.FormatFloat(x.calls(b), 'f', -1, 64)
	return x.number(b, "commandstats", "cmdstat_evalsha:calls="+calls+",usec=")
}

// number returns the number after a text in a section of INFO, or 0.
func (x redisCost) number(b *testing.B, section, before string) float64 {
	b.Helper()
	info, err := x.rdb.Info(b.Context(), section).Result()
	if err != nil {
		b.Fatal(err)
	}
	_, text, _ := strings.Cut(info, before)
	end := strings.IndexFunc(text, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	n, _ := strconv.ParseFloat(text[:max(0, end)], 64)
	return n
}

// longest returns the ms of the longest script since the last time.
func (x redisCost) longest(b *testing.B) float64 {
	b.Helper()
	logs, err := x.rdb.SlowLogGet(b.Context(), -1).Result()
	if err != nil {
		b.Fatal(err)
	}
	most := 0.0
	for _, entry := range logs {
		if strings.HasPrefix(entry.Args[0], "eval") {
			most = max(most, float64(entry.Duration.Microseconds())/1000)
		}
	}
	if err := x.rdb.SlowLogReset(b.Context()).Err(); err != nil {
		b.Fatal(err)
	}
	return most
}
