package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/metrics"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

const (
	placingTime  = 1200 * time.Millisecond // over which orders are placed
	payingTime   = 2 * time.Second         // from an order to its payment
	firstUnpaid  = 4 * time.Second         // from the first order until it cancels itself
	lastUnpaid   = 8 * time.Second         // from the last order until it cancels itself
	moreTime     = 7 * time.Second
	retryBackoff = 700 * time.Millisecond
	demoLease    = 3 * time.Second // how long a killed demo still holds its messages, at any speed
	auditEvery   = 200 * time.Millisecond
)

// shopQueues are the names of the shop's queues, without the prefix. The last three have messages only on the page.
var shopQueues = []string{"mail", "orders", "reminders", "webhooks", "packing", "stock", "reports"}

// shop is the demo's shop. Its orders cancel themselves unless they are paid. On the page it goes on until it is
// stopped, and has something of everything that the page shows.
type shop struct {
	*demoOptions
	report *demoReport
	client *later.Client
	counts *metrics.Metrics
	url    string
	prefix string // of the names of queues, topic and schedules
	keeps  bool   // the next run can continue a stopped demo
}

func (s *shop) queue(name string) *later.Queue { return s.client.Queue(s.prefix + name) }
func (s *shop) topic() *later.Topic            { return s.client.Topic(s.prefix + "paid") }

// messages returns the ids of the shop's messages that are in the store and not dead.
func (s *shop) messages(ctx context.Context) (map[string]bool, error) {
	waiting := map[string]bool{}
	// The states are read in the order of a message's life, so that a message that changes its state is not missed.
	for _, state := range []later.State{later.StateScheduled, later.StateReady, later.StateLeased, later.StateDead} {
		listed := later.ListOptions{State: state, Limit: store.MaxBatch}
		for _, name := range shopQueues {
			for info, err := range s.queue(name).All(ctx, listed) {
				if err != nil {
					return nil, err
				}
				if info.Headers["source"] != "demo" {
					return nil, store.Invalid("queue %q has messages that are not a demo's: use another --store, or "+
						"remove it with later delete %[1]s", s.prefix+name)
				}
				if state != later.StateDead {
					waiting[info.ID] = true
				}
			}
		}
	}
	return waiting, nil
}

// find finds the messages of a stopped demo. If there are none, or the shop starts over, it removes the rest of that
// demo.
func (s *shop) find(ctx context.Context) error {
	waiting, err := s.messages(ctx)
	if err != nil {
		return err
	}
	if s.fresh || len(waiting) == 0 {
		return s.remove(ctx)
	}
	s.report.left, s.report.summary.Found = waiting, len(waiting)
	return nil
}

// run runs the shop until all its messages are done or dead, or ctx ends.
func (s *shop) run(ctx context.Context) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	worked := make(chan error, 1)
	go func() { worked <- s.worker().Run(working) }()
	err := s.sell(ctx)
	for left := 1; err == nil && left > 0; {
		paused := calls.Sleep(ctx, auditEvery)
		ids, listed := s.messages(ctx)
		left, err = len(ids), cmp.Or(paused, listed)
	}
	stop()
	return errors.Join(err, <-worked)
}

// pace scales a duration to the demo's speed.
func (s *shop) pace(d time.Duration) time.Duration { return time.Duration(float64(d) / s.speed) }

// sell places orders, pays every third one after payingTime, and gives others more time.
func (s *shop) sell(ctx context.Context) error {
	if s.report.summary.Found > 0 {
		return nil
	}
	every := 700 * time.Millisecond
	if !s.ui {
		every = max(s.pace(placingTime)/time.Duration(s.orders), time.Microsecond)
	}
	behind := int(s.pace(payingTime) / every)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for number := 1; s.ui || number <= s.orders+behind; number++ {
		var err error
		if s.ui || number <= s.orders {
			err = s.place(ctx, number)
		}
		if earlier := number - behind; err == nil && earlier > 0 && (earlier%3 == 2 || earlier%30 == 3) {
			err = s.pay(ctx, earlier, earlier%3 != 2)
		}
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	var names []string
	for _, name := range shopQueues {
		names = append(names, s.prefix+name)
	}
	all, _, err := readStats(ctx, s.client, names)
	return errors.Join(err, s.report.main.printStats(all))
}

// message returns a message about an order.
func (s *shop) message(number int, kind string, in time.Duration) later.Outgoing {
	customers := []string{"ada@shop.example", "grace@shop.example", "édouard@shop.example", "李雷@shop.example"}
	customer := customers[number%len(customers)]
	return later.Outgoing{ID: kind + "-" + strconv.Itoa(number), When: later.In(in),
		Payload: fmt.Appendf(nil, `{"order": %d, "customer": %q, "items": ["lamp", "teapot"]}`, number, customer),
		Headers: map[string]string{"source": "demo", "order": strconv.Itoa(number), "customer": customer}}
}

func (s *shop) send(ctx context.Context, queue string, o later.Outgoing) error {
	s.report.mu.Lock()
	s.report.left[o.ID] = true
	s.report.summary.Sent++
	s.report.mu.Unlock()
	_, err := s.queue(queue).SendMessage(ctx, o)
	if err != nil { // the store may not have it
		s.report.mu.Lock()
		defer s.report.mu.Unlock()
		if s.report.left[o.ID] {
			delete(s.report.left, o.ID)
			s.report.summary.Sent--
		}
	}
	return err
}

func (s *shop) place(ctx context.Context, number int) error {
	unpaid, remind := 30*time.Minute, sometime()
	if !s.ui {
		unpaid = s.pace(firstUnpaid + (lastUnpaid-firstUnpaid)*time.Duration(number-1)/time.Duration(s.orders))
		remind = s.pace(1500 * time.Millisecond)
	}
	cancel := s.message(number, "order", unpaid)
	if err := s.send(ctx, "orders", cancel); err != nil {
		return err
	}
	err := s.report.did("placed", cancel.ID, "cancels itself in "+durations.Format(unpaid)+" if it is not paid", "")
	webhook := s.message(number, "webhook", s.pace(time.Second))
	webhook.MaxAttempts = 3
	err = errors.Join(err, s.send(ctx, "mail", s.message(number, "mail", 0)), s.send(ctx, "webhooks", webhook))
	if number%10 == 1 {
		err = errors.Join(err, s.send(ctx, "reminders", s.message(number, "reminder", remind)))
	}
	return err
}

// pay cancels an order's message, or gives the customer more time.
func (s *shop) pay(ctx context.Context, number int, moves bool) (err error) {
	q, id, state := s.queue("orders"), s.message(number, "order", 0).ID, later.State("")
	if moves {
		err = q.Reschedule(ctx, id, later.In(s.pace(moreTime)))
	} else {
		state, err = q.Cancel(ctx, id)
	}
	switch {
	case errors.Is(err, later.ErrNotFound), errors.Is(err, later.ErrLeased):
		return s.report.did("too late", id, "the customer comes after it cancelled itself", "")
	case err != nil:
		return err
	case moves:
		return s.report.did("moved", id, "the customer has "+durations.Format(s.pace(moreTime))+" more to pay", "")
	case s.ui:
		_, err = s.topic().PublishMessage(ctx, s.message(number, "paid", 0))
	}
	s.report.ended(id, &s.report.summary.Paid)
	return errors.Join(err, s.report.did("paid", id, fmt.Sprintf("its message was %s and is cancelled", state), ""))
}

// worker handles the shop's messages. On the page it ends without its handlers, because their messages are removed.
func (s *shop) worker() *later.Worker {
	c := later.WorkerConfig{Name: "demo", Unlisted: !s.ui, DeathLevel: slog.LevelDebug, OnDead: s.report.died,
		Lease: demoLease, Backoff: later.ConstantBackoff(s.pace(retryBackoff))}
	if s.ui {
		c.ShutdownTimeout = -1
	}
	w := later.NewWorker(s.client, c)
	for _, name := range shopQueues {
		w.Handle(s.prefix+name, func(ctx context.Context, m *later.Message) error {
			text, err := s.do(ctx, m)
			s.report.delivery(m, text, err)
			return err
		})
	}
	return w
}

// do handles a message. Reminders fail twice, and webhooks of some orders fail in three ways.
func (s *shop) do(ctx context.Context, m *later.Message) (string, error) {
	number, _ := strconv.Atoi(m.Headers["order"])
	switch queue := strings.TrimPrefix(m.Queue, s.prefix); {
	case queue == "orders":
		return "not paid: the order cancels itself", nil
	case queue == "packing":
		return "packed", calls.Sleep(ctx, rand.N(5*time.Second))
	case queue == "reminders" && m.Attempt <= 2:
		return "", errors.New("the mail server is busy")
	case queue != "webhooks":
	case number%9 == 0 && m.Attempt == 1:
		return "", errors.New("partner.example: connection reset")
	case number%6 == 0:
		return "", errors.New("partner.example returns 503")
	case number%7 == 0:
		return "", later.Bury(errors.New("the address cannot be delivered to"))
	}
	return "done", nil
}

// sometime returns a delay that is as likely to be of some minutes as of some days.
func sometime() time.Duration {
	return time.Duration(float64(time.Second) * math.Pow((40*24*time.Hour).Seconds(), rand.Float64()))
}

// stock sends the messages that the shop on the page starts with, and stores its topic, schedules and settings.
func (s *shop) stock(ctx context.Context) error {
	failed := []error{
		s.topic().Configure(ctx, later.TopicConfig{HistoryCount: 1000}),
		s.topic().Subscribe(ctx, s.prefix+"packing"), s.topic().Subscribe(ctx, s.prefix+"stock"),
		s.queue("stock").Pause(ctx),
	}
	var reminders []later.Outgoing
	for number := range 500 {
		reminders = append(reminders, s.message(1_000_000+number, "reminder", sometime()))
	}
	_, err := s.queue("reminders").SendBatch(ctx, reminders)
	failed = append(failed, err)
	for name, when := range schedulesOnPage {
		one := later.Schedule{Name: s.prefix + name, Queue: s.prefix + "reports", When: when}
		_, err := s.client.Schedules().Put(ctx, one)
		failed = append(failed, err)
	}
	failed = append(failed, s.client.Schedules().Pause(ctx, s.prefix+"taxes", "the tax office is closed"))
	return errors.Join(failed...)
}

var schedulesOnPage = map[string]recurrence.Spec{
	"stock": {Every: 20 * time.Second},
	"sales": {Cron: "30 9 * * 1-5", TimeZone: "Europe/Berlin"},
	"taxes": {RRule: "FREQ=MONTHLY;BYDAY=1MO", TimeZone: "Europe/Berlin"},
}

// remove removes everything of the shop from the store, however much of it is there.
func (s *shop) remove(ctx context.Context) error {
	failed := []error{s.topic().Delete(ctx)}
	for name := range schedulesOnPage {
		failed = append(failed, s.client.Schedules().Delete(ctx, s.prefix+name))
	}
	for _, name := range shopQueues {
		failed = append(failed, s.queue(name).Delete(ctx))
	}
	failed = slices.DeleteFunc(failed, func(err error) bool { return errors.Is(err, later.ErrNotFound) })
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("remove the demo's queues: %w", err)
	}
	return nil
}

// demoReport prints the events of the shop, unless it is quiet, and counts messages and deliveries.
type demoReport struct {
	main  *Main
	quiet bool
	fail  func(error)   // is called when the output is closed or full
	ahead time.Duration // by how much the store's clock is ahead of this machine's, at most
	began time.Time

	mu       sync.Mutex
	left     map[string]bool // ids of messages that were sent or found, and are not done, paid or dead
	summary  summaryJSON
	lateness []time.Duration
}

// summaryJSON counts messages, except for Delivered and Early, which count deliveries.
type summaryJSON struct {
	Sent      int           `json:"sent"`
	Found     int           `json:"found"` // of a stopped demo
	Done      int           `json:"done"`
	Paid      int           `json:"paid"`
	Dead      int           `json:"dead"`
	Waiting   int           `json:"waiting"`
	Lost      int           `json:"lost"`
	Delivered int           `json:"delivered"`
	Early     int           `json:"early"`
	P50       wire.Duration `json:"lateness_p50"`
	P99       wire.Duration `json:"lateness_p99"`
	Max       wire.Duration `json:"lateness_max"`
}

// ended counts a message that is done, paid or dead.
func (r *demoReport) ended(id string, count *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left[id] {
		*count++
	}
	delete(r.left, id)
}

// delivery counts and prints a delivery and the result of its handler.
func (r *demoReport) delivery(m *later.Message, text string, err error) {
	r.mu.Lock()
	r.summary.Delivered++
	if time.Now().Add(r.ahead).Before(m.Due) {
		r.summary.Early++
	}
	r.lateness = append(r.lateness, m.Lateness)
	r.mu.Unlock()
	event := "delivered"
	if err != nil {
		event, text = "failed", err.Error()
	} else {
		r.ended(m.ID, &r.summary.Done)
	}
	if m.Attempt > 1 || err != nil {
		text += fmt.Sprintf(" (attempt %d of %d)", m.Attempt, m.MaxAttempts)
	}
	r.did(event, m.ID, text, formatMillis(m.Lateness)+" late")
}

// died counts and prints a dead message; it is the worker's OnDead.
func (r *demoReport) died(_ context.Context, info *later.Info) {
	r.ended(info.ID, &r.summary.Dead)
	r.did("dead", info.ID, fmt.Sprintf("dead after attempt %d: %s", info.Attempts, info.LastError), "")
}

// did prints something that the shop did. If it cannot, it stops the shop too.
func (r *demoReport) did(event, id, text, late string) error {
	if r.quiet {
		return nil
	}
	line := fmt.Sprintf("%7.3fs  %-9s  %-11s  %-48s %12s", time.Since(r.began).Seconds(), event, id, text, late)
	err := r.main.print("%s\n", strings.TrimRight(line, " "))
	if err != nil {
		r.fail(err)
	}
	return err
}

// end prints the summary, whose last line is meant for programs, and returns the ids of the messages that are lost.
// waiting are the ids of messages that the store still has.
func (r *demoReport) end(waiting map[string]bool) (lost []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(r.left)) {
		if !waiting[id] {
			lost = append(lost, id)
		}
	}
	slices.Sort(r.lateness)
	p50, p99, most := percentile(r.lateness, 50), percentile(r.lateness, 99), percentile(r.lateness, 100)
	s := &r.summary
	s.Waiting, s.Lost = len(waiting), len(lost)
	s.P50, s.P99, s.Max = wire.Measured(p50), wire.Measured(p99), wire.Measured(most)
	return lost, r.main.printResult(s, "\nOf %d messages sent and %d found: %d done, %d cancelled by payment, "+
		"%d dead, %d waiting, %d lost.\nsent=%d delivered=%d early=%d lost=%d lateness p50=%s p99=%s max=%s",
		s.Sent, s.Found, s.Done, s.Paid, s.Dead, s.Waiting, s.Lost,
		s.Sent, s.Delivered, s.Early, s.Lost, formatMillis(p50), formatMillis(p99), formatMillis(most))
}
