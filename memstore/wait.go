package memstore

import (
	"context"
	"time"

	"github.com/laterq/later/store"
)

// notifier notifies the waiters of a queue that a claim has something to do earlier, by closing the channel.
type notifier struct {
	changed chan struct{}
	waiting int
}

// notify wakes the waiters of a queue. The caller holds the lock.
func (d *data) notify(name string) {
	if n := d.notifiers[name]; n != nil {
		close(n.changed)
		delete(d.notifiers, name)
	}
}

// wakes reports whether the waiters of a queue must look again after a step: a claim has something to do earlier than
// before. In a queue with limits they also look again when the time is later, since they sleep until then, and when
// there is work that no waiter was woken for.
func (d *data) wakes(name string, q *queue, before int64) bool {
	next := q.next()
	if !q.flow.Limited() || next < before || d.notifiers[name] == nil {
		return next < before
	}
	q.flow.dropPromises()
	return next > before || q.work() > len(q.flow.promises)
}

// Wait implements store.Store. It returns when a claim has something to do: when the queue holds an expired lease, or a
// ready message that may start and is not paused.
func (s *Store) Wait(ctx context.Context, name string) error {
	for {
		if err := s.check(ctx); err != nil {
			return err
		}
		n, next, again, err := s.data.subscribe(name)
		if n == nil {
			return err
		}
		var fired, promised <-chan time.Time
		stop := func() {}
		switch {
		case !again.IsZero():
			promised = time.After(time.Until(again))
		case next != never:
			fired, stop = s.data.clock.Alarm(time.UnixMicro(next))
		}
		select {
		case <-n.changed:
		case <-fired:
		case <-promised:
		case <-ctx.Done():
		case <-s.closed:
		}
		stop()
		s.data.unsubscribe(name, n)
	}
}

// subscribe returns the queue's notifier and the time in microseconds when a claim has something to do if nothing
// changes before; or, if other waiters were woken for all that is to be done, when to look again in real time. It
// returns nil if the caller has something to do now, or gets a *store.Moved.
func (d *data) subscribe(name string) (_ *notifier, next int64, again time.Time, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.moved(name); err != nil {
		return nil, 0, time.Time{}, err
	}
	next = never
	if q := d.queues[name]; q != nil {
		q.tell(d.clock.Now())
		q.flow.starts.Start(q.flow.Rate, q.micros, 0) // the clock may have been set back
		if next = q.next(); next <= q.micros {
			wakes := true
			if q.flow.Limited() {
				wakes, again = q.flow.wakes(q.work())
			}
			if wakes {
				return nil, 0, time.Time{}, nil
			}
		}
	}
	n := d.notifiers[name]
	if n == nil {
		n = &notifier{changed: make(chan struct{})}
		d.notifiers[name] = n
	}
	n.waiting++
	return n, next, again, nil
}

// unsubscribe ends one wait and drops the notifier if it was the last.
func (d *data) unsubscribe(name string, n *notifier) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n.waiting--; n.waiting == 0 && d.notifiers[name] == n {
		delete(d.notifiers, name)
	}
}

var _ store.Store = (*Store)(nil)
