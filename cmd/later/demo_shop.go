package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// When things happen in the demo, after its opening if nothing else is said.
const (
	placingTime  = 1200 * time.Millisecond // over which orders are placed
	firstUnpaid  = 4 * time.Second         // after its placing the first unpaid order cancels itself
	lastUnpaid   = 8 * time.Second         // and the last one
	payAfter     = 2 * time.Second         // after its placing
	moreTimeAt   = 3 * time.Second
	moreTime     = 7 * time.Second
	webhookAt    = time.Second
	remindAt     = 1500 * time.Millisecond
	firstStats   = 1400 * time.Millisecond
	secondStats  = 5 * time.Second
	retryBackoff = 700 * time.Millisecond
)

// plan is all that the shop does by itself; the worker does the rest.
func (s *shop) plan() []step {
	plan := []step{
		{0, s.sendReminder},
		{0, s.sendWebhook},
		{moreTimeAt, s.giveMoreTime},
		{firstStats, s.showStats},
		{secondStats, s.showStats},
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

func (s *shop) place(ctx context.Context, number int, unpaid time.Duration) error {
	id := orderID(number)
	if _, err := s.orders.Send(ctx, []byte(id), later.WithID(id), later.In(s.pace(unpaid))); err != nil {
		return err
	}
	s.report.did("placed", s.orders, id, "cancels itself in "+formatDuration(s.pace(unpaid))+" if it is not paid")
	_, err := s.mail.Send(ctx, []byte(id), later.WithID(fmt.Sprintf("mail-%d", number)))
	return err
}

func (s *shop) sendReminder(ctx context.Context) error {
	_, err := s.remind.Send(ctx, []byte(orderID(1)), later.WithID("reminder-1"), later.In(s.pace(remindAt)))
	return err
}

func (s *shop) sendWebhook(ctx context.Context) error {
	_, err := s.webhook.Send(ctx, []byte(orderID(1)), later.WithID("webhook-1"), later.In(s.pace(webhookAt)), later.MaxAttempts(3))
	return err
}

func (s *shop) pay(ctx context.Context, number int) error {
	id := orderID(number)
	state, err := s.orders.Cancel(ctx, id)
	switch {
	case errors.Is(err, later.ErrNotFound):
		s.report.did("too late", s.orders, id, "paid after it cancelled itself")
		return nil
	case err != nil:
		return err
	}
	s.living.cancelled()
	s.report.did("paid", s.orders, id, fmt.Sprintf("its message, which was %s, is cancelled", state))
	return nil
}

func (s *shop) giveMoreTime(ctx context.Context) error {
	id := orderID(min(3, s.count))
	err := s.orders.Reschedule(ctx, id, later.In(s.pace(moreTime)))
	switch {
	case errors.Is(err, later.ErrNotFound), errors.Is(err, later.ErrLeased):
		s.report.did("too late", s.orders, id, "asks for more time after it cancelled itself")
		return nil
	case err != nil:
		return err
	}
	s.report.did("moved", s.orders, id, "the customer has "+formatDuration(s.pace(moreTime))+" more to pay")
	return nil
}

// worker handles the shop's messages.
func (s *shop) worker() *later.Worker {
	retry := later.QueueConfig{Backoff: later.ConstantBackoff(s.pace(retryBackoff))}
	w := later.NewWorker(s.client, later.WorkerConfig{
		Queues: map[string]later.QueueConfig{s.remind.Name(): retry, s.webhook.Name(): retry},
		OnDead: func(_ context.Context, info *later.Info) {
			s.report.did("dead", s.webhook, info.ID, fmt.Sprintf("set aside after %d attempts", info.Attempts))
		},
		Middleware: []func(later.HandlerFunc) later.HandlerFunc{s.report.deliveries},
	})
	w.Handle(s.mail.Name(), s.confirm)
	w.Handle(s.orders.Name(), s.cancelUnpaid)
	w.Handle(s.remind.Name(), s.sendReminderMail)
	w.Handle(s.webhook.Name(), s.callWebhook)
	return w
}

func (s *shop) confirm(_ context.Context, m *later.Message) error {
	s.report.delivered(m, "thanks for "+string(m.Payload))
	return nil
}

func (s *shop) cancelUnpaid(_ context.Context, m *later.Message) error {
	s.report.delivered(m, "not paid: the order cancels itself")
	return nil
}

func (s *shop) sendReminderMail(_ context.Context, m *later.Message) error {
	if m.Attempt <= 2 {
		return errors.New("the mail server is busy")
	}
	s.report.delivered(m, "please pay "+string(m.Payload))
	return nil
}

func (s *shop) callWebhook(context.Context, *later.Message) error {
	return errors.New("shop.example answers 503")
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
