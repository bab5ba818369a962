package handle

import (
	"context"
	"time"

	"github.com/laterq/later/internal/outcome"
	"github.com/laterq/later/store"
)

// Message is a claimed message. Message of the root package has the same fields, so that a pointer to one converts to a
// pointer to the other, and describes them.
type Message struct {
	ID          string
	Queue       string
	Payload     []byte
	Headers     map[string]string
	Due         time.Time
	Attempt     int
	MaxAttempts int
	Lateness    time.Duration
	SentAt      time.Time
	Timeout     time.Duration
	Group       string
	Key         string
	Urgency     store.Urgency
	Fence       int64
}

// MessageOf returns the message of a claim of a queue made at now on the store's clock.
func MessageOf(queue string, c *store.Claimed, now time.Time) (m Message) {
	m = Message{
		ID: c.ID, Queue: queue, Payload: c.Payload, Headers: c.Headers, Due: c.Due, Attempt: c.Attempt,
		Lateness: max(0, now.Sub(c.Due)), Timeout: c.Timeout, Group: c.Group, Key: c.Key, Urgency: c.Urgency,
		Fence: c.Fence,
	}
	m.MaxAttempts, m.SentAt = Resolve(&c.Message)
	return m
}

// Resolve returns the fields of a message that a store may leave out.
func Resolve(m *store.Message) (maxAttempts int, sentAt time.Time) {
	maxAttempts, sentAt = m.MaxAttempts, m.SentAt
	if maxAttempts == 0 {
		maxAttempts = store.DefaultMaxAttempts
	}
	if sentAt.IsZero() {
		sentAt, _ = store.IDTime(m.ID)
	}
	return maxAttempts, sentAt
}

// Tried returns the part of the message that its outcome depends on.
func (m *Message) Tried() outcome.Attempt {
	return outcome.Attempt{Number: m.Attempt, Headers: m.Headers, SentAt: m.SentAt}
}

// The causes of the end of a handler's context, besides the errors of package store.
var (
	ErrTimeout  error = &cause{"handler's time limit has passed", context.DeadlineExceeded}
	ErrShutdown error = &cause{"worker is shutting down", context.Canceled}
)

type cause struct {
	text string
	is   error
}

func (c *cause) Error() string { return c.text }
func (c *cause) Unwrap() error { return c.is }

type (
	messageKey     struct{}
	concurrencyKey struct{}
)

// ContextWithMessage returns a context with a message, as a handler's.
func ContextWithMessage(ctx context.Context, m *Message) context.Context {
	return context.WithValue(ctx, messageKey{}, m)
}

// MessageFromContext returns the message of a handler's context, or nil.
func MessageFromContext(ctx context.Context) *Message {
	m, _ := ctx.Value(messageKey{}).(*Message)
	return m
}

// ConcurrencyFromContext returns the concurrency of the worker of a handler's context, or 0.
func ConcurrencyFromContext(ctx context.Context) int {
	n, _ := ctx.Value(concurrencyKey{}).(int)
	return n
}
