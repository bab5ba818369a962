package later_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/laterq/later"
)

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
	fmt.Println(errors.Is(err, later.ErrNotFound), later.CodeOf(err))
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

func ExampleQueue_CancelGroup() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	reminders := client.Queue("reminders")
	for _, days := range []time.Duration{1, 3, 7} {
		if _, err := reminders.Send(ctx, nil, later.In(days*24*time.Hour), later.Group("order-42")); err != nil {
			log.Fatal(err)
		}
	}

	moved, err := reminders.RescheduleGroup(ctx, "order-42", later.In(24*time.Hour)) // the customer asked for time
	fmt.Println(moved.Rescheduled, err)
	cancelled, err := reminders.CancelGroup(ctx, "order-42") // it was paid
	fmt.Println(cancelled.Total(), err)
	// Output:
	// 3 <nil>
	// 3 <nil>
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

func ExampleKeepID() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	orders := client.Queue("orders")
	send := func() error {
		_, err := orders.Send(ctx, nil, later.WithID("order-1001"), later.In(30*time.Minute),
			later.DedupWindow(24*time.Hour))
		return err
	}
	if err := send(); err != nil {
		log.Fatal(err)
	}
	if _, err := orders.Cancel(ctx, "order-1001", later.KeepID()); err != nil { // it was paid
		log.Fatal(err)
	}

	fmt.Println(errors.Is(send(), later.ErrDuplicate)) // a late retry does not bring it back
	// Output: true
}
