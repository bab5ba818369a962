package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/lock"
)

// middleware wraps a handler.
type middleware = func(later.HandlerFunc) later.HandlerFunc

// newWorker returns the worker of all queues. Messages are delivered at least once, so every handler looks for its
// remaining work: it may have run before.
func (s *Shop) newWorker() *later.Worker {
	w := later.NewWorker(s.client, later.WorkerConfig{
		ShutdownTimeout: 20 * time.Second, // of the 30 that a container has
		Middleware:      []middleware{s.logged, s.perCustomer()},
		Queues: map[string]later.QueueConfig{
			partnerQueue: {
				Concurrency: 5, // the partner's limit
				Timeout:     10 * time.Second,
				Backoff:     later.ExponentialBackoff(s.cfg.Retry, 10*time.Minute),
			},
			ordersQueue: {Priority: 1},
		},
		DeathLevel: slog.LevelError, // a person has to look at /dead
		Logger:     s.cfg.Log,
	})
	orders := later.NewMux()
	orders.Handle(kindRemind, later.Handler(s.remind))
	orders.Handle(kindCancel, later.Handler(s.cancel))
	w.HandleMux(ordersQueue, orders)
	w.Handle(partnerQueue, later.Handler(s.ship))
	w.Handle(mailQueue, later.Handler(s.mail))
	return w
}

// perCustomer has the partner see one order of a customer at a time, in all processes of the shop. Messages of other
// queues need no lock. A limit of orders per customer and minute belongs into the same list of middleware, before this.
func (s *Shop) perCustomer() middleware {
	return lock.PerKey(s.cfg.Locker, func(m *later.Message) string {
		if m.Queue != partnerQueue {
			return ""
		}
		return "shop:customer:" + m.Headers[customerHeader]
	}, lock.Wait(time.Minute))
}

// remind sends a mail about an order that is still unpaid.
func (s *Shop) remind(ctx context.Context, placed Order, _ *later.Message) error {
	o, err := s.Get(ctx, placed.ID)
	if err != nil || o.State != "unpaid" {
		return err
	}
	return sendMail(o, "please pay")
}

// cancel cancels an order that is still unpaid.
func (s *Shop) cancel(ctx context.Context, placed Order, _ *later.Message) error {
	err := change(ctx, s.db, placed.ID, "unpaid", "cancelled")
	if err != nil && !errors.Is(err, errWrongState) {
		return err
	}
	o, err := s.Get(ctx, placed.ID)
	if err != nil || o.State != "cancelled" { // also true if an earlier attempt got no further
		return err
	}
	return sendMail(o, "was cancelled")
}

// ship announces a paid order to the partner. The partner's answer decides the next step; see Partner.
func (s *Shop) ship(ctx context.Context, paid Order, _ *later.Message) error {
	if err := s.cfg.Partner.Ship(ctx, paid); err != nil {
		return err
	}
	err := change(ctx, s.db, paid.ID, "paid", "shipped")
	if err != nil && !errors.Is(err, errWrongState) { // otherwise an earlier attempt did it
		return err
	}
	paid.State = "shipped"
	return sendMail(paid, "is on its way")
}

// Mail is a mail to a customer.
type Mail struct {
	To   string `json:"to"`
	Text string `json:"text"`
}

// sendMail acks the message that is being handled, and sends a mail in the same step.
func sendMail(o Order, what string) error {
	payload, err := json.Marshal(Mail{To: o.Customer, Text: fmt.Sprintf("your order %s %s", o.ID, what)})
	if err != nil {
		return later.Bury(err)
	}
	return later.Then(mailQueue, payload)
}

// mail would call a mail server.
func (s *Shop) mail(_ context.Context, mail Mail, _ *later.Message) error {
	s.cfg.Log.Info("mail", "to", mail.To, "text", mail.Text)
	return nil
}
