package later_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/laterq/later"
)

func ExampleClient_ControlWorkers() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://") // with Redis, the worker can be on any machine
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	worker := later.NewWorker(client, later.WorkerConfig{Name: "mailer", Version: "v1.4.0", Concurrency: 1})
	sending := make(chan bool)
	worker.Handle("mail", func(ctx context.Context, m *later.Message) error {
		sending <- true
		<-sending
		return nil
	})
	ended := make(chan error)
	go func() { ended <- worker.Run(ctx) }()
	if _, err := client.Queue("mail").Send(ctx, nil, later.WithID("mail-1")); err != nil {
		log.Fatal(err)
	}
	<-sending

	for {
		all, err := client.ReportWorkers(ctx, time.Second)
		if err != nil {
			log.Fatal(err)
		}
		if len(all) == 0 {
			continue // it has just begun
		}
		fmt.Println(all[0].Name, all[0].Version, "is", all[0].State, "and holds", all[0].Held[0].ID)
		break
	}
	if _, err := client.ControlWorkers(ctx, later.CommandRestart, "mailer"); err != nil {
		log.Fatal(err)
	}
	sending <- true // the handler finishes before Run returns
	if err := <-ended; errors.Is(err, later.ErrRestart) {
		fmt.Println("restart now")
	}
	// Output:
	// mailer v1.4.0 is running and holds mail-1
	// restart now
}
