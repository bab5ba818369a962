package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

const (
	callLimit = 10 * time.Second // of a call of the partner
	lockTTL   = 30 * time.Second // of a customer, after the process that has it died
	lockWait  = time.Minute      // for a customer
	lockRetry = 20 * time.Millisecond
)

// newServers returns the servers of all queues. The partner's queue needs one of its own, because the limit of calls at
// a time is that of a server.
func (s *Shop) newServers(rdb *redis.Client) []*asynq.Server {
	config := asynq.Config{
		ShutdownTimeout: 20 * time.Second, // of the 30 that a container has
		RetryDelayFunc:  retryDelay(s.cfg.Retry),
		ErrorHandler:    asynq.ErrorHandlerFunc(s.failed),
		Logger:          logger{s.cfg.Log},
		LogLevel:        asynq.WarnLevel,

		TaskCheckInterval: s.cfg.CheckEvery, DelayedTaskCheckInterval: s.cfg.CheckEvery,
	}
	others, partner := config, config
	others.Queues, others.StrictPriority = map[string]int{ordersQueue: 2, mailQueue: 1}, true
	partner.Queues, partner.Concurrency = map[string]int{partnerQueue: 1}, 5 // the partner's limit
	return []*asynq.Server{
		asynq.NewServerFromRedisClient(rdb, others), asynq.NewServerFromRedisClient(rdb, partner),
	}
}

// handler returns the handlers of all tasks. Tasks are delivered at least once, so every handler looks for its
// remaining work: it may have run before.
func (s *Shop) handler() asynq.Handler {
	mux := asynq.NewServeMux()
	mux.Use(s.observed)
	mux.HandleFunc(kindRemind, typed(s.remind))
	mux.HandleFunc(kindCancel, typed(s.cancel))
	mux.Handle(kindShip, s.perCustomer(asynq.HandlerFunc(typed(s.ship))))
	mux.HandleFunc(kindMail, typed(s.mail))
	return mux
}

// typed returns a handler that decodes payloads. A task with a payload that cannot be decoded is dead at once.
func typed[T any](handle func(context.Context, T) error) func(context.Context, *asynq.Task) error {
	return func(ctx context.Context, t *asynq.Task) error {
		var value T
		if err := json.Unmarshal(t.Payload(), &value); err != nil {
			return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
		}
		return handle(ctx, value)
	}
}

// isFinal reports whether a task is archived after err.
func isFinal(ctx context.Context, err error) bool {
	retried, _ := asynq.GetRetryCount(ctx)
	most, _ := asynq.GetMaxRetry(ctx)
	return retried >= most || errors.Is(err, asynq.SkipRetry)
}

// perCustomer shows the partner one order of a customer at a time, in all processes of the shop. A task that waits for
// the lock keeps its worker, and fails if the lock is held for longer than lockWait. A limit of orders per customer and
// minute belongs into the same place, before this.
func (s *Shop) perCustomer(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		waiting, end := context.WithTimeout(ctx, lockWait)
		held, err := s.locks.Obtain(waiting, "shop:customer:"+t.Headers()[customerHeader], lockTTL,
			&redislock.Options{RetryStrategy: redislock.LinearBackoff(lockRetry)})
		end()
		if err != nil {
			return fmt.Errorf("lock the customer: %w", err)
		}
		ctx, cancel := context.WithCancelCause(ctx)
		kept := make(chan struct{})
		go func() {
			defer close(kept)
			keep(ctx, held, cancel)
		}()
		err = next.ProcessTask(ctx, t)
		lost := context.Cause(ctx)
		cancel(nil)
		<-kept
		releasing, end := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer end()
		if failed := held.Release(releasing); failed != nil {
			s.cfg.Log.Warn("the lock of a customer was not released", "error", failed)
		}
		return cmp.Or(err, lost)
	})
}

// keep extends a lock until ctx ends. It ends ctx when the lock is lost.
func keep(ctx context.Context, held *redislock.Lock, lose context.CancelCauseFunc) {
	ticker := time.NewTicker(lockTTL / 3)
	defer ticker.Stop()
	until := time.Now().Add(lockTTL)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		asked := time.Now()
		asking, end := context.WithDeadline(ctx, until)
		err := held.Refresh(asking, lockTTL, nil)
		end()
		switch {
		case err == nil:
			until = asked.Add(lockTTL)
		case errors.Is(err, redislock.ErrNotObtained), !time.Now().Before(until):
			lose(fmt.Errorf("the lock of the customer is lost: %w", err))
			return
		}
	}
}

// remind sends a mail about an order that is still unpaid.
func (s *Shop) remind(ctx context.Context, placed Order) error {
	o, err := s.Get(ctx, placed.ID)
	if err != nil || o.State != "unpaid" {
		return err
	}
	return s.sendMail(ctx, "remind-", o, "please pay")
}

// cancel cancels an order that is still unpaid.
func (s *Shop) cancel(ctx context.Context, placed Order) error {
	err := change(ctx, s.db, placed.ID, "unpaid", "cancelled")
	if err != nil && !errors.Is(err, errWrongState) {
		return err
	}
	o, err := s.Get(ctx, placed.ID)
	if err != nil || o.State != "cancelled" { // also true if an earlier attempt got no further
		return err
	}
	return s.sendMail(ctx, "cancel-", o, "was cancelled")
}

// ship announces a paid order to the partner. The partner's answer decides the next step; see Partner.
func (s *Shop) ship(ctx context.Context, paid Order) error {
	calling, end := context.WithTimeout(ctx, callLimit)
	defer end()
	if err := s.cfg.Partner.Ship(calling, paid); err != nil {
		return err
	}
	err := change(ctx, s.db, paid.ID, "paid", "shipped")
	if err != nil && !errors.Is(err, errWrongState) { // otherwise an earlier attempt did it
		return err
	}
	paid.State = "shipped"
	return s.sendMail(ctx, "ship-", paid, "is on its way")
}

// Mail is a mail to a customer.
type Mail struct {
	To   string `json:"to"`
	Text string `json:"text"`
}

// sendMail sends a mail before the task that is being handled ends. The id keeps a task that runs again from sending it
// twice.
func (s *Shop) sendMail(ctx context.Context, prefix string, o Order, what string) error {
	payload, err := json.Marshal(Mail{To: o.Customer, Text: fmt.Sprintf("your order %s %s", o.ID, what)})
	if err != nil {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	return enqueue(ctx, s.client, message{
		queue: mailQueue, kind: kindMail, id: prefix + o.ID, payload: payload, headers: withTrace(ctx, nil),
	})
}

// mail would call a mail server.
func (s *Shop) mail(_ context.Context, mail Mail) error {
	if s.cfg.Mail != nil {
		s.cfg.Mail(mail)
	}
	s.cfg.Log.Info("mail", "to", mail.To, "text", mail.Text)
	return nil
}
