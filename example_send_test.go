package later_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/laterq/later"
	_ "github.com/laterq/later/diskstore"
)

func ExampleQueue_Send() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	orders := client.Queue("orders")

	// With an id of your own, a send can safely be repeated.
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

func ExampleDurable() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "later-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	// This store fsyncs every second. A durable send waits for the fsync.
	client, err := later.Open(ctx, "file://"+dir+"?sync=1s")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	payments, err := client.Queue("payments").With(later.Durable(0, 5*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := payments.Send(ctx, []byte("charge"), later.WithID("payment-7")); err != nil {
		log.Fatal(err)
	}
	// Redis can also wait for replicas. Asking for more than the store supports is an error.
	_, err = payments.Send(ctx, []byte("refund"), later.Durable(1, time.Second))
	fmt.Println(err)
	// Output:
	// durability asks for replicas and the embedded store has none: ask for 0, its disk, or use Redis: store unsupported
}

func ExampleOutgoing_Check() {
	m := later.Outgoing{Payload: []byte("hello"), MaxAttempts: 100_000}
	fmt.Println(m.Check())
	// Output: max attempts is 100000: must be 1 to 65535, or 0 for the default of 20
}

func ExampleWhen_Time() {
	now := time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC)
	fmt.Println(later.In(time.Hour).Time(now).Format(time.TimeOnly))
	// Output: 10:00:00
}

func ExampleOnce() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	// A client repeats its request after a timeout, with the key that it chose.
	key, request := []byte("client 7, key 1"), []byte("POST /customers ann")
	first, err := client.Queue("mail").Send(ctx, []byte("welcome"), later.Once(key, request))
	if err != nil {
		log.Fatal(err)
	}
	again, err := client.Queue("mail").Send(ctx, []byte("welcome"), later.Once(key, request))
	fmt.Println(again == first, err)
	_, err = client.Queue("mail").Send(ctx, []byte("welcome"), later.Once(key, []byte("POST /customers bob")))
	fmt.Println(err)
	// Output:
	// true <nil>
	// the key of the request was used with another request in the last 24 hours
}
