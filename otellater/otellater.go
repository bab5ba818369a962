// Package otellater has traces and metrics of Later for OpenTelemetry. It imports the root package and OpenTelemetry's
// API, and is a module of its own, so that no other module depends on them. Start reading at New.
//
//	t := otellater.New(otellater.Config{})
//	client, err := later.Open(ctx, url, t.Options()...)
//	worker := later.NewWorker(client, later.WorkerConfig{Middleware: t.Middleware()})
//
// From then on each message carries the trace of its sender in its headers, and each handler runs in a span that is
// linked to it. Names and attributes follow the semantic conventions for messaging, in the version of SchemaURL. The
// conventions are still in development, so names can change with a new version of this module.
package otellater

import (
	"cmp"
	"context"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// SchemaURL names the version of the semantic conventions that spans and metrics follow.
const SchemaURL = semconv.SchemaURL

const (
	scope  = "github.com/laterq/later/otellater"
	system = "later"
)

// The attributes of messages that the conventions do not have.
const (
	attemptKey  = attribute.Key("messaging.later.message.attempt")
	latenessKey = attribute.Key("messaging.later.message.lateness") // in seconds
	outcomeKey  = attribute.Key("messaging.later.outcome")          // the later.EventKind of an Outcome
)

// Config configures a Telemetry. The zero value works.
type Config struct {
	// TracerProvider and MeterProvider default to the global ones.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// Propagator writes the trace into the headers of a message and reads it there. Default: W3C Trace Context, which
	// is the header traceparent and, if there is a state, tracestate.
	Propagator propagation.TextMapPropagator
	// Parent makes the span of a handler a child of the span that sent the message, in the same trace. By default it is
	// linked to that: a message may be handled days later, several times, and in a batch.
	Parent bool
}

// Telemetry records the work of a client and its workers. Create it with New. Its methods are safe for concurrent use.
type Telemetry struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	parent     bool
	metrics    *instruments
	// following has the spans of handlers that have returned follow-ups, by message, until it is settled.
	following sync.Map // *later.Message → trace.Span
}

// New returns a Telemetry. It starts nothing. Errors of metrics go to OpenTelemetry's error handler.
func New(cfg Config) *Telemetry {
	tracers := cmp.Or(cfg.TracerProvider, otel.GetTracerProvider())
	meters := cmp.Or(cfg.MeterProvider, otel.GetMeterProvider())
	return &Telemetry{
		tracer:     tracers.Tracer(scope, trace.WithSchemaURL(SchemaURL)),
		propagator: cmp.Or[propagation.TextMapPropagator](cfg.Propagator, propagation.TraceContext{}),
		parent:     cfg.Parent,
		metrics:    newInstruments(meters.Meter(scope, metric.WithSchemaURL(SchemaURL))),
	}
}

// Options returns the options of a client: a send middleware, which writes traces into messages, and an observer, which
// records metrics.
func (t *Telemetry) Options() []later.Option {
	return []later.Option{later.WithSendMiddleware(t.SendMiddleware), later.WithObserver(t.observe)}
}

// Middleware returns the middleware of a worker; see Process.
func (t *Telemetry) Middleware() []func(later.HandlerFunc) later.HandlerFunc {
	return []func(later.HandlerFunc) later.HandlerFunc{t.Process}
}

// operation returns the attributes that every span of an operation has.
func operation(name string, kind attribute.KeyValue, queue string, more ...attribute.KeyValue) []attribute.KeyValue {
	return append([]attribute.KeyValue{
		semconv.MessagingSystemKey.String(system), semconv.MessagingOperationName(name), kind,
		semconv.MessagingDestinationName(queue),
	}, more...)
}

// fail records an error on a span, if it is one.
func fail(span trace.Span, err error) {
	if err != nil {
		span.SetAttributes(errorType(err))
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
}

// errorType returns the attribute error.type: a code of Later, or else the type of the error.
func errorType(err error) attribute.KeyValue {
	if code := store.CodeOf(err); code != store.Internal {
		return semconv.ErrorTypeKey.String(string(code))
	}
	return semconv.ErrorType(err)
}

// reasonOf returns the reason in the error of a handler, such as the error that Bury wraps.
func reasonOf(err error) error { return cmp.Or(later.OutcomeOf(err).Err, err) }

// originOf returns the span that sent a message, which is not valid if it is not known.
func (t *Telemetry) originOf(m *later.Message) trace.SpanContext {
	extracted := t.propagator.Extract(context.Background(), propagation.MapCarrier(m.Headers))
	return trace.SpanContextFromContext(extracted)
}
