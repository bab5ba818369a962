package main

import (
	"context"
	"fmt"

	"github.com/laterq/later/internal/benchmark"
)

type benchTopicJSON struct {
	Workload      string   `json:"workload"`
	Subscriptions int      `json:"subscriptions"`
	Messages      int      `json:"messages"`
	PerSecond     float64  `json:"deliveries_per_second"`
	Streamed      *float64 `json:"stream_deliveries_per_second,omitempty"`
	benchCostJSON
}

// topic measures how fast messages of a topic reach the handlers of all subscribed queues.
func (b *bench) topic(ctx context.Context, q benchQueue) error {
	name := fmt.Sprintf("topic, %d subscriptions", b.o.subscriptions)
	b.progress(name)
	end, err := b.startCost(ctx)
	if err != nil {
		return err
	}
	messages := max(1, b.o.messages/b.o.subscriptions)
	d, err := benchmark.Distribute(ctx, b.client, b.redis, benchmark.NameOf(q), b.o.subscriptions, messages, b.o.size,
		b.o.handlers)
	if err != nil {
		return err
	}
	cost, err := end()
	if err != nil {
		return err
	}
	j := benchTopicJSON{
		Workload: "topic", Subscriptions: d.Queues, Messages: d.Messages, PerSecond: round3(d.PerSecond(d.Took)),
		benchCostJSON: cost.json(d.Messages * d.Queues),
	}
	text := fmt.Sprintf("%.0f deliveries/s", j.PerSecond)
	if d.Streamed > 0 {
		streamed := round3(d.PerSecond(d.Streamed))
		j.Streamed = &streamed
		text += fmt.Sprintf("  a stream with as many consumer groups: %.0f", streamed)
	}
	return b.result(j, name, "%s", text)
}
