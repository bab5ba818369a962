// Package metrics has the metrics of Later for Prometheus: the messages that this process sends and handles, counted by
// an observer, and the state of the queues, read from the store when it is scraped. It imports the root package,
// client_golang and internal packages that find problems, and nothing else of Later needs it. Start reading at New.
//
//	m := metrics.New(metrics.Config{})
//	client, err := later.Open(ctx, url, later.WithObserver(m.Observe))
//	http.Handle("/metrics", m.Handler(client))
//
// A program that has a registry already adds the two collectors to it instead:
//
//	registry.MustRegister(m, m.Gauges(client))
//
// Metrics.Requests counts the requests of an HTTP server, too. docs/monitoring.md lists the metrics. Names of queues
// are the only labels that a program chooses, and they are bounded; ids of messages and URLs are never labels.
package metrics

import (
	"cmp"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/laterq/later"
)

// Config configures Metrics. The zero value works; values below zero mean the default.
type Config struct {
	// Queues are the queues with gauges, if they exist, up to MaxQueues. Default: all, in order of name.
	Queues []string
	// MaxQueues is the maximum number of queues that have gauges, and of queues that have their own counters: the first
	// ones with an event in the process. The counters of all others have the label {other}. Default: 100.
	MaxQueues int
	// Timeout limits how long the gauges are read for. Choose it shorter than the scrape_timeout of Prometheus, which
	// is 10 s by default. Default: 5 s.
	Timeout time.Duration
	// NativeHistograms adds native histograms, for a Prometheus that scrapes them. They are more exact than the fixed
	// buckets and cost more to observe: see BenchmarkObserve.
	NativeHistograms bool
}

const (
	defaultMaxQueues = 100
	defaultTimeout   = 5 * time.Second
	otherQueue       = "{other}" // no queue has this name, since names have no braces
)

func (c Config) withDefaults() Config {
	c.MaxQueues = cmp.Or(max(c.MaxQueues, 0), defaultMaxQueues)
	c.Timeout = cmp.Or(max(c.Timeout, 0), defaultTimeout)
	c.Queues = slices.Clone(c.Queues)
	return c
}

// Metrics counts the events of this process, and is a prometheus.Collector of these counts. Create it with New. Its
// methods are safe for concurrent use.
type Metrics struct {
	cfg Config

	sent, settled, died                            *prometheus.CounterVec
	lateness, processing                           *prometheus.HistogramVec
	scheduleFired, scheduleMissed, scheduleSkipped *prometheus.CounterVec
	build                                          prometheus.Gauge

	requestCount *prometheus.CounterVec
	requestTook  *prometheus.HistogramVec
	requests     sync.Map // *requestMetrics by requestKey

	// queues has the metrics of the queues that have their own, and is replaced when one is added.
	queues atomic.Pointer[map[string]*queueMetrics]
	adding sync.Mutex
	other  func() *queueMetrics
}

// New returns Metrics that are all zero. It starts nothing.
func New(cfg Config) *Metrics {
	cfg = cfg.withDefaults()
	m := &Metrics{
		cfg:  cfg,
		sent: counter("later_messages_sent_total", "Messages that this process has sent.", "queue"),
		settled: counter("later_messages_settled_total",
			"How this process stopped holding messages, by outcome.", "queue", "outcome"),
		died: counter("later_messages_died_total", "Messages that this process has moved to dead.", "queue"),
		lateness: cfg.histogram("later_lateness_seconds",
			"Time from when a message fell due until its handler began, or until it was received without a worker.",
			latenessBuckets, "queue"),
		processing: cfg.histogram("later_processing_seconds", "How long handlers ran for a message.", processingBuckets,
			"queue"),
		scheduleFired: counter("later_schedule_fired_total",
			"Runs of schedules that this process has sent to a queue.", "queue"),
		scheduleMissed: counter("later_schedule_missed_total",
			"Runs of schedules that were left out because no worker was there in time.", "queue"),
		scheduleSkipped: counter("later_schedule_skipped_total",
			"Runs of schedules that were left out because the run before was unfinished.", "queue"),
		build: buildInfo(),
		requestCount: counter("later_http_requests_total", "HTTP requests that this process has answered.",
			"route", "method", "code"),
		requestTook: cfg.histogram("later_http_request_seconds",
			"Time from the head of an HTTP request to the end of its reply.", requestBuckets, "route", "method"),
	}
	m.queues.Store(&map[string]*queueMetrics{})
	m.other = sync.OnceValue(func() *queueMetrics { return m.newQueue(otherQueue) })
	return m
}

var (
	latenessBuckets   = []float64{.001, .002, .005, .01, .025, .1, .25, 1, 2.5, 10, 60, 300, 3600}
	processingBuckets = []float64{.001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}
)

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func (c Config) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	o := prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	if c.NativeHistograms {
		o.NativeHistogramBucketFactor, o.NativeHistogramMaxBucketNumber = 1.1, 100
		o.NativeHistogramMinResetDuration = time.Hour
	}
	return prometheus.NewHistogramVec(o, labels)
}

// module is the path of the module; later_build_info has its version.
const module = "github.com/laterq/later"

func buildInfo() prometheus.Gauge {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == module && m.Version != "" {
				version = m.Version
			}
		}
	}
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "later_build_info", Help: "The version of Later that this process has, as a label. The value is 1.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	g.Set(1)
	return g
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.sent, m.settled, m.died, m.lateness, m.processing, m.scheduleFired,
		m.scheduleMissed, m.scheduleSkipped, m.build, m.requestCount, m.requestTook}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector. It does not use the store.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(to)
	}
}

// Handler returns the handler of /metrics: m, its Gauges of the client's store, the metrics of the Go runtime and of
// the process, and more. It panics if more has a metric of the same name.
func (m *Metrics) Handler(client *later.Client, more ...prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(m, m.Gauges(client), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(more...)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry, EnableOpenMetrics: true})
}
