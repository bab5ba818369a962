package later

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/pump"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

const (
	// scheduleLease is the lease of a worker on the schedules that it steps: how long their runs are late after a crash.
	scheduleLease = 5 * time.Second
	// scheduleRetry is the pause before the next try of a step that failed.
	scheduleRetry = 5 * time.Second
	// otherServerTimeout limits a call to a server that may be another one than that of the schedules.
	otherServerTimeout = time.Second
)

// scheduleSender makes the steps of schedules: it sends the runs that are due.
type scheduleSender struct {
	*queueWorker
	steps map[string]*scheduleStep   // of the claimed schedules, by name
	known map[string]*scheduleRecord // earlier records of schedules, by name
}

// sendScheduled sends the runs of all schedules until ctx ends.
func (r *run) sendScheduled(ctx context.Context) {
	s := &scheduleSender{
		queueWorker: &queueWorker{run: r, queue: r.client.Queue(reserved.Schedules)}, known: map[string]*scheduleRecord{},
	}
	batch := s.claims(scheduleLease, &pump.Outage{
		Fails: "later: messages cannot be forwarded and stay in the queue; retrying",
		Works: "later: messages are forwarded again",
		Attrs: []any{"queue", reserved.Schedules, "to", "queue:queues of schedules"},
	})
	batch.Work, batch.Uncounted = s, true
	wait := func(ctx context.Context) error { return r.env.WaitFor(ctx, reserved.Schedules) }
	loop := pump.Loop{Env: r.env, Ready: r.env.Await, Once: batch.Once, Wait: wait, Outage: batch.Outage}
	loop.Run(ctx)
}

// scheduleStep is the step of one claimed schedule.
type scheduleStep struct {
	settlement *store.Settlement
	record     *scheduleRecord
	runs       []store.Outgoing
	// missed and skipped count the runs that are left out.
	missed, skipped int64
}

// Do implements pump.Work: it makes the settlements of schedules steps.
func (s *scheduleSender) Do(ctx context.Context, claim store.Claim, settlements []store.Settlement) error {
	byQueue := map[string][]*scheduleStep{}
	s.steps = make(map[string]*scheduleStep, len(claim.Messages))
	for i := range claim.Messages {
		m := &claim.Messages[i]
		settlements[i].Action = store.Release // an ack alone would delete the schedule
		r, err := s.decode(m)
		if err != nil {
			s.refuse(&settlements[i], err)
			continue
		}
		queue := r.Schedule.Queue
		step := &scheduleStep{settlement: &settlements[i], record: r}
		s.steps[m.ID], byQueue[queue] = step, append(byQueue[queue], step)
	}
	var all sync.WaitGroup
	for queue, steps := range byQueue {
		all.Go(func() {
			if err := s.stepQueue(ctx, s.run.client.Queue(queue), steps, claim.Now); err != nil {
				for _, step := range steps {
					s.postpone(step.settlement, err)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

const (
	// maxKnown is the maximum number of schedules whose rules a worker keeps in memory.
	maxKnown = 5000
	// maxKnownSize is the maximum size of the record of such a schedule, in bytes.
	maxKnownSize = 16 << 10
)

// decode returns the record of a claimed schedule.
func (s *scheduleSender) decode(m *store.Claimed) (*scheduleRecord, error) {
	r, err := decodeSchedule(m.ID, m.Payload, s.known[m.ID])
	if err != nil {
		return nil, err
	}
	if len(s.known) >= maxKnown {
		clear(s.known)
	}
	if delete(s.known, m.ID); len(m.Payload) <= maxKnownSize {
		s.known[m.ID] = r
	}
	return r, nil
}

// refuse settles a schedule that cannot be read.
func (s *scheduleSender) refuse(settlement *store.Settlement, err error) {
	if errors.Is(err, errLaterVersion) {
		s.postpone(settlement, err)
		return
	}
	settlement.Action, settlement.Reason = store.Bury, store.CutReason(err.Error())
}

// postpone settles a schedule whose step is tried again.
func (s *scheduleSender) postpone(settlement *store.Settlement, err error) {
	s.run.log.Error("later: a schedule cannot run; retrying", "schedule", settlement.Receipt.ID, "error", err)
	settlement.Action, settlement.Delay, settlement.Then = store.Snooze, scheduleRetry, nil
}

// stepQueue makes the steps of schedules that send to one queue.
func (s *scheduleSender) stepQueue(ctx context.Context, q *Queue, steps []*scheduleStep, now time.Time) error {
	unfinished, err := s.unfinished(ctx, q, steps)
	if err != nil {
		return err
	}
	var sends []store.Outgoing
	for _, step := range steps {
		if err := step.prepare(ctx, q, now, unfinished[step.record.LastID]); err != nil {
			s.postpone(step.settlement, err)
			continue
		}
		next := store.FollowUp{Queue: reserved.Schedules, Message: step.record.outgoing(now)}
		next.Message.SentAt = store.Time(step.record.Created)
		step.settlement.Action, step.settlement.Then = store.Ack, []store.FollowUp{next}
		for _, m := range step.runs {
			if s.linked(q, &m) {
				step.settlement.Then = append(step.settlement.Then, store.FollowUp{Queue: q.name, Message: m})
			} else {
				sends = append(sends, m)
			}
		}
	}
	return s.send(ctx, q, sends)
}

// linked reports whether a run can be written with the ack.
func (s *scheduleSender) linked(q *Queue, m *store.Outgoing) bool {
	return !m.Durable.Asked() && store.Linked(s.run.client.store, reserved.Schedules, q.name)
}

// limit limits a call for the runs of a queue. If the queue can be on another server than the schedules, that server's
// trouble must not delay the runs of other queues for long.
func (s *scheduleSender) limit(ctx context.Context, q *Queue) (context.Context, context.CancelFunc) {
	if store.Linked(s.run.client.store, reserved.Schedules, q.name) {
		return context.WithTimeout(ctx, callTimeout)
	}
	return context.WithTimeout(ctx, otherServerTimeout)
}

// unfinished returns which of the last runs of schedules are scheduled, ready or leased, by id.
func (s *scheduleSender) unfinished(ctx context.Context, q *Queue, steps []*scheduleStep) (map[string]bool, error) {
	var ids []string
	for _, step := range steps {
		if r := step.record; r.LastID != "" && r.Schedule.Unfinished != UnfinishedAllow {
			ids = append(ids, r.LastID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	ctx, cancel := s.limit(ctx, q)
	defer cancel()
	infos, err := s.run.client.store.Get(ctx, q.name, ids)
	unfinished := make(map[string]bool, len(ids))
	for _, info := range infos {
		if info != nil && info.State != StateDead {
			unfinished[info.ID] = true
		}
	}
	return unfinished, err
}

// prepare changes the record to the state after the step, and prepares the messages of its runs.
func (step *scheduleStep) prepare(ctx context.Context, q *Queue, now time.Time, unfinished bool) error {
	r := step.record
	if err := r.Schedule.checkQueue(); err != nil {
		return err // somebody has edited the record, which must not keep other schedules from running
	}
	missed, skipped := r.Missed, r.Skipped
	runs, err := r.step(now, unfinished)
	if err != nil {
		return err
	}
	step.missed, step.skipped = r.Missed-missed, r.Skipped-skipped
	for _, run := range runs {
		o := r.message(run)
		m, err := q.complete(ctx, &o)
		if err != nil {
			return fmt.Errorf("run %q: %w", run.ID, err)
		}
		step.runs = append(step.runs, m)
	}
	return nil
}

// send sends runs that cannot be written with the acks. Their ids are remembered, so a step that is repeated after a
// crash sends none again.
func (s *scheduleSender) send(ctx context.Context, q *Queue, msgs []store.Outgoing) error {
	for len(msgs) > 0 {
		n, size := 0, 0
		for n < len(msgs) && n < store.MaxBatch && (n == 0 || size+msgs[n].Size() <= store.MaxBatchBytes) {
			size += msgs[n].Size()
			n++
		}
		calling, cancel := s.limit(ctx, q)
		results, err := s.run.client.store.Send(calling, q.name, msgs[:n])
		cancel()
		for i, r := range results {
			if r.Added() {
				q.runSent(s.run.handling, msgs[i].Headers[scheduleHeader], msgs[i].ID)
			}
		}
		if err := cmp.Or(err, store.SendError(results)); err != nil {
			return err
		}
		msgs = msgs[n:]
	}
	return nil
}

// Settled implements pump.Work.
func (s *scheduleSender) Settled(*store.Claimed, *store.Settlement, store.State) {}

// Refused implements pump.Work: the step of a schedule whose runs the store refuses is tried again.
func (s *scheduleSender) Refused(err error, settlements []store.Settlement) pump.Answer {
	switch {
	case len(settlements) == 0 || !calls.IsPermanent(err) || errors.Is(err, ErrClosed):
		return pump.GiveUp
	case len(settlements) > 1:
		return pump.SettleAgain // one of them must not keep the others from being settled
	case len(settlements[0].Then) == 0:
		return pump.GiveUp
	}
	s.postpone(&settlements[0], err)
	return pump.SettleAgain
}

// Acked implements pump.Work: it reports what a step did.
func (s *scheduleSender) Acked(m *store.Claimed, settlement *store.Settlement) {
	step, ctx := s.steps[m.ID], s.run.handling
	q := s.run.client.Queue(step.record.Schedule.Queue)
	for i := range settlement.Then[1:] {
		q.runSent(ctx, m.ID, settlement.Then[1+i].Message.ID)
	}
	if step.missed > 0 {
		s.run.log.Warn("later: runs of a schedule were missed and are left out", "schedule", m.ID, "runs", step.missed,
			"last", store.Time(step.record.LastMissed))
		q.runsLeftOut(ctx, EventRunMissed, m.ID, int(step.missed))
	}
	if step.skipped > 0 {
		s.run.log.Info("later: runs of a schedule are skipped, because the one before is unfinished", "schedule", m.ID,
			"runs", step.skipped, "last", store.Time(step.record.LastSkipped))
		q.runsLeftOut(ctx, EventRunSkipped, m.ID, int(step.skipped))
	}
}

// runSent reports and counts a run of a schedule that was sent to the queue.
func (q *Queue) runSent(ctx context.Context, schedule, id string) {
	if q.wantsEvents() {
		q.report(Event{Kind: EventSent, ID: id, Context: ctx, Schedule: schedule})
	}
	q.activity.Count(EventSent, 1)
}

// runsLeftOut reports and counts n runs of a schedule that were not sent to the queue.
func (q *Queue) runsLeftOut(ctx context.Context, kind EventKind, schedule string, n int) {
	if q.wantsEvents() {
		q.report(Event{Kind: kind, ID: schedule, Context: ctx, Count: n, Schedule: schedule})
	}
	q.activity.Count(kind, n)
}
