package main

import (
	"context"
	"crypto/rand"
	"expvar"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/laterq/later"
)

// traceHeader is the header of a message, and of HTTP requests, with its trace (W3C Trace Context).
const traceHeader = "traceparent"

type traceKey struct{}

// traceOf returns the trace of a request, or of the message that is being handled, or "".
func traceOf(ctx context.Context) string {
	if trace, ok := ctx.Value(traceKey{}).(string); ok {
		return trace
	}
	if m := later.MessageFromContext(ctx); m != nil {
		return m.Headers[traceHeader]
	}
	return ""
}

// traceSend adds the trace to a message that is sent. It is middleware of the outbox, and of the client for follow-ups.
func traceSend(ctx context.Context, m *later.Outgoing) error {
	trace := traceOf(ctx)
	if trace == "" || m.Headers[traceHeader] != "" {
		return nil
	}
	if m.Headers == nil {
		m.Headers = map[string]string{}
	}
	m.Headers[traceHeader] = trace
	return nil
}

// traceRequests adds a trace to each request that has none.
func traceRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		trace := r.Header.Get(traceHeader)
		if trace == "" {
			var id [24]byte
			rand.Read(id[:]) // never fails
			trace = fmt.Sprintf("00-%x-%x-01", id[:16], id[16:])
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), traceKey{}, trace)))
	})
}

// logged logs the results of handlers, with the trace. A tracing library would begin and end a span here.
func (s *Shop) logged(next later.HandlerFunc) later.HandlerFunc {
	return func(ctx context.Context, m *later.Message) error {
		begin := time.Now()
		err := next(ctx, m)
		o := later.OutcomeOf(err)
		log := s.cfg.Log.With("queue", m.Queue, "kind", m.Kind(), "id", m.ID, "attempt", m.Attempt,
			"lateness", m.Lateness, "took", time.Since(begin), "trace", traceOf(ctx))
		if o.Err != nil {
			log.Warn("handled", "outcome", o.Kind, "error", o.Err)
		} else {
			log.Info("handled", "outcome", o.Kind)
		}
		return err
	}
}

// Metrics counts the events of a client. A program with Prometheus would count in its vectors.
type Metrics struct {
	events   expvar.Map // by queue and kind
	lateness expvar.Map // by queue, the sum in seconds; divide it by the events "started"
	duration expvar.Map // by queue, the sum in seconds; divide it by the events that end an attempt
}

// NewMetrics returns Metrics that are all zero.
func NewMetrics() *Metrics { return &Metrics{} }

func (m *Metrics) observe(e later.Event) {
	m.events.Add(e.Queue+"."+string(e.Kind), 1)
	switch e.Kind {
	case later.EventStarted:
		m.lateness.AddFloat(e.Queue, e.Lateness.Seconds())
	case later.EventAcked, later.EventNacked, later.EventBuried, later.EventSnoozed:
		m.duration.AddFloat(e.Queue, e.Duration.Seconds())
	}
}

// ServeHTTP writes the metrics as JSON.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"later_events": %s, "later_lateness_seconds": %s, "later_duration_seconds": %s}`+"\n",
		&m.events, &m.lateness, &m.duration)
}

// ClientOptions returns the options of the shop's client: traces for sends, and metrics.
func ClientOptions(log *slog.Logger, metrics *Metrics) []later.Option {
	return []later.Option{
		later.WithLogger(log), later.WithSendMiddleware(traceSend), later.WithObserver(metrics.observe),
	}
}
