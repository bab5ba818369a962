package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/internal/pump"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

const (
	// Lease is the lease of a worker on the schedules that it steps: how long their runs are late after a crash.
	Lease = 5 * time.Second
	// stepRetry is the pause before the next try of a step that failed.
	stepRetry = 5 * time.Second
	// otherServerTimeout limits a call to a server that may be another one than that of the schedules.
	otherServerTimeout = time.Second
)

// Sender makes the steps of schedules: it sends the runs that are due.
type Sender struct {
	*pump.Batch
	// Complete fills in what a client adds to the messages that it sends to a queue, and checks them.
	Complete func(ctx context.Context, queue string, m store.Outgoing) (store.Outgoing, error)
	// Sent is called with the id of a run that was sent to a queue, and LeftOut with the number of runs that were not.
	Sent    func(queue, schedule, id string)
	LeftOut func(kind store.EventKind, queue, schedule string, n int)

	steps map[string]*claimed // of the claimed schedules, by name
	known map[string]*Record  // earlier records of schedules, by name
}

// Run sends the runs of all schedules until ctx ends.
func (s *Sender) Run(ctx context.Context) {
	s.known = map[string]*Record{}
	s.Work, s.Uncounted = s, true
	wait := func(ctx context.Context) error { return s.WaitFor(ctx, reserved.Schedules) }
	loop := pump.Loop{Env: s.Env, Ready: s.Await, Once: s.Once, Wait: wait, Outage: s.Outage}
	loop.Run(ctx)
}

// claimed is the step of one claimed schedule.
type claimed struct {
	settlement *store.Settlement
	record     *Record
	runs       []store.Outgoing
	// missed and skipped count the runs that are left out.
	missed, skipped int64
}

// Do implements pump.Work: it makes the settlements of schedules steps.
func (s *Sender) Do(ctx context.Context, claim store.Claim, settlements []store.Settlement) error {
	byQueue := map[string][]*claimed{}
	s.steps = make(map[string]*claimed, len(claim.Messages))
	for i := range claim.Messages {
		m := &claim.Messages[i]
		settlements[i].Action = store.Release // an ack alone would delete the schedule
		r, err := s.decode(m)
		if err != nil {
			s.refuse(&settlements[i], err)
			continue
		}
		queue := r.Schedule.Queue
		step := &claimed{settlement: &settlements[i], record: r}
		s.steps[m.ID], byQueue[queue] = step, append(byQueue[queue], step)
	}
	var all sync.WaitGroup
	for queue, steps := range byQueue {
		all.Go(func() {
			if err := s.stepQueue(ctx, queue, steps, claim.Now); err != nil {
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
func (s *Sender) decode(m *store.Claimed) (*Record, error) {
	r, err := Decode(m.ID, m.Payload, s.known[m.ID])
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
func (s *Sender) refuse(settlement *store.Settlement, err error) {
	if errors.Is(err, errLaterVersion) {
		s.postpone(settlement, err)
		return
	}
	settlement.Action, settlement.Reason = store.Bury, store.CutReason(err.Error())
}

// postpone settles a schedule whose step is tried again.
func (s *Sender) postpone(settlement *store.Settlement, err error) {
	s.Log.Error("later: a schedule cannot run; retrying", "schedule", settlement.Receipt.ID, "error", err)
	settlement.Action, settlement.Delay, settlement.Then = store.Snooze, stepRetry, nil
}

// stepQueue makes the steps of schedules that send to one queue.
func (s *Sender) stepQueue(ctx context.Context, queue string, steps []*claimed, now time.Time) error {
	unfinished, err := s.unfinished(ctx, queue, steps)
	if err != nil {
		return err
	}
	var sends []store.Outgoing
	for _, step := range steps {
		if err := s.prepare(ctx, step, now, unfinished[step.record.LastID]); err != nil {
			s.postpone(step.settlement, err)
			continue
		}
		next := store.FollowUp{Queue: reserved.Schedules, Message: step.record.outgoing(now)}
		next.Message.SentAt = store.Time(step.record.Created)
		step.settlement.Action, step.settlement.Then = store.Ack, []store.FollowUp{next}
		for _, m := range step.runs {
			if s.linked(queue, &m) {
				step.settlement.Then = append(step.settlement.Then, store.FollowUp{Queue: queue, Message: m})
			} else {
				sends = append(sends, m)
			}
		}
	}
	return s.send(ctx, queue, sends)
}

// linked reports whether a run can be written with the ack.
func (s *Sender) linked(queue string, m *store.Outgoing) bool {
	return !m.Durable.Asked() && store.Linked(s.Store, reserved.Schedules, queue)
}

// limit limits a call for the runs of a queue. If the queue can be on another server than the schedules, that server's
// trouble must not delay the runs of other queues for long.
func (s *Sender) limit(ctx context.Context, queue string) (context.Context, context.CancelFunc) {
	if store.Linked(s.Store, reserved.Schedules, queue) {
		return context.WithTimeout(ctx, calls.Timeout)
	}
	return context.WithTimeout(ctx, otherServerTimeout)
}

// unfinished returns which of the last runs of schedules are scheduled, ready or leased, by id.
func (s *Sender) unfinished(ctx context.Context, queue string, steps []*claimed) (map[string]bool, error) {
	var ids []string
	for _, step := range steps {
		if r := step.record; r.LastID != "" && r.Schedule.Unfinished != UnfinishedAllow {
			ids = append(ids, r.LastID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	ctx, cancel := s.limit(ctx, queue)
	defer cancel()
	infos, err := s.Store.Get(ctx, queue, ids)
	unfinished := make(map[string]bool, len(ids))
	for _, info := range infos {
		if info != nil && info.State != store.StateDead {
			unfinished[info.ID] = true
		}
	}
	return unfinished, err
}

// prepare changes the record to the state after the step, and prepares the messages of its runs.
func (s *Sender) prepare(ctx context.Context, step *claimed, now time.Time, unfinished bool) error {
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
		m, err := s.Complete(ctx, r.Schedule.Queue, r.Message(run))
		if err != nil {
			return fmt.Errorf("run %q: %w", run.ID, err)
		}
		step.runs = append(step.runs, m)
	}
	return nil
}

// send sends runs that cannot be written with the acks. Their ids are remembered, so a step that is repeated after a
// crash sends none again.
func (s *Sender) send(ctx context.Context, queue string, msgs []store.Outgoing) error {
	for len(msgs) > 0 {
		n, size := 0, 0
		for n < len(msgs) && n < store.MaxBatch && (n == 0 || size+msgs[n].Size() <= store.MaxBatchBytes) {
			size += msgs[n].Size()
			n++
		}
		calling, cancel := s.limit(ctx, queue)
		results, err := s.Store.Send(calling, queue, msgs[:n])
		cancel()
		for i, r := range results {
			if r.Added() {
				s.Sent(queue, msgs[i].Headers[NameHeader], msgs[i].ID)
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
func (s *Sender) Settled(*store.Claimed, *store.Settlement, store.State) {}

// Refused implements pump.Work: the step of a schedule whose runs the store refuses is tried again.
func (s *Sender) Refused(err error, settlements []store.Settlement) pump.Answer {
	switch {
	case len(settlements) == 0 || !calls.IsPermanent(err) || errors.Is(err, store.ErrClosed):
		return pump.GiveUp
	case len(settlements) > 1:
		return pump.SettleAgain // one of them must not keep the others from being settled
	case len(settlements[0].Then) == 0:
		return pump.GiveUp
	}
	s.postpone(&settlements[0], err)
	return pump.SettleAgain
}

// Acked implements pump.Work: it reports the effects of a step.
func (s *Sender) Acked(m *store.Claimed, settlement *store.Settlement) {
	step := s.steps[m.ID]
	queue := step.record.Schedule.Queue
	for i := range settlement.Then[1:] {
		s.Sent(queue, m.ID, settlement.Then[1+i].Message.ID)
	}
	if step.missed > 0 {
		s.Log.Warn("later: runs of a schedule were missed and are left out", "schedule", m.ID, "runs", step.missed,
			"last", store.Time(step.record.LastMissed))
		s.LeftOut(event.RunMissed, queue, m.ID, int(step.missed))
	}
	if step.skipped > 0 {
		s.Log.Info("later: runs of a schedule are skipped, because the one before is unfinished", "schedule", m.ID,
			"runs", step.skipped, "last", store.Time(step.record.LastSkipped))
		s.LeftOut(event.RunSkipped, queue, m.ID, int(step.skipped))
	}
}
