package later_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/recurrence"
)

// A report each night in Berlin, where the clock is set forward on 31 March 2030.
func ExampleSchedule_Next() {
	nightly := later.Schedule{
		Name:  "nightly-report",
		Queue: "reports",
		When:  recurrence.Spec{Cron: "30 2 * * *", TimeZone: "Europe/Berlin"},
	}
	runs, err := nightly.Next(time.Date(2030, 3, 29, 12, 0, 0, 0, time.UTC), 3)
	if err != nil {
		log.Fatal(err)
	}
	for _, run := range runs {
		fmt.Println(run.Nominal.Format("Mon 2 Jan 15:04 MST"), "=", run.Nominal.UTC().Format("15:04 MST"))
	}
	// Output:
	// Sat 30 Mar 02:30 CET = 01:30 UTC
	// Sun 31 Mar 03:30 CEST = 01:30 UTC
	// Mon 1 Apr 02:30 CEST = 00:30 UTC
}

// A schedule that a program stores at each start, and a handler for its runs.
func ExampleSchedules_Put() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	result, err := client.Schedules().Put(ctx, later.Schedule{
		Name:    "heartbeat",
		Queue:   "pings",
		Payload: []byte("ping"),
		When:    recurrence.Spec{Every: 20 * time.Millisecond, MaxRuns: 3},
		Missed:  later.MissedNone,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result)

	worker := later.NewWorker(client, later.WorkerConfig{Concurrency: 1})
	handled := 0
	worker.Handle("pings", func(_ context.Context, m *later.Message) error {
		if run, ok := later.RunOf(m); ok {
			fmt.Printf("%s of %s\n", m.Payload, run.Schedule)
		}
		if handled++; handled == 3 {
			stop()
		}
		return nil
	})
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// created
	// ping of heartbeat
	// ping of heartbeat
	// ping of heartbeat
}

// Dunning letters after 3, 9 and 21 days, unless the invoice is paid: then the schedule is deleted.
func ExampleSchedules_Delete() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	type invoice struct{ Number int }
	letters := later.TypedQueue[invoice](client.Queue("dunning"))
	const day = 24 * time.Hour
	dunning, err := letters.Schedule(later.Schedule{
		Name: "dunning-17",
		When: recurrence.Spec{Series: &recurrence.Series{First: 3 * day, Factor: 2, Count: 3}},
	}, invoice{17})
	if err != nil {
		log.Fatal(err)
	}
	schedules := client.Schedules()
	if _, err := schedules.Put(ctx, dunning); err != nil {
		log.Fatal(err)
	}
	info, err := schedules.Get(ctx, "dunning-17")
	if err != nil {
		log.Fatal(err)
	}
	runs, err := info.NextRuns(10)
	if err != nil {
		log.Fatal(err)
	}
	for _, run := range runs {
		fmt.Printf("day %d: %s\n", int(run.Nominal.Sub(info.Created)/day), info.Payload)
	}
	if err := schedules.Delete(ctx, "dunning-17"); err != nil { // it was paid
		log.Fatal(err)
	}
	// Output:
	// day 3: {"Number":17}
	// day 9: {"Number":17}
	// day 21: {"Number":17}
}
