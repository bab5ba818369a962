package inspect

import (
	"context"
	"time"

	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/internal/pauses"
	"github.com/laterq/later/store"
)

// look adds the problems of a queue.
func (r *problemReading) look(ctx context.Context, q *problemQueue) error {
	if q.Dead > 0 {
		r.mu.Lock()
		r.dead[q.name] = true
		r.mu.Unlock()
	}
	if q.topic != "" {
		return r.lookAtTopic(ctx, q)
	}
	if err := r.lookAtHalted(ctx, q); err != nil {
		return err
	}
	if err := r.lookAtDead(ctx, q); err != nil {
		return err
	}
	return r.lookAtWaiting(ctx, q)
}

// overdue returns for how long the first message has been due, or 0 if that is too short for a problem.
func (q *problemQueue) overdue() time.Duration {
	if q.Ready == 0 || q.NextDue.IsZero() || q.Now.Sub(q.NextDue) < overdueAfter {
		return 0
	}
	return q.Now.Sub(q.NextDue)
}

// severity returns the severity of a delay.
func severity(late time.Duration) ProblemSeverity {
	if late >= actAfter {
		return Act
	}
	return Watch
}

// lookAtWaiting adds the first reason why messages of the queue wait.
func (r *problemReading) lookAtWaiting(ctx context.Context, q *problemQueue) error {
	if q.Paused {
		pause, err := pauses.Of(ctx, r.store, q.name)
		r.add(Problem{Kind: QueuePaused, Severity: Watch, Queue: q.name, Since: pause.At, By: pause.By, Count: q.Ready})
		return err
	}
	late := q.overdue()
	if late == 0 {
		return nil
	}
	p := Problem{Severity: severity(late), Queue: q.name, Count: q.Ready, Since: q.NextDue, Workers: q.load.workers,
		Worker: q.load.only(q.load.workers)}
	switch {
	case q.load.workers == 0:
		receives, err := r.receives(ctx, q)
		if err != nil {
			return err
		}
		if !receives {
			p.Kind, p.Severity = NoLiveWorker, Act
			break
		}
		if halted, err := r.allHalted(ctx, q); late < actAfter || halted || err != nil {
			return err
		}
		p.Kind, p.Severity = Overdue, Watch
	case q.load.running == 0:
		p.Kind, p.Severity = WorkersPaused, Act
		if len(q.load.paused) <= maxPausedNames {
			p.Paused = q.load.paused
		}
	default:
		return r.lookAtLimits(ctx, q, p)
	}
	r.add(p)
	return nil
}

// lookAtLimits adds the limit that holds messages back, or that all handlers are busy, or else that messages are late.
func (r *problemReading) lookAtLimits(ctx context.Context, q *problemQueue, p Problem) error {
	if q.shards.Stopped {
		if since := q.shards.Since; !q.shards.Moving || r.now.Sub(since) < stuckAfter { // else it is there
			p = Problem{Kind: ShardsStuck, Severity: Watch, Queue: q.name, Shards: q.shards.Number, Since: since}
			p.Count = q.Ready
			r.add(p)
		}
		return nil
	}
	if halted, err := r.allHalted(ctx, q); halted || err != nil {
		return err
	}
	limited := p
	limited.Kind, limited.Worker, limited.Workers = QueueLimited, "", 0
	if limited.limitedBy(&q.Flow) {
		r.add(limited)
		return nil
	}
	for i := range q.shards.Each {
		one := &q.shards.Each[i].Stats
		limited.Shard, limited.Shards, limited.Count, limited.Since = i, len(q.shards.Each), one.Ready, one.NextDue
		if one.Ready > 0 && one.Now.Sub(one.NextDue) >= overdueAfter && limited.limitedBy(&one.Flow) {
			r.add(limited)
			return nil
		}
	}
	if found, err := r.lookAtKeys(ctx, q); found || err != nil {
		return err
	}
	switch late := q.overdue(); {
	case q.load.full():
		p.Kind, p.Used, p.Since = WorkersBusy, q.load.handlers, q.load.since
		p.Workers, p.Worker = q.load.running, q.load.only(q.load.running)
	case late < actAfter:
		return nil
	default:
		p.Kind, p.Severity = Overdue, Watch
	}
	r.add(p)
	return nil
}

// limitedBy sets which limit of a flow lets no message start now, and reports whether one does.
func (p *Problem) limitedBy(flow *store.FlowState) bool {
	p.Used, p.Limit, p.Rate = 0, 0, store.Rate{}
	switch {
	case !flow.HoldsBack():
		return false
	case flow.Concurrency > 0 && flow.Leased >= flow.Concurrency:
		p.Used, p.Limit = int64(flow.Leased), int64(flow.Concurrency)
	default:
		p.Rate = flow.Rate
	}
	return true
}

// lookAtKeys adds the key that has waited longest for one of its limits, and reports whether there is one.
func (r *problemReading) lookAtKeys(ctx context.Context, q *problemQueue) (bool, error) {
	if q.Flow.Keys.Full+q.Flow.Keys.Resting == 0 {
		return false, nil
	}
	if r.keyLooks.Add(1) > problemKeys {
		same := r.again(func(p *Problem) bool { return p.Kind == KeyLimited && p.Queue == q.name })
		r.leave(q.name, same == 0)
		return same > 0, nil
	}
	keys, err := r.store.Keys(ctx, q.name, store.KeysRequest{Limit: maxKeysRead})
	if err != nil {
		return false, err
	}
	var longest *store.KeyState
	for i := range keys {
		k := &keys[i]
		blocked := k.Key != "" && !k.Halted && k.Waiting > 0 && (k.Full() || k.Resting() || k.Held)
		if blocked && k.Now.Sub(k.Since) >= overdueAfter && (longest == nil || k.Since.Before(longest.Since)) {
			longest = k
		}
	}
	if longest == nil {
		return false, nil
	}
	p := Problem{Kind: KeyLimited, Severity: severity(longest.Now.Sub(longest.Since)), Queue: q.name, Key: longest.Key,
		Count: longest.Waiting, Since: longest.Since}
	switch {
	case longest.Full():
		p.Used, p.Limit = int64(longest.Leased), int64(longest.Concurrency)
	case longest.Held:
		p.Message = longest.Holder
	default:
		p.Rate = longest.Rate
	}
	r.add(p)
	return true, nil
}

// lookAtHalted adds the first key that a dead message halts, with the number of such keys.
func (r *problemReading) lookAtHalted(ctx context.Context, q *problemQueue) error {
	if q.Flow.Keys.Halted == 0 {
		return nil
	}
	keys, err := r.store.Keys(ctx, q.name, store.KeysRequest{Halted: true, Limit: 1})
	if err != nil || len(keys) == 0 {
		return err
	}
	r.add(Problem{Kind: KeyHalted, Severity: Act, Queue: q.name, Key: keys[0].Key, Message: keys[0].Holder,
		Count: q.Flow.Keys.Halted, Since: keys[0].Since})
	return nil
}

// allHalted reports whether all ready messages are of halted keys, so that none may start.
func (r *problemReading) allHalted(ctx context.Context, q *problemQueue) (bool, error) {
	if q.Flow.Keys.Halted == 0 || q.Flow.Keys.Full == 0 || q.Flow.Keys.Full+q.Flow.Keys.Resting < q.Flow.Keys.Waiting {
		return false, nil
	}
	keys, err := r.store.Keys(ctx, q.name, store.KeysRequest{Limit: maxKeysRead})
	behind := int64(0)
	for i := range keys {
		if keys[i].Waiting > 0 && !keys[i].Halted {
			return false, err
		}
		behind += keys[i].Waiting
	}
	return err == nil && (behind >= q.Ready || len(keys) >= maxKeysRead), err
}

// receives reports whether a program that is not listed as a worker receives from the queue: it has claimed a message
// in the last minute, or holds one. Workers that died hold messages until a claim ends their leases.
func (r *problemReading) receives(ctx context.Context, q *problemQueue) (bool, error) {
	activity, err := r.store.Activity(ctx, q.name)
	if err != nil || activity.Minute.Counts[event.Claimed]+activity.Minute.Counts[event.Forwarded] > 0 {
		return err == nil, err
	}
	if q.Leased == 0 {
		return false, nil
	}
	page, err := r.store.List(ctx, q.name, store.ListRequest{State: store.StateLeased, Limit: 10})
	for i := range page.Messages {
		if page.Messages[i].LeaseDeadline.After(q.Now) {
			return true, err
		}
	}
	return false, err
}

// deaths are the recent deaths of a queue, as long as it has the same number of dead messages.
type deaths struct {
	dead, dropped int64
	at            time.Time // when they were read, on this program's clock
	unknown       bool      // they were not read, since other queues come first
	recent        int64
	first         time.Time
	pattern       string // of most of the errors
}

// lookAtDead adds that messages have died lately, or that there are many dead ones.
func (r *problemReading) lookAtDead(ctx context.Context, q *problemQueue) error {
	if q.Dead == 0 {
		return nil
	}
	d, err := r.deathsOf(ctx, q)
	many := int64(manyDead)
	if d.unknown {
		many = actDeaths
	}
	if err != nil || d.recent == 0 && q.Dead < many {
		return err
	}
	p := Problem{Kind: DeadLetters, Severity: Watch, Queue: q.name, Count: q.Dead, Used: d.recent, Since: d.first,
		Error: d.pattern}
	if d.recent >= actDeaths {
		p.Severity = Act
	}
	r.add(p)
	return nil
}

// deathsOf returns the recent deaths of a queue, or, if there are none, the error of most of its first dead messages.
// Beyond problemDeads queues, it returns the deaths of the reading before.
func (r *problemReading) deathsOf(ctx context.Context, q *problemQueue) (d deaths, err error) {
	d, known := r.ProblemReader.deaths[q.name]
	if !known || d.dead != q.Dead || d.dropped != q.Dropped || r.begun.Sub(d.at) >= deathsFor {
		if r.deadLooks.Add(1) > problemDeads {
			if r.leave(q.name, !known); !known {
				return deaths{unknown: true}, nil
			}
			r.remember(q.name, d)
			return d, nil
		}
		d = deaths{dead: q.Dead, dropped: q.Dropped, at: r.begun}
		if err := d.read(ctx, r.store, q.name, r.now.Add(-recentDeath)); err != nil {
			return d, err
		}
	}
	r.remember(q.name, d)
	return d, nil
}

func (r *problemReading) remember(queue string, d deaths) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deaths[queue] = d
}

func (d *deaths) read(ctx context.Context, s store.Store, queue string, since time.Time) error {
	req := store.ListRequest{State: store.StateDead, From: since, Limit: maxRecentDead}
	page, err := s.List(ctx, queue, req)
	if err == nil && len(page.Messages) == 0 {
		req.From = time.Time{}
		page, err = s.List(ctx, queue, req)
	} else {
		d.recent = int64(len(page.Messages))
	}
	var groups deadGroups
	for i := range page.Messages {
		groups.add(queue, &page.Messages[i])
	}
	most := 0
	for pattern, group := range groups.groups {
		if group.Count > most || group.Count == most && pattern < d.pattern {
			most, d.pattern = group.Count, pattern
		}
		if d.recent > 0 && (d.first.IsZero() || group.First.Before(d.first)) {
			d.first = group.First
		}
	}
	return err
}
