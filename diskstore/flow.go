package diskstore

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/laterq/later/internal/gcra"
	"github.com/laterq/later/internal/turns"
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
	// keyed marks the leases that count for keys, as id does. It is 0 unless the queue is Fair, and another number each
	// time that it becomes so.
	keyed uint64
	// arrivals are the places of messages that arrived in a queue with an order, and fences are of its claims; see
	// order.go. They outlive the limits.
	arrivals, fences turns.Sequence
	passed           turns.Passed // zero unless the queue is Fair
}

// The lengths of a stored flow, of the fields of keys behind it in a Fair queue, and of the counts at the end.
const (
	flowLength  = 7 * 8
	keyedLength = 7 * 8
	endLength   = 4 * 8
)

// orders are stored as twice their index here, and 1 more with Urgency.
var orders = []store.Order{store.OrderNone, store.OrderContinue, store.OrderHalt}

func appendFlow(b []byte, f *flow) []byte {
	if f.id != 0 {
		b = appendNumbers(b, int64(f.Concurrency), int64(f.Rate.N), f.Rate.Per.Microseconds(), int64(f.Rate.Burst),
			int64(f.id), f.state.Micros, f.state.Part)
	}
	if f.keyed != 0 {
		b = appendNumbers(b, int64(f.Key.Concurrency), int64(f.Key.Rate.N), f.Key.Rate.Per.Microseconds(),
			int64(f.Key.Rate.Burst), int64(f.Key.Weight),
			int64(slices.Index(orders, f.Key.Order))<<1|int64(boolByte(f.Urgency)), int64(f.keyed))
	}
	if f.arrivals != 0 || f.fences != 0 || f.passed != (turns.Passed{}) {
		b = appendNumbers(b, int64(f.arrivals), int64(f.fences), int64(f.passed.Normal), int64(f.passed.Low))
	}
	return b
}

func appendNumbers(b []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// numbers reads what appendNumbers wrote.
func numbers(b []byte) []int64 {
	n := make([]int64, len(b)/8)
	for i := range n {
		n[i] = int64(binary.BigEndian.Uint64(b[8*i:]))
	}
	return n
}

// areLimits reports whether numbers can be fields of limits; their checks compute with them.
func areLimits(n []int64) bool {
	return slices.Min(n) >= 0 && slices.Max(n) <= store.MaxPeriod.Microseconds()
}

// rateOf returns the rate of three numbers.
func rateOf(n []int64) store.Rate {
	return store.Rate{N: int(n[0]), Per: time.Duration(n[1]) * time.Microsecond, Burst: int(n[2])}
}

// isState reports whether s can be the state of a rate with that N.
func isState(s gcra.State, n int) bool {
	return s.Micros >= 0 && s.Micros <= micros(lastTime) && s.Part >= 0 && s.Part < int64(max(1, n))
}

// areTimes reports whether numbers can be times in microseconds or counts, which are not all 0.
func areTimes(n []int64) bool {
	return slices.Min(n) >= 0 && slices.Max(n) > 0 && slices.Max(n) <= micros(lastTime)
}

// parseFlow reads the flow that appendFlow wrote.
func parseFlow(b []byte) (f flow, err error) {
	bad := corrupt("limits %x are not of this format", b)
	if len(b)%flowLength == endLength {
		n := numbers(b[len(b)-endLength:])
		f.arrivals, f.fences = turns.Sequence(n[0]), turns.Sequence(n[1])
		if f.passed = (turns.Passed{Normal: int(n[2]), Low: int(n[3])}); !areTimes(n) {
			return flow{}, bad
		}
		b = b[:len(b)-endLength]
	}
	if len(b) == 0 {
		return f, nil
	}
	if len(b) != flowLength && len(b) != flowLength+keyedLength {
		return flow{}, bad
	}
	n := numbers(b)
	if !areLimits(n[:4]) {
		return flow{}, bad
	}
	f.Concurrency, f.Rate = int(n[0]), rateOf(n[1:])
	f.id, f.state = uint64(n[4]), gcra.State{Micros: n[5], Part: n[6]}
	if n = n[7:]; len(n) > 0 {
		if !areLimits(n[:5]) || n[5] < 0 || n[5]>>1 >= int64(len(orders)) || n[6] == 0 {
			return flow{}, bad
		}
		f.Fair, f.Urgency = true, n[5]&1 == 1
		f.Key = store.KeyFlow{Concurrency: int(n[0]), Rate: rateOf(n[1:]), Weight: int(n[4]), Order: orders[n[5]>>1]}
		f.keyed = uint64(n[6])
	}
	known := f.Check() == nil && f.Flow == f.Normal() && f.Limited() && f.id != 0
	if !known || !isState(f.state, f.Rate.N) {
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

// countsKeys reports whether the messages of a lease count for their keys.
func (q *queue) countsKeys(l *lease) bool { return l.keyed != 0 && l.keyed == q.flow.keyed }

// countLeased adds n messages of a lease with a key to the number of messages that count, if it is a lease that counts.
func (q *queue) countLeased(now int64, l *lease, key string, n int) {
	if q.isCounted(l) {
		q.flow.leased += n
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

// claimable returns when a claim returns a message that is ready at a time: never if the queue is paused or full. Times
// are in microseconds.
func (q *queue) claimable(ready, now int64) int64 {
	if q.paused || q.isFull() {
		return never
	}
	if q.flow.Rate.N == 0 {
		return ready
	}
	if next := q.flow.state.Next(q.flow.Rate, now); next > now {
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
	f.state = f.state.Changed(f.Rate, to.Rate, t.micros)
	if f.Flow = to; !to.Limited() {
		*f = flow{arrivals: f.arrivals, fences: f.fences}
	}
	for to.Limited() && f.id == 0 {
		f.id = rand.Uint64()
	}
	for to.Fair && f.keyed == 0 {
		f.keyed = rand.Uint64()
	}
	if !to.Fair {
		f.keyed, f.passed = 0, turns.Passed{}
	}
	t.touch(q)
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
	if q.lanes != nil {
		state.Keys = q.lanes.order.Counts(t.micros)
	}
	return state
}
