package later

import (
	"time"

	"github.com/laterq/later/internal/handle"
	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// Info describes a live message.
type Info struct {
	ID      string
	Queue   string
	Payload []byte
	Headers map[string]string
	State   State

	// Due is when the message falls due, or last fell due.
	Due time.Time
	// Attempts is the number of failed attempts so far.
	Attempts int
	// MaxAttempts is the number of failed attempts after which the message is dead. It is the default when the
	// sender did not set it.
	MaxAttempts int
	// Delivered is set when the message has come back from a worker other than by a release, or was replayed.
	// Its expiry then no longer counts.
	Delivered bool
	// Timeout is the sender's limit for one run of the handler; 0 means the worker's.
	Timeout time.Duration
	// ExpireAfter and ExpireAt are the expiry, after the due time or at a fixed time. At most one of them is set.
	ExpireAfter time.Duration
	ExpireAt    time.Time
	// DedupWindow is how long the id is refused after an ack.
	DedupWindow time.Duration
	// Group is the group that the message is in, or "".
	Group string
	// Key is the key of the message, which says whom or which thing it is about, or "".
	Key string
	// Urgency is the urgency with which the message was sent. It counts if the flow of the queue has Urgency.
	Urgency Urgency
	// SentAt is the sender's clock at Send, or zero when unknown.
	SentAt time.Time

	// LeaseDeadline is when the lease of a leased message ends unless it is extended.
	LeaseDeadline time.Time
	// Follows is set if a worker holds a message that has a successor, by a send with Follow. State and LeaseDeadline
	// are then of the message that it holds, and all other fields of the successor.
	Follows bool
	// LastError is the text of the last failure, up to store.MaxReason bytes.
	LastError string
	// Failures are the last store.MaxFailures failed attempts, latest first. A replay keeps them.
	Failures []Failure
	// DeadReason and DiedAt are set for a dead message.
	DeadReason DeadReason
	DiedAt     time.Time
	// Raw has the bytes of a message that the store cannot read. Payload, Headers and the options of its sender are
	// then unknown.
	Raw []byte
}

// InfoOf returns a message of a queue as the methods of Client and Queue return it, for programs that read the Store.
func InfoOf(queue string, i store.Info) *Info {
	info := &Info{
		ID: i.ID, Queue: queue, Payload: i.Payload, Headers: i.Headers, State: i.State, Due: i.Due, Attempts: i.Attempts,
		Delivered: i.Delivered, Timeout: i.Timeout, ExpireAfter: i.ExpireAfter, ExpireAt: i.ExpireAt,
		DedupWindow: i.DedupWindow, Group: i.Group, Key: i.Key, Urgency: i.Urgency, LeaseDeadline: i.LeaseDeadline,
		Follows: i.Follows, LastError: i.LastError, Failures: i.Failures, DeadReason: i.DeadReason, DiedAt: i.DiedAt,
		Raw: i.Raw,
	}
	info.MaxAttempts, info.SentAt = handle.Resolve(&i.Message)
	return info
}

// MarshalJSON returns the JSON of the message, as the later command prints it; see docs/cli.md.
func (i Info) MarshalJSON() ([]byte, error) {
	return jsontext.Append(nil, wire.NewInfo(i.Queue, i.stored())), nil
}

// SizeAsJSON returns how many bytes the message has as JSON, or some more.
func (i *Info) SizeAsJSON() int { return wire.SizeOf(i.stored()) }

// stored returns the message as the store knows it.
func (i *Info) stored() *store.Info {
	return &store.Info{
		Message: store.Message{
			ID: i.ID, Payload: i.Payload, Headers: i.Headers, MaxAttempts: i.MaxAttempts, Timeout: i.Timeout,
			ExpireAfter: i.ExpireAfter, ExpireAt: i.ExpireAt, DedupWindow: i.DedupWindow, Group: i.Group, Key: i.Key,
			Urgency: i.Urgency, SentAt: i.SentAt,
		},
		State: i.State, Due: i.Due, Attempts: i.Attempts, Delivered: i.Delivered, LeaseDeadline: i.LeaseDeadline,
		Follows: i.Follows, LastError: i.LastError, Failures: i.Failures, DeadReason: i.DeadReason, DiedAt: i.DiedAt,
		Raw: i.Raw,
	}
}

// Failure is a failed attempt: when it ended, its number, how long it took, who held the message, and the first line of
// the error.
type Failure = store.Failure

// Page is one page of a listing.
type Page struct {
	Messages []*Info
	Next     string // Cursor of the next page; "" on the last page
}

// Retention limits the dead messages that a queue keeps; see Queue.SetDeadRetention.
type Retention = store.Retention

// Stats counts the messages of a queue.
type Stats = store.Stats
