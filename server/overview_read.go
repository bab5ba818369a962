package server

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
)

const (
	overviewReaders = 8 // queues that an overview reads at the same time
	// maxNextLooks is how many queues with ready messages are asked for the next one that is not due yet.
	maxNextLooks = 16
	// A first reading shows the queues that it has read after firstPart, and then after each further partEvery.
	firstPart = 60 * time.Millisecond
	partEvery = time.Second
)

// overviewReader reads an overview.
type overviewReader struct {
	*overviewRequest
	client   *later.Client
	now      time.Time // the store's clock, in whole milliseconds
	bounds   []time.Time
	looks    atomic.Int32
	sampled  map[string]sample
	kept     *keptDetails
	problems *sharedProblems
	show     func(*Overview)
	showAt   time.Time // when show is called next, zero without it
}

// readOverview reads the overview that the sender of a request may see. With many queues, kept provides some of the
// details from earlier readings. While the reading goes on, it calls show with overviews of the queues that have been
// read so far, unless show is nil.
func (s *Server) readOverview(
	ctx context.Context, request *overviewRequest, kept *keptDetails, show func(*Overview),
) (*Overview, error) {
	begin := time.Now()
	s.samples.use(s)
	o := &Overview{}
	names, err := s.overviewQueues(ctx, request, o)
	if err != nil {
		return nil, err
	}
	clock, err := s.client.Queue(reserved.Schedules).Stats(ctx)
	if err != nil {
		return nil, err
	}
	r := &overviewReader{overviewRequest: request, client: s.client, now: clock.Now.Truncate(time.Millisecond),
		sampled: s.samples.of(names, begin), kept: kept, problems: &s.problems, show: show}
	if show != nil {
		r.showAt = begin.Add(firstPart)
	}
	r.bounds = r.newBounds()
	o.Time = wire.FormatTime(r.now)
	if err := s.overviewRest(ctx, request, o); err != nil {
		return nil, err
	}
	if err := r.readQueues(ctx, names, o); err != nil {
		return nil, err
	}
	o.Took = wire.Measured(time.Since(begin))
	return o, nil
}

// overviewQueues returns the names of the queues to read, sorted, and counts them.
func (s *Server) overviewQueues(ctx context.Context, r *overviewRequest, o *Overview) ([]string, error) {
	names := r.queues
	if len(names) == 0 || r.listAll {
		var err error
		if names, err = s.visibleQueues(ctx); err != nil {
			return nil, err
		}
	}
	o.QueueCount, o.QueuesLeftOut = len(names), max(0, len(names)-maxOverviewQueues)
	names = names[:len(names)-o.QueuesLeftOut]
	if r.listAll { // the queues of the sums are read in any case
		names = sortedSet(slices.Concat(names, r.queues))
	}
	return names, nil
}

// visibleQueues returns the names of the queues that the sender of a request may see, sorted.
func (s *Server) visibleQueues(ctx context.Context) ([]string, error) {
	all, err := s.client.Queues(ctx)
	see := visible(ctx)
	return slices.DeleteFunc(all, func(name string) bool { return reserved.IsIdle(name) || !see(name) }), err
}

// overviewRest reads the workers and the next runs of schedules.
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
	if access.CheckSchedules(ctx, access.Look) != nil {
		return nil
	}
	see := visible(ctx)
	runs, err := s.upcoming(ctx, maxOverviewRuns, maxUpcoming, func(queue string) bool {
		return r.sums(queue) && see(queue)
	})
	for _, run := range runs {
		o.Runs = append(o.Runs, OverviewRun{run.Schedule, run.Queue, wire.FormatTime(run.Due)})
	}
	return err
}

// readQueue is the reading of one queue.
type readQueue struct {
	later.Stats
	shown   OverviewQueue
	next    time.Time // when the first message falls due that is not due yet, or zero
	details *queueDetails
	err     error
}

// readQueues reads the queues and adds them up.
func (r *overviewReader) readQueues(ctx context.Context, names []string, o *Overview) error {
	read := make([]readQueue, len(names))
	sound := func(q *readQueue) bool { return q.err == nil || isDamage(q.err) }
	r.inParts(len(names), func(i int) bool {
		read[i] = r.readQueue(ctx, names[i])
		return sound(&read[i])
	}, func(n int) { r.showPart(read[:n], *o) })
	var exist []*readQueue
	for i := range read {
		if q := &read[i]; !sound(q) {
			return q.err
		} else if q.err == nil && q.Exists {
			exist = append(exist, q)
		}
	}
	chosen := r.kept.choose(exist)
	r.inParts(len(chosen), func(i int) bool {
		chosen[i].err = r.readDetails(ctx, chosen[i])
		return sound(chosen[i])
	}, func(int) { r.showPart(read, *o) })
	r.problems.know(read)
	kept, err := r.addUp(read, o)
	if err == nil {
		r.kept.keep(kept)
	}
	return err
}

// inParts calls a function for the numbers below n, several at the same time, until it returns false. In between it
// calls done with how many calls have ended, when that is to be shown.
func (r *overviewReader) inParts(n int, call func(i int) bool, done func(n int)) {
	for at := 0; at < n; {
		if at = atOnceUntil(at, n, r.showAt, call); at < n {
			done(at)
			r.showAt = time.Now().Add(partEvery)
		}
	}
}

// showPart shows an overview of the queues that have been read so far.
func (r *overviewReader) showPart(read []readQueue, o Overview) {
	read = slices.Clone(read)
	for i := range read {
		if read[i].details == nil {
			read[i].details = &queueDetails{seconds: 1}
		}
	}
	if _, err := r.addUp(read, &o); err == nil {
		o.QueuesRead = len(read)
		r.show(&o)
	}
}

// addUp adds up the queues and returns those that exist. It skips the others, and counts damaged ones as left out.
func (r *overviewReader) addUp(read []readQueue, o *Overview) (exist []*readQueue, err error) {
	o.Bands, o.Queues = r.newBands(), []OverviewQueue{}
	var soonest, oldest time.Time
	for i := range read {
		q := &read[i]
		switch {
		case isDamage(q.err):
			o.QueuesLeftOut++
		case q.err != nil:
			return nil, q.err
		case !q.Exists:
			o.QueueCount--
		default:
			exist = append(exist, q)
			q.details.showRates(&q.shown)
			o.Queues = append(o.Queues, q.shown)
			if !r.sums(q.shown.Queue) {
				continue
			}
			o.Counts.Scheduled += q.Scheduled
			o.Counts.Ready += q.Ready
			o.Counts.Leased += q.Leased
			o.Counts.Dead += q.Dead
			o.addBands(q.details, r.bounds)
			soonest = earlier(soonest, q.next)
			if q.Ready > 0 {
				oldest = earlier(oldest, q.NextDue)
			}
		}
	}
	o.NextDue, o.OldestDue = wire.FormatTime(soonest), wire.FormatTime(oldest)
	return exist, nil
}

// atOnce calls a function for the numbers below n, several at the same time, until it returns false.
func atOnce(n int, call func(i int) bool) { atOnceUntil(0, n, time.Time{}, call) }

// atOnceUntil calls a function for the numbers from begin to n, exclusive, several at the same time, until it returns
// false. Unless the time is zero, it makes no more calls after that time than the first few. It returns where to go on.
func atOnceUntil(begin, n int, until time.Time, call func(i int) bool) int {
	var all sync.WaitGroup
	var next atomic.Int64
	next.Store(int64(begin))
	for range min(overviewReaders, n-begin) {
		all.Go(func() {
			for i := int(next.Add(1) - 1); i < n; i = int(next.Add(1) - 1) {
				if !call(i) {
					next.Store(int64(n)) // the others are not needed any more
				} else if !until.IsZero() && !time.Now().Before(until) {
					return
				}
			}
		})
	}
	all.Wait()
	return min(int(next.Load()), n)
}

// isDamage reports whether an error is about a single queue, so that others may be intact.
func isDamage(err error) bool {
	return errors.Is(err, later.ErrCorrupt) || errors.Is(err, later.ErrUnsupported)
}

// earlier returns the earlier of two times. A zero time counts as none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (r *overviewReader) readQueue(ctx context.Context, name string) (q readQueue) {
	queue := r.client.Queue(name)
	if q.Stats, q.err = queue.Stats(ctx); q.err != nil || !q.Exists {
		return q
	}
	q.shown = OverviewQueue{QueueStats: wire.NewStats(name, q.Stats).QueueStats}
	r.sampled[name].show(&q.shown)
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
