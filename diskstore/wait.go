package diskstore

import (
	"context"
	"time"
)

// bell is rung, by closing the channel, when something may be claimed earlier than its waiters were told.
type bell struct {
	rung chan struct{}
	at   int64
}

// ring wakes the waiters of a queue if they have reason to look again.
func (s *Store) ring(q *queue) {
	if b := s.bells[q.name]; b != nil && q.soonest() < b.at {
		close(b.rung)
		delete(s.bells, q.name)
	}
}

// Wait implements store.Store. It sleeps until the queue's earliest message falls due, its first lease ends, or
// a call changes that.
func (s *Store) Wait(ctx context.Context, queue string) error {
	for {
		b, err := s.listen(ctx, queue)
		if b == nil {
			return err
		}
		var alarm <-chan time.Time
		stop := func() {}
		if b.at != never {
			alarm, stop = s.clock.Alarm(time.UnixMilli(b.at))
		}
		select {
		case <-b.rung:
		case <-alarm:
		case <-ctx.Done():
		case <-s.closed:
		case <-s.failed:
		}
		stop()
	}
}

// listen gives nil when a claim may give something now; else a bell, and when a claim will if nothing changes.
func (s *Store) listen(ctx context.Context, name string) (*bell, error) {
	var heard *bell
	_, err := call(ctx, s, name, func(t *tx, q *queue) (struct{}, error) {
		next, err := t.next(q)
		if err != nil || next <= t.now {
			return struct{}{}, err
		}
		b := s.bells[name]
		if b == nil {
			b = &bell{rung: make(chan struct{})}
			s.bells[name] = b
		}
		b.at = next
		heard = &bell{b.rung, next}
		return struct{}{}, nil
	})
	if err != nil {
		return nil, err
	}
	return heard, nil
}
