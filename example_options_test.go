package later_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/laterq/later"
)

func ExampleQueue_With() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://", later.WithDefaults(later.MaxAttempts(5)))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	mail, err := client.Queue("mail").With(later.In(time.Hour), later.ExpireAfter(24*time.Hour))
	if err != nil {
		log.Fatal(err)
	}

	id, err := mail.Send(ctx, []byte("hello"), later.MaxAttempts(2)) // a send's own options win
	if err != nil {
		log.Fatal(err)
	}
	info, err := mail.Get(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.State, info.MaxAttempts, info.ExpireAfter)
	// Output: scheduled 2 24h0m0s
}

type tenantKey struct{}

func ExampleWithSendMiddleware() {
	// Every message carries the tenant of the request that sends it.
	tenant := func(ctx context.Context, o *later.Outgoing) error {
		name, ok := ctx.Value(tenantKey{}).(string)
		if !ok {
			return errors.New("the context has no tenant")
		}
		if o.Headers == nil {
			o.Headers = map[string]string{}
		}
		o.Headers["tenant"] = name
		return nil
	}
	client, err := later.Open(context.Background(), "mem://", later.WithSendMiddleware(tenant))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	mail := client.Queue("mail")

	_, err = mail.Send(context.Background(), nil)
	fmt.Println(err)
	request := context.WithValue(context.Background(), tenantKey{}, "acme")
	if _, err := mail.Send(request, nil); err != nil {
		log.Fatal(err)
	}
	deliveries, err := mail.Receive(request, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(deliveries[0].Headers["tenant"])
	// Output:
	// the context has no tenant
	// acme
}

func ExampleOutcomeOf() {
	for _, err := range []error{
		nil,
		errors.New("connection refused"),
		later.RetryIn(time.Minute),
		later.Snooze(time.Hour),
		later.Bury(errors.New("no such customer")),
	} {
		o := later.OutcomeOf(err)
		fmt.Println(o.Kind, o.Delay, o.Err)
	}
	// Output:
	// acked 0s <nil>
	// nacked 0s connection refused
	// nacked 1m0s <nil>
	// snoozed 1h0m0s <nil>
	// buried 0s no such customer
}

// The handler of a test needs no worker.
func ExampleContextWithMessage() {
	handler := func(ctx context.Context) error {
		m := later.MessageFromContext(ctx)
		fmt.Println(m.ID, m.Attempt)
		return nil
	}
	m := &later.Message{ID: "order-1001", Attempt: 1}
	if err := handler(later.ContextWithMessage(context.Background(), m)); err != nil {
		log.Fatal(err)
	}
	// Output: order-1001 1
}

func ExampleKey() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	mail := client.Queue("mail")

	if _, err := mail.Send(ctx, []byte("welcome"), later.Key("customer-7")); err != nil {
		log.Fatal(err)
	}
	deliveries, err := mail.Receive(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(deliveries[0].Key)
	// Output: customer-7
}

// A program that may start before its store waits for it, and its readiness probe asks the store.
func ExampleWaitForStore() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://", later.WaitForStore(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	fmt.Println(client.Ping(ctx))
	// Output: <nil>
}

// A job that returns again and again starts each time with all its attempts.
func ExampleSnooze() {
	ctx, stop := context.WithCancel(context.Background())
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	reports := client.Queue("reports")
	worker := later.NewWorker(client, later.WorkerConfig{Backoff: later.ConstantBackoff(0)})
	runs := 0
	worker.Handle("reports", func(_ context.Context, m *later.Message) error {
		runs++
		fmt.Println("attempt", m.Attempt)
		switch runs {
		case 1:
			return errors.New("try again")
		case 2:
			return later.Snooze(time.Millisecond, later.ResetAttempts)
		}
		stop()
		return nil
	})
	if _, err := reports.Send(ctx, nil, later.MaxAttempts(2)); err != nil {
		log.Fatal(err)
	}
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// attempt 1
	// attempt 2
	// attempt 1
}

func ExampleWithEventHeaders() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://", later.WithEventHeaders("customer"), later.WithObserver(func(e later.Event) {
		fmt.Println(e.Kind, e.Headers["customer"])
	}))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	if _, err := client.Queue("mail").Send(ctx, nil, later.Header("customer", "ann")); err != nil {
		log.Fatal(err)
	}
	// Output: sent ann
}
