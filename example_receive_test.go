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
