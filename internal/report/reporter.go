package report

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/store"
)

const (
	// Every is how often a process reports the counts of its active queues. A queue that becomes active is
	// reported at once.
	Every = time.Second
	// DetailsEvery is how long events wait for others while a Watch is open.
	DetailsEvery = 10 * time.Millisecond
	// reportTimeout limits a report. The store may be slow; nothing waits for a report but the next one.
	reportTimeout = time.Second
	// reportGrace is how long Close waits for the last report.
	reportGrace = 100 * time.Millisecond
	// reportPart is how many queues are reported in a call.
	reportPart = 500
	// MaxDetails is the number of events of a queue that are kept between two reports. At most maxCommonDetails of them
	// are of the most common kinds, which leaves room for other kinds in a flood. More would cost the process more:
	// encoding so many takes about 3 % of a core, see BenchmarkEvents.
	MaxDetails       = 125
	maxCommonDetails = 100
)

// countedKinds are the kinds of events that are counted and shown to watchers, by their index in Queue.counts.
// The most common ones are a cache line apart, so that senders and handlers do not slow each other.
var countedKinds = [...]store.EventKind{
	countSent: event.Sent, 1: event.Duplicate, 2: event.Cancelled, 3: event.Rescheduled, 4: event.Paused,
	5: event.Resumed,
	6: event.Replayed, 7: event.Purged,
	countClaimed: event.Claimed, 9: event.Expired, 10: event.Dropped, 11: event.LeaseLost, 12: event.Released,
	13: event.Snoozed,
	14: event.Unsettled, 15: event.Forwarded,
	countAcked: event.Acked, 17: event.Nacked, 18: event.Buried, 19: event.Died, 20: event.RunMissed,
	21: event.RunSkipped,
	22: event.Edited, 23: event.GivenBack, 24: event.KeyResumed,
}

const (
	countSent    = 0
	countClaimed = 8
	countAcked   = 16
)

// countIndex returns the index of a kind, or -1 if it is not counted.
func countIndex(kind store.EventKind) int {
	switch kind {
	case event.Sent:
		return countSent
	case event.Claimed:
		return countClaimed
	case event.Acked:
		return countAcked
	case event.Started, event.Missed:
		return -1
	}
	for i, k := range countedKinds {
		if k == kind {
			return i
		}
	}
	return -1
}

// Queue records the events of one queue. A nil one records nothing.
//
// Without watchers, an event costs an addition. Details are collected while there are watchers, and while that is not
// known: until the first report of a queue that was idle.
type Queue struct {
	reporter *Reporter
	queue    string
	counts   [len(countedKinds)]atomic.Int64
	active   atomic.Bool // it is in reporter.active
	detailed atomic.Bool // details are collected

	mu       sync.Mutex
	watched  bool // the last report said that there is a watcher
	expected int  // calls of ExpectWatcher
	details  []Event
	missed   int // events without room for their details
}

// Count counts n events.
func (a *Queue) Count(kind store.EventKind, n int) {
	if a == nil || n == 0 {
		return
	}
	i := countIndex(kind)
	if i < 0 {
		return
	}
	a.counts[i].Add(int64(n))
	if !a.active.Load() {
		a.reporter.activate(a)
	}
}

// ExpectWatcher collects details until a report says that there is no watcher.
func (a *Queue) ExpectWatcher() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watched = true
	a.expected++
	a.detailed.Store(true)
}

// WantsDetails reports whether Collect would keep an event.
func (a *Queue) WantsDetails() bool { return a != nil && a.detailed.Load() }

// Collect keeps an event for watchers. cause is the error that it has the text of, or nil. The caller counts the event,
// too.
func (a *Queue) Collect(e Event, cause error) {
	if !a.WantsDetails() || e.Kind == event.Started {
		return
	}
	if cause != nil { // the program's code, which is not called under the lock
		e.Error = cutText(cause.Error(), maxError)
	}
	limit := MaxDetails
	switch e.Kind {
	case event.Sent, event.Claimed, event.Acked:
		limit = maxCommonDetails
	}
	a.mu.Lock()
	first := len(a.details) == 0 && a.missed == 0
	if len(a.details) < limit {
		a.details = append(a.details, e)
	} else {
		a.missed++
	}
	hasten := first && a.watched
	a.mu.Unlock()
	if !a.active.Load() {
		a.reporter.activate(a)
	} else if hasten {
		a.reporter.hasten(a)
	}
}

// take returns the events to report, and whether there are any.
func (a *Queue) take() (r pendingReport, any bool) {
	r.activity = a
	for i := range a.counts {
		if n := a.counts[i].Swap(0); n > 0 {
			if r.counts == nil {
				r.counts = map[store.EventKind]int64{}
			}
			r.counts[countedKinds[i]] = n
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r.details, a.details = a.details, nil
	r.missed, a.missed = a.missed, 0
	r.expected = a.expected
	return r, r.counts != nil || len(r.details) > 0 || r.missed > 0
}

// reported handles the reply to a report. After a failure the watchers are assumed to be still there: the next
// reports, at the pace of ticks, count the events that the watchers have missed until one succeeds. A failed last
// report is not repeated.
func (a *Queue) reported(r pendingReport, result store.ReportResult, last bool) {
	a.mu.Lock()
	failed := result.Err != nil
	if !failed {
		// A report that was under way when a watcher began may not have reached it.
		a.watched = result.Watchers > 0 || a.expected != r.expected
	}
	a.detailed.Store(a.watched)
	switch {
	case !a.watched:
		a.details, a.missed = nil, 0
	case failed && !last:
		a.missed += r.missed + len(r.details)
	}
	hasten := a.watched && !failed && len(a.details) > 0
	a.mu.Unlock()
	if hasten {
		a.reporter.hasten(a)
	}
}

// pendingReport is a report before it is encoded.
type pendingReport struct {
	activity *Queue
	counts   map[store.EventKind]int64
	details  []Event
	missed   int
	expected int
}

// Sink takes reports. It is a part of store.Store.
type Sink interface {
	Report(ctx context.Context, reports []store.Report) ([]store.ReportResult, error)
}

// Reporter reports the events of a client's queues: counts about once a second, and details while a Watch
// is open. It makes no calls and has no goroutine while nothing happens. A failure does not affect the
// queue: the contents of the report are lost, and watchers are told later how many events they have missed.
type Reporter struct {
	store   Sink
	log     *slog.Logger
	process Process
	ctx     context.Context
	cancel  context.CancelFunc
	done    sync.WaitGroup // run

	mu      sync.Mutex
	running bool
	closing bool
	active  map[*Queue]struct{} // had an event since the last tick
	fresh   []*Queue            // active, and not reported yet
	hasty   []*Queue            // watched, with details
	tick    time.Time           // when all active queues are reported
	hurry   time.Time           // when hasty is reported
	kick    chan struct{}       // has a token when run has to look at these

	failing bool // belongs to run
}

func New(s Sink, log *slog.Logger) *Reporter {
	r := &Reporter{store: s, log: log, process: ThisProcess(), kick: make(chan struct{}, 1)}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Of returns the activity of a queue. It is nil if r is.
func (r *Reporter) Of(queue string) *Queue {
	if r == nil {
		return nil
	}
	a := &Queue{reporter: r, queue: queue}
	a.detailed.Store(true)
	return a
}

// activate has a queue reported at once.
func (r *Reporter) activate(a *Queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing || a.active.Swap(true) {
		return
	}
	if r.active == nil {
		r.active = map[*Queue]struct{}{}
	}
	r.active[a] = struct{}{}
	r.fresh = append(r.fresh, a)
	if !r.running {
		r.running = true
		r.tick = time.Now().Add(Every)
		r.done.Go(r.run)
		return
	}
	r.signal()
}

// hasten has the details of a watched queue reported soon.
func (r *Reporter) hasten(a *Queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return
	}
	if len(r.hasty) == 0 {
		r.hurry = time.Now().Add(DetailsEvery)
	}
	r.hasty = append(r.hasty, a)
	r.signal()
}

func (r *Reporter) signal() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// run reports until no queue is active.
func (r *Reporter) run() {
	timer := time.NewTimer(Every)
	defer timer.Stop()
	for {
		due, wait, over := r.next(time.Now())
		if over {
			return
		}
		if len(due) > 0 {
			r.report(due)
			continue
		}
		timer.Reset(wait)
		select {
		case <-r.kick:
		case <-timer.C:
		}
	}
}

// next returns the events to report now, or how long to wait. It reports whether the goroutine is not needed any
// more.
func (r *Reporter) next(now time.Time) (due []pendingReport, wait time.Duration, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var queues []*Queue
	ticks := !now.Before(r.tick) || r.closing
	switch {
	case ticks:
		for a := range r.active {
			queues = append(queues, a)
		}
		r.fresh, r.hasty = nil, nil
		r.tick = now.Add(Every)
	case len(r.fresh) > 0:
		queues, r.fresh = r.fresh, nil
	case len(r.hasty) > 0 && !now.Before(r.hurry):
		queues, r.hasty = r.hasty, nil
	}
	for _, a := range queues {
		if p, any := a.take(); any {
			due = append(due, p)
		} else if ticks {
			r.rest(a)
		}
	}
	if len(due) == 0 && (len(r.active) == 0 || r.closing) {
		r.running = false
		return nil, 0, true
	}
	wait = r.tick.Sub(now)
	if len(r.hasty) > 0 {
		wait = min(wait, max(r.hurry.Sub(now), 0))
	}
	return due, wait, false
}

// rest ends the activity of a queue that had no event since the last tick. The lock is held.
func (r *Reporter) rest(a *Queue) {
	a.detailed.Store(true)
	a.active.Store(false)
	// An event that came before active was cleared has not activated it.
	if a.pending() && !a.active.Swap(true) {
		r.fresh = append(r.fresh, a)
		return
	}
	if !a.active.Load() {
		delete(r.active, a)
	}
}

// pending reports whether there is something to report.
func (a *Queue) pending() bool {
	for i := range a.counts {
		if a.counts[i].Load() > 0 {
			return true
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.details) > 0 || a.missed > 0
}

// report makes reports. It does not retry.
func (r *Reporter) report(due []pendingReport) {
	for part := range slices.Chunk(due, reportPart) {
		r.reportTogether(part)
	}
}

func (r *Reporter) reportTogether(due []pendingReport) {
	reports := make([]store.Report, len(due))
	for i := range due {
		reports[i] = store.Report{Queue: due[i].activity.queue, Counts: due[i].counts}
		reports[i].Events, reports[i].Number = encode(r.process, due[i].details, due[i].missed)
	}
	ctx, cancel := context.WithTimeout(r.ctx, reportTimeout)
	defer cancel()
	results, err := r.store.Report(ctx, reports)
	if err != nil || len(results) != len(due) {
		results = make([]store.ReportResult, len(due))
		for i := range results {
			results[i].Err = err
		}
	}
	r.mu.Lock()
	last := r.closing
	r.mu.Unlock()
	for i := range due {
		due[i].activity.reported(due[i], results[i], last)
		if err == nil {
			err = results[i].Err
		}
	}
	if err != nil && !r.failing && r.ctx.Err() == nil {
		r.log.Debug("later: events could not be reported; their counts are lost", "error", err)
	}
	r.failing = err != nil
}

// Close makes the last report, for which it waits a little. After it, Wait returns when the goroutine has ended.
func (r *Reporter) Close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.closing = true
	running := r.running
	r.signal()
	r.mu.Unlock()
	if !running {
		r.cancel()
		return
	}
	ended := make(chan struct{})
	go func() {
		r.done.Wait()
		close(ended)
	}()
	timer := time.NewTimer(reportGrace)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
	r.cancel()
}

// Wait returns when no report is under way. Closing the store ends one that the store does not answer.
func (r *Reporter) Wait() {
	if r != nil {
		r.done.Wait()
	}
}
