package later_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/laterq/later"
)

func ExampleWorker_Forward() {
	ctx, cancel := context.WithCancel(context.Background())
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	worker := later.NewWorker(client, later.WorkerConfig{})
	// With Redis also later.ToList("mail-due"), later.ToStream and later.ToChannel, for programs in any language.
	worker.Forward("trials", later.ToQueue("mail").ExactlyOnce())
	worker.Handle("mail", func(ctx context.Context, m *later.Message) error {
		fmt.Printf("%s: %s\n", m.ID, m.Payload)
		cancel()
		return nil
	})
	_, err = client.Queue("trials").Send(ctx, []byte("your trial ends"),
		later.WithID("trial-7"), later.In(20*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: trial-7: your trial ends
}

// printer is a destination that is busy at first.
type printer struct {
	calls int
	done  context.CancelFunc
}

func (p *printer) Deliver(_ context.Context, msgs []*later.Message) []error {
	p.calls++
	if p.calls == 1 {
		// The messages stay in the queue, and the worker tries again soon. This is not an attempt.
		errs := make([]error, len(msgs))
		for i := range errs {
			errs[i] = fmt.Errorf("printer is busy: %w", later.ErrUnavailable)
		}
		return errs
	}
	errs := make([]error, len(msgs)) // one for each message; nil means that it was delivered
	for i, m := range msgs {
		if len(m.Payload) == 0 {
			errs[i] = later.Bury(errors.New("page is empty")) // as in a handler
			continue
		}
		fmt.Printf("printed %s in attempt %d\n", m.Payload, m.Attempt)
	}
	p.done()
	return errs
}

// A Deliverer is a destination of your own.
func ExampleDeliverer() {
	ctx, cancel := context.WithCancel(context.Background())
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	worker := later.NewWorker(client, later.WorkerConfig{
		OnDead: func(_ context.Context, info *later.Info) {
			fmt.Printf("dead: %s, %s\n", info.ID, info.LastError)
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	worker.Forward("pages", later.To(&printer{done: cancel}))
	_, err = client.Queue("pages").SendBatch(ctx, []later.Outgoing{
		{Payload: []byte("page 1")}, {ID: "blank"}, {Payload: []byte("page 2")},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// printed page 1 in attempt 1
	// printed page 2 in attempt 1
	// dead: blank, page is empty
}
