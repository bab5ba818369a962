package otellater

import (
	"context"
	"time"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/laterq/later"
)

// Receive is q.Receive in a CLIENT span "receive QUEUE", linked to the spans that sent the messages. The span lasts
// until there is a message, so it can be long.
func (t *Telemetry) Receive(
	ctx context.Context, q *later.Queue, n int, opts ...later.ReceiveOption,
) ([]*Delivery, error) {
	ctx, span := t.tracer.Start(ctx, "receive "+q.Name(), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(operation("receive", semconv.MessagingOperationTypeReceive, q.Name())...))
	defer span.End()
	begun := time.Now()
	got, err := q.Receive(ctx, n, opts...)
	fail(span, err)
	t.metrics.called(ctx, begun, "receive", q.Name(), semconv.MessagingOperationTypeReceive, err)
	span.SetAttributes(semconv.MessagingBatchMessageCount(len(got)))
	deliveries := make([]*Delivery, len(got))
	for i, d := range got {
		deliveries[i] = t.Delivery(d)
		if origin := t.originOf(d.Message); origin.IsValid() {
			span.AddLink(trace.Link{SpanContext: origin})
		}
	}
	return deliveries, err
}

// Delivery is a later.Delivery that settles in CLIENT spans, such as "ack QUEUE".
type Delivery struct {
	*later.Delivery
	telemetry *Telemetry
}

// Delivery returns a delivery that settles in spans, for one that was not returned by Telemetry.Receive.
func (t *Telemetry) Delivery(d *later.Delivery) *Delivery { return &Delivery{d, t} }

// Ack is Ack of later.Delivery.
func (d *Delivery) Ack(ctx context.Context) error {
	return d.settle(ctx, "ack", d.Delivery.Ack)
}

// Nack is Nack of later.Delivery.
func (d *Delivery) Nack(ctx context.Context, delay time.Duration, reason error) error {
	return d.settle(ctx, "nack", func(ctx context.Context) error { return d.Delivery.Nack(ctx, delay, reason) })
}

// Snooze is Snooze of later.Delivery.
func (d *Delivery) Snooze(ctx context.Context, delay time.Duration, opts ...later.SnoozeOption) error {
	return d.settle(ctx, "snooze", func(ctx context.Context) error { return d.Delivery.Snooze(ctx, delay, opts...) })
}

// Bury is Bury of later.Delivery.
func (d *Delivery) Bury(ctx context.Context, reason error) error {
	return d.settle(ctx, "bury", func(ctx context.Context) error { return d.Delivery.Bury(ctx, reason) })
}

// Release is Release of later.Delivery.
func (d *Delivery) Release(ctx context.Context) error {
	return d.settle(ctx, "release", d.Delivery.Release)
}

func (d *Delivery) settle(ctx context.Context, name string, call func(context.Context) error) error {
	t, kind := d.telemetry, semconv.MessagingOperationTypeSettle
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		operation(name, kind, d.Queue, semconv.MessagingMessageID(d.ID), attemptKey.Int(d.Attempt))...)}
	if origin := t.originOf(d.Message); origin.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: origin}))
	}
	ctx, span := t.tracer.Start(ctx, name+" "+d.Queue, opts...)
	defer span.End()
	begun := time.Now()
	err := call(ctx)
	fail(span, err)
	t.metrics.called(ctx, begun, name, d.Queue, kind, err)
	return err
}
