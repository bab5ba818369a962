package diskstore

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/laterq/later/internal/gcra"
	"github.com/laterq/later/store"
)

// flow is the limits of a queue and their state; the zero flow is that of a plain queue. It is stored behind the
// counters of the queue, except for the number of leased messages, which is derived from the leases. A claim writes its
// lease and its starts in one batch, so a crash undoes both or neither.
type flow struct {
	store.Flow
	// id marks the leases that count. It is random: when the limits of a queue are removed and set again, earlier
	// leases have another one, and none of them has to be written.
	id     uint64
	state  gcra.State
	leased int // messages that count against Concurrency
}

// flowLength is the length of a stored flow.
const flowLength = 7 * 8

func appendFlow(b []byte, f *flow) []byte {
	if f.id == 0 {
		return b
	}
	for _, n := range [flowLength / 8]int64{int64(f.Concurrency), int64(f.Rate.N), f.Rate.Per.Microseconds(),
		int64(f.Rate.Burst), int64(f.id), f.state.Micros, f.state.Part} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// parseFlow reads the flow that appendFlow wrote.
func parseFlow(b []byte) (f flow, err error) {
	if len(b) == 0 {
		return flow{}, nil
	}
	bad := corrupt("limits %x are not of this format", b)
	if len(b) != flowLength {
		return flow{}, bad
	}
	var n [flowLength / 8]int64
	for i := range n {
		n[i] = int64(binary.BigEndian.Uint64(b[8*i:]))
	}
	if slices.Min(n[:4]) < 0 || slices.Max(n[:4]) > store.MaxPeriod.Microseconds() {
		return flow{}, bad
	}
	f.Concurrency = int(n[0])
	f.Rate = store.Rate{N: int(n[1]), Per: time.Duration(n[2]) * time.Microsecond, Burst: int(n[3])}
	f.id, f.state = uint64(n[4]), gcra.State{Micros: n[5], Part: n[6]}
	known := f.Check() == nil && f.Flow == f.Normal() && f.Limited() && f.id != 0
	if !known || f.state.Micros < 0 || f.state.Micros > micros(lastTime) || f.state.Part < 0 ||
		f.state.Part >= int64(max(1, f.Rate.N)) {
		return flow{}, bad
	}
	return f, nil
}

// micros returns a time in microseconds.
func micros(ms int64) int64 {
	if ms == never {
		return never
	}
	return 1000 * ms
}

func (q *queue) isLimited() bool { return q.flow.id != 0 }

// isFull reports whether all messages that may be leased at once are.
func (q *queue) isFull() bool { return q.flow.Concurrency > 0 && q.flow.leased >= q.flow.Concurrency }

// isCounted reports whether the messages of a lease count against Concurrency.
func (q *queue) isCounted(l *lease) bool { return l.flow != 0 && l.flow == q.flow.id }

// countLeased adds n messages of a lease to the number of messages that count, if it is a lease that counts.
func (q *queue) countLeased(l *lease, n int) {
	if q.isCounted(l) {
		q.flow.leased += n
	}
}

// mayStart returns how many messages a claim may take.
func (t *tx) mayStart(q *queue, req store.ClaimRequest) int {
	if !q.isLimited() {
		return req.Max
	}
	n := req.Max - req.Ahead
	if q.flow.Concurrency > 0 {
		n = min(n, max(0, q.flow.Concurrency-q.flow.leased))
	}
	return q.flow.state.May(q.flow.Rate, t.micros, n)
}

// start counts n messages that a claim starts. It is called even if n is 0; see gcra.State.
func (t *tx) start(q *queue, n int) {
	before := q.flow.state
	if q.flow.state.Start(q.flow.Rate, t.micros, n); q.flow.state != before {
		t.touch(q)
	}
}

// claimable returns when a claim returns a message that is due at a time, in microseconds: never if the queue is paused
// or full.
func (q *queue) claimable(due, now int64) int64 {
	if q.paused || q.isFull() {
		return never
	}
	due = micros(due)
	if q.flow.Rate.N == 0 {
		return due
	}
	if next := q.flow.state.Next(q.flow.Rate, now); next > now {
		return max(due, next)
	}
	return due
}

// takeLeased takes a message out of its lease that is cancelled or purged; the caller erases it. The holder learns of
// it from its next Extend.
func (t *tx) takeLeased(q *queue, m *member) {
	l := m.lease
	t.unhold(q, m)
	l.leaving[len(l.leaving)-1] |= wasCancelled
	l.cancelled = append(l.cancelled, m.id)
	q.countLeased(l, 1) // until the holder has learned of it
}

// learn notes that a holder learns of a message that was cancelled, since its settlement is refused.
func (t *tx) learn(q *queue, r *store.Receipt) {
	l := t.current(q, r.Lease)
	if l == nil || !q.isCounted(l) {
		return
	}
	i := slices.Index(l.cancelled, r.ID)
	if i < 0 {
		return
	}
	l.cancelled = slices.Delete(l.cancelled, i, i+1)
	q.countLeased(l, -1)
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
			q.flow.set(f.Normal(), t.micros)
			t.touch(q)
		}
		return true, err
	})
}

func (f *flow) set(to store.Flow, now int64) {
	if to == (store.Flow{}) {
		*f = flow{}
		return
	}
	for f.id == 0 {
		f.id = rand.Uint64()
	}
	f.state = f.state.Changed(f.Rate, to.Rate, now)
	f.Flow = to
}

// flowState returns the limits of a queue with their state.
func (t *tx) flowState(q *queue) (state store.FlowState) {
	if !q.flow.Limited() {
		return state
	}
	state = store.FlowState{Flow: q.flow.Flow, Leased: q.flow.leased, Now: time.UnixMicro(t.micros)}
	if q.flow.Rate.N > 0 {
		state.Next = time.UnixMicro(q.flow.state.Next(q.flow.Rate, t.micros))
	}
	return state
}
