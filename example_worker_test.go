package later_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/laterq/later"
)

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
			fmt.Printf("dead: %s of %s, %s: %s\n", info.ID, info.Queue, info.DeadReason, info.LastError)
			cancel()
		},
	})
	worker.Handle("bulk", func(ctx context.Context, m *later.Message) error { return nil })
	worker.Handle("payments", func(ctx context.Context, m *later.Message) error {
		switch m.Attempt {
		case 1:
			return fmt.Errorf("bank is busy: %w", later.RetryIn(10*time.Millisecond)) // a failed attempt
		case 2:
			fmt.Println("attempt 2 of", m.ID)
			return later.Bury(errors.New("account is closed")) // a retry would not help
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
	// dead: payment-7 of payments, buried: account is closed
}

func ExampleThen() {
	ctx, cancel := context.WithCancel(context.Background())
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	worker := later.NewWorker(client, later.WorkerConfig{})
	worker.Handle("orders", func(ctx context.Context, m *later.Message) error {
		return later.Then("mail", fmt.Appendf(nil, "order %s is on its way", m.Payload))
	})
	worker.Handle("mail", func(ctx context.Context, m *later.Message) error {
		fmt.Printf("%s\n", m.Payload)
		cancel()
		return nil
	})
	if _, err := client.Queue("orders").Send(ctx, []byte("42")); err != nil {
		log.Fatal(err)
	}
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: order 42 is on its way
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
