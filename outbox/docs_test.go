package outbox_test

import (
	"context"
	"database/sql"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laterq/later"
	"github.com/laterq/later/outbox"
)

// The functions that follow have the code of docs/outbox.md. They are compiled, and not called.
var _, _ = docsWrite, docsRelay

func docsWrite(ctx context.Context, db *sql.DB, id int) error {
	var box = outbox.New(outbox.PostgreSQL) // or outbox.MySQL, outbox.SQLite

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES ($1)", id); err != nil {
		return err
	}
	msg := later.Outgoing{Payload: []byte("cancel if unpaid"), When: later.In(30 * time.Minute)}
	if _, err := box.Send(ctx, tx, "orders", msg); err != nil {
		return err
	}
	return tx.Commit() // the order and the message, or neither
}

func docsRelay(ctx context.Context, db *sql.DB, client *later.Client, box *outbox.Outbox, worker *later.Worker) error {
	if err := box.Migrate(ctx, db); err != nil { // creates the table; does nothing the next time
		return err
	}
	relay := box.Relay(db, client, outbox.RelayConfig{})
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return relay.Run(ctx) })
	group.Go(func() error { return worker.Run(ctx) })
	return group.Wait()
}

var block = regexp.MustCompile("(?ms)^```go outbox\n(.*?)^```")

// TestDocsCodeIsCompiledHere checks that this file has the code of the page.
func TestDocsCodeIsCompiledHere(t *testing.T) {
	page, err := os.ReadFile("../docs/outbox.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("docs_test.go")
	if err != nil {
		t.Fatal(err)
	}
	indent := regexp.MustCompile(`(?m)^\t`)
	blocks := block.FindAllSubmatch(page, -1)
	for _, groups := range blocks {
		if !strings.Contains(indent.ReplaceAllString(string(source), ""), string(groups[1])) {
			t.Errorf("docs_test.go does not have this code of docs/outbox.md:\n%s", groups[1])
		}
	}
	if len(blocks) != 2 {
		t.Errorf("docs/outbox.md has %d blocks of code for this test; want 2", len(blocks))
	}
}
