package server

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

const (
	// maxDetailed is the number of queues whose details one reading refreshes, in addition to new queues. The details
	// of up to so many queues are always new; with ten times as many, they are about ten readings old at most.
	maxDetailed = 100
	// changedFirst is how many readings earlier a queue with changed counts is chosen than other queues.
	changedFirst = 10
)

// queueDetails are the figures of a queue that a reading of many queues reads only now and then, as of their last
// reading.
type queueDetails struct {
	stats   later.Stats // of that time
	reading int         // the number of the reading
	minute  historyEntry
	seconds float64     // the length of minute
	counts  []int64     // of all buckets of all bands but later; none if all are 0
	bounds  []time.Time // of these buckets
	later   int64
}

// keptDetails are the details of queues that several readings share. The zero value has none.
type keptDetails struct {
	queues  map[string]*queueDetails
	reading int // the number of the last reading
}

// choose returns the queues whose details are read in this reading. The others get their details of an earlier one.
func (k *keptDetails) choose(queues []*readQueue) (chosen []*readQueue) {
	k.reading++
	var known []*readQueue
	for _, q := range queues {
		if q.details = k.queues[q.shown.Queue]; q.details == nil {
			chosen = append(chosen, q)
		} else {
			known = append(known, q)
		}
	}
	slices.SortStableFunc(known, func(a, b *readQueue) int { return cmp.Compare(a.rank(), b.rank()) })
	return append(chosen, known[:min(len(known), maxDetailed)]...)
}

// rank orders the queues: the details of a queue with a lower rank are read first.
func (q *readQueue) rank() int {
	before := &q.details.stats
	if before.Scheduled != q.Scheduled || before.Ready != q.Ready || !before.NextDue.Equal(q.NextDue) {
		return q.details.reading - changedFirst
	}
	return q.details.reading
}

// keep keeps the details of these queues, and of no others, for the next reading.
func (k *keptDetails) keep(queues []*readQueue) {
	k.queues = make(map[string]*queueDetails, len(queues))
	for _, q := range queues {
		k.queues[q.shown.Queue] = q.details
	}
}

// readDetails reads the details of a queue.
func (r *overviewReader) readDetails(ctx context.Context, q *readQueue) error {
	q.details = &queueDetails{stats: q.Stats, reading: r.kept.reading}
	if err := q.details.readActivity(ctx, r.client.Queue(q.shown.Queue)); err != nil || !r.sums(q.shown.Queue) {
		return err
	}
	return r.readBands(ctx, q)
}

// readActivity sets the rates of the last minute.
func (d *queueDetails) readActivity(ctx context.Context, queue *later.Queue) error {
	activity, err := queue.Activity(ctx)
	if err != nil {
		return err
	}
	d.seconds = cmp.Or(activity.Now.Sub(activity.Minute.From).Seconds(), 1)
	for kind, n := range activity.Minute.Counts {
		d.minute.count(kind, n)
	}
	return nil
}

// showRates sets the rates of a queue.
func (d *queueDetails) showRates(o *OverviewQueue) {
	o.minute = d.minute
	o.setRates(d.seconds)
}

// count counts n events of a kind.
func (h *historyEntry) count(kind store.EventKind, n int64) {
	switch kind {
	case later.EventSent:
		h.Sent += n
	case later.EventAcked, later.EventForwarded:
		h.Handled += n
	case later.EventNacked, later.EventBuried, later.EventExpired:
		h.Failed += n
	}
}
