package diskstore

import (
	"container/list"
	"context"
	"math/rand/v2"
	"time"

	"github.com/laterq/later/store"
)

// Who waits on a queue stands in line. What becomes ready wakes the one in front, and no other: its claim wakes the
// next one if it leaves something. The one in front also minds the time for all of them, by an alarm for when the
// next message falls due or the first lease ends.
//
// A hint can be lost only with a waiter that was woken and never claims. Therefore, and since alarms run by the
// monotonic clock, which does not see that the clock was set or that the machine slept, the one in front looks at the
// clock every few seconds while there is anything to wait for. It asks nobody for that.

const (
	lookEvery = 5 * time.Second // at most; two thirds of it at least
	// claimsWithin is how long one who was woken has to claim before the next one does it.
	claimsWithin = time.Second
)

// bell is a queue's line of waiters. It belongs to Store.waitMu, and exists only while somebody is in line.
type bell struct {
	line list.List // of *waiter
	next int64     // when a claim may give something, by what the writer said last: never too late
	// called is when somebody was woken for what is ready, who is to claim; 0 when nothing is ready or nobody was.
	called int64
}

// waiter is one call of Wait.
type waiter struct {
	place *list.Element // nil when it is not in line
	look  chan struct{} // has a token when something changed for it
	alarm int64         // when it looks by itself at the latest; 0 when it is about to look
	woken bool
	left  bool // Wait has returned
}

// Wait implements store.Store. It sleeps until the queue's earliest message falls due, its first lease ends, or a call
// changes that; of many waiters one wakes.
func (s *Store) Wait(ctx context.Context, queue string) error {
	w := &waiter{look: make(chan struct{}, 1)}
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

// listen puts a waiter in line, unless a claim may give something now.
func (s *Store) listen(ctx context.Context, name string, w *waiter) (ready bool, err error) {
	return call(ctx, s, name, func(t *tx, q *queue) (bool, error) {
		next, err := t.next(q)
		if err != nil || next <= t.now {
			return true, err
		}
		s.waitMu.Lock()
		defer s.waitMu.Unlock()
		if w.left {
			return true, nil
		}
		b := s.bells[name]
		if b == nil {
			b = &bell{}
			s.bells[name] = b
		}
		w.place = b.line.PushBack(w)
		s.waiters.Add(1)
		return false, nil // and then the bell learns of next, as after every call
	})
}

// sleep returns when the waiter was woken, or it is in front and sees that it is time.
func (s *Store) sleep(ctx context.Context, name string, w *waiter) error {
	for {
		at, sleeping := s.lookAround(name, w)
		if !sleeping {
			return nil
		}
		var alarm <-chan time.Time
		stop := func() {}
		if at != never {
			alarm, stop = s.clock.Alarm(time.UnixMilli(at))
		}
		var err error
		select {
		case <-w.look:
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

// lookAround tells a waiter until when it is to sleep, if it is.
func (s *Store) lookAround(name string, w *waiter) (until int64, sleep bool) {
	now := s.clock.Now().UnixMilli()
	s.waitMu.Lock()
	defer s.waitMu.Unlock()
	if w.place == nil {
		return 0, false
	}
	b := s.bells[name]
	w.alarm = never
	if b.line.Front() == w.place && b.next != never {
		if b.next <= now && (b.called == 0 || max(now-b.called, b.called-now) >= claimsWithin.Milliseconds()) {
			s.wake(b, now)
			return 0, false
		}
		w.alarm = now + (lookEvery*2/3 + rand.N(lookEvery/3)).Milliseconds()
		if b.next > now {
			w.alarm = min(w.alarm, b.next)
		}
	}
	return w.alarm, true
}

// ring tells the waiters of a queue how it is after a call.
func (t *tx) ring(name string) {
	s := t.s
	if s.waiters.Load() == 0 {
		return // who is about to wait learns of everything from the writer, and so from here
	}
	next, roused := int64(never), false
	if q := s.queues[name]; q != nil {
		next, roused = q.soonest(), q.roused
		q.roused = false
	}
	s.waitMu.Lock()
	defer s.waitMu.Unlock()
	b := s.bells[name]
	if b == nil {
		return
	}
	b.next = next
	switch {
	case next > t.now:
		b.called = 0
	case roused || b.called == 0:
		s.wake(b, t.now)
	}
	b.mind(t.now)
}

// wake wakes the waiter in front, if there is one. The lock is held.
func (s *Store) wake(b *bell, now int64) {
	front := b.line.Front()
	if front == nil {
		return
	}
	w := front.Value.(*waiter)
	w.woken = true
	s.stepOut(b, w)
	w.nudge()
	b.called = now
	b.mind(now)
}

// stepOut takes a waiter out of the line. The lock is held.
func (s *Store) stepOut(b *bell, w *waiter) {
	b.line.Remove(w.place)
	w.place = nil
	s.waiters.Add(-1)
}

// mind sees to it that the one in front looks in time. The lock is held.
func (b *bell) mind(now int64) {
	front := b.line.Front()
	if front == nil || b.next == never {
		return
	}
	latest := now + lookEvery.Milliseconds()
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
	case w.look <- struct{}{}:
	default: // it is told already
	}
}

// leave is the end of a Wait. One that was woken and has no use for it wakes the next.
func (s *Store) leave(name string, w *waiter, unused bool) {
	now := s.clock.Now().UnixMilli()
	s.waitMu.Lock()
	defer s.waitMu.Unlock()
	w.left = true
	b := s.bells[name]
	if b == nil {
		return
	}
	switch {
	case w.place != nil:
		s.stepOut(b, w)
		b.mind(now)
	case w.woken && unused:
		s.wake(b, now)
	}
	if b.line.Len() == 0 {
		delete(s.bells, name)
	}
}
