package later

import (
	"context"
	"maps"
	"time"

	"github.com/laterq/later/internal/handle"
	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// Message is a message as delivered to a handler or receiver. Do not modify it.
type Message struct {
	ID      string
	Queue   string
	Payload []byte
	Headers map[string]string

	// Due is when the message fell due, in whole milliseconds of the store's clock.
	Due time.Time
	// Attempt is 1 at first and grows by one with each failed attempt, including crashes of workers.
	Attempt int
	// MaxAttempts is the number of failed attempts after which the message is dead.
	MaxAttempts int
	// Lateness is how late the message was delivered: the time of delivery minus Due, on the store's clock,
	// plus the time that it then waited in this process. It is never negative.
	Lateness time.Duration
	// SentAt is the sender's clock at Send, or zero when unknown. For a message sent with an OnDuplicate other than
	// Keep it is the store's clock, at the first of the sends that were replaced.
	SentAt time.Time
	// Timeout is the sender's limit for one run of the handler; 0 means the worker's (see WorkerConfig).
	Timeout time.Duration
	// Group is the group that the sender put the message in, or "".
	Group string
	// Key is the key of the message, which says whom or which thing it is about, or "".
	Key string
	// Urgency is the urgency with which the message was sent.
	Urgency Urgency
	// Fence is above 0 for a message with a key in a queue with an Order, and larger than the Fence of every earlier
	// delivery of the key. A handler that outlives its lease may overlap with the next one: store the Fence with each
	// change that the handler makes, and refuse changes with a smaller one than is stored.
	Fence int64
}

// newMessage returns the message of a claim made at now on the store's clock.
func newMessage(queue string, c *store.Claimed, now time.Time) *Message {
	m := handle.MessageOf(queue, c, now)
	return (*Message)(&m)
}

// ContextWithMessage returns a context with the message m, as in a handler: MessageFromContext returns m. Use it in
// tests of handlers and of the functions that they call.
func ContextWithMessage(ctx context.Context, m *Message) context.Context {
	return handle.ContextWithMessage(ctx, (*handle.Message)(m))
}

// MessageFromContext returns the message of the handler that received ctx or an ancestor of it, or nil.
func MessageFromContext(ctx context.Context) *Message {
	return (*Message)(handle.MessageFromContext(ctx))
}

// Outgoing is a message to send. Only Payload is required, and it may be empty.
type Outgoing struct {
	// ID identifies one live message of the queue: sending a live id again changes nothing. Default: a
	// generated id that sorts by time.
	ID      string
	Payload []byte // up to store.MaxPayload bytes
	// Headers has up to store.MaxHeaders entries with up to store.MaxHeaderBytes in all. Names and values are
	// UTF-8; names are not empty and contain no control characters.
	Headers map[string]string
	// When is the time at which the message falls due. Default: at once.
	When When
	// MaxAttempts is the number of failed attempts after which the message is dead, 1 to store.MaxAttempts.
	// Default: store.DefaultMaxAttempts.
	MaxAttempts int
	// Timeout limits one run of the handler, up to store.MaxTimeout. An exceeded limit is a failed attempt; see
	// WorkerConfig.Timeout for details. Default: the worker's limit.
	Timeout time.Duration
	// ExpireAfter makes the message dead if it has not been delivered so long after its due time. ExpireAt
	// does so at a fixed time, which may not be before the message is due; for a delay, the sender's clock decides
	// that. At most one of them may be set. Default: never.
	ExpireAfter time.Duration
	ExpireAt    time.Time
	// DedupWindow is how long the ID, which must be set, is refused as a duplicate after an ack, up to store.MaxDelay.
	// Default: no window.
	DedupWindow time.Duration
	// Group is the group of the queue that the message is in, up to store.MaxGroup bytes; see Group. Default: none.
	Group string
	// Key says whom or which thing the message is about, up to store.MaxKey bytes; see the option Key. Default: none.
	Key string
	// Urgency says whether the message goes before or after others; see the option Urgent. Default: UrgencyNormal.
	Urgency Urgency
	// OnDuplicate is the effect of the send if the queue has a live message with the ID; see the option OnDuplicate.
	// Default: Keep.
	OnDuplicate DuplicateMode
	// Once, if set, makes the request that the message is sent for safe to repeat; see the option Once. Default: none.
	Once *store.Once
	// Queue is the queue's name, for middleware of sends. A send sets it.
	Queue string
	// Durability is how safe the message must be before the send returns; see Durable. Default: the queue's,
	// else the client's.
	Durability Durability

	run bool // of a schedule
}

// Message returns the parts of the message that a store keeps, except for its SentAt.
func (o *Outgoing) Message() store.Message {
	return store.Message{
		ID:          o.ID,
		Payload:     o.Payload,
		Headers:     o.Headers,
		MaxAttempts: o.MaxAttempts,
		Timeout:     o.Timeout,
		ExpireAfter: o.ExpireAfter,
		ExpireAt:    o.ExpireAt,
		DedupWindow: o.DedupWindow,
		Group:       o.Group,
		Key:         o.Key,
		Urgency:     o.Urgency,
	}
}

// OutgoingOf returns the message that has m as its Message and is due at once.
func OutgoingOf(m store.Message) Outgoing {
	return Outgoing{
		ID:          m.ID,
		Payload:     m.Payload,
		Headers:     m.Headers,
		MaxAttempts: m.MaxAttempts,
		Timeout:     m.Timeout,
		ExpireAfter: m.ExpireAfter,
		ExpireAt:    m.ExpireAt,
		DedupWindow: m.DedupWindow,
		Group:       m.Group,
		Key:         m.Key,
		Urgency:     m.Urgency,
	}
}

// fill sets the omitted fields of o to defaults. It does not change o's map of headers.
func (o *Outgoing) fill(d *Outgoing) {
	if !o.OnDuplicate.given {
		o.OnDuplicate = d.OnDuplicate
	}
	if o.When.kind == 0 && o.OnDuplicate.asked.Mode != store.DuplicateDebounce {
		o.When = d.When
	}
	if o.MaxAttempts == 0 {
		o.MaxAttempts = d.MaxAttempts
	}
	if o.Timeout == 0 {
		o.Timeout = d.Timeout
	}
	if o.ExpireAfter == 0 && o.ExpireAt.IsZero() {
		o.ExpireAfter, o.ExpireAt = d.ExpireAfter, d.ExpireAt
	}
	if o.DedupWindow == 0 {
		o.DedupWindow = d.DedupWindow
	}
	if o.Group == "" {
		o.Group = d.Group
	}
	if o.Key == "" {
		o.Key = d.Key
	}
	if o.Urgency == "" {
		o.Urgency = d.Urgency
	}
	if o.Durability.kind == durabilityDefault {
		o.Durability = d.Durability
	}
	if len(d.Headers) > 0 {
		headers := maps.Clone(d.Headers)
		maps.Copy(headers, o.Headers)
		o.Headers = headers
	}
}

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

// SendResult is the result of one message of a SendBatch.
type SendResult struct {
	// ID is the id of the message. If the send repeats another one (see Once), it is that one's.
	ID string
	// Due is when the message fell due as it was sent, by the store's clock. It is set for sends with Once.
	Due time.Time
	// Outcome is the effect of the send. It is empty if Err is set, except after ErrNotDurable.
	Outcome SendOutcome
	// Duplicate is set when the id was live or within its dedup window, or the send repeats another one (see Once).
	// Nothing was changed, and Err is nil or ErrNotDurable.
	Duplicate bool
	// Err is why the message was not sent, or is not known to have been. After ErrNotDurable it was sent. ErrLeased and
	// ErrDead mean that OnDuplicate asked to replace a message that is in this state, and ErrConflict that the key of
	// Once was used with another request. Nothing was changed then.
	Err error
}

// Check returns the ErrInvalid or ErrTooLarge that Send would return for the message, or nil. It serves code that keeps
// messages elsewhere before they are sent.
func (o *Outgoing) Check() error {
	_, err := o.prepare(new(store.IDs))
	return err
}

// slotKey returns the text that decides on the slot of the id of a message, or "" if it does not matter. Repetitions of
// a request get ids of one slot, so that they find the first one in a queue with several shards.
func slotKey(m *store.Outgoing) string {
	if m.Key == "" && m.Once != nil {
		return m.Once.Key
	}
	return m.Key
}

// prepare checks the message and returns the one that the store keeps. It makes an id when there is none.
func (o *Outgoing) prepare(ids *store.IDs) (store.Outgoing, error) {
	out := store.Outgoing{Message: o.Message(), Due: o.When.due, Durable: o.Durability.asked, Once: o.Once}
	if o.ID == "" {
		out.ID, out.AnyID = ids.New(slotKey(&out)), out.Key == "" && out.Once == nil
		if o.DedupWindow > 0 {
			return out, store.Field("dedup_window", store.Invalid("dedup window is %v and there is no id: give the id "+
				"that repeated sends share, or leave the window out", o.DedupWindow))
		}
	} else {
		out.SentAt = time.UnixMilli(time.Now().UnixMilli())
	}
	if err := o.When.check(); err != nil {
		return out, err
	}
	if o.OnDuplicate.asked.Collapses() {
		if err := o.collapse(&out); err != nil {
			return out, err
		}
	}
	if err := o.Durability.check(); err != nil {
		return out, err
	}
	if err := out.Check(); err != nil {
		return out, err
	}
	return out, o.checkExpiry()
}

// checkExpiry refuses a message that would expire before it is due.
func (o *Outgoing) checkExpiry() error {
	if o.ExpireAt.IsZero() {
		return nil
	}
	due := o.When.due.At
	if d := o.When.due.Delay; d > 0 {
		due = time.Now().Add(d)
	}
	if due.After(o.ExpireAt) {
		return store.Field("expire_at", store.Invalid("expiry at %s is before the message is due, %v: give a later expiry, "+
			"or an earlier due time", o.ExpireAt.Format(time.RFC3339), o.When))
	}
	return nil
}
