package later

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/topic"
	"github.com/laterq/later/store"
)

// Send sends a message and returns its id once the store has it.
//
// Without options the message is due at once, has a generated id, and has store.DefaultMaxAttempts
// attempts. Concurrent Sends to a queue are batched. The payload may be reused when Send has returned.
//
// Send returns ErrDuplicate and changes nothing when the id set by WithID is live or within its dedup
// window, unless OnDuplicate says otherwise. ErrNotDurable, for sends with a Durability, means that the
// message was stored but is not as safe as requested. After ErrInvalid, ErrTooLarge, ErrLeased, ErrDead,
// ErrFull or ErrClosed the message was not sent. When ctx ends first, it was not sent unless the error says
// that the outcome is unknown. After any other error it may or may not have been sent. Send then still
// returns the id, and sending again with that id is safe.
//
// Send returns when ctx ends. Set a deadline: without one, a Send blocks while the store cannot be reached. Its call
// ends after 30 seconds (for durable sends, 30 seconds plus their timeout), or earlier if the engine stops retrying.
// The Redis engine stops after 10 seconds by default, or after the time that redisstore.RetryFor or retry in the store
// URL sets, as in redis://localhost:6379/0?retry=2s. A Send that waits behind earlier calls can take longer.
func (q *Queue) Send(ctx context.Context, payload []byte, opts ...SendOption) (string, error) {
	if err := q.checkSend(); err != nil {
		return "", err
	}
	var m store.Outgoing
	var err error
	chosen := false
	if len(opts) == 0 && q.defaults == nil && len(q.client.sendMiddleware) == 0 {
		plain := Outgoing{Payload: payload}
		m, err = plain.prepare(new(store.IDs))
	} else {
		m, chosen, err = q.prepareWith(ctx, payload, opts)
	}
	if err != nil {
		return "", err
	}
	result, err := q.sendPrepared(ctx, &m, chosen)
	return result.ID, err
}

// SendMessage is Send with a message in place of a payload and options. It returns the id and the effect of the send,
// and the errors of Send; SendResult.Err is not set.
func (q *Queue) SendMessage(ctx context.Context, o Outgoing) (SendResult, error) {
	if err := q.checkSend(); err != nil {
		return SendResult{}, err
	}
	if q.defaults != nil || len(q.client.sendMiddleware) > 0 {
		return q.sendCompleted(ctx, o)
	}
	m, err := o.prepare(new(store.IDs))
	if err != nil {
		return SendResult{}, err
	}
	return q.sendPrepared(ctx, &m, o.ID != "")
}

// sendCompleted is separate because a message that middleware changes does not stay on the stack.
func (q *Queue) sendCompleted(ctx context.Context, o Outgoing) (SendResult, error) {
	m, err := q.complete(ctx, &o, new(store.IDs))
	if err != nil {
		return SendResult{}, err
	}
	return q.sendPrepared(ctx, &m, o.ID != "") // middleware can have chosen an id
}

// outgoings has empty Outgoings, because one that options are applied to does not stay on the stack.
var outgoings = sync.Pool{New: func() any { return new(Outgoing) }}

// prepareWith is separate so that a Send without options needs no Outgoing from the pool.
func (q *Queue) prepareWith(
	ctx context.Context, payload []byte, opts []SendOption,
) (m store.Outgoing, chosen bool, err error) {
	o := outgoings.Get().(*Outgoing)
	defer func() {
		*o = Outgoing{}
		outgoings.Put(o)
	}()
	if err := o.apply(payload, opts); err != nil {
		return m, false, err
	}
	m, err = q.complete(ctx, o, new(store.IDs))
	return m, o.ID != "", err
}

// apply sets an empty o to a message with the given options.
func (o *Outgoing) apply(payload []byte, opts []SendOption) error {
	o.Payload = payload
	for i, opt := range opts {
		if opt == nil {
			return nilOption(i)
		}
		if err := opt.applySend(o); err != nil {
			return err
		}
	}
	return nil
}

// SendBatch sends any number of messages and returns a result for each, in order.
//
// All messages are checked before the first is sent. If one is not allowed, SendBatch returns no results and an
// ErrInvalid or ErrTooLarge that names its index, and nothing was sent. A duplicate is not an error; its result reports
// it. A message that OnDuplicate does not replace, or with a Once that is used, is not an error either: its result has
// ErrLeased, ErrDead or ErrConflict.
//
// Messages are sent in parts of up to store.MaxBatch messages and store.MaxBatchBytes each. A part is sent whole or not
// at all, unless the store makes several calls of one that takes long, as Redis does; the batch as a whole is not
// atomic. When a call fails, SendBatch stops after its part and returns the error, and the results of all messages that
// were not sent have it too. After ErrNotDurable the part was sent, and the later ones were not.
//
// Like Send, SendBatch can block while the store cannot be reached; it returns when ctx ends.
func (q *Queue) SendBatch(ctx context.Context, msgs []Outgoing) ([]SendResult, error) {
	if err := q.checkSend(); err != nil {
		return nil, err
	}
	if err := q.client.begin(); err != nil {
		return nil, err
	}
	defer q.client.calls.Done()
	prepared := make([]store.Outgoing, len(msgs))
	results := make([]SendResult, len(msgs))
	var ids store.IDs
	for i := range msgs {
		o := msgs[i]
		m, err := q.complete(ctx, &o, &ids)
		if err != nil {
			return nil, fmt.Errorf("message %d of the batch: %w", i, err)
		}
		prepared[i] = m
	}
	for start := 0; start < len(prepared); {
		end := calls.PartEnd(prepared, start)
		err := q.sendPart(ctx, msgs[start:end], prepared[start:end], results[start:end])
		if err != nil {
			for i := end; i < len(results); i++ {
				results[i] = SendResult{
					ID:  prepared[i].ID,
					Err: fmt.Errorf("not sent, an earlier part of the batch failed: %w", err),
				}
			}
			return results, err
		}
		start = end
	}
	return results, nil
}

// sendPrepared sends a message that was checked, together with messages of other goroutines. chosen is set unless its
// id was generated.
func (q *Queue) sendPrepared(ctx context.Context, m *store.Outgoing, chosen bool) (SendResult, error) {
	if ctx.Done() != nil {
		// It may return while its call is in flight.
		m.Payload = bytes.Clone(m.Payload)
	}
	for {
		result, err := q.sends.Do(ctx, *m)
		if err != nil {
			return SendResult{ID: m.ID}, err
		}
		sent, again := q.conclude(ctx, m, chosen, &result)
		if again {
			continue
		}
		err, sent.Err = sent.Err, nil
		if sent.Duplicate && !isRepetition(&result) {
			err = fmt.Errorf("id %q is already in queue %q: %w", m.ID, q.name, cmp.Or(err, ErrDuplicate))
		}
		return sent, err
	}
}

// sendPart sends one part in one call and fills in its results.
func (q *Queue) sendPart(ctx context.Context, asked []Outgoing, part []store.Outgoing, results []SendResult) error {
	answers, err := q.sends.DoPart(ctx, part)
	for i := range part {
		results[i] = SendResult{ID: part[i].ID, Err: err}
	}
	if err != nil {
		return err
	}
	for i := range answers {
		if failed := answers[i].Err; failed != nil && !staysAsItIs(failed) { // the same for the whole part
			err = failed
		}
		var again bool
		if results[i], again = q.conclude(ctx, &part[i], asked[i].ID != "", &answers[i]); again {
			if failed := q.sendPart(ctx, asked[i:i+1], part[i:i+1], results[i:i+1]); failed != nil {
				err = failed
			}
		}
	}
	return err
}

// store makes one call. Either all or none of its messages are sent one by one.
func (q *Queue) store(ctx context.Context, msgs []store.Outgoing) ([]store.SendResult, error) {
	return q.counted(q.client.store.Send(ctx, q.name, msgs))
}

// counted counts the messages that a call added.
func (q *Queue) counted(results []store.SendResult, err error) ([]store.SendResult, error) {
	sent := 0
	for i := range results {
		if results[i].Added() {
			sent++
		}
	}
	q.activity.Count(EventSent, sent)
	return results, err
}

// conclude reports the store's result for a message, and returns the result of its send. again is set if the message
// was not sent because another process generated the same id in the same millisecond: it then has a new one.
func (q *Queue) conclude(
	ctx context.Context, m *store.Outgoing, chosen bool, r *store.SendResult,
) (sent SendResult, again bool) {
	sent = SendResult{ID: m.ID, Outcome: outcomeOf(m, r), Err: q.refused(m, r.Err)}
	if r.First != nil {
		sent.ID, sent.Due = r.First.ID, r.First.Due
	}
	if r.First != nil && m.AnyID {
		m.ID = r.First.ID // for its event
	}
	switch {
	case isRepetition(r):
		sent.Duplicate = true
		m.ID = r.First.ID // for its event
		q.duplicate(ctx, m)
	case r.Added():
		q.sent(ctx, m)
	case r.Replaced:
		q.duplicate(ctx, m)
	case !r.Duplicate: // refused
	case chosen:
		sent.Duplicate = true
		q.duplicate(ctx, m)
	default:
		m.ID = new(store.IDs).New(slotKey(m))
		return sent, true
	}
	return sent, false
}

// outcomeOf returns the effect of the send of a message.
func outcomeOf(m *store.Outgoing, r *store.SendResult) SendOutcome {
	switch {
	case r.Duplicate:
		return SendDuplicate
	case r.Follows:
		return SendFollows
	case r.Replaced && m.OnDuplicate.Mode == store.DuplicateDebounce:
		return SendDebounced
	case r.Replaced:
		return SendReplaced
	case r.Added():
		return SendSent
	}
	return ""
}

// refused returns the error of a send, with the message if it is refused because of a live one.
func (q *Queue) refused(m *store.Outgoing, err error) error {
	if m.Once != nil && errors.Is(err, ErrConflict) {
		return errOnceUsed
	}
	if !staysAsItIs(err) {
		return err
	}
	return fmt.Errorf("id %q in queue %q is not replaced: %w", m.ID, q.name, err)
}

// staysAsItIs reports whether a send was refused because of the state of the live message, or the key of its Once.
func staysAsItIs(err error) bool {
	return errors.Is(err, ErrLeased) || errors.Is(err, ErrDead) || errors.Is(err, ErrConflict)
}

var errOnceUsed error = &detail{
	"the key of the request was used with another request in the last 24 hours", ErrConflict,
}

// isRepetition reports whether a send changed nothing because it repeats another one.
func isRepetition(r *store.SendResult) bool { return r.Duplicate && r.First != nil }

// With returns the same queue with defaults for its sends; q does not change, and its own defaults apply where opts
// sets nothing. Options of a send take precedence; its headers are added to the default ones.
//
// All options of a send are allowed but WithID: two messages cannot share an id. A DedupWindow is the default of
// messages with ids of their own. With returns ErrInvalid when an option is nil or not allowed, or when the queue's
// name is not allowed.
func (q *Queue) With(opts ...SendOption) (*Queue, error) {
	if q.invalid != nil {
		return nil, q.invalid
	}
	defaults, err := defaultsOf(opts)
	if err != nil {
		return nil, err
	}
	with := *q
	with.defaults = defaults.over(q.defaults)
	return &with, nil
}

// WithDefaults sets defaults for the sends to all queues of a client. See Queue.With. OnDuplicate is not allowed.
func WithDefaults(opts ...SendOption) Option { return clientDefaults(opts) }

type clientDefaults []SendOption

func (d clientDefaults) applyClient(o *options) error {
	if o.defaultsGiven {
		return twice("WithDefaults")
	}
	o.defaultsGiven = true
	defaults, err := defaultsOf(d)
	if err != nil {
		return err
	}
	if defaults.OnDuplicate.given {
		return store.Invalid("mode for duplicates is a default of the client: give it to a queue by Queue.With, or to a send")
	}
	if defaults.Durability.kind != durabilityDefault && o.defaults.Durability.kind != durabilityDefault {
		return twice("durability")
	}
	o.defaults = *defaults.over(&o.defaults)
	return nil
}

func defaultsOf(opts []SendOption) (*Outgoing, error) {
	d := new(Outgoing)
	if err := d.apply(nil, opts); err != nil {
		return nil, err
	}
	if d.ID != "" {
		return nil, store.Invalid("id %q is given as a default: give it to a send", d.ID)
	}
	if d.Once != nil {
		return nil, store.Invalid("once is given as a default: give it to a send")
	}
	check := *d
	check.ID = "any" // each send has its own
	_, err := check.prepare(new(store.IDs))
	return d, err
}

// over returns the defaults o, completed by the defaults below it, which may be nil.
func (o *Outgoing) over(below *Outgoing) *Outgoing {
	with := *o
	if below != nil {
		with.fill(below)
	}
	return &with
}

// WithSendMiddleware adds functions that are called, in order, for each message before it is sent: by Send and
// SendBatch, of a topic too, and for follow-ups. They may change the message, for example to add the headers of a
// trace. Its Queue is set and its Headers is never nil. They must not keep its Payload, which is the caller's. The
// defaults are filled in before, and everything is checked after. An error is the error of the send, which then sends
// nothing.
//
// A function is called on the goroutine of the send. It must be safe for concurrent use. For the follow-ups of a
// handler, ctx is the context that the worker made: MessageFromContext returns the handled message, and the values that
// middleware of handlers added to its own context are missing. A message that is written to an outbox is sent by its
// relay, with the relay's context; outbox.WithSendMiddleware has the context of the writer.
func WithSendMiddleware(middleware ...func(ctx context.Context, o *Outgoing) error) Option {
	return sendMiddleware(middleware)
}

type sendMiddleware []func(context.Context, *Outgoing) error

func (m sendMiddleware) applyClient(o *options) error {
	for i, f := range m {
		if f == nil {
			return store.Invalid("send middleware %d is nil: leave it out", i)
		}
	}
	o.sendMiddleware = append(o.sendMiddleware, m...)
	return nil
}

// complete fills in the defaults, calls the middleware, and returns the message that the store keeps. It may change o.
func (q *Queue) complete(ctx context.Context, o *Outgoing, ids *store.IDs) (store.Outgoing, error) {
	windowGiven := o.DedupWindow != 0
	if q.defaults != nil {
		o.fill(q.defaults)
	}
	if err := q.checkSend(); err != nil {
		return store.Outgoing{}, err
	}
	o.Queue = q.name
	run := o.run
	if len(q.client.sendMiddleware) > 0 {
		if o.Headers = maps.Clone(o.Headers); o.Headers == nil {
			o.Headers = map[string]string{}
		}
		for _, f := range q.client.sendMiddleware {
			if err := f(ctx, o); err != nil {
				return store.Outgoing{}, err
			}
		}
		if len(o.Headers) == 0 {
			o.Headers = nil
		}
	}
	if o.ID == "" && !windowGiven {
		o.DedupWindow = 0 // a default for messages with ids
	}
	if _, ok := o.Headers[topic.MissedHeader]; ok { // a distributor would take it for its own and leave queues out
		return store.Outgoing{}, store.Field("headers", store.Invalid("header %q is Later's own: give it another "+
			"name", topic.MissedHeader))
	}
	m, err := o.prepare(ids)
	if run {
		m.OnDuplicate, m.Relayed = store.OnDuplicate{}, true // a run never changes a live message
	}
	return m, err
}
