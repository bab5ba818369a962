package later_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/laterq/later"
)

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	client, err := later.Open(ctx, "mem://") // or redis://localhost:6379/0
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	worker := later.NewWorker(client, later.WorkerConfig{})
	worker.Handle("emails", func(ctx context.Context, m *later.Message) error {
		fmt.Printf("%s, attempt %d\n", m.Payload, m.Attempt)
		cancel() // a program would end the context on SIGTERM
		return nil
	})

	if _, err := client.Queue("emails").Send(ctx, []byte("welcome"), later.In(20*time.Millisecond)); err != nil {
		log.Fatal(err)
	}
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: welcome, attempt 1
}

func ExampleQueue_Send() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	orders := client.Queue("orders")

	// An id of our own makes sending again safe.
	for range 2 {
		id, err := orders.Send(ctx, []byte("cancel if unpaid"),
			later.WithID("order-1001"), later.In(30*time.Minute), later.Header("customer", "42"))
		switch {
		case errors.Is(err, later.ErrDuplicate):
			fmt.Println(id, "was sent before")
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Println(id, "sent")
		}
	}
	info, err := orders.Get(ctx, "order-1001")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, due in %v\n", info.State, time.Until(info.Due).Round(time.Minute))
	// Output:
	// order-1001 sent
	// order-1001 was sent before
	// scheduled, due in 30m0s
}

func ExampleQueue_SendBatch() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	var msgs []later.Outgoing
	for day := range 3 {
		msgs = append(msgs, later.Outgoing{
			ID:      fmt.Sprintf("reminder-%d", day+1),
			Payload: []byte("your trial ends soon"),
			When:    later.In(time.Duration(day+1) * 24 * time.Hour),
		})
	}
	results, err := client.Queue("reminders").SendBatch(ctx, msgs)
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range results {
		fmt.Println(r.ID, r.Duplicate)
	}
	// Output:
	// reminder-1 false
	// reminder-2 false
	// reminder-3 false
}

func ExampleQueue_Receive() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	queue := client.Queue("jobs")
	if _, err := queue.Send(ctx, []byte("resize picture 7"), later.In(10*time.Millisecond)); err != nil {
		log.Fatal(err)
	}

	deliveries, err := queue.Receive(ctx, 10, later.LeaseFor(time.Minute)) // blocks for the first one
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range deliveries {
		fmt.Printf("%s\n", d.Payload)
		if err := d.Ack(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output: resize picture 7
}

func ExampleWorker() {
	ctx, cancel := context.WithCancel(context.Background())
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	worker := later.NewWorker(client, later.WorkerConfig{
		Concurrency: 8,
		Timeout:     time.Minute,
		Queues:      map[string]later.QueueConfig{"bulk": {Concurrency: 2}},
		OnDead: func(ctx context.Context, info *later.Info) {
			fmt.Printf("dead: %s, %s: %s\n", info.ID, info.DeadReason, info.LastError)
			cancel()
		},
	})
	worker.Handle("bulk", func(ctx context.Context, m *later.Message) error { return nil })
	worker.Handle("payments", func(ctx context.Context, m *later.Message) error {
		switch m.Attempt {
		case 1:
			return fmt.Errorf("bank is busy: %w", later.RetryIn(10*time.Millisecond)) // counts
		case 2:
			fmt.Println("attempt 2 of", m.ID)
			return later.Bury(errors.New("account is closed")) // no use to try again
		}
		return nil
	})
	if _, err := client.Queue("payments").Send(ctx, nil, later.WithID("payment-7")); err != nil {
		log.Fatal(err)
	}
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// attempt 2 of payment-7
	// dead: payment-7, buried: account is closed
}

func ExampleTypedQueue() {
	type order struct {
		Number int    `json:"number"`
		Item   string `json:"item"`
	}
	ctx, cancel := context.WithCancel(context.Background())
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	orders := later.TypedQueue[order](client.Queue("orders"))

	worker := later.NewWorker(client, later.WorkerConfig{})
	worker.Handle("orders", orders.Handler(func(ctx context.Context, o order, m *later.Message) error {
		fmt.Printf("order %d: %s (%s)\n", o.Number, o.Item, m.Payload)
		cancel()
		return nil
	}))
	if _, err := orders.Send(ctx, order{1001, "lamp"}, later.In(10*time.Millisecond)); err != nil {
		log.Fatal(err)
	}
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: order 1001: lamp ({"number":1001,"item":"lamp"})
}

func ExampleQueue_Cancel() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	orders := client.Queue("orders")
	if _, err := orders.Send(ctx, nil, later.WithID("order-1001"), later.In(30*time.Minute)); err != nil {
		log.Fatal(err)
	}

	state, err := orders.Cancel(ctx, "order-1001") // it was paid
	fmt.Println(state, err)
	_, err = orders.Cancel(ctx, "order-1001")
	fmt.Println(errors.Is(err, later.ErrNotFound), later.CodeOf(err).Name)
	// Output:
	// scheduled <nil>
	// true not_found
}

func ExampleQueue_Reschedule() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	orders := client.Queue("orders")
	if _, err := orders.Send(ctx, []byte("remind"), later.WithID("order-1001"), later.In(30*time.Minute)); err != nil {
		log.Fatal(err)
	}

	if err := orders.Reschedule(ctx, "order-1001", later.In(10*time.Millisecond)); err != nil {
		log.Fatal(err)
	}
	deliveries, err := orders.Receive(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", deliveries[0].Payload)
	// Output: remind
}

func ExampleQueue_All() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	queue := client.Queue("reminders")
	for hours := range 3 {
		id := fmt.Sprintf("in-%dh", hours+1)
		if _, err := queue.Send(ctx, nil, later.WithID(id), later.In(time.Duration(hours+1)*time.Hour)); err != nil {
			log.Fatal(err)
		}
	}
	for info, err := range queue.All(ctx, later.ListOptions{State: later.StateScheduled}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(info.ID)
	}
	// Output:
	// in-1h
	// in-2h
	// in-3h
}
