package topic

import (
	"context"
	"maps"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/pump"
)

const (
	// trimEvery is how often a worker trims a topic's history, and trimIdle is the same while no messages are due.
	trimEvery = time.Second
	trimIdle  = time.Minute
)

// Distributor distributes the messages of one topic.
type Distributor struct {
	*pump.Batch
	Topic    *Topic
	changed  chan struct{} // has a token when subscriptions have changed
	state    *State        // as it was read last; nil if it has to be read again
	trimmed  time.Time
	oneByOne bool               // the next copies are sent queue by queue, to find the queue that cannot be written
	searched bool               // the last ones were
	broken   map[string]*broken // queues that cannot be written, by name
}

// NewDistributor returns the Distributor of a topic.
func NewDistributor(t *Topic, batch *pump.Batch) *Distributor {
	x := &Distributor{Batch: batch, Topic: t, changed: make(chan struct{}, 1), broken: map[string]*broken{}}
	batch.Work, batch.Uncounted = x, true
	return x
}

// Run distributes messages until ctx ends.
func (x *Distributor) Run(ctx context.Context) {
	loop := pump.Loop{Env: x.Env, Ready: x.Await, Once: x.once, Wait: x.wait, Outage: x.Outage}
	loop.Run(ctx)
}

// once distributes a batch, and trims the history.
func (x *Distributor) once(ctx context.Context) (more bool, err error) {
	calling, cancel := context.WithTimeout(x.Calling, calls.Timeout)
	defer cancel()
	select {
	case <-x.changed:
		x.state = nil
	default:
	}
	if x.state == nil {
		if err := x.load(calling); err != nil {
			return false, err
		}
	}
	if x.keeps() {
		return false, nil
	}
	if more, err = x.Batch.Once(ctx); err != nil {
		return more, err
	}
	if cfg := x.state.Config; cfg.Retains() && time.Since(x.trimmed) >= trimEvery {
		x.trimmed = time.Now()
		err = x.Topic.Trim(calling, cfg)
	}
	return more, err
}

// keeps reports whether messages are kept for the first subscription.
func (x *Distributor) keeps() bool {
	return len(x.state.Subscriptions) == 0 && !x.state.Config.DropUnsubscribed
}

// wait waits for messages, or for the first subscription.
func (x *Distributor) wait(ctx context.Context) error {
	if x.keeps() {
		lost := time.NewTimer(LookEvery) // in case the index is lost
		defer lost.Stop()
		select {
		case <-x.changed:
		case <-lost.C:
		case <-ctx.Done():
		}
		x.state = nil
		return nil
	}
	waiting, stop := ctx, context.CancelFunc(func() {})
	if x.state.Config.HistoryAge > 0 {
		waiting, stop = context.WithTimeout(ctx, trimIdle)
	}
	defer stop()
	if err := x.WaitFor(waiting, x.Topic.Queue); ctx.Err() != nil || waiting.Err() == nil {
		return err
	}
	return nil // to trim the history
}

// load reads the topic's configuration and subscriptions.
func (x *Distributor) load(ctx context.Context) error {
	state, err := x.Topic.Load(ctx)
	if err != nil {
		return err
	}
	x.state = &state
	maps.DeleteFunc(x.broken, func(queue string, _ *broken) bool { return !x.Topic.receives(&state, queue) })
	return nil
}
