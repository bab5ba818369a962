package diskstore

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/laterq/later/internal/gcra"
	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

// flow is the limits of a queue and their state, as they are stored with its counters; the zero flow is that of a plain
// queue. A claim writes its lease and its starts in one batch, so a crash undoes both or neither.
type flow struct {
	store.Flow
	// ID marks the leases that count. It is random: when the limits of a queue are removed and set again, earlier
	// leases have another one, and none of them has to be written.
	ID    uint64
	State gcra.State
	// Keyed marks the leases that count for keys, as ID does. It is 0 unless the queue is Fair, and another number each
	// time that it becomes so.
	Keyed uint64
	// Arrivals are the places of messages that arrived in a queue with an order, and Fences are of its claims; see
	// order.go. They outlive the limits.
	Arrivals, Fences turns.Sequence
	Passed           turns.Passed // zero unless the queue is Fair
}

// isSound reports whether a flow that was stored makes sense.
func (f *flow) isSound() bool {
	last := turns.Sequence(micros(lastTime))
	return f.Check() == nil && f.Flow == f.Normal() && f.Limited() == (f.ID != 0) && f.Fair == (f.Keyed != 0) &&
		isState(f.State, f.Rate.N) && min(f.Arrivals, f.Fences) >= 0 && max(f.Arrivals, f.Fences) <= last &&
		min(f.Passed.Normal, f.Passed.Low) >= 0
}

// isState reports whether s can be the state of a rate with that N.
func isState(s gcra.State, n int) bool {
	return s.Micros >= 0 && s.Micros <= micros(lastTime) && s.Part >= 0 && s.Part < int64(max(1, n))
}

// micros returns a time in microseconds.
func micros(ms int64) int64 {
	if ms == never {
		return never
	}
	return 1000 * ms
}

func (q *queue) isLimited() bool { return q.flow.ID != 0 }

// isFull reports whether all messages that may be leased at once are.
func (q *queue) isFull() bool { return q.flow.Concurrency > 0 && q.leased >= q.flow.Concurrency }

// isCounted reports whether the messages of a lease count against Concurrency.
func (q *queue) isCounted(l *lease) bool { return l.flow != 0 && l.flow == q.flow.ID }

// countsKeys reports whether the messages of a lease count for their keys.
func (q *queue) countsKeys(l *lease) bool { return l.keyed != 0 && l.keyed == q.flow.Keyed }

// countLeased adds n messages of a lease with a key to the number of messages that count, if it is a lease that counts.
func (q *queue) countLeased(now int64, l *lease, key string, n int) {
	if q.isCounted(l) {
		q.leased += n
	}
	switch {
	case !q.countsKeys(l):
	case n > 0:
		q.lanes.order.Hold(now, key, n)
	default:
		q.lanes.order.Free(now, key, -n)
	}
}

// countLease counts the messages of a lease that was loaded.
func (q *queue) countLease(now int64, l *lease) {
	l.eachKey(func(key string) { q.countLeased(now, l, key, 1) })
}

// learned forgets the cancelled messages of a lease. They no longer count.
func (q *queue) learned(now int64, l *lease) {
	for _, c := range l.cancelled {
		q.countLeased(now, l, c.key, -1)
	}
	l.cancelled = nil
}

// mayStart returns how many messages a claim may take.
func (t *tx) mayStart(q *queue, req store.ClaimRequest) int {
	if !q.isLimited() {
		return req.Max
	}
	n := req.Max - req.Ahead
	if q.flow.Concurrency > 0 {
		n = min(n, max(0, q.flow.Concurrency-q.leased))
	}
	return q.flow.State.May(q.flow.Rate, t.micros, n)
}

// start counts n messages that a claim starts. It is called even if n is 0; see gcra.State.
func (t *tx) start(q *queue, n int) {
	before := q.flow.State
	if q.flow.State.Start(q.flow.Rate, t.micros, n); q.flow.State != before {
		t.touch(q)
	}
}

// claimable returns when a claim returns a message that is ready at a time: never if the queue is paused or full. Times
// are in microseconds.
func (q *queue) claimable(ready, now int64) int64 {
	if q.paused || q.isFull() {
		return never
	}
	if q.flow.Rate.N == 0 {
		return ready
	}
	if next := q.flow.State.Next(q.flow.Rate, now); next > now {
		return max(ready, next)
	}
	return ready
}

// takeLeased takes a message out of its lease that is cancelled or purged; the caller erases it. The holder learns of
// it from its next Extend.
func (t *tx) takeLeased(q *queue, m *member) {
	l := m.lease
	t.unhold(q, m)
	l.leaving[len(l.leaving)-1] |= wasCancelled
	l.cancelled = append(l.cancelled, cancelled{m.id, m.key})
	q.countLeased(t.micros, l, m.key, 1) // until the holder has learned of it
}

// learn notes that a holder learns of a message that was cancelled, since its settlement is refused.
func (t *tx) learn(q *queue, r *store.Receipt) {
	l := t.current(q, r.Lease)
	if l == nil || !q.isCounted(l) {
		return
	}
	i := slices.IndexFunc(l.cancelled, func(c cancelled) bool { return c.id == r.ID })
	if i < 0 {
		return
	}
	q.countLeased(t.micros, l, l.cancelled[i].key, -1)
	l.cancelled = slices.Delete(l.cancelled, i, i+1)
	if l.left == 0 && len(l.cancelled) == 0 {
		t.endLease(q, l)
		return
	}
	l.rewrite = true
	t.touchLease(q, l)
}

// SetFlow implements store.Store.
func (s *Store) SetFlow(ctx context.Context, name string, f store.Flow, former *store.Flow) error {
	if err := store.CheckFlow(name, f); err != nil {
		return err
	}
	return s.changeIf(ctx, name, func(t *tx, q *queue) (met bool, err error) {
		if former != nil && q.flow.Flow != former.Normal() {
			return false, nil
		}
		if q, err = t.create(name); err == nil {
			t.setFlow(q, f.Normal())
		}
		return true, err
	})
}

func (t *tx) setFlow(q *queue, to store.Flow) {
	f := &q.flow
	t.setLanes(q, to)
	f.State = f.State.Changed(f.Rate, to.Rate, t.micros)
	if f.Flow = to; !to.Limited() {
		*f, q.leased = flow{Arrivals: f.Arrivals, Fences: f.Fences}, 0
	}
	for to.Limited() && f.ID == 0 {
		f.ID = rand.Uint64()
	}
	for to.Fair && f.Keyed == 0 {
		f.Keyed = rand.Uint64()
	}
	if !to.Fair {
		f.Keyed, f.Passed = 0, turns.Passed{}
	}
	t.touch(q)
}
