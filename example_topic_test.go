package later_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/laterq/later"
)

// Each subscribed queue receives a message when it is due. The queue "audit" receives only messages of Europe.
func ExampleTopic() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	topic := client.Topic("orders")
	if err := topic.Subscribe(ctx, "mail"); err != nil {
		log.Fatal(err)
	}
	if err := topic.Subscribe(ctx, "audit", later.Where("region=eu")); err != nil {
		log.Fatal(err)
	}
	for id, region := range map[string]string{"order-1": "eu", "order-2": "us", "order-3": "eu"} {
		_, err := topic.Publish(ctx, nil, later.WithID(id), later.Header("region", region), later.In(20*time.Millisecond))
		if err != nil {
			log.Fatal(err)
		}
	}
	if _, err := topic.Queue().Cancel(ctx, "order-3"); err != nil { // no queue receives it
		log.Fatal(err)
	}

	var received sync.WaitGroup
	received.Add(3)
	worker := later.NewWorker(client, later.WorkerConfig{})
	for _, queue := range []string{"mail", "audit"} {
		worker.Handle(queue, func(ctx context.Context, m *later.Message) error {
			fmt.Println(queue, "received", m.ID)
			received.Done()
			return nil
		})
	}
	go func() {
		received.Wait()
		cancel()
	}()
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Unordered output:
	// mail received order-1
	// mail received order-2
	// audit received order-1
}
