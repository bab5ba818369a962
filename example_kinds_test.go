package later_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/laterq/later"
)

func ExampleMux() {
	type order struct{ Number int }
	ctx, cancel := context.WithCancel(context.Background())
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	orders := client.Queue("orders")

	mux := later.NewMux()
	mux.Handle("order.cancel", later.Handler(func(ctx context.Context, o order, m *later.Message) error {
		fmt.Println("cancel order", o.Number)
		return nil
	}))
	mux.Handle("order.*", func(ctx context.Context, m *later.Message) error {
		fmt.Printf("%s: %s\n", m.Kind(), m.Payload)
		return nil
	})
	mux.Handle("", func(ctx context.Context, m *later.Message) error {
		fmt.Printf("no kind: %s\n", m.Payload)
		cancel()
		return nil
	})

	worker := later.NewWorker(client, later.WorkerConfig{Concurrency: 1})
	worker.HandleMux("orders", mux)

	_, err1 := later.TypedQueue[order](orders).Send(ctx, order{1001}, later.Kind("order.cancel"))
	_, err2 := orders.Send(ctx, []byte("1002"), later.Kind("order.remind.again"))
	_, err3 := orders.Send(ctx, []byte("1003"))
	if err := errors.Join(err1, err2, err3); err != nil {
		log.Fatal(err)
	}
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// cancel order 1001
	// order.remind.again: 1002
	// no kind: 1003
}

func ExampleMux_Use() {
	ctx, cancel := context.WithCancel(context.Background())
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	named := func(name string) func(later.HandlerFunc) later.HandlerFunc {
		return func(next later.HandlerFunc) later.HandlerFunc {
			return func(ctx context.Context, m *later.Message) error {
				fmt.Println(name, m.Kind())
				return next(ctx, m)
			}
		}
	}
	var mux later.Mux // the zero value is ready to use
	mux.Use(named("all kinds:"))
	mux.Unknown(later.UnknownBury)
	mux.Handle("mail.send", func(context.Context, *later.Message) error { return nil }, named("this one:"))

	worker := later.NewWorker(client, later.WorkerConfig{
		Concurrency: 1,
		OnDead: func(ctx context.Context, info *later.Info) {
			fmt.Println("dead:", info.LastError)
			cancel()
		},
	})
	worker.HandleMux("mail", &mux)
	for _, kind := range []string{"mail.send", "mail.retract"} {
		if _, err := client.Queue("mail").Send(ctx, nil, later.Kind(kind)); err != nil {
			log.Fatal(err)
		}
	}
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// all kinds: mail.send
	// this one: mail.send
	// dead: kind "mail.retract" has no handler
}

func ExampleWorker_HandleBatch() {
	ctx, cancel := context.WithCancel(context.Background())
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	worker := later.NewWorker(client, later.WorkerConfig{})
	worker.HandleBatch("rows", func(ctx context.Context, msgs []*later.Message) []error {
		errs := make([]error, len(msgs))
		for i, m := range msgs {
			fmt.Printf("row %s, attempt %d\n", m.Payload, m.Attempt)
			if string(m.Payload) == "2" && m.Attempt == 1 {
				errs[i] = later.RetryIn(time.Millisecond) // this one alone
			} else if m.Attempt == 2 {
				cancel()
			}
		}
		return errs
	}, later.BatchConfig{Size: 100})

	rows := []later.Outgoing{{Payload: []byte("1")}, {Payload: []byte("2")}, {Payload: []byte("3")}}
	if _, err := client.Queue("rows").SendBatch(ctx, rows); err != nil {
		log.Fatal(err)
	}
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// row 1, attempt 1
	// row 2, attempt 1
	// row 3, attempt 1
	// row 2, attempt 2
}

func ExampleQueueConfig_priority() {
	ctx, cancel := context.WithCancel(context.Background())
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	var left atomic.Int32 // messages
	left.Store(2)

	worker := later.NewWorker(client, later.WorkerConfig{
		Concurrency: 1,
		Queues: map[string]later.QueueConfig{
			"urgent": {Priority: 1},
			"bulk":   {Priority: -1},
		},
	})
	handle := func(ctx context.Context, m *later.Message) error {
		fmt.Printf("%s: %s\n", m.Queue, m.Payload)
		if left.Add(-1) == 0 {
			cancel()
		}
		return nil
	}
	worker.Handle("urgent", handle)
	worker.Handle("bulk", handle)
	_, err1 := client.Queue("bulk").Send(ctx, []byte("report"))
	_, err2 := client.Queue("urgent").Send(ctx, []byte("alarm"))
	if err := errors.Join(err1, err2); err != nil {
		log.Fatal(err)
	}
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// A handler that becomes free takes the urgent message first. When the worker starts, it does not know yet which
	// messages are due, so here either message can be first.

	// Unordered output:
	// urgent: alarm
	// bulk: report
}
