package server

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

const (
	overviewReaders = 8 // queues that an overview reads at the same time
	// maxNextLooks is how many queues with ready messages are asked for the next one that is not due yet.
	maxNextLooks = 16
)

// band is a part of the time from now on, in equal buckets.
type band struct {
	name     string
	from, to time.Duration // from now
	buckets  int
}

// nearBands are the bands between overdue and later. Their buckets are 2 s, 1 min, 30 min and 12 h long.
var nearBands = []band{
	{"minute", 0, time.Minute, 30},
	{"hour", time.Minute, time.Hour, 59},
	{"day", time.Hour, 24 * time.Hour, 46},
	{"month", 24 * time.Hour, 31 * 24 * time.Hour, 60},
}

// overviewReader reads an overview.
type overviewReader struct {
	*overviewRequest
	client  *later.Client
	now     time.Time // the store's clock, in whole milliseconds
	looks   atomic.Int32
	sampled map[string]sample
}

// readOverview reads the overview that the sender of a request may see.
func (s *Server) readOverview(ctx context.Context, request *overviewRequest) (*Overview, error) {
	begin := time.Now()
	s.samples.use(s)
	o := &Overview{}
	names, err := s.overviewQueues(ctx, request, o)
	if err != nil {
		return nil, err
	}
	clock, err := s.client.Queue(schedulesQueue).Stats(ctx)
	if err != nil {
		return nil, err
	}
	r := &overviewReader{overviewRequest: request, client: s.client, now: clock.Now.Truncate(time.Millisecond),
		sampled: s.samples.of(names, begin)}
	o.Time = wire.FormatTime(r.now)
	if err := r.readQueues(ctx, names, o); err != nil {
		return nil, err
	}
	if err := s.overviewRest(ctx, request, o); err != nil {
		return nil, err
	}
	o.ReadMS = wire.Millis(time.Since(begin))
	return o, nil
}

// overviewQueues returns the names of the queues to read, sorted, and counts them.
func (s *Server) overviewQueues(ctx context.Context, r *overviewRequest, o *Overview) ([]string, error) {
	names := r.queues
	if len(names) == 0 || r.listAll {
		all, err := s.client.Queues(ctx)
		if err != nil {
			return nil, err
		}
		see := visible(ctx)
		names = slices.DeleteFunc(all, func(name string) bool { return isInternal(name) || !see(name) })
	}
	o.QueueCount, o.QueuesLeftOut = len(names), max(0, len(names)-maxOverviewQueues)
	names = names[:len(names)-o.QueuesLeftOut]
	if r.listAll { // those that are summed are read in any case
		names = sortedSet(slices.Concat(names, r.queues))
	}
	return names, nil
}

// isInternal reports whether nobody sends to a queue, or receives from it.
func isInternal(queue string) bool {
	return queue == schedulesQueue || strings.HasPrefix(queue, view.HistoryPrefix)
}

// overviewRest reads what is not of a single queue.
func (s *Server) overviewRest(ctx context.Context, r *overviewRequest, o *Overview) error {
	workers, err := s.client.Workers(ctx)
	if err != nil {
		return err
	}
	for _, w := range workers {
		if limitWorker(ctx, &w) {
			o.Workers++
		}
	}
	o.Runs = []OverviewRun{}
	see := visible(ctx)
	if !see(schedulesQueue) {
		return nil
	}
	runs, err := s.upcoming(ctx, maxOverviewRuns, maxUpcoming, func(queue string) bool {
		return r.sums(queue) && see(queue)
	})
	for _, run := range runs {
		o.Runs = append(o.Runs, OverviewRun{run.Schedule, run.Queue, wire.FormatTime(run.Due)})
	}
	return err
}

// readQueue is what was read of a queue.
type readQueue struct {
	later.Stats
	shown  OverviewQueue
	counts [][]int64 // by band
	next   time.Time // when the first message falls due that is not due yet, or zero
	err    error
}

// readQueues reads the queues and adds them up. Queues that do not exist any more do not count, and those that are
// damaged are left out.
func (r *overviewReader) readQueues(ctx context.Context, names []string, o *Overview) error {
	read := make([]readQueue, len(names))
	var all sync.WaitGroup
	var next atomic.Int64
	for range min(overviewReaders, len(names)) {
		all.Go(func() {
			for i := int(next.Add(1) - 1); i < len(names); i = int(next.Add(1) - 1) {
				if read[i] = r.readQueue(ctx, names[i]); read[i].err != nil && !isDamage(read[i].err) {
					next.Store(int64(len(names))) // the others are not needed any more
				}
			}
		})
	}
	all.Wait()
	o.Bands, o.Queues = r.bands(), []OverviewQueue{}
	var soonest, oldest time.Time
	for i := range read {
		q := &read[i]
		switch {
		case isDamage(q.err):
			o.QueuesLeftOut++
		case q.err != nil:
			return q.err
		case !q.Exists:
			o.QueueCount--
		default:
			o.Queues = append(o.Queues, q.shown)
			if !r.sums(names[i]) {
				continue
			}
			o.add(q)
			soonest = earlier(soonest, q.next)
			if q.Ready > 0 {
				oldest = earlier(oldest, q.NextDue)
			}
		}
	}
	o.NextDue, o.OldestDue = wire.FormatTime(soonest), wire.FormatTime(oldest)
	return nil
}

// isDamage reports whether an error is about a single queue, so that others may be intact.
func isDamage(err error) bool {
	return errors.Is(err, later.ErrCorrupt) || errors.Is(err, later.ErrUnsupported)
}

// earlier returns the earlier one of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// bands returns the bands, which are empty.
func (r *overviewReader) bands() []OverviewBand {
	if r.buckets > 0 {
		return []OverviewBand{newBand("range", r.from, r.to, r.buckets)}
	}
	bands := []OverviewBand{newBand("overdue", time.Time{}, r.now, 1)}
	end := r.now
	for _, b := range nearBands {
		end = r.now.Add(b.to)
		bands = append(bands, newBand(b.name, r.now.Add(b.from), end, b.buckets))
	}
	return append(bands, newBand("later", end, time.Time{}, 1))
}

func newBand(name string, from, to time.Time, buckets int) OverviewBand {
	return OverviewBand{name, wire.FormatTime(from), wire.FormatTime(to), make([]int64, buckets)}
}

// add adds a queue to the sums.
func (o *Overview) add(q *readQueue) {
	o.Counts.Scheduled += q.Scheduled
	o.Counts.Ready += q.Ready
	o.Counts.Leased += q.Leased
	o.Counts.Dead += q.Dead
	for i, counts := range q.counts {
		for j, n := range counts {
			o.Bands[i].Counts[j] += n
		}
	}
}

func (r *overviewReader) readQueue(ctx context.Context, name string) (q readQueue) {
	queue := r.client.Queue(name)
	if q.Stats, q.err = queue.Stats(ctx); q.err != nil || !q.Exists {
		return q
	}
	q.shown = OverviewQueue{Stats: wire.NewStats(name, q.Stats)}
	r.sampled[name].show(&q.shown)
	if q.err = q.shown.readActivity(ctx, queue); q.err != nil {
		return q
	}
	if r.sums(name) {
		if q.counts, q.err = r.readBands(ctx, queue, &q.Stats); q.err != nil {
			return q
		}
	}
	q.next = q.NextDue
	if q.Ready > 0 {
		q.shown.OldestDue = q.shown.NextDue
		q.next, q.err = r.nextDue(ctx, queue, &q.Stats)
	}
	return q
}

// nextDue returns when the first message of a queue falls due that is not due yet.
func (r *overviewReader) nextDue(ctx context.Context, queue *later.Queue, stats *later.Stats) (time.Time, error) {
	if stats.Scheduled == 0 || r.looks.Add(1) > maxNextLooks {
		return time.Time{}, nil
	}
	page, err := queue.List(ctx, later.ListOptions{State: later.StateScheduled, Limit: 1})
	if err != nil || len(page.Messages) == 0 {
		return time.Time{}, err
	}
	return page.Messages[0].Due, nil
}

// readBands counts the messages of each band. It makes no call for bands that must be empty. What changes between the
// calls can be missing or in later.
func (r *overviewReader) readBands(ctx context.Context, queue *later.Queue, stats *later.Stats) ([][]int64, error) {
	left := stats.Scheduled + stats.Ready
	count := func(from, to time.Time, buckets int) ([]int64, error) {
		if left <= 0 || !stats.NextDue.Before(to) {
			return nil, nil
		}
		counts, err := queue.Histogram(ctx, from, to, buckets)
		for _, n := range counts {
			left -= n
		}
		return counts, err
	}
	if r.buckets > 0 {
		counts, err := count(r.from, r.to, r.buckets)
		return [][]int64{counts}, err
	}
	overdue, err := count(time.UnixMilli(1), r.now, 1)
	all := [][]int64{overdue}
	for _, b := range nearBands {
		if err != nil {
			return nil, err
		}
		var counts []int64
		counts, err = count(r.now.Add(b.from), r.now.Add(b.to), b.buckets)
		all = append(all, counts)
	}
	return append(all, []int64{max(0, left)}), err
}

// readActivity sets the rates of the last minute.
func (q *OverviewQueue) readActivity(ctx context.Context, queue *later.Queue) error {
	activity, err := queue.Activity(ctx)
	if err != nil {
		return err
	}
	seconds := cmp.Or(activity.Now.Sub(activity.Minute.From).Seconds(), 1)
	var total HistoryEntry
	for kind, n := range activity.Minute.Counts {
		total.count(kind, n)
	}
	q.SentPerSecond = float64(total.Sent) / seconds
	q.HandledPerSecond = float64(total.Handled) / seconds
	q.FailedPerSecond = float64(total.Failed) / seconds
	return nil
}

// count counts n events of a kind.
func (h *HistoryEntry) count(kind store.EventKind, n int64) {
	switch kind {
	case later.EventSent:
		h.Sent += n
	case later.EventAcked, later.EventForwarded:
		h.Handled += n
	case later.EventNacked, later.EventBuried, later.EventExpired:
		h.Failed += n
	}
}
