package later_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/laterq/later"
	_ "github.com/laterq/later/diskstore" // for file:// URLs
)

// The embedded store keeps messages in a directory. Here a message is sent, and delivered after the store
// is opened again.
func Example_embedded() {
	dir, err := os.MkdirTemp("", "later") // a program uses its own, such as /var/lib/shop/later
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	url := "file://" + filepath.ToSlash(dir)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	client, err := later.Open(ctx, url)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Queue("orders").Send(ctx, []byte("order 42"), later.In(20*time.Millisecond)); err != nil {
		log.Fatal(err)
	}
	if err := client.Close(); err != nil {
		log.Fatal(err)
	}

	client, err = later.Open(ctx, url)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	worker := later.NewWorker(client, later.WorkerConfig{})
	worker.Handle("orders", func(ctx context.Context, m *later.Message) error {
		fmt.Printf("%s is still unpaid\n", m.Payload)
		cancel()
		return nil
	})
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: order 42 is still unpaid
}
