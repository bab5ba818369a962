package diskstore

import (
	"time"

	"github.com/laterq/later/internal/precise"
	"github.com/laterq/later/store"
)

// Clock is the time that a Store lives by.
type Clock interface {
	Now() time.Time
	// Alarm returns a channel that receives once when Now has reached t, and a function that frees it.
	Alarm(t time.Time) (ring <-chan time.Time, stop func())
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) Alarm(t time.Time) (<-chan time.Time, func()) {
	return precise.At(t)
}

// maxStandstill is how many milliseconds the engine's clock stands still for when the machine's goes back, also from
// one run to the next. The engine follows a larger step back: due times then come later than they would have, never
// early, and leases keep the time that they have left; see rewind.
const maxStandstill = 60_000

// maxLease is the longest time, in milliseconds, that a lease may have left.
var maxLease = store.Millis(store.MaxLease)

// readClock sets the engine's time of a call.
func (t *tx) readClock() {
	wall := t.s.clock.Now()
	now, last := wall.UnixMilli(), t.s.lastNow
	t.micros = max(wall.UnixMicro(), t.s.lastMicros)
	switch {
	case now >= last:
		t.now, t.soonest = now, store.UnixMillis(wall)
	case last-now <= maxStandstill:
		t.now, t.soonest = last, last
		return
	default:
		t.now, t.soonest, t.micros = now, store.UnixMillis(wall), wall.UnixMicro()
		for _, q := range t.s.queues {
			if len(q.leases) > 0 || q.isLimited() {
				t.rewind(q, last-now)
				t.start(q, 0) // brings the time of the next start nearer
				if q.isOrdered() {
					q.lanes.rewind(q, last, t.now)
				} else {
					t.resetLanes(q)
				}
				t.notify(q.name)
			}
		}
	}
	t.s.lastNow, t.s.lastMicros = t.now, t.micros
}

// rewind leaves each lease of a queue the time that it had left before the clock went back by some milliseconds, so
// that a correction of the clock neither ends it nor prolongs it. No deadline is later than a new lease's can be.
func (t *tx) rewind(q *queue, by int64) {
	for _, l := range q.leases {
		deadline := min(l.deadline-by, t.now+maxLease)
		if deadline == l.deadline {
			continue
		}
		q.deadlines.Delete(entry{l.deadline, l.id})
		l.deadline = deadline
		q.deadlines.Set(entry{l.deadline, l.id})
		l.rewrite = true
		t.touchLease(q, l)
	}
}

// after returns the time a delay from now; no delay is at once.
func (t *tx) after(delay time.Duration) int64 {
	if delay <= 0 {
		return t.now
	}
	return t.soonest + store.Millis(delay)
}

// dueAt returns when a message falls due, in milliseconds since 1970.
func (t *tx) dueAt(due store.Due) int64 {
	if !due.At.IsZero() {
		return store.UnixMillis(due.At)
	}
	return t.after(due.Delay)
}
