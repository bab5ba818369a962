package later_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/laterq/later"
)

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	client, err := later.Open(ctx, "mem://") // or redis://localhost:6379/0
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	worker := later.NewWorker(client, later.WorkerConfig{})
	worker.Handle("emails", func(ctx context.Context, m *later.Message) error {
		fmt.Printf("%s, attempt %d\n", m.Payload, m.Attempt)
		cancel() // a real program would cancel on SIGTERM
		return nil
	})

	if _, err := client.Queue("emails").Send(ctx, []byte("welcome"), later.In(20*time.Millisecond)); err != nil {
		log.Fatal(err)
	}
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: welcome, attempt 1
}
