package later

import (
	"time"

	"github.com/laterq/later/store"
)

// Message is a message as a handler or receiver gets it. It must not be changed.
type Message struct {
	ID      string
	Queue   string
	Payload []byte
	Headers map[string]string

	// Due is when the message fell due, on the store's clock, in whole milliseconds.
	Due time.Time
	// Attempt is 1 at first, and one more after each failed attempt; a worker's crash is one too.
	Attempt int
	// MaxAttempts is the number of failed attempts after which the message is dead.
	MaxAttempts int
	// Lateness is the time of delivery minus Due, measured on the store's clock, plus the time the message
	// then waited inside this process. It is never negative.
	Lateness time.Duration
	// SentAt is the sender's clock at Send; zero when unknown.
	SentAt time.Time
	// Timeout is the sender's limit for one run of the handler; 0 means the worker's (see WorkerConfig).
	Timeout time.Duration

	remember time.Duration
}

// fill makes m the message of a claim that happened at now on the store's clock.
func (m *Message) fill(queue string, c *store.Claimed, now time.Time) {
	*m = Message{
		ID:       c.ID,
		Queue:    queue,
		Payload:  c.Payload,
		Headers:  c.Headers,
		Due:      c.Due,
		Attempt:  c.Attempt,
		Lateness: max(0, now.Sub(c.Due)),
		Timeout:  c.Timeout,
		remember: c.Remember,
	}
	m.MaxAttempts, m.SentAt = resolve(&c.Message)
}

// Outgoing is a message to send. Only Payload is needed, and it may be empty.
type Outgoing struct {
	// ID belongs to one living message of the queue: sending it again changes nothing. Default: an id that
	// sorts by time is made.
	ID      string
	Payload []byte // up to store.MaxPayload bytes
	// Headers are up to store.MaxHeaders with up to store.MaxHeaderBytes in all. Names and values are UTF-8;
	// names are not empty and have no control characters.
	Headers map[string]string
	// When the message falls due. Default: at once.
	When When
	// MaxAttempts is the number of failed attempts after which the message is dead, 1 to store.MaxAttempts.
	// Default: store.DefaultMaxAttempts.
	MaxAttempts int
	// Timeout limits one run of the handler, up to store.MaxLease; a run that takes longer is a failed
	// attempt (see WorkerConfig.Timeout). Default: the worker's limit.
	Timeout time.Duration
	// ExpireAfter and ExpireAt send a message that was not delivered so long after its due time, or by that
	// time, to dead as expired. At most one of them may be given. Default: never.
	ExpireAfter time.Duration
	ExpireAt    time.Time
	// Remember is how long the id is refused as a duplicate after the message was acked. Default: not at all.
	Remember time.Duration
	// Durability is how safe the message must be before the send is over; see Durable. Default: the queue's, else the
	// client's.
	Durability Durability
}

// SendResult tells what became of one message of a SendBatch.
type SendResult struct {
	ID string
	// Duplicate: the id is living or remembered; nothing was changed. Err is nil then, or ErrNotDurable.
	Duplicate bool
	// Err is why the message was not sent, or is not known to have been. With ErrNotDurable it is there.
	Err error
}

// prepare checks the message and gives what the store is to keep; it makes an id when there is none.
func (o *Outgoing) prepare(durability Durability) (store.Outgoing, error) {
	out := store.Outgoing{
		Message: store.Message{
			ID:          o.ID,
			Payload:     o.Payload,
			Headers:     o.Headers,
			MaxAttempts: o.MaxAttempts,
			Timeout:     o.Timeout,
			ExpireAfter: o.ExpireAfter,
			ExpireAt:    o.ExpireAt,
			Remember:    o.Remember,
		},
		Due:     o.When.due,
		Durable: o.Durability.or(durability),
	}
	if o.ID == "" {
		out.ID = store.NewID()
	} else {
		out.SentAt = time.UnixMilli(time.Now().UnixMilli())
	}
	if err := o.When.check(); err != nil {
		return out, err
	}
	if err := o.Durability.check(); err != nil {
		return out, err
	}
	return out, out.Check()
}

// sendSize is what a message counts towards store.MaxBatchBytes.
func sendSize(m store.Outgoing) int {
	size := len(m.Payload)
	for name, value := range m.Headers {
		size += len(name) + len(value)
	}
	return size
}
