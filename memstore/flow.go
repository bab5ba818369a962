package memstore

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/laterq/later/internal/gcra"
	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

// SetFlow implements store.Store.
func (s *Store) SetFlow(ctx context.Context, name string, f store.Flow, former *store.Flow) error {
	if err := store.CheckFlow(name, f); err != nil {
		return err
	}
	return s.update(ctx, name, func(q *queue, _ int64) error {
		if former != nil && former.Normal() != q.flow.Flow {
			return store.ErrConflict
		}
		q.exists = true
		q.setFlow(f.Normal())
		s.data.notify(name)
		return nil
	})
}

// flow is the limits of a queue and their state.
type flow struct {
	store.Flow // Normal
	starts     gcra.State
	counted    int // messages that count against Concurrency
	// number counts how often the queue got limits or lost them. Only leases with the present number count.
	number int64
	keys   *turns.Order // the ready messages that claims have sorted by key; nil unless the queue is Fair
	// unsorted holds the other messages of due; it is empty unless the queue is Fair.
	unsorted index
	keyed    int64          // as number, of Fair; 0 while the queue is not Fair
	keyeds   int64          // how often the queue became Fair
	arrivals turns.Sequence // places of messages with a key that are sent without a delay to a queue with an order
	fences   turns.Sequence // of claims in a queue with an order
	// promises are the waiters that were woken and have not claimed yet: when the promise of each ends.
	promises []time.Time
}

func (q *queue) setFlow(to store.Flow) {
	f, was := &q.flow, q.flow.Flow
	f.starts = f.starts.Changed(f.Rate, to.Rate, q.micros)
	f.Flow = to
	if f.Limited() != was.Limited() {
		f.number, f.counted = f.number+1, 0
	}
	q.setFair(was.Fair)
	q.halts = start
}

// counts reports whether the messages of a lease count.
func (f *flow) counts(l *lease) bool { return f.Limited() && l.flow == f.number }

// slots returns how many more messages may be leased.
func (f *flow) slots() int {
	if f.Concurrency == 0 {
		return math.MaxInt
	}
	return max(0, f.Concurrency-f.counted)
}

// most returns how many messages a claim takes now at most. A claim that forwards holds none.
func (q *queue) most(req store.ClaimRequest, forwards bool) int {
	if !q.flow.Limited() {
		return req.Max
	}
	n := req.Max - req.Ahead
	if !forwards {
		n = min(n, q.flow.slots())
	}
	return q.flow.starts.May(q.flow.Rate, q.micros, n)
}

// nextStart returns the time in microseconds when a message may start, unless the queue is paused.
func (q *queue) nextStart(forwards bool) int64 {
	due := micros(q.due.first().at)
	if q.flow.Fair {
		due = min(micros(q.flow.unsorted.first().at), q.flow.keys.Next(q.micros))
	}
	switch {
	case !q.flow.Limited() || due == never:
		return due
	case !forwards && q.flow.slots() == 0:
		return never
	}
	return max(due, q.flow.starts.Next(q.flow.Rate, q.micros))
}

// work returns how many messages may start now, up to store.MaxBatch.
func (q *queue) work() int {
	if q.paused {
		return 0
	}
	ready := q.due.before(q.micros/1000 + 1)
	if q.flow.Fair {
		ready = q.keysReady()
	}
	ready = min(ready, store.MaxBatch, q.flow.slots())
	return q.flow.starts.May(q.flow.Rate, q.micros, ready)
}

// promise is how long a waiter that was woken may take to claim. After that another one is woken, because the first has
// gone. It is real time, as timers of the process are, and does not move with the store's clock.
const promise = 100 * time.Millisecond

// wakes reports whether one more waiter has something to claim, and promises that to it: one waiter for each message
// that may start, or one that ends leases. Otherwise it returns when the first promise ends.
func (f *flow) wakes(work int) (wakes bool, again time.Time) {
	f.dropPromises()
	if len(f.promises) >= work && len(f.promises) > 0 {
		return false, f.promises[0]
	}
	f.promises = append(f.promises, time.Now().Add(promise))
	return true, time.Time{}
}

func (f *flow) dropPromises() {
	now := time.Now()
	f.promises = slices.DeleteFunc(f.promises, func(end time.Time) bool { return !end.After(now) })
}

// claimed says that a waiter has claimed.
func (f *flow) claimed() {
	if len(f.promises) > 0 {
		f.promises = slices.Delete(f.promises, 0, 1)
	}
}

// micros returns a time in microseconds that is in milliseconds.
func micros(ms int64) int64 {
	if ms > never/1000 {
		return never
	}
	return ms * 1000
}
