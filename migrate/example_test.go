package migrate_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/migrate"
)

func Example() {
	ctx := context.Background()
	from, err := later.Open(ctx, "mem://exported") // redis://localhost:6379/0, say
	if err != nil {
		log.Fatal(err)
	}
	defer from.Close()
	if _, err := from.Queue("orders").Send(ctx, []byte("remind"), later.WithID("order-17"),
		later.In(30*time.Minute)); err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := migrate.Export(ctx, from, &file, migrate.ExportConfig{}); err != nil {
		log.Fatal(err)
	}

	to, err := later.Open(ctx, "mem://imported")
	if err != nil {
		log.Fatal(err)
	}
	defer to.Close()
	result, err := migrate.Import(ctx, to, &file, migrate.ImportConfig{})
	if err != nil {
		log.Fatal(err)
	}
	info, err := to.Queue("orders").Get(ctx, "order-17")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Imported, info.State, string(info.Payload))
	// Output: 1 scheduled remind
}
