package diskstore

import (
	"time"

	"github.com/laterq/later/store"
)

// Clock is what a Store lives by.
type Clock interface {
	Now() time.Time
	// Alarm gives a channel that receives once when Now has reached t, and a function that frees it.
	Alarm(t time.Time) (ring <-chan time.Time, stop func())
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) Alarm(t time.Time) (<-chan time.Time, func()) {
	timer := time.NewTimer(time.Until(t))
	return timer.C, func() { timer.Stop() }
}

// maxStandstill is how many milliseconds the engine's clock stands still for when the machine's goes back, also
// from one run to the next. A greater step back is followed: dues then come later than they would have, never
// early.
const maxStandstill = 60_000

// now is the engine's clock in whole milliseconds, and the next whole millisecond, from which delays count so
// that they are never short.
func (s *Store) now() (now, soonest int64) {
	wall := s.clock.Now()
	now = wall.UnixMilli()
	if now < s.lastNow && s.lastNow-now <= maxStandstill {
		return s.lastNow, s.lastNow
	}
	s.lastNow = now
	return now, store.UnixMillis(wall)
}

// after is the time a delay from now; no delay is at once.
func (t *tx) after(delay time.Duration) int64 {
	if delay <= 0 {
		return t.now
	}
	return t.soonest + store.Millis(delay)
}

// dueAt is when a message falls due, in milliseconds since 1970.
func (t *tx) dueAt(due store.Due) int64 {
	if !due.At.IsZero() {
		return store.UnixMillis(due.At)
	}
	return t.after(due.Delay)
}
