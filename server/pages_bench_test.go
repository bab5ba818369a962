package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// BenchmarkPages makes the requests of a web page on which a user looks through a queue on Redis: lists of 100 messages
// from any time on and the lists that follow, searches that look at 10,000 messages, and the overview. It reports the
// median and the 99th percentile of the time of a request over HTTP.
//
//	go test ./server -run '^$' -bench Pages -benchtime 500x
//
// LATER_PAGES_PENDING sets another number of messages than 20,000. 10,000,000 take 2.3 GB and some minutes to send.
func BenchmarkPages(b *testing.B) {
	pending := pendingOf(b)
	c, h := newBenchServer(b)
	const month = 30 * 24 * time.Hour
	began := time.Now()
	fillQueues(b, c, []string{"orders"}, pending)
	next := ""
	get := func(path string) {
		var page struct{ Next string }
		getJSON(b, h.URL+path, &page)
		next = page.Next
	}
	const list = "/v1/queues/orders/messages?preview=300&limit=100"
	from := func() string {
		return "&due_after=" + began.Add(2*time.Hour+rand.N(month*9/10)).UTC().Format(time.RFC3339)
	}
	for _, one := range []struct {
		name string
		do   func()
	}{
		{"list", func() { get(list + from()) }},
		{"following", func() {
			if next == "" {
				get(list + from())
			}
			get(list + "&cursor=" + url.QueryEscape(next))
		}},
		{"search", func() { get(list + from() + "&look=10000&json=" + url.QueryEscape("total = 1000")) }},
		{"overview", func() { get("/v1/overview") }},
		{"range", func() {
			at := began.Add(2*time.Hour + rand.N(month/2)).UTC()
			to := at.Add(rand.N(month/2) + time.Second)
			get("/v1/overview?buckets=120&from=" + at.Format(time.RFC3339) + "&to=" + to.Format(time.RFC3339))
		}},
	} {
		b.Run(fmt.Sprintf("%s/pending=%d", one.name, pending), func(b *testing.B) {
			next = ""
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				one.do()
				took = append(took, time.Since(begin))
			}
			reportTimes(b, took, "")
		})
	}
}

// BenchmarkThousandQueues makes the requests of the views of a web page on 1,000 queues on Redis: the list of all
// queues, from any time on and the list that follows, the overview, the queues of a range, problems, and lists of
// names. It reports the median and the 99th percentile of the time of a request over HTTP. first is the first event of
// a stream of overviews that nobody else watches, overview is a whole one.
//
//	go test ./server -run '^$' -bench ThousandQueues -benchtime 200x -timeout 30m
//
// LATER_PAGES_PENDING sets another number of messages than 20,000.
func BenchmarkThousandQueues(b *testing.B) {
	pending := pendingOf(b)
	c, h := newBenchServer(b)
	began := time.Now()
	queues := fillThousand(b, c, pending)
	const list = "/v1/messages?preview=160&limit=45"
	from := func() string {
		return "&due_after=" + began.Add(2*time.Hour+rand.N(25*24*time.Hour)).UTC().Format(time.RFC3339)
	}
	next, begun, watched := "", "", 0
	for name, path := range map[string]func() string{
		"list":      func() string { return list + "&states=ready&states=scheduled" },
		"from":      func() string { return list + from() },
		"following": func() string { return list + begun + "&cursor=" + url.QueryEscape(next) },
		"one-queue": func() string { return list + "&queue=" + queues[rand.N(len(queues))] },
		"overview":  func() string { return "/v1/overview" },
		"first": func() string { // each has parameters of its own
			watched++
			return fmt.Sprintf("/v1/overview/watch?changes=true&from=%s&to=%s", began.UTC().Format(time.RFC3339),
				began.AddDate(0, 1, watched).UTC().Format(time.RFC3339))
		},
		"range": func() string {
			return duePath + "?to=" + began.Add(15*24*time.Hour).UTC().Format(time.RFC3339)
		},
		"activity":  func() string { return "/v1/queues/" + queues[rand.N(len(queues))] + "/activity" },
		"problems":  func() string { return "/v1/problems" },
		"schedules": func() string { return "/v1/schedules" },
		"topics":    func() string { return "/v1/topics" },
		"workers":   func() string { return "/v1/workers" },
		"changes":   func() string { return "/v1/changes" },
	} {
		b.Run(fmt.Sprintf("%s/pending=%d", name, pending), func(b *testing.B) {
			get := func(path string) {
				if name == "first" {
					getEvent(b, h.URL+path)
					return
				}
				var page struct{ Next string }
				getJSON(b, h.URL+path, &page)
				next = page.Next
			}
			next = ""
			var took []time.Duration
			for b.Loop() {
				if name == "following" && (next == "" || len(took)%10 == 0) {
					begun = from()
					get(list + begun)
				}
				begin := time.Now()
				get(path())
				took = append(took, time.Since(begin))
			}
			reportTimes(b, took, "")
		})
	}
}

// getEvent reads the first event of a stream.
func getEvent(b *testing.B, url string) {
	b.Helper()
	reply, err := http.Get(url)
	if err != nil {
		b.Fatal(err)
	}
	defer reply.Body.Close()
	lines := bufio.NewReader(reply.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			b.Fatal(err)
		}
		if strings.HasPrefix(line, "event: ") {
			return
		}
	}
}

func getJSON(b *testing.B, url string, to any) {
	b.Helper()
	reply, err := http.Get(url)
	if err != nil {
		b.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode != http.StatusOK {
		b.Fatalf("%s: %d %s, %v", url, reply.StatusCode, body, err)
	}
	if err := json.Unmarshal(body, to); err != nil {
		b.Fatal(err)
	}
}

// pendingOf returns the number of messages of a benchmark.
func pendingOf(b *testing.B) int {
	b.Helper()
	text := os.Getenv("LATER_PAGES_PENDING")
	if text == "" {
		return 20_000
	}
	pending, err := strconv.Atoi(text)
	if err != nil {
		b.Fatal(err)
	}
	return pending
}

// newBenchServer returns a client of a Redis without persistence, and its API over HTTP.
func newBenchServer(b *testing.B) (*later.Client, *httptest.Server) {
	b.Helper()
	redis := redistest.Start(b)
	for _, setting := range [][2]string{{"appendonly", "no"}, {"save", ""}} {
		if err := redis.Client(b).ConfigSet(b.Context(), setting[0], setting[1]).Err(); err != nil {
			b.Fatal(err)
		}
	}
	c, err := later.Open(b.Context(), redis.URL(), later.WithoutActivity())
	if err != nil {
		b.Fatal(err)
	}
	s, err := New(c, Config{})
	if err != nil {
		b.Fatal(err)
	}
	h := httptest.NewServer(s)
	b.Cleanup(func() {
		h.Close()
		s.Close()
		c.Close()
	})
	return c, h
}

// fillThousand sends messages that fall due within a month to 1,000 queues, and to each a message of its own, with the
// id last-of- and the name of the queue. It returns the names.
func fillThousand(b *testing.B, c *later.Client, pending int) (queues []string) {
	b.Helper()
	for i := range 1000 {
		queues = append(queues, fmt.Sprintf("queue-%03d", i))
	}
	fillQueues(b, c, queues, pending)
	for _, queue := range queues { // also to queues that had no batch
		_, err := c.Queue(queue).Send(b.Context(), nil, later.WithID("last-of-"+queue), later.In(time.Hour))
		if err != nil {
			b.Fatal(err)
		}
	}
	return queues
}

// fillQueues sends messages that fall due within a month to queues in turn.
func fillQueues(b *testing.B, c *later.Client, queues []string, pending int) {
	b.Helper()
	const month = 30 * 24 * time.Hour
	var filling sync.WaitGroup
	var sent atomic.Int64
	for range 4 {
		filling.Go(func() {
			msgs := make([]later.Outgoing, store.MaxBatch)
			for to := sent.Add(store.MaxBatch); to <= int64(pending); to = sent.Add(store.MaxBatch) {
				for i := range msgs {
					msgs[i] = later.Outgoing{When: later.In(2*time.Hour + rand.N(month)),
						Payload: fmt.Appendf(nil, `{"order": %d, "total": %d}`, to-int64(i), rand.N(1000))}
				}
				queue := queues[int(to/store.MaxBatch)%len(queues)]
				if _, err := c.Queue(queue).SendBatch(b.Context(), msgs); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	if filling.Wait(); b.Failed() {
		b.FailNow()
	}
}

// reportTimes reports the median and the 99th percentile of times.
func reportTimes(b *testing.B, took []time.Duration, name string) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, name+"p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, name+"p99-ms")
}
