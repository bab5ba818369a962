package memstore

import (
	"context"
	"time"

	"github.com/laterq/later/store"
)

// bell is rung, by closing the channel, when a queue with waiters changed.
type bell struct {
	rung    chan struct{}
	waiting int
}

// ring lets the waiters of a queue look again. The lock is held.
func (d *data) ring(name string) {
	if b := d.bells[name]; b != nil {
		close(b.rung)
		delete(d.bells, name)
	}
}

// lookEvery bounds how long a timer runs: timers go by the monotonic clock, which does not see that the clock was set
// or that the machine slept.
const lookEvery = 5 * time.Second

// Wait implements store.Store. It returns when the queue is not paused and holds a ready message or a lease
// whose deadline has passed.
func (s *Store) Wait(ctx context.Context, queueName string) error {
	for {
		if err := s.check(ctx); err != nil {
			return err
		}
		b, next := s.data.listen(queueName)
		if b == nil {
			return nil
		}
		var alarm <-chan time.Time
		stop := func() {}
		if next != never {
			at := time.UnixMilli(next)
			if soon := s.data.clock.Now().Add(lookEvery); at.After(soon) {
				at = soon
			}
			alarm, stop = s.data.clock.Alarm(at)
		}
		select {
		case <-b.rung:
		case <-alarm:
		case <-ctx.Done():
		case <-s.closed:
		}
		stop()
		s.data.unlisten(queueName, b)
	}
}

// listen gives nil when a claim may give something now; else the queue's bell and the time at which a claim
// will, if nothing changes before.
func (d *data) listen(name string) (*bell, int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.queue(name).next()
	if next <= d.now() {
		return nil, 0
	}
	b := d.bells[name]
	if b == nil {
		b = &bell{rung: make(chan struct{})}
		d.bells[name] = b
	}
	b.waiting++
	return b, next
}

// unlisten forgets a bell that nobody waits for any more.
func (d *data) unlisten(name string, b *bell) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b.waiting--; b.waiting == 0 && d.bells[name] == b {
		delete(d.bells, name)
	}
}

var _ store.Store = (*Store)(nil)
