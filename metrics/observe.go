package metrics

import (
	"errors"
	"maps"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laterq/later"
)

// queueMetrics are the metrics of one queue, or of all queues without metrics of their own.
type queueMetrics struct {
	label                string
	sent, died           prometheus.Counter
	outcomes             map[later.EventKind]prometheus.Counter
	cancelled            prometheus.Counter
	lateness, processing prometheus.Observer
}

// outcomes are the events that end the holding of a message. They are the outcomes of later_messages_settled_total.
var outcomes = []later.EventKind{
	later.EventAcked, later.EventForwarded, later.EventNacked, later.EventSnoozed, later.EventGivenBack,
	later.EventBuried, later.EventReleased, later.EventLeaseLost, later.EventUnsettled,
}

// Observe counts an event. Pass it to later.WithObserver.
func (m *Metrics) Observe(e later.Event) {
	q := m.of(e.Queue)
	switch e.Kind {
	case later.EventSent:
		q.sent.Inc()
		if e.Schedule != "" {
			m.scheduleFired.WithLabelValues(q.label).Inc()
		}
	case later.EventClaimed:
		if pulled(&e) {
			q.lateness.Observe(e.Lateness.Seconds())
		}
	case later.EventStarted:
		q.lateness.Observe(e.Lateness.Seconds())
	case later.EventDied:
		q.died.Inc()
	case later.EventRunMissed:
		m.scheduleMissed.WithLabelValues(q.label).Add(float64(e.Count))
	case later.EventRunSkipped:
		m.scheduleSkipped.WithLabelValues(q.label).Add(float64(e.Count))
	default:
		q.settled(&e)
	}
}

// settled counts an event that ends the holding of a message, and ignores others.
func (q *queueMetrics) settled(e *later.Event) {
	outcome, ok := q.outcomes[e.Kind]
	if !ok {
		return
	}
	if e.Kind == later.EventLeaseLost && errors.Is(e.Err, later.ErrCancelled) {
		outcome = q.cancelled
	}
	outcome.Inc()
	if e.Duration > 0 { // a handler ran
		q.processing.Observe(e.Duration.Seconds())
	}
}

// pulled reports whether a message was claimed by Receive. One that a worker claimed waits for its handler, and has an
// EventStarted.
func pulled(e *later.Event) bool {
	m := later.MessageFromContext(e.Context)
	return m == nil || m.ID != e.ID || m.Queue != e.Queue
}

// of returns the metrics of a queue.
func (m *Metrics) of(queue string) *queueMetrics {
	queues := *m.queues.Load()
	if q, ok := queues[queue]; ok {
		return q
	}
	if len(queues) >= m.cfg.MaxQueues {
		return m.other()
	}
	m.adding.Lock()
	defer m.adding.Unlock()
	queues = *m.queues.Load()
	if q, ok := queues[queue]; ok {
		return q
	}
	if len(queues) >= m.cfg.MaxQueues {
		return m.other()
	}
	more := maps.Clone(queues)
	q := m.newQueue(strings.Clone(queue)) // which may be a part of something large
	more[q.label] = q
	m.queues.Store(&more)
	return q
}

// newQueue returns the metrics of a queue. The counters of all outcomes exist from the first event on, because
// Prometheus does not see the first increase of a counter that appears with it.
func (m *Metrics) newQueue(label string) *queueMetrics {
	q := &queueMetrics{
		label:      label,
		sent:       m.sent.WithLabelValues(label),
		died:       m.died.WithLabelValues(label),
		outcomes:   make(map[later.EventKind]prometheus.Counter, len(outcomes)),
		cancelled:  m.settled.WithLabelValues(label, string(later.EventCancelled)),
		lateness:   m.lateness.WithLabelValues(label),
		processing: m.processing.WithLabelValues(label),
	}
	for _, kind := range outcomes {
		q.outcomes[kind] = m.settled.WithLabelValues(label, string(kind))
	}
	return q
}
