package main

import (
	"context"
	"crypto/rand"
	"expvar"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"time"

	"github.com/hibiken/asynq"
)

// traceHeader is the header of a task, and of HTTP requests, with its trace (W3C Trace Context).
const traceHeader = "traceparent"

type traceKey struct{}

// traceOf returns the trace of a request, or of the task that is being handled, or "".
func traceOf(ctx context.Context) string {
	trace, _ := ctx.Value(traceKey{}).(string)
	return trace
}

// withTrace returns headers with the trace of ctx.
func withTrace(ctx context.Context, headers map[string]string) map[string]string {
	headers = maps.Clone(headers)
	if headers == nil {
		headers = map[string]string{}
	}
	if trace := traceOf(ctx); trace != "" {
		headers[traceHeader] = trace
	}
	return headers
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

// observed has the trace of a task in its handler's context, counts the results of handlers, and logs them. A tracing
// library would begin and end a span here.
func (s *Shop) observed(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		ctx = context.WithValue(ctx, traceKey{}, t.Headers()[traceHeader])
		begin := time.Now()
		err := next.ProcessTask(ctx, t)
		took := time.Since(begin)
		queue, _ := asynq.GetQueueName(ctx)
		id, _ := asynq.GetTaskID(ctx)
		retried, _ := asynq.GetRetryCount(ctx)
		log := s.cfg.Log.With("queue", queue, "kind", t.Type(), "id", id, "attempt", retried+1, "took", took,
			"trace", traceOf(ctx))
		outcome := "acked"
		if err != nil {
			outcome = "nacked"
			log.Warn("handled", "outcome", outcome, "error", err)
		} else {
			log.Info("handled", "outcome", outcome)
		}
		s.metrics.events.Add(queue+"."+outcome, 1)
		s.metrics.duration.AddFloat(queue, took.Seconds())
		return err
	})
}

// failed logs a task that is archived.
func (s *Shop) failed(ctx context.Context, t *asynq.Task, err error) {
	if !isFinal(ctx, err) {
		return
	}
	queue, _ := asynq.GetQueueName(ctx)
	id, _ := asynq.GetTaskID(ctx)
	s.metrics.events.Add(queue+".died", 1)
	// A person has to look at /dead.
	s.cfg.Log.Error("task is dead", "queue", queue, "kind", t.Type(), "id", id, "error", err)
}

// Metrics counts the results of handlers. A program with Prometheus would count in its vectors.
type Metrics struct {
	events   expvar.Map // by queue and outcome
	duration expvar.Map // by queue, the sum in seconds
}

// ServeHTTP writes the metrics as JSON.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"events": %s, "duration_seconds": %s}`+"\n", &m.events, &m.duration)
}

// logger is the Logger of asynq.
type logger struct{ log *slog.Logger }

func (l logger) Debug(args ...any) { l.log.Debug(fmt.Sprint(args...)) }
func (l logger) Info(args ...any)  { l.log.Info(fmt.Sprint(args...)) }
func (l logger) Warn(args ...any)  { l.log.Warn(fmt.Sprint(args...)) }
func (l logger) Error(args ...any) { l.log.Error(fmt.Sprint(args...)) }
func (l logger) Fatal(args ...any) { l.log.Error(fmt.Sprint(args...)) }
