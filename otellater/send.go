package otellater

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/laterq/later"
)

// sendKey is the key of the sendSpan in the context of Send and SendBatch.
type sendKey struct{}

// sendSpan sets the spans that the middleware of a send makes for a message.
type sendSpan int

const (
	sendAlone   sendSpan = iota // begin and end a span of the send
	sendInSpan                  // the context has the span of the send
	sendInBatch                 // the context has the span of a batch; begin and end one of the message
)

// SendMiddleware writes the trace of the context into the headers of a message, with a PRODUCER span "send QUEUE" to
// which the handler's span will be linked. Options has it; outbox.WithSendMiddleware takes it for messages that are
// written to an outbox.
//
// A middleware is called before the send, so the span has no duration and does not say whether the send failed. The
// spans of Send and SendBatch do. A message that has a trace already, for example from an outbox, keeps it.
func (t *Telemetry) SendMiddleware(ctx context.Context, o *later.Outgoing) error {
	for _, field := range t.propagator.Fields() {
		if _, ok := o.Headers[field]; ok {
			return nil
		}
	}
	if o.Headers == nil {
		o.Headers = map[string]string{}
	}
	mode, _ := ctx.Value(sendKey{}).(sendSpan)
	if mode != sendInSpan {
		name, kind := "send", semconv.MessagingOperationTypeSend
		if mode == sendInBatch {
			name, kind = "create", semconv.MessagingOperationTypeCreate
		}
		var span trace.Span
		ctx, span = t.tracer.Start(t.senderContext(ctx), name+" "+o.Queue, trace.WithSpanKind(trace.SpanKindProducer),
			trace.WithAttributes(operation(name, kind, o.Queue, messageAttributes(o.ID, o.Payload)...)...))
		defer span.End()
	}
	t.propagator.Inject(ctx, propagation.MapCarrier(o.Headers))
	return nil
}

// senderContext returns the context of a send. For the follow-ups of a handler it has the handler's span.
func (t *Telemetry) senderContext(ctx context.Context) context.Context {
	if m := later.MessageFromContext(ctx); m != nil {
		if span, ok := t.following.Load(m); ok {
			return trace.ContextWithSpan(ctx, span.(trace.Span))
		}
	}
	return ctx
}

func messageAttributes(id string, payload []byte) []attribute.KeyValue {
	attrs := []attribute.KeyValue{semconv.MessagingMessageBodySize(len(payload))}
	if id != "" { // it has none yet
		attrs = append(attrs, semconv.MessagingMessageID(id))
	}
	return attrs
}

// Send is q.Send in a PRODUCER span "send QUEUE", which has the id, the duration and the error.
func (t *Telemetry) Send(
	ctx context.Context, q *later.Queue, payload []byte, opts ...later.SendOption,
) (id string, err error) {
	ctx, span := t.tracer.Start(ctx, "send "+q.Name(), trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		operation("send", semconv.MessagingOperationTypeSend, q.Name(), messageAttributes("", payload)...)...))
	defer span.End()
	begun := time.Now()
	id, err = q.Send(context.WithValue(ctx, sendKey{}, sendInSpan), payload, opts...)
	if id != "" {
		span.SetAttributes(semconv.MessagingMessageID(id))
	}
	fail(span, err)
	t.metrics.called(ctx, begun, "send", q.Name(), semconv.MessagingOperationTypeSend, err)
	return id, err
}

// SendBatch is q.SendBatch in a CLIENT span "send QUEUE". Each message has a PRODUCER span "create QUEUE" in it, to
// which its handler's span will be linked.
func (t *Telemetry) SendBatch(
	ctx context.Context, q *later.Queue, msgs []later.Outgoing,
) (results []later.SendResult, err error) {
	ctx, span := t.tracer.Start(ctx, "send "+q.Name(), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		operation("send", semconv.MessagingOperationTypeSend, q.Name(),
			semconv.MessagingBatchMessageCount(len(msgs)))...))
	defer span.End()
	begun := time.Now()
	results, err = q.SendBatch(context.WithValue(ctx, sendKey{}, sendInBatch), msgs)
	fail(span, err)
	t.metrics.called(ctx, begun, "send", q.Name(), semconv.MessagingOperationTypeSend, err)
	return results, err
}
