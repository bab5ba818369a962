package later

import (
	"context"
	"maps"

	"github.com/laterq/later/internal/topic"
	"github.com/laterq/later/store"
)

// With returns the same queue with defaults for its sends; q does not change, and its own defaults apply where none of
// opts does. What a send sets itself takes precedence; its headers are added to the default ones.
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
	_, err := check.prepare()
	return d, err
}

// over returns the defaults d, completed by the defaults below it, which may be nil.
func (o *Outgoing) over(below *Outgoing) *Outgoing {
	with := *o
	if below != nil {
		with.fill(below)
	}
	return &with
}

// WithSendMiddleware adds functions that are called, in order, for each message before it is sent: by Send and
// SendBatch, of a topic too, and for follow-ups. They may change the message, whose Queue is set and whose Headers is
// never nil, for example to add the headers of a trace, but must not keep its Payload, which is the caller's. The
// defaults are filled in before, and everything is checked after. An error is that of the send, which then sends
// nothing.
//
// A function is called on the goroutine of the send. It must be safe for concurrent use. For the follow-ups of a
// handler, ctx is the context that the worker made: MessageFromContext returns the message that was handled, and what
// middleware of handlers added to its own context is not there. A message that is written to an outbox is sent by its
// relay, with the relay's context; outbox.WithSendMiddleware has the context of who writes it.
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
func (q *Queue) complete(ctx context.Context, o *Outgoing) (store.Outgoing, error) {
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
	m, err := o.prepare()
	if run {
		m.OnDuplicate = store.OnDuplicate{} // a run never changes a live message
	}
	return m, err
}
