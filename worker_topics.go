package later

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

const (
	// lookPause is the pause between reads of its queues' properties, if they have. A worker that begins reads them
	// too, in no hurry if there seem to be no topics.
	lookPause     = time.Millisecond
	lookPauseIdle = 100 * time.Millisecond
	// trimEvery is how often a worker trims a topic's history, and trimIdle is the same while no messages are due.
	trimEvery = time.Second
	trimIdle  = time.Minute
	// noSubscribersText is the reason of messages that are dropped.
	noSubscribersText = "no queue was subscribed to the topic"
)

// distributors distribute the messages of the topics to which queues of a worker are subscribed.
type distributors struct {
	run     *run
	running sync.WaitGroup
	byQueue map[string]*distributor // by name of the topic's queue
	looked  bool                    // the queues were read
	seen    string                  // the index's value then
}

// distributor distributes the messages of one topic.
type distributor struct {
	*forwarder
	topic   *Topic
	cancel  context.CancelFunc
	changed chan struct{} // has a token when subscriptions have changed
	trimmed time.Time
}

// look starts and ends distributors if subscriptions of the worker's queues have changed since the index was different.
func (d *distributors) look(ctx context.Context, queues []string, index map[string]string) error {
	if d.looked && index[topicChanged] == d.seen {
		return nil
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
		if err := sleepFor(ctx, every); err != nil {
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

// find adds the queues of the topics to which a queue is subscribed, directly or by other topics.
func (d *distributors) find(ctx context.Context, queue string, found map[string]bool) error {
	all, err := d.run.client.store.Properties(ctx, queue)
	if err != nil {
		return err
	}
	for name := range all {
		if !strings.HasPrefix(name, topicPrefix) || found[name] {
			continue
		}
		found[name] = true
		if err := d.find(ctx, name, found); err != nil {
			return err
		}
	}
	return nil
}

// sleepFor returns after d, or with the context's error when that ends first.
func sleepFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *distributors) start(ctx context.Context, queue string) {
	ctx, cancel := context.WithCancel(ctx)
	r := d.run
	x := &distributor{
		forwarder: &forwarder{
			queueWorker: &queueWorker{run: r, queue: r.client.Queue(queue), cfg: r.cfg.queue(queue)},
			to:          Destination{target: store.Target{Kind: store.TargetQueue, Name: "subscribed queues"}},
			route:       routeLinked,
		},
		topic:   r.client.Topic(strings.TrimPrefix(queue, topicPrefix)),
		cancel:  cancel,
		changed: make(chan struct{}, 1),
	}
	d.byQueue[queue] = x
	d.running.Go(func() { x.loop(ctx, func() error { return x.once(ctx) }) })
}

// once distributes a batch, or waits for messages.
func (x *distributor) once(ctx context.Context) error {
	calling, cancel := context.WithTimeout(x.run.calling, callTimeout)
	defer cancel()
	state, err := x.topic.load(calling)
	if err != nil {
		return err
	}
	if len(state.subscriptions) == 0 && !state.cfg.DropUnsubscribed {
		select { // messages are kept
		case <-x.changed:
		case <-ctx.Done():
		}
		return nil
	}
	x.custom = func(ctx context.Context, claim store.Claim, settlements []store.Settlement) error {
		return x.deliverTo(ctx, state, claim, settlements)
	}
	if err := x.deliver(); err != nil {
		return err
	}
	if state.cfg.retains() && time.Since(x.trimmed) >= trimEvery {
		x.trimmed = time.Now()
		if err := x.topic.trimHistory(calling, state.cfg); err != nil {
			return err
		}
	}
	if x.more {
		return nil
	}
	waiting, stop := ctx, context.CancelFunc(func() {})
	if state.cfg.HistoryAge > 0 {
		waiting, stop = context.WithTimeout(ctx, trimIdle)
	}
	defer stop()
	if err := x.wait(waiting); ctx.Err() != nil || waiting.Err() == nil {
		return err
	}
	return nil // to trim the history
}

// deliverTo adds to the settlements of messages that each subscribed queue receives them, or sends them if that is not
// possible in one step.
func (x *distributor) deliverTo(
	ctx context.Context, state topicState, claim store.Claim, settlements []store.Settlement,
) error {
	sends := map[string][]store.Claimed{} // by queue
	for i := range claim.Messages {
		m := &claim.Messages[i]
		if len(state.subscriptions) == 0 {
			settlements[i].Action, settlements[i].Reason = store.Bury, noSubscribersText
			continue
		}
		then, linked := x.followUps(state, m)
		if linked && len(then)*m.Size() <= store.MaxBatchBytes {
			settlements[i].Then = then
			continue
		}
		for _, f := range then {
			sends[f.Queue] = append(sends[f.Queue], *m)
		}
	}
	for queue, msgs := range sends {
		if err := sendForwarded(ctx, x.run.client, queue, msgs); err != nil {
			for i := range settlements {
				settlements[i].Action, settlements[i].Then = store.Release, nil
			}
			return err
		}
	}
	return nil
}

// followUps returns what a message becomes, and reports whether it can be written with the ack.
func (x *distributor) followUps(state topicState, m *store.Claimed) (then []store.FollowUp, linked bool) {
	linked = true
	add := func(queue string, window time.Duration) {
		out := store.Outgoing{Message: m.Message, Due: store.Due{At: m.Due}}
		out.DedupWindow = max(out.DedupWindow, window)
		then = append(then, store.FollowUp{Queue: queue, Message: out})
		linked = linked && store.Linked(x.run.client.store, x.queue.name, queue)
	}
	for _, s := range state.subscriptions {
		if !s.filter.matches(m.Headers) {
			continue
		}
		window := time.Duration(0)
		if s.CatchingUp {
			window = followUpWindow
		}
		add(s.queue, window)
	}
	if state.cfg.retains() {
		add(x.topic.history.name, 0)
	}
	return then, linked
}

// dropEvery is how often a process that publishes to a topic drops messages that are due while nobody is subscribed.
const dropEvery = 10 * time.Second

// dropSometimes drops messages, in the background, if the topic has no subscriptions and is configured so.
func (t *Topic) dropSometimes() {
	if t.queue.invalid != nil {
		return
	}
	now, last := time.Now(), t.queue.dropped.Load()
	if now.UnixNano()-last < int64(dropEvery) || !t.queue.dropped.CompareAndSwap(last, now.UnixNano()) ||
		t.client.begin() != nil {
		return
	}
	go func() {
		defer t.client.calls.Done()
		ctx, cancel := context.WithTimeout(t.client.ending, callTimeout)
		defer cancel()
		state, err := t.load(ctx)
		if err == nil && state.cfg.DropUnsubscribed && len(state.subscriptions) == 0 {
			err = t.dropReady(ctx)
		}
		if err != nil && ctx.Err() == nil {
			t.client.log.Warn("later: messages of a topic without subscriptions cannot be dropped", "topic", t.name,
				"error", err)
		}
	}()
}

// dropReady makes the topic's ready messages dead, while no queue is subscribed.
func (t *Topic) dropReady(ctx context.Context) error {
	for {
		claim, err := t.client.store.Claim(ctx, t.queue.name, store.ClaimRequest{
			Max: store.MaxBatch, Lease: defaultLease, Uncounted: true,
		})
		if err != nil {
			return err
		}
		buries := make([]store.Settlement, len(claim.Messages))
		for i := range claim.Messages {
			buries[i] = store.Settlement{Receipt: claim.Messages[i].Receipt, Action: store.Bury, Reason: noSubscribersText}
		}
		if len(buries) > 0 {
			if _, err := t.client.store.Settle(ctx, t.queue.name, buries); err != nil {
				return err
			}
		}
		if !claim.More {
			return nil
		}
	}
}
