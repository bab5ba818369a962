package delayqueue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/laterq/later"
)

// The codes of events.
const (
	// NewMessageEvent is a send.
	NewMessageEvent = iota + 1
	// ReadyEvent is a message that has fallen due. It is reported together with its first DeliveredEvent.
	ReadyEvent
	// DeliveredEvent is the first delivery of a message to a callback.
	DeliveredEvent
	// AckEvent is a callback that returned true.
	AckEvent
	// NackEvent is a callback that returned false, panicked or exceeded its time.
	NackEvent
	// RetryEvent is a further delivery of a message to a callback.
	RetryEvent
	// FinalFailedEvent is a message that is out of retries or past its TTL, and is now a dead letter.
	FinalFailedEvent
)

// Event reports a change of messages of a queue.
type Event struct {
	// Code is the kind of the event, such as NewMessageEvent.
	Code int
	// Timestamp is the time of the event in seconds since 1970, on the clock of the process that reports it.
	Timestamp int64
	// MsgCount is the number of messages. A process can report several events of one kind as one.
	MsgCount int
}

// EventListener receives events.
type EventListener interface {
	// OnEvent is called for each event, by several goroutines at a time. It holds up the work that it reports, so it
	// must be fast.
	OnEvent(*Event)
}

// ListenEvent has listener called for the events of this DelayQueue, in place of another listener and of EnableReport.
// A Monitor listens to the events of all processes.
func (q *DelayQueue) ListenEvent(listener EventListener) {
	if listener == nil {
		q.listener.Store(nil)
		return
	}
	q.listener.Store(&listener)
}

// DisableListener ends ListenEvent and EnableReport.
func (q *DelayQueue) DisableListener() { q.listener.Store(nil) }

// EnableReport has the events of this DelayQueue reported to Monitors, in place of ListenEvent. It does not hold up
// messages: events that happen while others are on their way are reported together.
func (q *DelayQueue) EnableReport() { q.ListenEvent(q.report) }

// DisableReport ends EnableReport and ListenEvent.
func (q *DelayQueue) DisableReport() { q.DisableListener() }

// observe is called for every event of Later.
func (q *DelayQueue) observe(e later.Event) {
	listener := q.listener.Load()
	if listener == nil {
		return
	}
	tell := func(code int) {
		(*listener).OnEvent(&Event{Code: code, Timestamp: e.Time.Unix(), MsgCount: 1})
	}
	switch {
	case e.Kind == later.EventSent:
		tell(NewMessageEvent)
	case e.Kind == later.EventStarted && e.Attempt > 1:
		tell(RetryEvent)
	case e.Kind == later.EventStarted:
		tell(ReadyEvent)
		tell(DeliveredEvent)
	case e.Kind == later.EventAcked:
		tell(AckEvent)
	case e.Kind == later.EventNacked:
		tell(NackEvent)
	case e.Kind == later.EventDied:
		tell(FinalFailedEvent)
	}
}

// reporter is the listener that publishes events for Monitors. While a call to Redis is in flight it adds up the events
// that follow.
type reporter struct {
	q *DelayQueue

	mu     sync.Mutex
	counts [FinalFailedEvent + 1]int // by code, not yet published
	idle   chan struct{}             // closed when nothing is being published
	busy   bool
}

func newReporter(q *DelayQueue) *reporter {
	idle := make(chan struct{})
	close(idle)
	return &reporter{q: q, idle: idle}
}

// OnEvent implements EventListener.
func (r *reporter) OnEvent(e *Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[e.Code] += e.MsgCount
	if !r.busy {
		r.busy, r.idle = true, make(chan struct{})
		go r.publish()
	}
}

// publish publishes events until there are none. One that cannot be published is lost.
func (r *reporter) publish() {
	for {
		r.mu.Lock()
		counts := r.counts
		if counts == [FinalFailedEvent + 1]int{} {
			r.busy = false
			close(r.idle)
			r.mu.Unlock()
			return
		}
		r.counts = [FinalFailedEvent + 1]int{}
		r.mu.Unlock()
		now := time.Now().Unix()
		for code, n := range counts {
			if n > 0 {
				event := Event{Code: code, Timestamp: now, MsgCount: n}
				r.q.rdb.Publish(context.Background(), reportChannel(r.q.name), encodeEvent(&event))
			}
		}
	}
}

// wait returns when all events so far have been published.
func (r *reporter) wait() {
	r.mu.Lock()
	idle := r.idle
	r.mu.Unlock()
	<-idle
}

// reportChannel returns the channel of a queue's events. It is that of the original, as is the format of events, so
// processes with either library can report to one Monitor.
func reportChannel(name string) string { return "dq:" + name + ":reportEvents" }

func encodeEvent(e *Event) string { return fmt.Sprintf("%d %d %d", e.Code, e.Timestamp, e.MsgCount) }

func decodeEvent(payload string) (*Event, error) {
	var e Event
	if _, err := fmt.Sscanf(payload, "%d %d %d", &e.Code, &e.Timestamp, &e.MsgCount); err != nil {
		return nil, fmt.Errorf("event is %q, not a code, a time and a count: %w", payload, err)
	}
	return &e, nil
}
