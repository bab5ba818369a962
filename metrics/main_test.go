package metrics

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

func TestMain(m *testing.M) { redistest.Main(m) }

var quiet = later.WithLogger(slog.New(slog.DiscardHandler))

func newClient(t testing.TB, s store.Store, opts ...later.Option) *later.Client {
	t.Helper()
	c, err := later.New(s, append([]later.Option{quiet}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func open(t testing.TB, url string, opts ...later.Option) *later.Client {
	t.Helper()
	c, err := later.Open(t.Context(), url, append([]later.Option{quiet}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func send(t testing.TB, q *later.Queue, opts ...later.SendOption) {
	t.Helper()
	if _, err := q.Send(t.Context(), nil, opts...); err != nil {
		t.Fatal(err)
	}
}

// scraped are the samples of one scrape, by name and labels, such as later_queue_paused{queue="mail"}. Of a histogram
// there is the number of observations.
type scraped map[string]float64

// scrape asks a handler for its metrics, as Prometheus does.
func scrape(t testing.TB, h http.Handler) scraped {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("GET /metrics: %d, %s", w.Code, w.Body)
	}
	return parse(t, w.Body)
}

func parse(t testing.TB, text io.Reader) scraped {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		t.Fatal(err)
	}
	all := scraped{}
	for name, family := range families {
		for _, m := range family.Metric {
			all[name+labels(m)] = value(m)
		}
	}
	return all
}

func labels(m *dto.Metric) string {
	if len(m.Label) == 0 {
		return ""
	}
	pairs := make([]string, len(m.Label))
	for i, pair := range m.Label {
		pairs[i] = pair.GetName() + `="` + pair.GetValue() + `"`
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

func value(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Histogram != nil:
		return float64(m.Histogram.GetSampleCount())
	}
	return m.Untyped.GetValue()
}

func (s scraped) want(t testing.TB, want scraped) {
	t.Helper()
	for name, v := range want {
		if got, ok := s[name]; !ok || got != v {
			t.Errorf("%s is %v (exists: %v); want %v", name, got, ok, v)
		}
	}
}

// count returns the number of samples with names that begin with prefix.
func (s scraped) count(prefix string) (n int) {
	for name := range s {
		if strings.HasPrefix(name, prefix) {
			n++
		}
	}
	return n
}

// countedStore counts the calls that a reading makes, and can delay them.
type countedStore struct {
	store.Store
	calls, atOnce, most atomic.Int64
	// block, if it is not nil, blocks a call until it returns, with its error.
	block func(ctx context.Context, queue string) error
}

func (c *countedStore) call(ctx context.Context, queue string) error {
	c.calls.Add(1)
	for now := c.atOnce.Add(1); ; {
		most := c.most.Load()
		if now <= most || c.most.CompareAndSwap(most, now) {
			break
		}
	}
	defer c.atOnce.Add(-1)
	if c.block != nil {
		return c.block(ctx, queue)
	}
	return nil
}

func (c *countedStore) Queues(ctx context.Context, cursor string) ([]string, string, error) {
	if err := c.call(ctx, ""); err != nil {
		return nil, "", err
	}
	return c.Store.Queues(ctx, cursor)
}

func (c *countedStore) Stats(ctx context.Context, queue string) (store.Stats, error) {
	if err := c.call(ctx, queue); err != nil {
		return store.Stats{}, err
	}
	return c.Store.Stats(ctx, queue)
}

func (c *countedStore) Histogram(ctx context.Context, queue string, bounds []time.Time) ([]int64, error) {
	if err := c.call(ctx, queue); err != nil {
		return nil, err
	}
	return c.Store.Histogram(ctx, queue, bounds)
}
