package metrics

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/laterq/later"
	_ "github.com/laterq/later/diskstore"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// inStores runs a test on a real Redis and a real embedded store.
func inStores(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("redis", func(t *testing.T) { test(t, redistest.Start(t).URL()) })
	t.Run("embedded", func(t *testing.T) { test(t, "file://"+t.TempDir()) })
}

func TestGaugesAreTheStateOfTheQueues(t *testing.T) {
	inStores(t, func(t *testing.T, url string) {
		m := New(Config{Timeout: time.Minute})
		c := open(t, url, later.WithObserver(m.Observe))
		q := c.Queue("mail")
		send(t, q, later.At(time.Now().Add(-time.Hour)))
		for _, d := range []time.Duration{0, 0, 50 * time.Second, 55 * time.Minute, 23 * time.Hour, 800 * time.Hour} {
			send(t, q, later.In(d))
		}
		for range 2 { // of the messages that are due at once
			got, err := q.Receive(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			if got[0].Lateness > time.Minute {
				err = got[0].Bury(t.Context(), errors.New("too old"))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		send(t, q, later.At(time.Now().Add(-2*time.Hour)))
		if err := c.Queue("stopped").Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, n := range map[string]int{"limited": 2, "held": 1} { // one message is in flight
			limited := c.Queue(name)
			if err := limited.SetFlow(t.Context(), later.Flow{Concurrency: n}); err != nil {
				t.Fatal(err)
			}
			send(t, limited)
			send(t, limited)
			if _, err := limited.Receive(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := testutil.GatherAndLint(registryOf(m, c)); err != nil {
			t.Fatal(err)
		}
		got := scrape(t, m.Handler(c))
		got.want(t, scraped{
			`later_up`: 1,
			`later_queue_messages{queue="mail",state="scheduled"}`:  4,
			`later_queue_messages{queue="mail",state="ready"}`:      2,
			`later_queue_messages{queue="mail",state="leased"}`:     1,
			`later_queue_messages{queue="mail",state="dead"}`:       1,
			`later_queue_due_messages{queue="mail",within="1m"}`:    1,
			`later_queue_due_messages{queue="mail",within="1h"}`:    2,
			`later_queue_due_messages{queue="mail",within="1d"}`:    3,
			`later_queue_paused{queue="mail"}`:                      0,
			`later_given_back_messages{queue="mail"}`:               0,
			`later_queue_paused{queue="stopped"}`:                   1,
			`later_queue_messages{queue="stopped",state="ready"}`:   0,
			`later_queue_due_messages{queue="stopped",within="1d"}`: 0,
			`later_oldest_due_age_seconds{queue="stopped"}`:         0,
			`later_queue_held_back{queue="limited"}`:                0,
			`later_queue_held_back{queue="held"}`:                   1,
			`later_problems{kind="overdue",severity="watch"}`:       1,
			`later_problems{kind="dead",severity="watch"}`:          1,
			`later_problems{kind="paused",severity="watch"}`:        1,
			`later_problems{kind="given_back",severity="act"}`:      0,
			`later_queues_left_out{reason="limit"}`:                 0,
			`later_queues_left_out{reason="error"}`:                 0,
			`later_lateness_seconds{queue="mail"}`:                  2,
		})
		if age := got[`later_oldest_due_age_seconds{queue="mail"}`]; age < 7200 || age > 7200+600 {
			t.Errorf("the oldest message has waited for %v s; want 2 hours", age)
		}
		if got.count("later_build_info{") != 1 {
			t.Errorf("no later_build_info in %v", got)
		}
	})
}

func registryOf(m *Metrics, c *later.Client) *prometheus.Registry {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(m, m.Gauges(c))
	return r
}

// TestMetricsFollowTheRulesOfPrometheus lints every metric, in the state in which all of them have series.
func TestMetricsFollowTheRulesOfPrometheus(t *testing.T) {
	for _, native := range []bool{false, true} {
		m := New(Config{NativeHistograms: native})
		c := newClient(t, memstore.New())
		send(t, c.Queue("q"))
		for _, kind := range []later.EventKind{later.EventStarted, later.EventRunMissed, later.EventRunSkipped} {
			m.Observe(later.Event{Kind: kind, Queue: "q", Count: 1})
		}
		m.Observe(later.Event{Kind: later.EventSent, Queue: "q", Schedule: "s"})
		problems, err := testutil.GatherAndLint(registryOf(m, c))
		if err != nil || len(problems) > 0 {
			t.Errorf("native %v: %v, %v", native, problems, err)
		}
	}
}

func TestScrapeOfManyQueuesIsBounded(t *testing.T) {
	s := &countedStore{Store: memstore.New()}
	const existing = 12_000
	for i := range existing {
		msg := store.Outgoing{Message: store.Message{ID: "a"}, Due: store.Due{Delay: 50 * time.Minute}}
		if _, err := s.Store.Send(t.Context(), fmt.Sprint("q", i), []store.Outgoing{msg}); err != nil {
			t.Fatal(err)
		}
	}
	m := New(Config{MaxQueues: 50, Timeout: time.Minute})
	got := scrape(t, m.Handler(newClient(t, s)))
	if n := got.count("later_queue_messages{"); n != 4*50 {
		t.Errorf("%d series of later_queue_messages; want those of 50 queues", n)
	}
	got.want(t, scraped{
		`later_up`: 1,
		// It stops at 10,000 names.
		`later_queues_left_out{reason="limit"}`:              10_000 - 50,
		`later_queues_left_out{reason="error"}`:              0,
		`later_queue_messages{queue="q0",state="scheduled"}`: 1,
		`later_queue_due_messages{queue="q0",within="1h"}`:   1,
	})
	// A queue takes one call more for its shards, and the problems some in all.
	most := int64(maxListed/store.MaxBatch + 1 + 50*4 + 50 + 10)
	if calls := s.calls.Load(); calls > most {
		t.Errorf("the scrape made %d calls to the store; want at most %d", calls, most)
	}
	if n := s.most.Load(); n > readers {
		t.Errorf("the scrape made %d calls at the same time; want at most %d", n, readers)
	}
}

func TestScrapeOfChosenQueues(t *testing.T) {
	c := newClient(t, memstore.New())
	for _, name := range []string{"a", "b", "c"} {
		send(t, c.Queue(name))
	}
	m := New(Config{Queues: []string{"c", "a", "none", "c"}})
	got := scrape(t, m.Handler(c))
	got.want(t, scraped{
		`later_queue_messages{queue="a",state="ready"}`: 1,
		`later_queue_messages{queue="c",state="ready"}`: 1,
		`later_queues_left_out{reason="limit"}`:         0,
		`later_queues_left_out{reason="error"}`:         0,
	})
	if n := got.count("later_queue_paused{"); n != 2 {
		t.Errorf("%d queues have gauges; want a and c", n)
	}
}

func TestScrapesAtTheSameTimeShareOneReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &countedStore{Store: memstore.New()}
		s.block = func(context.Context, string) error {
			time.Sleep(time.Second + time.Millisecond) // so that none ends when the time of a reading does
			return nil
		}
		c := newClient(t, s)
		send(t, c.Queue("q"))
		handler := New(Config{}).Handler(c)
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { scrape(t, handler).want(t, scraped{`later_queue_messages{queue="q",state="ready"}`: 1}) })
		}
		all.Wait()
		if calls := s.calls.Load(); calls != 6 {
			t.Errorf("50 scrapes made %d calls; want one for names, one for counts, two for workers, and two for problems "+
				"until the time is over", calls)
		}
		send(t, c.Queue("q"))
		time.Sleep(cacheFor - time.Millisecond)
		scrape(t, handler).want(t, scraped{
			`later_queue_messages{queue="q",state="ready"}`: 1,
			`later_reading_seconds`:                         3.003,
		})
		time.Sleep(2 * time.Millisecond)
		scrape(t, handler).want(t, scraped{`later_queue_messages{queue="q",state="ready"}`: 2})
		c.Close()
	})
}

func TestScrapeEndsAtItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &countedStore{Store: memstore.New()}
		s.block = func(ctx context.Context, queue string) error {
			if queue == "" || queue == "a" {
				return nil
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}
		c := newClient(t, s)
		for _, name := range []string{"a", "b", "c"} {
			send(t, c.Queue(name))
		}
		begun := time.Now()
		scrape(t, New(Config{Timeout: 3 * time.Second}).Handler(c)).want(t, scraped{
			`later_up`:                              1,
			`later_queues_left_out{reason="error"}`: 2,
			`later_queue_paused{queue="a"}`:         0,
		})
		if took := time.Since(begun); took != 3*time.Second {
			t.Errorf("the scrape took %v", took)
		}
		c.Close()
	})
}

func TestQueueThatCannotBeReadHidesNoOther(t *testing.T) {
	s := &countedStore{Store: memstore.New()}
	s.block = func(_ context.Context, queue string) error {
		if queue == "b" {
			return fmt.Errorf("queue %q: %w", queue, later.ErrCorrupt)
		}
		return nil
	}
	c := newClient(t, s)
	for _, name := range []string{"a", "b", "c"} {
		send(t, c.Queue(name))
	}
	scrape(t, New(Config{}).Handler(c)).want(t, scraped{
		`later_up`:                              1,
		`later_queues_left_out{reason="error"}`: 1,
		`later_queue_paused{queue="a"}`:         0,
		`later_queue_paused{queue="c"}`:         0,
	})
}

func TestScrapeSaysThatTheStoreIsDown(t *testing.T) {
	server := redistest.Start(t)
	for name, chosen := range map[string][]string{"all queues": nil, "chosen queues": {"q"}} {
		t.Run(name, func(t *testing.T) {
			m := New(Config{Timeout: time.Minute, Queues: chosen})
			c := open(t, server.URL(), later.WithObserver(m.Observe))
			send(t, c.Queue("q"))
			impatient := New(Config{Timeout: 100 * time.Millisecond, Queues: chosen})
			scrape(t, m.Handler(c)).want(t, scraped{`later_up`: 1})
			server.Freeze(t)
			got := scrape(t, impatient.Handler(c))
			got.want(t, scraped{`later_up`: 0})
			if n := got.count("later_queue_"); n != 0 {
				t.Errorf("%d gauges of a store that does not answer", n)
			}
			server.Thaw(t)
			scrape(t, m.Handler(c)).want(t, scraped{`later_up`: 1, `later_messages_sent_total{queue="q"}`: 1})
			server.Kill()
			scrape(t, impatient.Handler(c)).want(t, scraped{`later_up`: 0})
			server.Restart(t)
		})
	}
}

// BenchmarkScrape is the cost of a scrape that reads the store, of queues with ten messages each. For Redis it includes
// how long the server works for it.
func BenchmarkScrape(b *testing.B) {
	for _, queues := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint("redis/queues=", queues), func(b *testing.B) {
			server := redistest.Start(b)
			rdb := server.Client(b)
			worked := func() (seconds float64) {
				info, err := rdb.InfoMap(b.Context(), "cpu").Result()
				if err != nil {
					b.Fatal(err)
				}
				for _, name := range []string{"used_cpu_user_main_thread", "used_cpu_sys_main_thread"} {
					n, err := strconv.ParseFloat(info["CPU"][name], 64)
					if err != nil {
						b.Fatal(err)
					}
					seconds += n
				}
				return seconds
			}
			c := open(b, server.URL(), later.WithoutActivity())
			fill(b, c, queues)
			before := worked()
			benchmarkScrape(b, c, queues)
			b.ReportMetric((worked()-before)*1000/float64(b.N), "redis-ms/op")
		})
		b.Run(fmt.Sprint("embedded/queues=", queues), func(b *testing.B) {
			c := open(b, "file://"+b.TempDir(), later.WithoutActivity())
			fill(b, c, queues)
			benchmarkScrape(b, c, queues)
		})
	}
}

func benchmarkScrape(b *testing.B, c *later.Client, queues int) {
	m := New(Config{})
	for n := range queues {
		m.Observe(later.Event{Kind: later.EventSent, Queue: fmt.Sprint("q", n)})
	}
	for b.Loop() {
		scrape(b, m.Handler(c))
	}
}

// fill sends ten messages to each queue, from now on to in a month.
func fill(b *testing.B, c *later.Client, queues int) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := int(next.Add(1)); i <= queues; i = int(next.Add(1)) {
				var msgs []later.Outgoing
				for n := range 10 {
					d := time.Duration(n) * 3 * time.Second
					if n > 4 {
						d = time.Duration(n-4) * 100 * time.Hour
					}
					msgs = append(msgs, later.Outgoing{When: later.In(d)})
				}
				if _, err := c.Queue(fmt.Sprint("q", i)).SendBatch(b.Context(), msgs); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
}
