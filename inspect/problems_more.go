package inspect

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/laterq/later/internal/schedule"
	"github.com/laterq/later/internal/topic"
	"github.com/laterq/later/store"
)

// lookAtTopic adds the problems of a topic, given its queue.
func (r *problemReading) lookAtTopic(ctx context.Context, q *problemQueue) error {
	if q.Scheduled+q.Ready+q.Dead == 0 {
		return nil
	}
	if r.topicLooks.Add(1) > problemTopics {
		r.leave(q.name, r.again(func(p *Problem) bool { return p.Topic == q.topic }) == 0)
		return nil
	}
	state, err := topic.New(r.store, q.topic).Load(ctx)
	if err != nil {
		return err
	}
	if err := r.lookAtDropped(ctx, q); err != nil {
		return err
	}
	if len(state.Subscriptions) == 0 {
		r.unsubscribed(q, state.Config.DropUnsubscribed)
		return nil
	}
	return r.lookAtDistribution(ctx, q, state.Subscriptions)
}

// unsubscribed adds that a topic with messages lacks a subscription.
func (r *problemReading) unsubscribed(q *problemQueue, drops bool) {
	p := Problem{Kind: TopicUnsubscribed, Severity: Watch, Topic: q.topic, Count: q.Scheduled + q.Ready}
	if q.overdue() > 0 {
		p.Since = q.NextDue
		if !drops {
			p.Severity = Act
		}
	}
	if p.Count > 0 {
		r.add(p)
	}
}

// lookAtDropped adds that a topic has dropped messages lately, which are its dead messages.
func (r *problemReading) lookAtDropped(ctx context.Context, q *problemQueue) error {
	if q.Dead == 0 {
		return nil
	}
	d, err := r.deathsOf(ctx, q)
	if err != nil || d.recent == 0 {
		return err
	}
	p := Problem{Kind: TopicDrops, Severity: Watch, Topic: q.topic, Count: q.Dead, Used: d.recent, Since: d.first}
	if d.recent >= actDeaths {
		p.Severity = Act
	}
	r.add(p)
	return nil
}

// lookAtDistribution adds that messages of a topic wait to be distributed, or for a queue that cannot be written.
func (r *problemReading) lookAtDistribution(ctx context.Context, q *problemQueue, to []topic.Subscription) error {
	if q.Paused {
		r.add(Problem{Kind: QueuePaused, Severity: Watch, Topic: q.topic, Count: q.Ready})
		return nil
	}
	if late := q.overdue(); late > 0 {
		p := Problem{Kind: TopicWaits, Severity: Act, Topic: q.topic, Count: q.Ready, Since: q.NextDue}
		does := slices.ContainsFunc(to, func(s topic.Subscription) bool { return r.loads.of(s.Queue).running > 0 })
		if !does {
			var err error
			if does, err = r.receives(ctx, q); err != nil {
				return err
			}
		}
		if does {
			p.Severity = Watch
		}
		if !does || late >= actAfter {
			r.add(p)
		}
		return nil
	}
	if q.Scheduled == 0 {
		return nil
	}
	page, err := r.store.List(ctx, q.name, store.ListRequest{State: store.StateScheduled, Limit: 10})
	for i := range page.Messages {
		var waits struct{ Queues []string }
		text := page.Messages[i].Headers[topic.MissedHeader]
		if text == "" || json.Unmarshal([]byte(text), &waits) != nil || len(waits.Queues) == 0 {
			continue
		}
		r.add(Problem{Kind: TopicWaits, Severity: Act, Topic: q.topic, Queue: waits.Queues[0],
			Count: 1, Since: page.Messages[i].SentAt})
		break
	}
	return err
}

// schedules adds the problems of schedules.
func (r *problemReading) schedules(ctx context.Context) error {
	book := schedule.Book{Store: r.store}
	last := map[string][]*schedule.Info{} // by queue, with a last run that may be dead
	for cursor, seen := "", 0; seen < problemRuns; {
		page, err := book.List(ctx, cursor, store.MaxBatch)
		if err != nil {
			return err
		}
		for _, unreadable := range page.Unreadable {
			r.add(Problem{Kind: ScheduleFailed, Severity: Act, Error: unreadable.Error()})
		}
		for _, s := range page.Schedules {
			r.lookAtSchedule(s)
			if s.LastRun.ID != "" && r.dead[s.Queue] {
				last[s.Queue] = append(last[s.Queue], s)
			}
		}
		seen += len(page.Schedules) + len(page.Unreadable)
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	for queue, all := range last {
		for part := range slices.Chunk(all, store.MaxBatch) {
			if err := r.lookAtLastRuns(ctx, queue, part); err != nil {
				return err
			}
		}
	}
	return nil
}

// lookAtSchedule adds that a run is late, or that runs were left out lately.
func (r *problemReading) lookAtSchedule(s *schedule.Info) {
	p := Problem{Severity: Act, Schedule: s.Name, Queue: s.Queue}
	if due := s.NextRun.Due; !due.IsZero() && r.now.Sub(due) >= lateRun {
		p.Kind, p.Since, p.Count = ScheduleLate, due, 1
		r.add(p)
		return
	}
	if !s.LastMissed.IsZero() && r.now.Sub(s.LastMissed) < missedRecently {
		p.Kind, p.Severity, p.Since, p.Count = ScheduleMissed, Watch, s.LastMissed, s.MissedRuns
		r.add(p)
	}
}

// lookAtLastRuns adds the schedules of a queue with a dead last run.
func (r *problemReading) lookAtLastRuns(ctx context.Context, queue string, all []*schedule.Info) error {
	ids := make([]string, len(all))
	for i, s := range all {
		ids[i] = s.LastRun.ID
	}
	infos, err := r.store.Get(ctx, queue, ids)
	for i, info := range infos {
		if info != nil && info.State == store.StateDead {
			r.add(Problem{Kind: ScheduleFailed, Severity: Act, Schedule: all[i].Name, Queue: queue, Message: info.ID,
				Count: 1, Since: info.DiedAt, Error: info.LastError})
		}
	}
	return err
}
