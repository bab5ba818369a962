package later

import (
	"context"
	"errors"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

const (
	// indexEvery is how often a worker reads the index, which says whether subscriptions have changed and whether there
	// are schedules.
	indexEvery = 2 * time.Second
	// lookEvery is how often a worker looks for subscriptions and schedules even if the index says nothing: a failover
	// may have lost only that, and imported schedules come without it.
	lookEvery = 3 * time.Minute
	// localEvery is how often it reads the index of a store.Local, and how often it writes there that it runs.
	localEvery = 5 * time.Minute
)

// watchIndex has topics distributed and the runs of schedules sent until ctx ends.
func (r *run) watchIndex(ctx context.Context, queues []string) {
	d := &distributors{run: r, byQueue: map[string]*distributor{}}
	defer d.running.Wait()
	tick := time.NewTicker(r.unlessLocal(indexEvery))
	defer tick.Stop()
	var looked time.Time // for schedules
	for failing, scheduling := false, false; ; {
		var changed <-chan struct{}
		if r.local != nil {
			changed = r.local.PropertiesChanged(reserved.TopicIndex)
		}
		index, err := r.client.store.Properties(ctx, reserved.TopicIndex)
		exist := index[schedulesExist] != ""
		if err == nil && !scheduling && !exist && (looked.IsZero() || time.Since(looked) >= lookEvery) {
			var stats store.Stats
			if stats, err = r.client.store.Stats(ctx, reserved.Schedules); err == nil {
				looked, exist = time.Now(), stats.Exists
			}
		}
		if err == nil && !scheduling && exist {
			scheduling = true
			d.running.Go(func() { r.sendScheduled(ctx) })
		}
		if err == nil {
			err = d.look(ctx, queues, index)
		}
		if err != nil && ctx.Err() == nil && !failing && !errors.Is(err, ErrClosed) {
			r.log.Warn("later: the subscriptions of the worker's queues cannot be read, so topics are not "+
				"distributed here; retrying", "error", err)
		}
		failing = err != nil
		select {
		case <-tick.C:
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// unlessLocal returns how often the worker reads or writes what it shares with other processes.
func (r *run) unlessLocal(every time.Duration) time.Duration {
	if r.local != nil {
		return localEvery
	}
	return every
}
