package otellater

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"

	"github.com/laterq/later"
)

// durations are the bounds of histograms in seconds. The default ones are for milliseconds.
var durations = metric.WithExplicitBucketBoundaries(.001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800)

// instruments are the metrics of the conventions for messaging.
type instruments struct {
	sent      messagingconv.ClientSentMessages
	consumed  messagingconv.ClientConsumedMessages
	process   messagingconv.ProcessDuration
	operation messagingconv.ClientOperationDuration
}

func newInstruments(m metric.Meter) *instruments {
	i, errs := &instruments{}, [4]error{}
	i.sent, errs[0] = messagingconv.NewClientSentMessages(m)
	i.consumed, errs[1] = messagingconv.NewClientConsumedMessages(m)
	i.process, errs[2] = messagingconv.NewProcessDuration(m, durations)
	i.operation, errs[3] = messagingconv.NewClientOperationDuration(m, durations)
	if err := errors.Join(errs[:]...); err != nil {
		otel.Handle(err)
	}
	return i
}

// observe records the metrics of an event, and forgets the spans of messages that are settled.
func (t *Telemetry) observe(e later.Event) {
	queue := semconv.MessagingDestinationName(e.Queue)
	switch e.Kind {
	case later.EventSent:
		t.metrics.sent.Add(e.Context, 1, "send", system, queue)
	case later.EventStarted:
		t.metrics.consumed.Add(e.Context, 1, "process", system, queue)
	case later.EventClaimed:
		if m := later.MessageFromContext(e.Context); m == nil || m.ID != e.ID || m.Queue != e.Queue { // no worker's
			t.metrics.consumed.Add(e.Context, 1, "receive", system, queue)
		}
	case later.EventAcked, later.EventNacked, later.EventSnoozed, later.EventGivenBack, later.EventBuried,
		later.EventReleased, later.EventLeaseLost, later.EventUnsettled:
		if m := later.MessageFromContext(e.Context); m != nil && m.ID == e.ID && m.Queue == e.Queue {
			t.following.Delete(m)
		}
		if e.Duration > 0 { // a handler ran
			attrs := []attribute.KeyValue{queue}
			if e.Err != nil && e.Kind != later.EventSnoozed && e.Kind != later.EventReleased {
				attrs = append(attrs, errorType(reasonOf(e.Err)))
			}
			t.metrics.process.Record(e.Context, e.Duration.Seconds(), "process", system, attrs...)
		}
	}
}

// called records the duration of a call.
func (i *instruments) called(
	ctx context.Context, begun time.Time, name, queue string, kind attribute.KeyValue, err error,
) {
	attrs := []attribute.KeyValue{semconv.MessagingDestinationName(queue), kind}
	if err != nil {
		attrs = append(attrs, errorType(err))
	}
	i.operation.Record(ctx, time.Since(begun).Seconds(), name, system, attrs...)
}
