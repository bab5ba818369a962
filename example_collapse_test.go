package later_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/laterq/later"
)

// A search index is updated two seconds after the last edit of a document, and at least every 30 seconds.
func ExampleDebounce() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	index := client.Queue("index")
	once := later.OnDuplicate(later.Debounce(2*time.Second, 30*time.Second))

	for _, text := range []string{"H", "Hel", "Hello"} {
		if _, err := index.Send(ctx, []byte(text), later.WithID("document-7"), once); err != nil {
			log.Fatal(err)
		}
	}
	info, err := index.Get(ctx, "document-7")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("index %q in %v\n", info.Payload, time.Until(info.Due).Round(time.Second))
	// Output: index "Hello" in 2s
}

func ExampleReplace() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	reminders := client.Queue("reminders")
	replace := later.OnDuplicate(later.Replace())

	results, err := reminders.SendBatch(ctx, []later.Outgoing{
		{ID: "appointment-3", Payload: []byte("tomorrow at 9, room 1"), When: later.In(20 * time.Hour)},
		{ID: "appointment-3", Payload: []byte("tomorrow at 9, room 2"), OnDuplicate: later.Replace()},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(results[0].Outcome, results[1].Outcome)
	// With a due time, the message is moved too.
	_, err = reminders.Send(ctx, []byte("on Friday at 9, room 2"),
		later.WithID("appointment-3"), replace, later.In(68*time.Hour))
	if err != nil {
		log.Fatal(err)
	}
	info, err := reminders.Get(ctx, "appointment-3")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, in %v\n", info.Payload, time.Until(info.Due).Round(time.Hour))
	// Output:
	// sent replaced
	// on Friday at 9, room 2, in 68h0m0s
}

// A report is rebuilt once more after the run that is under way, however often its data changes during the run.
func ExampleFollow() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	reports := client.Queue("reports")
	rebuild := func(data string) {
		results, err := reports.SendBatch(ctx, []later.Outgoing{
			{ID: "report-7", Payload: []byte(data), OnDuplicate: later.Follow()},
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(data, results[0].Outcome)
	}
	run := func(meanwhile func()) {
		received, err := reports.Receive(ctx, 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("build from %s\n", received[0].Payload)
		meanwhile()
		if err := received[0].Ack(ctx); err != nil {
			log.Fatal(err)
		}
	}

	rebuild("Monday")
	run(func() {
		rebuild("Tuesday")
		rebuild("Wednesday")
	})
	run(func() {})
	// Output:
	// Monday sent
	// build from Monday
	// Tuesday follows
	// Wednesday follows
	// build from Wednesday
}

// Keep with a dedup window throttles: at most one warning an hour is delivered for each machine.
func ExampleKeep() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	warnings := client.Queue("warnings")

	for range 2 {
		_, err := warnings.Send(ctx, []byte("disk is full"),
			later.WithID("disk-full-web-1"), later.OnDuplicate(later.Keep()), later.DedupWindow(time.Hour))
		if errors.Is(err, later.ErrDuplicate) {
			fmt.Println("was sent within the hour")
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		received, err := warnings.Receive(ctx, 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(received[0].Payload))
		if err := received[0].Ack(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// disk is full
	// was sent within the hour
}
