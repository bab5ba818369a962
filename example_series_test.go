package later_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/laterq/later"
)

// Three reminders before an appointment, which is moved, and then cancelled.
func ExampleQueue_SendSeries() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	reminders := client.Queue("reminders")

	appointment := time.Now().Add(12 * time.Hour)
	series := later.Series{
		Until:   appointment,
		Offsets: []time.Duration{-24 * time.Hour, -time.Hour, -10 * time.Minute},
	}
	// A day before has passed, so that this reminder is skipped.
	sent, err := reminders.SendSeries(ctx, []byte("appointment 7"), series, later.WithID("appointment-7"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %d sent, %d skipped\n", sent.ID, sent.Sent, sent.Skipped)

	moved, err := reminders.MoveSeries(ctx, "appointment-7", appointment.Add(48*time.Hour), later.SkipPast)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(moved.Moved, "moved")

	remaining, err := reminders.ListSeries(ctx, "appointment-7")
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range remaining {
		fmt.Printf("%d of %d, %v: due in %v\n", m.Part.Index, m.Part.Count, m.Part.Offset,
			time.Until(m.Due).Round(time.Minute))
	}

	cancelled, err := reminders.CancelSeries(ctx, "appointment-7")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cancelled.Total(), "cancelled")
	// Output:
	// appointment-7: 2 sent, 1 skipped
	// 2 moved
	// 2 of 3, -1h0m0s: due in 59h0m0s
	// 3 of 3, -10m0s: due in 59h50m0s
	// 2 cancelled
}

func ExampleSeriesOf() {
	ctx := context.Background()
	client, err := later.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	reminders := client.Queue("reminders")
	_, err = reminders.SendSeries(ctx, []byte("appointment 7"), later.Series{
		Until:   time.Date(2020, 1, 1, 9, 0, 0, 0, time.UTC),
		Offsets: []time.Duration{-time.Hour},
		Past:    later.SendPast,
	})
	if err != nil {
		log.Fatal(err)
	}
	deliveries, err := reminders.Receive(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	if part, ok := later.SeriesOf(deliveries[0].Message); ok {
		fmt.Printf("%s at %s: reminder %d of %d\n", deliveries[0].Payload, part.Until.Format(time.TimeOnly),
			part.Index, part.Count)
	}
	// Output: appointment 7 at 09:00:00: reminder 1 of 1
}
