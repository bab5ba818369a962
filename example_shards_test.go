package later_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/laterq/later"
)

func ExampleQueue_SetShards() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	orders := client.Queue("orders")
	for range 100 {
		if _, err := orders.Send(ctx, nil, later.In(time.Hour)); err != nil {
			log.Fatal(err)
		}
	}

	if err := orders.SetShards(ctx, 3); err != nil {
		log.Fatal(err)
	}
	shards, err := orders.Shards(ctx)
	if err != nil {
		log.Fatal(err)
	}
	var total int64
	for _, shard := range shards.Each {
		total += shard.Stats.Scheduled
	}
	fmt.Printf("%d shards with %d messages\n", len(shards.Each), total)
	// Output: 3 shards with 100 messages
}
