package topic

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

const (
	// lookPause is the pause between reads of its queues' properties, if they have. A worker that begins reads them
	// too, in no hurry if there seem to be no topics.
	lookPause     = time.Millisecond
	lookPauseIdle = 100 * time.Millisecond
)

const (
	// IndexEvery is how often a worker reads the index, which says whether subscriptions have changed and whether there
	// are schedules.
	IndexEvery = 4 * time.Second
	// LookEvery is how often a worker looks for subscriptions and schedules even if the index says nothing: a failover
	// may have lost only that, and imported schedules come without it.
	LookEvery = 3 * time.Minute
	// LocalEvery is how often it reads the index of a store.Local, and how often it writes there that it runs.
	LocalEvery = 5 * time.Minute
	// SchedulesExist is the property of the index by which workers learn that there are schedules.
	SchedulesExist = "schedules"
)

// Finder finds the topics to which the queues of a worker are subscribed, and has their messages distributed.
type Finder struct {
	Store  store.Store
	Log    *slog.Logger
	Queues []string
	// New returns the Distributor of a topic.
	New func(*Topic) *Distributor
	// SendScheduled sends the runs of schedules until its context ends. It is called when there are schedules.
	SendScheduled func(context.Context)

	local   store.Local // the store, or nil
	running sync.WaitGroup
	byQueue map[string]*started // by name of the topic's queue
	looked  bool                // the queues were read
	seen    string              // the index's value then
	next    int                 // index of the queue that lookAgain reads next
	owed    time.Duration       // that lookAgain spends on it, towards LookEvery
}

// started is a Distributor that runs until cancel is called.
type started struct {
	*Distributor
	cancel context.CancelFunc
}

// Run has topics distributed and the runs of schedules sent until ctx ends.
func (d *Finder) Run(ctx context.Context) {
	d.byQueue = map[string]*started{}
	defer d.running.Wait()
	every := IndexEvery
	if d.local, _ = d.Store.(store.Local); d.local != nil {
		every = LocalEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var looked time.Time // for schedules
	for failing, scheduling := false, false; ; {
		var changed <-chan struct{}
		if d.local != nil {
			changed = d.local.PropertiesChanged(reserved.TopicIndex)
		}
		index, err := d.Store.Properties(ctx, reserved.TopicIndex)
		exist := index[SchedulesExist] != ""
		if err == nil && !scheduling && !exist && (looked.IsZero() || time.Since(looked) >= LookEvery) {
			var stats store.Stats
			if stats, err = d.Store.Stats(ctx, reserved.Schedules); err == nil {
				looked, exist = time.Now(), stats.Exists
			}
		}
		if err == nil && !scheduling && exist {
			scheduling = true
			d.running.Go(func() { d.SendScheduled(ctx) })
		}
		if err == nil {
			err = d.look(ctx, index)
		}
		if err != nil && ctx.Err() == nil && !failing && !errors.Is(err, store.ErrClosed) {
			d.Log.Warn("later: the subscriptions of the worker's queues cannot be read, so topics are not "+
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

// look starts and ends distributors if subscriptions of the worker's queues have changed since the index was different.
func (d *Finder) look(ctx context.Context, index map[string]string) error {
	if d.looked && index[changedProperty] == d.seen {
		lost, err := d.lookAgain(ctx)
		if err != nil || !lost {
			return err
		}
	}
	every := lookPause
	switch {
	case d.local != nil:
		every = 0
	case index[changedProperty] == "": // there are no topics, unless the index was lost
		every = lookPauseIdle
	}
	wanted := map[string]bool{}
	for _, queue := range d.Queues {
		if err := d.find(ctx, queue, wanted); err != nil {
			return err
		}
		if err := calls.Sleep(ctx, every); err != nil {
			return err
		}
	}
	for queue, x := range d.byQueue {
		if !wanted[queue] {
			x.cancel()
			delete(d.byQueue, queue)
			continue
		}
		select {
		case x.changed <- struct{}{}:
		default:
		}
	}
	for queue := range wanted {
		if d.byQueue[queue] == nil {
			d.start(ctx, queue)
		}
	}
	d.looked, d.seen = true, index[changedProperty]
	return nil
}

// lookAgain reads some of the queues, all of them in LookEvery. It reports whether one has a topic that is not
// distributed, because the change of the index was lost.
func (d *Finder) lookAgain(ctx context.Context) (lost bool, err error) {
	found := map[string]bool{}
	for d.owed += IndexEvery * time.Duration(len(d.Queues)); d.owed >= LookEvery; d.owed -= LookEvery {
		d.next = (d.next + 1) % len(d.Queues)
		if err := d.find(ctx, d.Queues[d.next], found); err != nil {
			return false, err
		}
	}
	for queue := range found {
		lost = lost || d.byQueue[queue] == nil
	}
	return lost, nil
}

// find adds the queues of the topics to which a queue is subscribed, directly or by other topics.
func (d *Finder) find(ctx context.Context, queue string, found map[string]bool) error {
	all, err := d.Store.Properties(ctx, queue)
	if err != nil {
		return err
	}
	for name := range all {
		if !strings.HasPrefix(name, reserved.Topic) || found[name] {
			continue
		}
		found[name] = true
		if err := d.find(ctx, name, found); err != nil {
			return err
		}
	}
	return nil
}

func (d *Finder) start(ctx context.Context, queue string) {
	ctx, cancel := context.WithCancel(ctx)
	x := &started{d.New(New(d.Store, strings.TrimPrefix(queue, reserved.Topic))), cancel}
	d.byQueue[queue] = x
	d.running.Go(func() { x.Run(ctx) })
}
