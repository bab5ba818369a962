package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/store"
)

// Times of the demo's events, after its start unless stated otherwise.
const (
	placingTime  = 1200 * time.Millisecond // over which orders are placed
	firstUnpaid  = 4 * time.Second         // first order cancels itself, after it was placed
	lastUnpaid   = 8 * time.Second         // last order cancels itself, after it was placed
	payAfter     = 2 * time.Second         // after the order was placed
	moreTimeAt   = 3 * time.Second
	moreTime     = 7 * time.Second
	webhookAt    = time.Second
	remindAt     = 1500 * time.Millisecond
	firstStats   = 1400 * time.Millisecond
	secondStats  = 5 * time.Second
	retryBackoff = 700 * time.Millisecond

	// demoLease is how long a killed demo still holds its messages, at any speed.
	demoLease = 3 * time.Second
	// auditEvery is how often the store is asked for remaining messages, in case an event was missed.
	auditEvery = time.Second
	// idKept is the dedup window of the demo's messages.
	idKept = 24 * time.Hour
)

// demoQueues are the names of the demo's queues, without the prefix.
var demoQueues = []string{"mail", "orders", "reminders", "webhooks", "book"}

// shop is the demo's shop.
type shop struct {
	report  *demoReport
	pending *pendingCount
	client  *later.Client
	url     string
	keeps   bool // the next run can continue a stopped demo
	shared  bool // others may run a demo in this store at the same time

	count int // number of orders
	speed float64
	book  *book
	found *found // messages of a stopped demo, or nil

	working time.Time // start of the worker

	mail    *later.Queue // confirmations, due at once
	orders  *later.Queue // messages that cancel unpaid orders
	remind  *later.Queue
	webhook *later.Queue
}

// found is what the store contains of a demo.
type found struct {
	stopped       time.Time           // the last entry before the stop, or zero
	states        map[later.State]int // number of messages
	pending, dead map[string]bool     // ids
}

func (s *shop) queues() []*later.Queue {
	return []*later.Queue{s.mail, s.orders, s.remind, s.webhook}
}

// findMessages finds all messages of the shop.
func (s *shop) findMessages(ctx context.Context) (*found, error) {
	f := &found{states: map[later.State]int{}, pending: map[string]bool{}, dead: map[string]bool{}}
	// In the order in which messages change state, so that none is missed while it does.
	for _, state := range []later.State{later.StateScheduled, later.StateReady, later.StateLeased, later.StateDead} {
		for _, q := range s.queues() {
			for info, err := range q.All(ctx, later.ListOptions{State: state, Limit: store.MaxBatch}) {
				if err != nil {
					return nil, err
				}
				f.states[state]++
				if state == later.StateDead {
					f.dead[info.ID] = true
				} else {
					f.pending[info.ID] = true
				}
			}
		}
	}
	return f, nil
}

// resume continues a stopped demo.
func (s *shop) resume(ctx context.Context) (err error) {
	if s.found, err = s.findMessages(ctx); err != nil {
		return err
	}
	s.found.stopped = s.book.last()
	s.pending.add(len(s.found.pending))
	return s.book.note(ctx, bookEntry{Kind: bookResumed, ID: strconv.Itoa(s.book.stops() + 1)})
}

// open runs the shop until all its messages are done or dead, or ctx ends.
func (s *shop) open(ctx context.Context) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	worker := s.worker()
	s.working = time.Now()
	worked := make(chan error, 1)
	go func() { worked <- worker.Run(working) }()

	err := s.play(ctx)
	if err == nil {
		err = s.awaitNone(ctx)
	}
	stop()
	if left := <-worked; err == nil {
		err = left
	}
	if err == nil {
		err = s.showDead(ctx)
	}
	return err
}

// awaitNone waits until all of the shop's messages are done or dead.
func (s *shop) awaitNone(ctx context.Context) error {
	audit := time.NewTicker(auditEvery)
	defer audit.Stop()
	for {
		left := int64(0)
		for _, q := range s.queues() {
			stats, err := q.Stats(ctx)
			if err != nil {
				return err
			}
			left += stats.Scheduled + stats.Ready + stats.Leased
		}
		if left == 0 {
			return nil
		}
		select {
		case <-s.pending.none:
		case <-audit.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// pace scales a duration to the demo's speed.
func (s *shop) pace(d time.Duration) time.Duration {
	return time.Duration(float64(d) / s.speed)
}

// step is something that the shop does at a time after its start.
type step struct {
	at time.Duration
	do func(ctx context.Context) error
}

// play executes the steps of the plan, each at its time. A continued demo executes the earlier steps at once; steps do
// not repeat what they have already done.
func (s *shop) play(ctx context.Context) error {
	plan := s.plan()
	slices.SortStableFunc(plan, func(a, b step) int { return int(a.at - b.at) })
	for _, next := range plan {
		timer := time.NewTimer(s.pace(next.at) - s.book.elapsed())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		if err := next.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// plan returns the steps of the shop itself; the worker does the rest.
func (s *shop) plan() []step {
	plan := []step{
		{0, s.sendReminder},
		{0, s.sendWebhook},
		{moreTimeAt, s.giveMoreTime},
	}
	for _, at := range []time.Duration{firstStats, secondStats} {
		if s.pace(at) >= s.book.ran { // not shown before the stop
			plan = append(plan, step{at, s.showStats})
		}
	}
	for i := range s.count {
		placed := placingTime * time.Duration(i) / time.Duration(s.count)
		unpaid := firstUnpaid + (lastUnpaid-firstUnpaid)*time.Duration(i)/time.Duration(s.count)
		plan = append(plan, step{placed, func(ctx context.Context) error { return s.place(ctx, i+1, unpaid) }})
		if i%3 == 1 {
			plan = append(plan, step{placed + payAfter, func(ctx context.Context) error { return s.pay(ctx, i+1) }})
		}
	}
	return plan
}

func orderID(number int) string { return fmt.Sprintf("order-%d", number) }

// send sends a message once in the life of the demo. It reports whether that was now, or just before a stop.
func (s *shop) send(
	ctx context.Context, q *later.Queue, id, payload string, opts ...later.SendOption,
) (sent bool, err error) {
	if s.book.has(bookSent, id) {
		return false, nil
	}
	if !s.book.wasHandled(id) {
		opts = append(opts, later.WithID(id), later.DedupWindow(idKept))
		if _, err := q.Send(ctx, []byte(payload), opts...); err != nil && !errors.Is(err, later.ErrDuplicate) {
			return false, err
		}
	}
	return true, s.book.note(ctx, bookEntry{Kind: bookSent, ID: id})
}

func (s *shop) place(ctx context.Context, number int, unpaid time.Duration) error {
	id := orderID(number)
	placed, err := s.send(ctx, s.orders, id, id, later.In(s.pace(unpaid)))
	if err != nil {
		return err
	}
	if placed {
		s.report.did("placed", s.orders, id, "cancels itself in "+durations.Format(s.pace(unpaid))+" if it is not paid")
	}
	_, err = s.send(ctx, s.mail, fmt.Sprintf("mail-%d", number), id)
	return err
}

func (s *shop) sendReminder(ctx context.Context) error {
	_, err := s.send(ctx, s.remind, "reminder-1", orderID(1), later.In(s.pace(remindAt)))
	return err
}

func (s *shop) sendWebhook(ctx context.Context) error {
	_, err := s.send(ctx, s.webhook, "webhook-1", orderID(1), later.In(s.pace(webhookAt)), later.MaxAttempts(3))
	return err
}

// pay cancels an order's message. It writes a journal entry first: if the demo is stopped in between, a message that is
// gone and was not delivered counts as cancelled.
func (s *shop) pay(ctx context.Context, number int) error {
	id := orderID(number)
	if s.book.has(bookPaid, id) {
		return nil
	}
	// The message may have been cancelled before a stop, unless it was found after the stop.
	begun := s.book.has(bookPaying, id) && !s.found.pending[id]
	if err := s.book.note(ctx, bookEntry{Kind: bookPaying, ID: id}); err != nil {
		return err
	}
	state, err := s.orders.Cancel(ctx, id)
	switch missing := errors.Is(err, later.ErrNotFound); {
	case missing && s.book.wasHandled(id):
		s.report.did("too late", s.orders, id, "paid after it cancelled itself")
	case missing && begun:
		s.report.did("paid", s.orders, id, "its message was cancelled just before the stop")
	case missing:
		return fmt.Errorf("message %q is lost: it was sent, but is not in the store and was never delivered", id)
	case err != nil:
		return err
	default:
		s.pending.add(-1)
		s.report.did("paid", s.orders, id, fmt.Sprintf("its message was %s and is cancelled", state))
	}
	return s.book.note(ctx, bookEntry{Kind: bookPaid, ID: id})
}

func (s *shop) giveMoreTime(ctx context.Context) error {
	id := orderID(min(3, s.count))
	if s.book.has(bookMoved, id) {
		return nil
	}
	err := s.orders.Reschedule(ctx, id, later.In(s.pace(moreTime)))
	switch {
	case errors.Is(err, later.ErrNotFound), errors.Is(err, later.ErrLeased):
		s.report.did("too late", s.orders, id, "asks for more time after it cancelled itself")
	case err != nil:
		return err
	default:
		s.report.did("moved", s.orders, id, "the customer has "+durations.Format(s.pace(moreTime))+" more to pay")
	}
	return s.book.note(ctx, bookEntry{Kind: bookMoved, ID: id})
}

// worker handles the shop's messages.
func (s *shop) worker() *later.Worker {
	retry := later.QueueConfig{Backoff: later.ConstantBackoff(s.pace(retryBackoff))}
	w := later.NewWorker(s.client, later.WorkerConfig{
		DeathLevel: slog.LevelDebug, // the demo prints it

		Unlisted: true, // a demo is not part of a fleet that is told to restart
		Lease:    demoLease,
		Queues:   map[string]later.QueueConfig{s.remind.Name(): retry, s.webhook.Name(): retry},
		OnDead: func(_ context.Context, info *later.Info) {
			s.report.did("dead", s.client.Queue(info.Queue), info.ID, fmt.Sprintf("dead after %d attempts", info.Attempts))
		},
	})
	w.Handle(s.mail.Name(), s.handler(confirm))
	w.Handle(s.orders.Name(), s.handler(cancelUnpaid))
	w.Handle(s.remind.Name(), s.handler(sendReminderMail))
	w.Handle(s.webhook.Name(), s.handler(callWebhook))
	return w
}

// handler returns a handler that calls do. It writes the result to the journal, prints it, and then acks. So a delivery
// that a stop interrupted is repeated, and a delivery that was printed is counted.
func (s *shop) handler(do func(m *later.Message) (text string, err error)) later.HandlerFunc {
	return func(ctx context.Context, m *later.Message) error {
		entry := bookEntry{
			Kind:     bookDelivery,
			ID:       m.ID,
			Attempt:  m.Attempt,
			Lateness: m.Lateness,
			Early:    s.report.clock.isBefore(time.Now(), m.Due) || m.Lateness < 0,
			Waited:   s.found != nil && m.Due.Before(s.working),
		}
		text, err := do(m)
		entry.Done = err == nil
		if failed := s.book.note(ctx, entry); failed != nil {
			if ctx.Err() == nil {
				s.report.failed(failed)
			}
			return later.Snooze(s.pace(retryBackoff))
		}
		s.report.delivery(m, text, err, entry.Waited)
		return err
	}
}

func confirm(m *later.Message) (string, error) { return "thanks for " + string(m.Payload), nil }

func cancelUnpaid(*later.Message) (string, error) { return "not paid: the order cancels itself", nil }

func sendReminderMail(m *later.Message) (string, error) {
	if m.Attempt <= 2 {
		return "", errors.New("the mail server is busy")
	}
	return "please pay " + string(m.Payload), nil
}

func callWebhook(*later.Message) (string, error) {
	return "", errors.New("shop.example returns 503")
}

func (s *shop) showStats(ctx context.Context) error {
	var all []queueStats
	for _, q := range s.queues() {
		stats, err := q.Stats(ctx)
		if err != nil {
			return err
		}
		all = append(all, queueStats{name: q.Name(), Stats: stats})
	}
	return s.report.stats(all)
}

func (s *shop) showDead(ctx context.Context) error {
	listing := &deadListing{now: time.Now()}
	t := listing.table()
	for _, q := range s.queues() {
		for info, err := range q.All(ctx, later.ListOptions{State: later.StateDead, Limit: store.MaxBatch}) {
			if err != nil {
				return err
			}
			t.add(listing.row(info)...)
		}
	}
	return s.report.dead(t)
}
