package main

import (
	"context"
	"fmt"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/benchmark"
)

// benchEventRounds is how often each mode is measured.
const benchEventRounds = 5

type benchEventsJSON struct {
	Workload string  `json:"workload"`
	Mode     string  `json:"mode"`
	Rounds   int     `json:"rounds"`
	Messages int     `json:"messages"`
	Send     float64 `json:"sent_per_second"`
	Drain    float64 `json:"drained_per_second"`
	Seen     int     `json:"events_seen"`
	Missed   int     `json:"events_missed"`
}

// events measures what reporting and watching events costs.
func (b *bench) events(ctx context.Context, q benchQueue) error {
	b.progress("events")
	watching := b.client
	if b.redis != nil { // as another process would
		var err error
		if watching, err = later.Open(ctx, b.url); err != nil {
			return err
		}
		defer watching.Close()
	}
	messages := max(1, b.o.messages/benchEventRounds)
	all, err := benchmark.Events(ctx, b.client, watching, benchmark.NameOf(q), benchmark.EventsConfig{
		Messages: messages, Size: b.o.size, Handlers: b.o.handlers, Rounds: benchEventRounds,
		Limit: drainLimit,
	})
	if err != nil {
		return err
	}
	off := all[0]
	for _, r := range all {
		text := fmt.Sprintf("send %9.0f msg/s (%.3f)  drain %9.0f msg/s (%.3f)", r.Send, r.Send/off.Send, r.Drain,
			r.Drain/off.Drain)
		if r.Mode == benchmark.EventsWatched {
			text += fmt.Sprintf("  %d events seen, %d missed", r.Seen, r.Missed)
		}
		err := b.result(benchEventsJSON{
			"events", r.Mode, benchEventRounds, messages, round3(r.Send), round3(r.Drain), r.Seen, r.Missed,
		}, "events, "+r.Mode, "%s", text)
		if err != nil {
			return err
		}
	}
	return nil
}
