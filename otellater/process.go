package otellater

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/laterq/later"
)

// Process is a middleware that runs a handler in a CONSUMER span "process QUEUE", linked to the span that sent the
// message, or its child with Config.Parent. A failed attempt and a bury are errors of the span; a snooze is not.
// It also serves for messages of Receive: t.Process(handler)(ctx, delivery.Message).
//
// A worker's Middleware does not apply to handlers of batches, so they have no span.
func (t *Telemetry) Process(next later.HandlerFunc) later.HandlerFunc {
	return func(ctx context.Context, m *later.Message) error {
		ctx, span := t.startProcess(ctx, m)
		returned := false
		defer func() {
			if !returned {
				span.SetStatus(codes.Error, "the handler panicked or called runtime.Goexit")
			}
			span.End()
		}()
		err := next(ctx, m)
		returned = true
		if _, ok := errors.AsType[*later.FollowUps](err); ok && later.MessageFromContext(ctx) == m {
			t.following.Store(m, span)
		}
		outcome := later.OutcomeOf(err)
		span.SetAttributes(outcomeKey.String(string(outcome.Kind)))
		if outcome.Kind == later.EventNacked || outcome.Kind == later.EventBuried {
			fail(span, reasonOf(err))
		}
		return err
	}
}

func (t *Telemetry) startProcess(ctx context.Context, m *later.Message) (context.Context, trace.Span) {
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(operation("process",
			semconv.MessagingOperationTypeProcess, m.Queue, append(messageAttributes(m.ID, m.Payload),
				attemptKey.Int(m.Attempt), latenessKey.Float64(m.Lateness.Seconds()))...)...)}
	around := trace.SpanFromContext(ctx)
	origin := t.originOf(m)
	ctx = t.propagator.Extract(ctx, propagation.MapCarrier(m.Headers)) // it may have baggage, too
	if !t.parent || !origin.IsValid() {
		ctx = trace.ContextWithSpan(ctx, around)
		if origin.IsValid() {
			opts = append(opts, trace.WithLinks(trace.Link{SpanContext: origin}))
		}
	}
	return t.tracer.Start(ctx, "process "+m.Queue, opts...)
}
