package report

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/store"
)

// FollowEvery is how often a Watch of all queues looks for new ones, unless that takes long, in a store that can only
// watch queues that it is told.
const FollowEvery = 2 * time.Second

// Names returns the names of all queues.
type Names func(ctx context.Context) ([]string, error)

// Watch receives the events of some queues, whichever process they happen in. Create one with NewWatch.
type Watch struct {
	watcher store.Watcher
	ctx     context.Context
	end     context.CancelCauseFunc
	follows sync.WaitGroup

	mu      sync.Mutex
	waiting []Event // received and not returned
}

// NewWatch watches queues, or all queues if none is given. all lists them for a store that can only watch queues that
// it is told. The Watch ends with life; ctx limits the call only.
func NewWatch(ctx, life context.Context, s store.Store, queues []string, all Names) (*Watch, error) {
	names, follows := queues, false
	if len(queues) == 0 {
		names = []string{store.AllQueues}
	}
	watcher, err := s.Watch(ctx, names)
	if len(queues) == 0 && errors.Is(err, store.ErrUnsupported) {
		follows = true
		if names, err = all(ctx); err == nil {
			watcher, err = s.Watch(ctx, names)
		}
	}
	if err != nil {
		return nil, err
	}
	w := &Watch{watcher: watcher}
	w.ctx, w.end = context.WithCancelCause(life)
	if follows {
		w.follows.Go(func() { w.follow(names, all) })
	}
	return w, nil
}

// follow adds queues that are created.
func (w *Watch) follow(known []string, queues Names) {
	seen := map[string]bool{}
	for _, name := range known {
		seen[name] = true
	}
	pause := FollowEvery
	for {
		timer := time.NewTimer(pause)
		select {
		case <-w.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		began := time.Now()
		names, err := queues(w.ctx)
		var fresh []string
		for _, name := range names {
			if !seen[name] {
				fresh = append(fresh, name)
			}
		}
		if err == nil && len(fresh) > 0 {
			err = w.watcher.Add(w.ctx, fresh...)
		}
		if errors.Is(err, store.ErrUnsupported) {
			w.end(err)
			return
		}
		if err == nil {
			for _, name := range fresh {
				seen[name] = true
			}
		}
		pause = max(FollowEvery, 20*time.Since(began)) // many names take a while
	}
}

// Next returns the next event. It blocks until there is one or ctx ends; then it returns ctx's cause. After the Watch
// has ended it returns the cause of that.
func (w *Watch) Next(ctx context.Context) (Event, error) {
	for {
		if w.ctx.Err() != nil {
			return Event{}, context.Cause(w.ctx)
		}
		if e, ok := w.take(); ok {
			return e, nil
		}
		if err := w.receive(ctx); err != nil {
			return Event{}, err
		}
	}
}

func (w *Watch) take() (e Event, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		return e, false
	}
	e, w.waiting = w.waiting[0], w.waiting[1:]
	return e, true
}

// receive waits for the next events.
func (w *Watch) receive(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(w.ctx, func() { cancel(context.Cause(w.ctx)) })()
	r, err := w.watcher.Next(ctx)
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Missed > 0 || r.Gap {
		missed := r.Missed
		if r.Gap {
			missed = 0
		}
		w.waiting = append(w.waiting, Event{Kind: event.Missed, Time: time.Now(), Missed: missed})
	}
	if len(r.Events) > 0 {
		w.waiting = append(w.waiting, decode(r.Queue, r.Events)...)
	}
	return nil
}

// Close ends the Watch with a cause, and returns when it uses the store no more.
func (w *Watch) Close(cause error) error {
	w.end(cause)
	err := w.watcher.Close()
	w.follows.Wait()
	return err
}
