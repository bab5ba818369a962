package later_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/laterq/later"
)

func ExampleClient_Watch() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	orders := client.Queue("orders")
	if _, err := orders.Send(ctx, nil, later.WithID("order-1000"), later.In(time.Hour)); err != nil {
		log.Fatal(err)
	}

	watch, err := client.Watch(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	defer watch.Close()
	if _, err := orders.Send(ctx, nil, later.WithID("order-1001"), later.In(time.Hour)); err != nil {
		log.Fatal(err)
	}
	if _, err := orders.Cancel(ctx, "order-1001"); err != nil {
		log.Fatal(err)
	}
	for {
		e, err := watch.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		if e.ID == "order-1001" {
			fmt.Println(e.Kind, e.ID)
		}
		if e.Kind == later.EventCancelled {
			break
		}
	}
	// Output:
	// sent order-1001
	// cancelled order-1001
}

func ExampleQueue_Activity() {
	ctx := context.Background()
	dashboard, err := later.Open(ctx, "mem://shop")
	if err != nil {
		log.Fatal(err)
	}
	defer dashboard.Close()
	shop, err := later.Open(ctx, "mem://shop")
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		if _, err := shop.Queue("orders").Send(ctx, nil, later.In(time.Hour)); err != nil {
			log.Fatal(err)
		}
	}
	if err := shop.Close(); err != nil { // Close reports its events, as the client does once a second
		log.Fatal(err)
	}

	a, err := dashboard.Queue("orders").Activity(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(a.Minute.Counts[later.EventSent], "messages were sent in the last minute")
	// Output: 3 messages were sent in the last minute
}
