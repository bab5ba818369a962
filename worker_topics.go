package later

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/pump"
	"github.com/laterq/later/internal/reserved"
)

const (
	// lookPause is the pause between reads of its queues' properties, if they have. A worker that begins reads them
	// too, in no hurry if there seem to be no topics.
	lookPause     = time.Millisecond
	lookPauseIdle = 100 * time.Millisecond
	// trimEvery is how often a worker trims a topic's history, and trimIdle is the same while no messages are due.
	trimEvery = time.Second
	trimIdle  = time.Minute
)

// distributors distribute the messages of the topics to which queues of a worker are subscribed.
type distributors struct {
	run     *run
	running sync.WaitGroup
	byQueue map[string]*distributor // by name of the topic's queue
	looked  bool                    // the queues were read
	seen    string                  // the index's value then
	next    int                     // index of the queue that lookAgain reads next
	owed    time.Duration           // that lookAgain spends on it, towards lookEvery
}

// distributor distributes the messages of one topic.
type distributor struct {
	*queueWorker
	batch    *pump.Batch
	topic    *Topic
	cancel   context.CancelFunc
	changed  chan struct{} // has a token when subscriptions have changed
	state    *topicState   // as it was read last; nil if it has to be read again
	trimmed  time.Time
	oneByOne bool               // the next copies are sent queue by queue, to find the queue that cannot be written
	searched bool               // the last ones were
	broken   map[string]*broken // queues that cannot be written, by name
}

// look starts and ends distributors if subscriptions of the worker's queues have changed since the index was different.
func (d *distributors) look(ctx context.Context, queues []string, index map[string]string) error {
	if d.looked && index[topicChanged] == d.seen {
		lost, err := d.lookAgain(ctx, queues)
		if err != nil || !lost {
			return err
		}
	}
	every := lookPause
	switch {
	case d.run.local != nil:
		every = 0
	case index[topicChanged] == "": // there are no topics, unless the index was lost
		every = lookPauseIdle
	}
	wanted := map[string]bool{}
	for _, queue := range queues {
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
	d.looked, d.seen = true, index[topicChanged]
	return nil
}

// lookAgain reads some of the queues, all of them in lookEvery. It reports whether one has a topic that is not
// distributed, because the change of the index was lost.
func (d *distributors) lookAgain(ctx context.Context, queues []string) (lost bool, err error) {
	found := map[string]bool{}
	for d.owed += indexEvery * time.Duration(len(queues)); d.owed >= lookEvery; d.owed -= lookEvery {
		d.next = (d.next + 1) % len(queues)
		if err := d.find(ctx, queues[d.next], found); err != nil {
			return false, err
		}
	}
	for queue := range found {
		lost = lost || d.byQueue[queue] == nil
	}
	return lost, nil
}

// find adds the queues of the topics to which a queue is subscribed, directly or by other topics.
func (d *distributors) find(ctx context.Context, queue string, found map[string]bool) error {
	all, err := d.run.client.store.Properties(ctx, queue)
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

func (d *distributors) start(ctx context.Context, queue string) {
	ctx, cancel := context.WithCancel(ctx)
	r := d.run
	x := &distributor{
		queueWorker: &queueWorker{run: r, queue: r.client.Queue(queue)},

		topic:   r.client.Topic(strings.TrimPrefix(queue, reserved.Topic)),
		cancel:  cancel,
		changed: make(chan struct{}, 1),
		broken:  map[string]*broken{},
	}
	x.batch = x.claims(r.cfg.queue(queue).Lease, &pump.Outage{
		Fails: "later: messages cannot be forwarded and stay in the queue; retrying",
		Works: "later: messages are forwarded again",
		Attrs: []any{"queue", queue, "to", "queue:subscribed queues"},
	})
	x.batch.Work, x.batch.Uncounted = x, true
	d.byQueue[queue] = x
	loop := pump.Loop{Env: r.env, Ready: r.env.Await, Once: x.once, Wait: x.wait, Outage: x.batch.Outage}
	d.running.Go(func() { loop.Run(ctx) })
}

// once distributes a batch, and trims the history.
func (x *distributor) once(ctx context.Context) (more bool, err error) {
	calling, cancel := context.WithTimeout(x.run.calling, callTimeout)
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
	if more, err = x.batch.Once(ctx); err != nil {
		return more, err
	}
	if cfg := x.state.cfg; cfg.retains() && time.Since(x.trimmed) >= trimEvery {
		x.trimmed = time.Now()
		err = x.topic.trimHistory(calling, cfg)
	}
	return more, err
}

// keeps reports whether messages are kept for the first subscription.
func (x *distributor) keeps() bool {
	return len(x.state.subscriptions) == 0 && !x.state.cfg.DropUnsubscribed
}

// wait waits for messages, or for the first subscription.
func (x *distributor) wait(ctx context.Context) error {
	if x.keeps() {
		lost := time.NewTimer(lookEvery) // in case the index is lost
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
	if x.state.cfg.HistoryAge > 0 {
		waiting, stop = context.WithTimeout(ctx, trimIdle)
	}
	defer stop()
	if err := x.run.env.WaitFor(waiting, x.queue.name); ctx.Err() != nil || waiting.Err() == nil {
		return err
	}
	return nil // to trim the history
}

// load reads the topic's configuration and subscriptions.
func (x *distributor) load(ctx context.Context) error {
	state, err := x.topic.load(ctx)
	if err != nil {
		return err
	}
	x.state = &state
	maps.DeleteFunc(x.broken, func(queue string, _ *broken) bool { return !x.topic.receives(&state, queue) })
	return nil
}
