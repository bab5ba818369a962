package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/recurrence"
)

const (
	orderEvery   = 700 * time.Millisecond // an order is placed
	paidAfter    = 20                     // orders that are placed until one is paid
	maxPacking   = 5 * time.Second        // that it takes to pack an order
	webhookRetry = 5 * time.Second
	soonest      = 5 * time.Second // of what the market has to do when it opens
	latest       = 40 * 24 * time.Hour
	planned      = 250  // messages for each of two queues when it opens
	kept         = 1000 // dead messages, and messages in the history of the topic
)

// market is the shop of later demo --ui. It goes on until it is stopped, and has something of everything that the page
// shows.
type market struct {
	client *later.Client
	topic  *later.Topic // what happens to orders

	mail, unpaid, packing, reminders, webhooks, invoices, stock, reports *later.Queue
}

func newMarket(c *later.Client, prefix string) *market {
	queue := func(name string) *later.Queue { return c.Queue(prefix + name) }
	return &market{client: c, topic: c.Topic(prefix + "orders"), mail: queue("mail"), unpaid: queue("unpaid"),
		packing: queue("packing"), reminders: queue("reminders"), webhooks: queue("webhooks"),
		invoices: queue("invoices"), stock: queue("stock"), reports: queue("reports")}
}

func (m *market) queues() []*later.Queue {
	return []*later.Queue{m.mail, m.unpaid, m.packing, m.reminders, m.webhooks, m.invoices, m.stock, m.reports}
}

// order is the payload of the market's messages.
type order struct {
	Order    int      `json:"order"`
	Customer string   `json:"customer"`
	Total    float64  `json:"total"`
	Items    []string `json:"items"`
	Event    string   `json:"event"`
}

var (
	customers = []string{"ada@shop.example", "grace@shop.example", "édouard@shop.example", "李雷@shop.example"}
	goods     = []string{"teapot", "lamp", "notebook", "chair", "umbrella"}
)

// message returns a message about an order.
func (m *market) message(number int, event string, in time.Duration) later.Outgoing {
	payload, _ := json.Marshal(order{number, customers[number%len(customers)], float64(number*379%20000) / 100,
		goods[number%len(goods)/2 : number%len(goods)+1], event}) // which always can be
	return later.Outgoing{ID: event + "-" + strconv.Itoa(number), Payload: payload, When: later.In(in),
		Headers: map[string]string{"customer": customers[number%len(customers)], "source": "demo"}}
}

func (m *market) send(ctx context.Context, q *later.Queue, o later.Outgoing) error {
	_, err := q.SendMessage(ctx, o)
	return err
}

// sometime returns a delay that is as likely to be of some minutes as of some days.
func sometime() time.Duration {
	return time.Duration(float64(soonest) * math.Pow(float64(latest/soonest), rand.Float64()))
}

// open sends what the market has to do, and stores its topic and schedules.
func (m *market) open(ctx context.Context) error {
	if err := m.topic.Configure(ctx, later.TopicConfig{HistoryCount: kept}); err != nil {
		return err
	}
	for _, q := range []*later.Queue{m.stock, m.packing} {
		if err := m.topic.Subscribe(ctx, q.Name()); err != nil {
			return err
		}
	}
	if err := m.webhooks.SetDeadRetention(ctx, later.Retention{MaxCount: kept}); err != nil {
		return err
	}
	if err := m.invoices.Pause(ctx); err != nil {
		return err
	}
	number := 0
	for _, some := range []struct {
		queue *later.Queue
		event string
		count int
		in    func() time.Duration
	}{
		{m.reminders, "remind", planned, sometime},
		{m.unpaid, "cancel", planned, sometime},
		{m.invoices, "invoice", 12, func() time.Duration { return 0 }},
	} {
		var all []later.Outgoing
		for range some.count {
			number++
			all = append(all, m.message(number, some.event, some.in()))
		}
		if _, err := some.queue.SendBatch(ctx, all); err != nil {
			return err
		}
	}
	return m.plan(ctx)
}

func (m *market) schedules() []later.Schedule {
	const zone = "Europe/Berlin"
	name := m.reports.Name() + "-"
	return []later.Schedule{
		{Name: name + "stock", When: recurrence.Spec{Every: 20 * time.Second}},
		{Name: name + "sales", When: recurrence.Spec{Cron: "0 * * * *"}},
		{Name: name + "accounts", When: recurrence.Spec{Cron: "30 9 * * 1-5", TimeZone: zone}},
		{Name: name + "taxes", When: recurrence.Spec{RRule: "FREQ=MONTHLY;BYDAY=1MO", TimeZone: zone}},
	}
}

// plan stores the schedules. The last one is paused.
func (m *market) plan(ctx context.Context) error {
	all := m.schedules()
	for _, s := range all {
		s.Queue, s.Payload = m.reports.Name(), []byte(`{"report":"`+s.Name+`"}`)
		if _, err := m.client.Schedules().Put(ctx, s); err != nil {
			return err
		}
	}
	return m.client.Schedules().Pause(ctx, all[len(all)-1].Name, "the tax office is closed")
}

// run works and places orders until ctx ends.
func (m *market) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	worker := m.worker()
	worked := make(chan error, 1)
	go func() { worked <- worker.Run(ctx) }()
	err := m.placeOrders(ctx)
	stop()
	return errors.Join(err, <-worked)
}

func (m *market) placeOrders(ctx context.Context) error {
	tick := time.NewTicker(orderEvery)
	defer tick.Stop()
	for number := 1000; ; number++ {
		if err := m.place(ctx, number); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// place places an order, and pays an earlier one unless it is the tenth.
func (m *market) place(ctx context.Context, number int) error {
	webhook := m.message(number, "webhook", time.Second)
	webhook.MaxAttempts = 2
	sends := []error{
		m.send(ctx, m.mail, m.message(number, "thanks", 0)),
		m.send(ctx, m.unpaid, m.message(number, "cancel", 30*time.Minute)),
		m.send(ctx, m.webhooks, webhook),
	}
	if number%10 == 0 {
		sends = append(sends, m.send(ctx, m.reminders, m.message(number, "remind", sometime())))
	}
	if number%5 == 0 {
		_, err := m.topic.PublishMessage(ctx, m.message(number, "placed", time.Second))
		sends = append(sends, err)
	}
	if paid := number - paidAfter; paid%10 != 0 {
		_, err := m.unpaid.Cancel(ctx, m.message(paid, "cancel", 0).ID)
		if errors.Is(err, later.ErrNotFound) { // the market was not open yet
			err = nil
		}
		sends = append(sends, err)
	}
	return errors.Join(sends...)
}

// worker handles the market's messages. It waits for no handler when it ends: the messages are removed.
func (m *market) worker() *later.Worker {
	w := later.NewWorker(m.client, later.WorkerConfig{
		Name: "demo", DeathLevel: slog.LevelDebug, ShutdownTimeout: -1,
		Queues: map[string]later.QueueConfig{
			m.webhooks.Name():  {Backoff: later.ConstantBackoff(webhookRetry)},
			m.reminders.Name(): {Backoff: later.ConstantBackoff(webhookRetry)},
			m.packing.Name():   {Concurrency: 3},
		},
	})
	done := func(context.Context, *later.Message) error { return nil }
	for _, q := range []*later.Queue{m.mail, m.unpaid, m.invoices, m.stock, m.reports} {
		w.Handle(q.Name(), done)
	}
	w.Handle(m.packing.Name(), pack)
	w.Handle(m.webhooks.Name(), callPartner)
	w.Handle(m.reminders.Name(), func(_ context.Context, msg *later.Message) error {
		_, err := sendReminderMail(msg)
		return err
	})
	return w
}

func pack(ctx context.Context, _ *later.Message) error {
	select {
	case <-time.After(rand.N(maxPacking)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// callPartner fails for some orders, in three ways.
func callPartner(_ context.Context, msg *later.Message) error {
	var o order
	if err := json.Unmarshal(msg.Payload, &o); err != nil {
		return later.Bury(err)
	}
	switch {
	case o.Order%9 == 0 && msg.Attempt == 1:
		return errors.New("partner.example: connection reset")
	case o.Order%6 == 0:
		_, err := callWebhook(msg)
		return err
	case o.Order%7 == 0:
		return later.Bury(fmt.Errorf("the address of %s cannot be delivered to", o.Customer))
	case o.Order%8 == 0:
		return errors.New("payment was declined: card expired")
	}
	return nil
}

// remove removes what the market has in the store.
func (m *market) remove(ctx context.Context) error {
	failed := []error{m.topic.Delete(ctx)}
	for _, s := range m.schedules() {
		failed = append(failed, m.client.Schedules().Delete(ctx, s.Name))
	}
	for _, q := range m.queues() {
		failed = append(failed, q.Delete(ctx))
	}
	for i, err := range failed {
		if errors.Is(err, later.ErrNotFound) {
			failed[i] = nil // it was stopped before
		}
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("remove the demo's queues: %w", err)
	}
	return nil
}
