package lock_test

import (
	"context"
	"fmt"

	"github.com/laterq/later"
	"github.com/laterq/later/lock"
)

// Payments of one customer are handled one at a time, payments of different customers at once.
func ExamplePerKey() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		panic(err)
	}
	defer client.Close()

	locker := lock.For(client) // on Redis, for workers on many machines
	customer := func(m *later.Message) string { return m.Headers["customer"] }

	running, stop := context.WithCancel(ctx)
	worker := later.NewWorker(client, later.WorkerConfig{
		Middleware: []func(later.HandlerFunc) later.HandlerFunc{
			lock.PerKey(locker, customer, lock.Later(0)),
		},
	})
	balance, payments := 0, 0
	worker.Handle("payments", func(_ context.Context, m *later.Message) error {
		balance += len(m.Payload) // safe, because all payments are of one customer
		if payments++; payments == 10 {
			stop()
		}
		return nil
	})

	for range 10 {
		if _, err := client.Queue("payments").Send(ctx, []byte("$"), later.Header("customer", "ann")); err != nil {
			panic(err)
		}
	}
	if err := worker.Run(running); err != nil {
		panic(err)
	}
	fmt.Println("balance:", balance)
	// Output: balance: 10
}
