package diskstore

import (
	"container/list"
	"context"
	"math/rand/v2"
	"time"

	"github.com/laterq/later/store"
)

// Waiters of a queue stand in line. A message that becomes ready wakes the one in front only; its claim wakes the next
// one if it leaves something. The one in front also keeps the time for all of them, with an alarm for when the next
// message falls due or the first lease ends. All times here are in microseconds.
//
// A queue with limits wakes one waiter at a time: when its limits allow a start of a ready message, and again when a
// claim leaves something that may start. Messages that become ready meanwhile wake no other one.
//
// A notification is lost only if a woken waiter never claims. Therefore, and because alarms run on the monotonic clock,
// which does not see that the clock was set or that the machine slept, the one in front checks the clock every few
// seconds while there is anything to wait for. That costs no call to the writer.

const (
	checkEvery = 5 * time.Second // at most; two thirds of it at least
	// claimsWithin is how long a woken waiter has to claim before the next one is woken.
	claimsWithin = time.Second
)

// notifier is a queue's line of waiters. Store.waitMu guards it. It exists only while the line is not empty.
type notifier struct {
	line list.List // of *waiter
	next int64     // when a claim may return something, as of the last call: never too late
	// woken is when a waiter was last woken; 0 when nothing is ready, or before the first wake-up.
	woken int64
	// limited is the time of the last call if the queue has limits, else 0.
	limited int64
}

// waiter is one call of Wait.
type waiter struct {
	place *list.Element // nil when it is not in line
	check chan struct{} // has a token when something changed for it
	alarm int64         // when it checks by itself at the latest; 0 when it is about to check
	woken bool
	left  bool  // Wait has returned
	moved error // why it was dismissed; a *store.Moved
}

// Wait implements store.Store. It sleeps until the queue's earliest message falls due, its first lease ends, or a call
// changes that; of many waiters one wakes.
func (s *Store) Wait(ctx context.Context, queue string) error {
	w := &waiter{check: make(chan struct{}, 1)}
	ready, err := s.listen(ctx, queue, w)
	if err == nil && !ready {
		err = s.sleep(ctx, queue, w)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	s.leave(queue, w, err != nil)
	return err
}

// Notify implements store.Notifier.
func (s *Store) Notify(ctx context.Context, name string) error {
	return s.update(ctx, name, how{urgent: true}, func(t *tx, q *queue) error {
		t.quick, q.wake = true, true
		return nil
	})
}

// listen puts a waiter in line, unless a claim may return something now.
func (s *Store) listen(ctx context.Context, name string, w *waiter) (ready bool, err error) {
	return call(ctx, s, name, how{urgent: true}, func(t *tx, q *queue) (bool, error) {
		t.quick = true
		next, err := t.next(q)
		ready := next <= t.micros
		if err != nil || ready && !q.isLimited() {
			return true, err
		}
		s.waitMu.Lock()
		defer s.waitMu.Unlock()
		b := s.notifiers[name]
		if w.left || ready && (b == nil || b.isOverdue(t.micros)) { // else another waiter claims first
			return true, nil
		}
		if b == nil {
			b = &notifier{}
			s.notifiers[name] = b
		}
		w.place = b.line.PushBack(w)
		s.waiters.Add(1)
		return false, nil // and then the notifier learns of next, as after every call
	})
}

// sleep returns when the waiter was woken, or when it is in front and it is time.
func (s *Store) sleep(ctx context.Context, name string, w *waiter) error {
	for {
		at, sleeping := s.checkTime(name, w)
		if !sleeping {
			return w.moved
		}
		var alarm <-chan time.Time
		stop := func() {}
		if at != never {
			alarm, stop = s.clock.Alarm(time.UnixMicro(at))
		}
		var err error
		select {
		case <-w.check:
		case <-alarm:
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-s.closed:
			err = store.ErrClosed
		case <-s.failed:
			err = s.failure
		}
		stop()
		if err != nil {
			return err
		}
	}
}

// checkTime returns until when a waiter sleeps, and reports whether it does.
func (s *Store) checkTime(name string, w *waiter) (until int64, sleep bool) {
	now := s.clock.Now().UnixMicro()
	s.waitMu.Lock()
	defer s.waitMu.Unlock()
	if w.place == nil {
		return 0, false
	}
	b := s.notifiers[name]
	w.alarm = never
	if b.line.Front() == w.place && b.next != never {
		// If the clock was set back, a claim finds out when a limit allows the next start.
		wasSet := now < b.limited-micros(maxStandstill)
		if wasSet || b.next <= now && b.isOverdue(now) {
			s.wake(b, now)
			return 0, false
		}
		w.alarm = now + (checkEvery*2/3 + rand.N(checkEvery/3)).Microseconds()
		if b.next > now {
			w.alarm = min(w.alarm, b.next)
		} else if b.limited != 0 {
			w.alarm = min(w.alarm, b.woken+claimsWithin.Microseconds())
		}
	}
	return w.alarm, true
}

// isOverdue reports whether no waiter was woken that may still claim.
func (b *notifier) isOverdue(now int64) bool {
	return b.woken == 0 || max(now-b.woken, b.woken-now) >= claimsWithin.Microseconds()
}

// notify updates the waiters of a queue after a call.
func (t *tx) notify(name string) {
	s := t.s
	if s.waiters.Load() == 0 {
		return // whoever is about to wait asks the writer first
	}
	next, wake, limited := int64(never), false, int64(0)
	if q := s.queues[name]; q != nil {
		next, wake = q.soonest(t.micros), q.wake
		q.wake = false
		if q.isLimited() {
			limited = t.micros
		}
	}
	s.waitMu.Lock()
	defer s.waitMu.Unlock()
	b := s.notifiers[name]
	if b == nil {
		return
	}
	b.next, b.limited = next, limited
	switch {
	case next > t.micros:
		b.woken = 0
	case wake || b.woken == 0:
		s.wake(b, t.micros)
	}
	b.setAlarm(t.micros)
}

// wake wakes the waiter in front, if there is one. The lock is held.
func (s *Store) wake(b *notifier, now int64) {
	front := b.line.Front()
	if front == nil {
		return
	}
	w := front.Value.(*waiter)
	w.woken = true
	s.stepOut(b, w)
	w.nudge()
	b.woken = now
	b.setAlarm(now)
}

// dismiss has all waiters of a name return, if its queue has moved.
func (t *tx) dismiss(name string) {
	s := t.s
	moved := s.moved(name)
	if moved == nil {
		return
	}
	s.waitMu.Lock()
	defer s.waitMu.Unlock()
	b := s.notifiers[name]
	if b == nil {
		return
	}
	for front := b.line.Front(); front != nil; front = b.line.Front() {
		w := front.Value.(*waiter)
		w.moved = moved
		s.stepOut(b, w)
		w.nudge()
	}
	delete(s.notifiers, name)
}

// stepOut takes a waiter out of the line. The lock is held.
func (s *Store) stepOut(b *notifier, w *waiter) {
	b.line.Remove(w.place)
	w.place = nil
	s.waiters.Add(-1)
}

// setAlarm makes the one in front check in time. The lock is held.
func (b *notifier) setAlarm(now int64) {
	front := b.line.Front()
	if front == nil || b.next == never {
		return
	}
	latest := now + checkEvery.Microseconds()
	if b.next > now {
		latest = min(latest, b.next)
	}
	if w := front.Value.(*waiter); w.alarm > latest {
		w.alarm = 0
		w.nudge()
	}
}

func (w *waiter) nudge() {
	select {
	case w.check <- struct{}{}:
	default: // it has a token
	}
}

// leave ends a Wait. A waiter that was woken and does not claim wakes the next.
func (s *Store) leave(name string, w *waiter, unused bool) {
	now := s.clock.Now().UnixMicro()
	s.waitMu.Lock()
	defer s.waitMu.Unlock()
	w.left = true
	b := s.notifiers[name]
	if b == nil {
		return
	}
	switch {
	case w.place != nil:
		s.stepOut(b, w)
		b.setAlarm(now)
	case w.woken && unused:
		s.wake(b, now)
	}
	if b.line.Len() == 0 {
		delete(s.notifiers, name)
	}
}
