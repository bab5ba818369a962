package later_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/laterq/later"
)

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

	deliveries, err := queue.Receive(ctx, 10, later.Lease(time.Minute)) // blocks for the first one
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

// A receipt lets another process settle a message, for example after a callback.
func ExampleQueue_Delivery() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	queue := client.Queue("payments")
	if _, err := queue.Send(ctx, []byte("charge"), later.WithID("payment-7")); err != nil {
		log.Fatal(err)
	}
	deliveries, err := queue.Receive(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	receipt := deliveries[0].Receipt() // pass it on, in a request or a file

	delivery, err := queue.Delivery(receipt) // in any process
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(delivery.ID, delivery.Ack(ctx))
	// Output: payment-7 <nil>
}
