package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/laterq/later"
	"github.com/laterq/later/outbox"
)

// An order and the message that cancels it are committed together. A relay sends the message.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "shop")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "shop.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE TABLE orders (id INTEGER PRIMARY KEY)"); err != nil {
		log.Fatal(err)
	}
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	box := outbox.New(outbox.SQLite)
	if err := box.Migrate(ctx, db); err != nil {
		log.Fatal(err)
	}
	order := func(id int, commit bool) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", id); err != nil {
			return err
		}
		msg := later.Outgoing{
			ID:      fmt.Sprintf("unpaid-%d", id),
			Payload: []byte("cancel if unpaid"),
			When:    later.In(30 * time.Minute),
		}
		if _, err := box.Send(ctx, tx, "orders", msg); err != nil {
			return err
		}
		if !commit {
			return nil
		}
		return tx.Commit()
	}
	if err := order(1, true); err != nil {
		log.Fatal(err)
	}
	if err := order(2, false); err != nil { // the card was refused
		log.Fatal(err)
	}

	relay := box.Relay(db, client, outbox.RelayConfig{})
	if err := relay.Flush(ctx); err != nil { // a service calls relay.Run(ctx)
		log.Fatal(err)
	}
	stats, err := client.Queue("orders").Stats(ctx)
	if err != nil {
		log.Fatal(err)
	}
	info, err := client.Queue("orders").Get(ctx, "unpaid-1")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d message, %q is %s\n", stats.Scheduled, info.ID, info.State)
	// Output: 1 message, "unpaid-1" is scheduled
}
