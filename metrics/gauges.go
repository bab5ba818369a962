package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laterq/later"
	"github.com/laterq/later/inspect"
)

const (
	// cacheFor is how long gauges are used again, however many scrapes ask for them.
	cacheFor = 5 * time.Second
	// problemsFor is the same for the problems of the store.
	problemsFor = 30 * time.Second
	// readers is how many queues are read at the same time.
	readers = 8
	// maxListed is how many names of queues a reading asks the store for.
	maxListed = 10_000
)

// horizons are the values of the label "within" of later_queue_due_messages, longest first.
var horizons = []struct {
	within string
	span   time.Duration
}{{"1d", 24 * time.Hour}, {"1h", time.Hour}, {"1m", time.Minute}}

var (
	upDesc       = desc("later_up", "Whether the store answered the last reading: 1 or 0.")
	messagesDesc = desc("later_queue_messages", "Messages in the queue, by state.", "queue", "state")
	dueDesc      = desc("later_queue_due_messages", "Scheduled messages that fall due within the given time from now.",
		"queue", "within")
	oldestDesc = desc("later_oldest_due_age_seconds",
		"How long ago the message fell due that has waited longest to be claimed, or 0.", "queue")
	givenBackDesc = desc("later_given_back_messages", "Messages that workers have given back for another "+
		"version of the program, because they do not know their kind or cannot decode their payload.", "queue")
	pausedDesc   = desc("later_queue_paused", "Whether the queue is paused: 1 or 0.", "queue")
	heldBackDesc = desc("later_queue_held_back",
		"Whether ready messages wait because the limits of the queue or of its keys let none start: 1 or 0. Only "+
			"queues with limits.", "queue")
	keysDesc = desc("later_queue_keys", "Keys that have ready messages, by their reason to wait: turn, full (as many "+
		"in flight as the key may have, or a message that has started and is not done), resting (for its rate); and "+
		"halted, keys that a dead message halts. Only queues with keys that take turns.", "queue", "state")
	leftOutDesc = desc("later_queues_left_out",
		"Queues without gauges: because of the limit on queues, or because the store did not answer for them in time.",
		"reason")
	problemsDesc = desc("later_problems", "Conditions of the store that need a person, by kind and severity; later "+
		"problems lists them.", "kind", "severity")
	readingDesc = desc("later_reading_seconds", "How long the last reading of the store took.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// gauges reads the state of the queues from a store.
type gauges struct {
	client *later.Client
	cfg    Config

	reading chan struct{} // has room for one reading; scrapes during it share it
	last    snapshot
	until   time.Time // until when last is used

	reader        inspect.ProblemReader
	problems      map[problem]int // of the last reading, nil if it failed
	problemsUntil time.Time
}

// Gauges returns a collector of the state of all queues: how many messages they have, how many fall due soon, and for
// how long the oldest one has waited. All processes that use the store read the same values, so do not add them up.
//
// It reads the store when it is scraped, at most once in 5 seconds; scrapes at the same time share one reading. A
// reading asks for up to 10,000 names of queues, makes up to 4 calls for each of MaxQueues queues, 8 of them at a time,
// and 2 for the list of workers, and ends after Timeout. The queues that it leaves out are counted in
// later_queues_left_out. At most once in 30 seconds it looks for the problems of these queues and of up to 1,000
// schedules, as inspect.Problems does, with about 10 calls, and a few more for each queue that may have a problem. Once
// a minute it asks each queue for its shards.
func (m *Metrics) Gauges(client *later.Client) prometheus.Collector {
	return &gauges{client: client, cfg: m.cfg, reading: make(chan struct{}, 1),
		reader: inspect.ProblemReader{Client: client}}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		upDesc, messagesDesc, dueDesc, oldestDesc, givenBackDesc, pausedDesc, heldBackDesc, keysDesc, leftOutDesc,
		problemsDesc, readingDesc,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(to chan<- prometheus.Metric) {
	s := g.snapshot()
	set := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	set(upDesc, truth(s.up))
	set(leftOutDesc, float64(s.overLimit), "limit")
	set(leftOutDesc, float64(s.failed), "error")
	set(readingDesc, s.took.Seconds())
	for p, n := range s.problems {
		set(problemsDesc, float64(n), string(p.kind), string(p.severity))
	}
	for i := range s.queues {
		q := &s.queues[i]
		for state, n := range map[later.State]int64{
			later.StateScheduled: q.stats.Scheduled, later.StateReady: q.stats.Ready,
			later.StateLeased: q.stats.Leased, later.StateDead: q.stats.Dead,
		} {
			set(messagesDesc, float64(n), q.name, string(state))
		}
		for i, n := range q.due {
			set(dueDesc, float64(n), q.name, horizons[i].within)
		}
		set(oldestDesc, q.oldestAge().Seconds(), q.name)
		if s.givenBack != nil {
			set(givenBackDesc, float64(s.givenBack[q.name]), q.name)
		}
		set(pausedDesc, truth(q.stats.Paused), q.name)
		if flow := q.stats.Flow; flow.Limited() {
			set(heldBackDesc, truth(q.stats.Ready > 0 && (flow.HoldsBack() || flow.KeysHoldBack())), q.name)
		}
		if keys := q.stats.Flow.Keys; q.stats.Flow.Fair {
			set(keysDesc, float64(keys.Waiting-keys.Full-keys.Resting), q.name, "turn")
			set(keysDesc, float64(keys.Full), q.name, "full")
			set(keysDesc, float64(keys.Resting), q.name, "resting")
			set(keysDesc, float64(keys.Halted), q.name, "halted")
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// snapshot returns the last reading, or a new one if that is too old.
func (g *gauges) snapshot() snapshot {
	g.reading <- struct{}{}
	defer func() { <-g.reading }()
	if now := time.Now(); now.After(g.until) {
		ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Timeout)
		defer cancel()
		g.last = read(ctx, g.client, g.cfg)
		g.last.took = time.Since(now)
		if now.After(g.problemsUntil) {
			g.problems = readProblems(ctx, &g.reader, g.last.queues)
			g.problemsUntil = time.Now().Add(problemsFor)
		}
		g.last.problems = g.problems
		g.until = time.Now().Add(cacheFor)
	}
	return g.last
}
