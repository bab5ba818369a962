package migrate_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/migrate"
)

func ExampleCopy() {
	ctx := context.Background()
	from, err := later.Open(ctx, "mem://old") // for example file:///var/lib/later
	if err != nil {
		log.Fatal(err)
	}
	defer from.Close()
	to, err := later.Open(ctx, "mem://new") // redis://localhost:6379/0
	if err != nil {
		log.Fatal(err)
	}
	defer to.Close()
	orders := from.Queue("orders")
	if _, err := orders.Send(ctx, []byte("remind"), later.WithID("order-1001"), later.In(30*time.Minute)); err != nil {
		log.Fatal(err)
	}

	result, err := migrate.Copy(ctx, to, from, migrate.CopyConfig{Move: true})
	if err != nil {
		log.Fatal(err) // a repeated Copy continues where this one ended
	}
	for _, q := range result.Queues {
		fmt.Println(q.Queue, q.Copied)
	}
	info, err := to.Queue("orders").Get(ctx, "order-1001")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.State, string(info.Payload))
	// Output:
	// orders 1
	// scheduled remind
}
