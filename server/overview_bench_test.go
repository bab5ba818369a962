package server

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// BenchmarkOverview reads overviews of 200 queues in Redis with 1,000,000 messages, most of them due within 40 days.
//
//	go test ./server -run '^$' -bench Overview -benchtime 20x
func BenchmarkOverview(b *testing.B) {
	const queues, each, part = 200, 5000, 1000
	c, err := later.Open(b.Context(), redistest.Start(b).URL(), later.WithoutActivity())
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
				share := float64(done+j) / each
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
			size := 0
			for b.Loop() {
				w := httptest.NewRecorder()
				server.ServeHTTP(w, httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/v1/overview"+query, nil))
				if w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
				size = w.Body.Len()
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}
