// Package precise has timers that fire within microseconds of their time. Timers of package time are up to a
// millisecond late on Linux, because the run-time system's poller waits in whole milliseconds; here one timerfd, which
// the poller watches like a socket, keeps the time for the whole process. Elsewhere the timers come from package time.
//
// Start reading at AfterFunc. Of Later, the package imports internal/rawio.
package precise

import (
	"sync"
	"time"
)

// Timer calls a function once, at its time. It is like a time.Timer made by time.AfterFunc.
type Timer struct {
	f     func()
	at    time.Duration // on the keeper's clock
	place int           // in the keeper's heap; absent if it is not there
	kept  bool          // by the keeper; set once, under its lock
	std   *time.Timer   // keeps the time instead of the keeper; set once, under the keeper's lock
}

// absent is the place of a timer that is not running.
const absent = -1

// AfterFunc calls f when d has passed. One goroutine calls the functions of all timers, so f must return at once and
// must not block. In a testing/synctest bubble, the timer follows the bubble's time.
func AfterFunc(d time.Duration, f func()) *Timer {
	t := &Timer{f: f, place: absent}
	keep.reset(t, d)
	return t
}

// Stop prevents the call of the function. It returns false if the function was called, or is about to be, or the timer
// was stopped before.
func (t *Timer) Stop() bool { return keep.stop(t) }

// Reset starts the timer again with a duration. It reports whether the timer was running.
func (t *Timer) Reset(d time.Duration) bool { return keep.reset(t, d) }

// At returns a channel that receives the current time once, when the machine's clock has reached t, and a function that
// frees the timer. Like the timers of package time, it does not notice that the clock is set before that.
func At(t time.Time) (fired <-chan time.Time, stop func()) {
	c := make(chan time.Time, 1)
	timer := AfterFunc(time.Until(t), func() { c <- time.Now() })
	return c, func() { timer.Stop() }
}

// keep is the keeper of the process.
var keep keeper

// keeper runs timers on one alarm, such as a timerfd. Its goroutine starts with the first timer and ends soon after
// the last one, so that nothing is left of a program's stores when they are closed.
type keeper struct {
	mu      sync.Mutex
	base    time.Time // time 0 of its clock; set by the first timer
	timers  timerHeap
	alarm   alarm         // nil without a goroutine
	armed   time.Duration // when the alarm goes off; at or before the first timer's time
	touched time.Duration // when a timer was last started, stopped or fired
}

// alarm makes wait return at a time.
type alarm interface {
	set(after time.Duration) error
	wait() error
	close() error
}

const (
	notArmed = time.Duration(1<<63 - 1)
	// linger is how long the goroutine stays without a timer, since starting one costs more than keeping it for the
	// next timer of a busy queue.
	linger = 20 * time.Millisecond
)

func (k *keeper) now() time.Duration { return time.Since(k.base) }

// reset implements Reset.
func (k *keeper) reset(t *Timer, d time.Duration) (running bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if t.std != nil {
		return t.std.Reset(d)
	}
	if !t.kept && isFake(time.Now()) || !k.start() {
		t.std = time.AfterFunc(d, t.f)
		return false
	}
	t.kept = true
	k.touched = k.now()
	at := k.touched + max(d, 0)
	if at < k.touched {
		at = notArmed // the sum is too large
	}
	running = t.place != absent
	if running {
		k.timers.remove(t)
	}
	t.at = at
	k.timers.add(t)
	k.arm(k.touched)
	return running
}

// stop implements Stop.
func (k *keeper) stop(t *Timer) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if t.std != nil {
		return t.std.Stop()
	}
	if t.place == absent {
		return false
	}
	k.timers.remove(t)
	if len(k.timers) == 0 {
		k.touched = k.now()
		k.arm(k.touched)
	}
	return true
}

// start starts the goroutine if there is none. It reports whether there is one. The lock is held.
func (k *keeper) start() bool {
	if k.alarm != nil {
		return true
	}
	a, err := newAlarm()
	if err != nil {
		return false // such as too many open files
	}
	if k.base.IsZero() {
		k.base = time.Now()
	}
	k.alarm, k.armed = a, notArmed
	go k.run(a)
	return true
}

// arm has the alarm go off in time for the first timer, or for the end of the goroutine. An alarm that goes off too
// early for that does no harm. The lock is held.
func (k *keeper) arm(now time.Duration) {
	want := k.touched + linger
	if len(k.timers) > 0 {
		want = k.timers[0].at
	}
	if want >= k.armed {
		return
	}
	if err := k.alarm.set(max(want-now, 1)); err != nil {
		panic("precise: " + err.Error()) // the arguments of the system call are right
	}
	k.armed = want
}

// run calls the functions of the timers, until none was used for a while.
func (k *keeper) run(a alarm) {
	defer a.close()
	var due []*Timer
	for {
		if err := a.wait(); err != nil {
			panic("precise: " + err.Error()) // only this function closes the alarm
		}
		k.mu.Lock()
		now := k.now()
		k.armed = notArmed
		for len(k.timers) > 0 && k.timers[0].at <= now {
			due = append(due, k.timers[0])
			k.timers.remove(k.timers[0])
			k.touched = now
		}
		if len(k.timers) == 0 && now-k.touched >= linger {
			k.alarm = nil
			k.mu.Unlock()
			return
		}
		k.arm(now)
		k.mu.Unlock()
		for _, t := range due {
			t.f()
		}
		clear(due)
		due = due[:0]
	}
}
