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

// Wait implements store.Store. It returns when a claim has something to do: when the queue holds an expired lease, or a
// ready message and is not paused.
func (s *Store) Wait(ctx context.Context, queueName string) error {
	for {
		if err := s.check(ctx); err != nil {
			return err
		}
		n, next := s.data.subscribe(queueName)
		if n == nil {
			return nil
		}
		var fired <-chan time.Time
		stop := func() {}
		if next != never {
			fired, stop = s.data.clock.Alarm(time.UnixMilli(next))
		}
		select {
		case <-n.changed:
		case <-fired:
		case <-ctx.Done():
		case <-s.closed:
		}
		stop()
		s.data.unsubscribe(queueName, n)
	}
}

// subscribe returns the queue's notifier and the time when a claim has something to do if nothing changes before. It
// returns nil if a claim has something to do now.
func (d *data) subscribe(name string) (*notifier, int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := int64(never)
	if q := d.queues[name]; q != nil {
		next = q.next()
	}
	if next <= d.now() {
		return nil, 0
	}
	n := d.notifiers[name]
	if n == nil {
		n = &notifier{changed: make(chan struct{})}
		d.notifiers[name] = n
	}
	n.waiting++
	return n, next
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
