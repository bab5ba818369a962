package later_test

// The recipes of docs/cookbook.md. A test compares them with the page.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/latertest"
	"github.com/laterq/later/lock"
	"github.com/laterq/later/recurrence"
)

func Example_cookbookRateLimit() {
	client, run := cookbook("sms")
	ctx, start := context.Background(), time.Now()

	err := client.Queue("sms").SetFlow(ctx, later.Flow{
		Rate:        later.Rate{N: 100, Per: time.Second}, // 100 a second, by all processes together
		Concurrency: 4,                                    // and at most 4 in flight
	})

	worker := later.NewWorker(client, later.WorkerConfig{})
	worker.Handle("sms", sendSMS)
	run(worker, 5)
	fmt.Println(err, time.Since(start) >= 40*time.Millisecond)
	// Output: <nil> true
}

func Example_cookbookTurns() {
	client, _ := cookbook("mail")
	defer client.Close()
	ctx := context.Background()

	mail := client.Queue("mail")
	err := mail.SetFlow(ctx, later.Flow{
		Rate: later.Rate{N: 10, Per: time.Second},
		Key:  later.KeyFlow{Concurrency: 1}, // customers take turns
	})
	fmt.Println(err)

	_, err = mail.Send(ctx, []byte("your invoice"), later.Key("customer-7"))
	state, _ := mail.Flow(ctx)
	fmt.Println(err, state.Fair, state.Key.Concurrency)
	// Output: <nil>
	// <nil> true 1
}

func Example_cookbookSpread() {
	client, _ := cookbook("sms")
	defer client.Close()
	ctx, customers := context.Background(), []string{"ann", "bob", "eve"}

	var msgs []later.Outgoing
	for i, customer := range customers {
		msgs = append(msgs, later.Outgoing{
			Payload: []byte(customer),
			When:    later.In(time.Duration(i) * 100 * time.Millisecond), // ten a second, however many workers there are
		})
	}
	results, err := client.Queue("sms").SendBatch(ctx, msgs)

	fmt.Println(len(results), err)
	// Output: 3 <nil>
}

var hooks = &http.Client{Timeout: 20 * time.Second}

// callWebhook posts the payload to the URL in a header.
func callWebhook(ctx context.Context, m *later.Message) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.Headers["url"], bytes.NewReader(m.Payload))
	if err != nil {
		return later.Bury(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Webhook-Id", m.ID) // the same in each attempt, so the receiver can drop repetitions
	reply, err := hooks.Do(req)
	if err != nil {
		return err // again after the backoff
	}
	defer reply.Body.Close()
	switch {
	case reply.StatusCode < 300:
		return nil
	case reply.StatusCode == http.StatusGone:
		return later.Bury(errors.New("the receiver has gone"))
	}
	failed := fmt.Errorf("the receiver replied %s", reply.Status)
	if seconds, err := strconv.Atoi(reply.Header.Get("Retry-After")); err == nil && seconds > 0 {
		wait := min(time.Duration(seconds)*time.Second, 24*time.Hour)
		return fmt.Errorf("%w: %w", failed, later.RetryIn(wait))
	}
	return failed
}

func Example_cookbookWebhook() {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Header.Get("Webhook-Id"), r.Header.Get("Content-Type"))
	}))
	defer receiver.Close()
	client, run := cookbook("")
	ctx, q, url := context.Background(), client.Queue("webhooks"), receiver.URL

	worker := later.NewWorker(client, later.WorkerConfig{Queues: map[string]later.QueueConfig{
		"webhooks": {Backoff: later.ExponentialBackoff(5*time.Second, 6*time.Hour), Timeout: 30 * time.Second},
	}})
	worker.Handle("webhooks", callWebhook)

	_, err := q.Send(ctx, []byte(`{"order":42}`), later.WithID("order-42-paid"),
		later.Header("url", url), later.MaxAttempts(15))

	if err != nil {
		log.Fatal(err)
	}
	run(worker, 1)
	// Output: order-42-paid application/json
}

func Example_cookbookOneAtATime() {
	client, run := cookbook("orders")

	customer := func(m *later.Message) string { return m.Headers["customer"] }
	worker := later.NewWorker(client, later.WorkerConfig{
		Middleware: []func(later.HandlerFunc) later.HandlerFunc{
			lock.PerKey(lock.For(client), customer, lock.Wait(time.Minute)),
		},
	})

	worker.Handle("orders", func(context.Context, *later.Message) error { return nil })
	run(worker, 5)
	// Output:
}

// ledger is a stand-in for a table of accounts.
type ledger struct {
	mu       sync.Mutex
	bookings map[string][]string
	fence    map[string]int64
}

// Book adds a booking to an account, as UPDATE accounts SET …, fence = $1 WHERE id = $2 AND fence < $1 does.
func (l *ledger) Book(_ context.Context, account string, fence int64, booking string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fence[account] >= fence {
		return errors.New("a later delivery has booked already")
	}
	l.fence[account] = fence
	l.bookings[account] = append(l.bookings[account], booking)
	return nil
}

// book returns the handler of bookings. The message's key is the account, and its fence grows with each delivery.
func book(accounts *ledger) later.HandlerFunc {
	return func(ctx context.Context, m *later.Message) error {
		return accounts.Book(ctx, m.Key, m.Fence, string(m.Payload))
	}
}

func Example_cookbookInOrder() {
	client, run := cookbook("")
	ctx := context.Background()

	bookings := client.Queue("bookings")
	err := bookings.SetFlow(ctx, later.Flow{Key: later.KeyFlow{Order: later.OrderHalt}})

	for _, booking := range []string{"open", "deposit 100", "withdraw 30"} {
		_, err := bookings.Send(ctx, []byte(booking), later.Key("account-7"))
		if err != nil {
			log.Fatal(err)
		}
	}
	accounts := &ledger{bookings: map[string][]string{}, fence: map[string]int64{}}
	worker := later.NewWorker(client, later.WorkerConfig{})
	worker.Handle("bookings", book(accounts))
	run(worker, 3)
	fmt.Println(err, accounts.bookings)
	// Output: <nil> map[account-7:[open deposit 100 withdraw 30]]
}

func Example_cookbookUrgent() {
	client, run := cookbook("")
	ctx := context.Background()

	mail := client.Queue("mail")
	err := mail.SetFlow(ctx, later.Flow{Urgency: true, Rate: later.Rate{N: 100, Per: time.Second}})

	if err != nil {
		log.Fatal(err)
	}
	_, err = mail.Send(ctx, []byte("newsletter"), later.Background())
	_, err = mail.Send(ctx, []byte("invoice"))
	_, err = mail.Send(ctx, []byte("password reset"), later.Urgent())

	worker := later.NewWorker(client, later.WorkerConfig{Concurrency: 1})
	worker.Handle("mail", func(_ context.Context, m *later.Message) error {
		fmt.Println(string(m.Payload))
		return nil
	})
	run(worker, 3)
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// password reset
	// invoice
	// newsletter
}

func Example_cookbookUnique() {
	client, _ := cookbook("")
	defer client.Close()
	ctx, q, payload := context.Background(), client.Queue("reports"), []byte("2030-01")

	_, err := q.Send(ctx, payload, later.WithID("report-2030-01"), later.DedupWindow(24*time.Hour))
	if errors.Is(err, later.ErrDuplicate) {
		err = nil // it is waiting, running, dead, or was done in the last 24 hours
	}

	fmt.Println(err)
	_, err = q.Send(ctx, payload, later.WithID("report-2030-01"))
	fmt.Println(errors.Is(err, later.ErrDuplicate))
	// Output:
	// <nil>
	// true
}

type orderV1 struct {
	Order string
	Euros int
}

type orderV2 struct {
	Order    string
	Cents    int64
	Currency string
}

func chargeV1(ctx context.Context, o orderV1, m *later.Message) error {
	return chargeV2(ctx, orderV2{Order: o.Order, Cents: int64(o.Euros) * 100, Currency: "EUR"}, m)
}

func chargeV2(_ context.Context, o orderV2, _ *later.Message) error {
	fmt.Println(o.Order, o.Cents, o.Currency)
	return nil
}

func Example_cookbookVersions() {
	client, run := cookbook("")
	ctx, q := context.Background(), client.Queue("charges")
	if _, err := q.Send(ctx, []byte(`{"Order":"41","Euros":5}`), later.Kind("charge.v1")); err != nil {
		log.Fatal(err)
	}

	mux := later.NewMux()
	mux.Handle("charge.v1", later.Handler(chargeV1)) // converts, until no such message is left
	mux.Handle("charge.v2", later.Handler(chargeV2))
	worker := later.NewWorker(client, later.WorkerConfig{})
	worker.HandleMux("charges", mux)

	run(worker, 1)
	// Output: 41 500 EUR
}

// scheduleInvoices is a part of the program that is tested.
func scheduleInvoices(ctx context.Context, client *later.Client) error {
	_, err := client.Schedules().Put(ctx, later.Schedule{
		Name: "invoices", Queue: "invoices", When: recurrence.Spec{Cron: "0 9 1 * *", TimeZone: "Europe/Berlin"},
	})
	return err
}

func TestCookbookInvoicesAreWrittenEachMonth(t *testing.T) {
	lt := latertest.NewAt(t, time.Date(2030, 1, 15, 0, 0, 0, 0, time.UTC))
	if err := scheduleInvoices(t.Context(), lt.Client()); err != nil {
		t.Fatal(err)
	}
	var runs []string
	lt.Handle("invoices", func(_ context.Context, m *later.Message) error {
		run, _ := later.RunOf(m)
		runs = append(runs, run.Nominal.UTC().Format(time.RFC3339))
		return nil
	})
	lt.Advance(90 * 24 * time.Hour)
	want := "[2030-02-01T08:00:00Z 2030-03-01T08:00:00Z 2030-04-01T07:00:00Z]" // nine in Berlin, also in summer
	if got := fmt.Sprint(runs); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// alertOnDead sends a message about each queue that has new dead letters, at most one an hour.
func alertOnDead(alerts *later.Queue) func(context.Context, *later.Info) {
	return func(ctx context.Context, info *later.Info) {
		text := fmt.Sprintf("%s: %s is dead (%s): %s", info.Queue, info.ID, info.DeadReason, info.LastError)
		_, err := alerts.Send(ctx, []byte(text), later.WithID("dead-"+info.Queue), later.DedupWindow(time.Hour))
		if err != nil && !errors.Is(err, later.ErrDuplicate) {
			log.Print(err)
		}
	}
}

func Example_cookbookDeadLetters() {
	client, _ := cookbook("")
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	postToChat := func(ctx context.Context, m *later.Message) error {
		fmt.Printf("%s\n", m.Payload)
		cancel()
		return nil
	}

	worker := later.NewWorker(client, later.WorkerConfig{OnDead: alertOnDead(client.Queue("alerts"))})
	worker.Handle("alerts", postToChat)

	worker.Handle("charges", func(ctx context.Context, m *later.Message) error {
		return later.Bury(errors.New("the card has expired"))
	})

	if _, err := client.Queue("charges").Send(ctx, nil, later.WithID("charge-7")); err != nil {
		log.Fatal(err)
	}
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: charges: charge-7 is dead (buried): the card has expired
}

func sendSMS(context.Context, *later.Message) error { return nil }

// cookbook returns a client, with five messages in the queue if it has a name, and a function that runs a worker until
// it has handled n messages, and closes the client.
func cookbook(queue string) (client *later.Client, run func(w *later.Worker, n int)) {
	ctx, cancel := context.WithCancel(context.Background())
	acked := make(chan struct{}, 10)
	client, err := later.Open(ctx, "mem://", later.WithObserver(func(e later.Event) {
		if e.Kind == later.EventAcked {
			acked <- struct{}{}
		}
	}))
	if err != nil {
		log.Fatal(err)
	}
	if queue != "" {
		for range 5 {
			if _, err := client.Queue(queue).Send(ctx, nil, later.Header("customer", "ann")); err != nil {
				log.Fatal(err)
			}
		}
	}
	return client, func(w *later.Worker, n int) {
		defer client.Close()
		go func() {
			for range n {
				<-acked
			}
			cancel()
		}()
		if err := w.Run(ctx); err != nil {
			log.Fatal(err)
		}
	}
}
