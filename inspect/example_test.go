package inspect_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/inspect"
)

func ExampleFind() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for queue, m := range map[string]later.Outgoing{
		"orders": {ID: "cancel-order-42", Payload: []byte(`{"total": 120}`)},
		"mail":   {ID: "reminder", Group: "order-42", When: later.In(24 * time.Hour)},
	} {
		if _, err := client.Queue(queue).SendMessage(ctx, m); err != nil {
			log.Fatal(err)
		}
	}
	for found, err := range inspect.Find(ctx, client, inspect.FindOptions{Text: "order 42"}) {
		switch {
		case err != nil:
			log.Fatal(err)
		case found.Name != nil:
			fmt.Println(found.Name.Kind, found.Name.Name, "in", found.Name.Queue)
		case found.Message != nil:
			fmt.Println(found.Message.State, found.Message.ID, "in", found.Message.Queue)
		case found.Progress.Done:
			fmt.Println(found.Progress.Matched.Total(), "of", found.Progress.Messages.Total(), "messages match")
		}
	}
	// Output:
	// group order-42 in mail
	// ready cancel-order-42 in orders
	// scheduled reminder in mail
	// 2 of 2 messages match
}
