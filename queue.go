package later

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

// Queue is a named set of messages, returned by Client.Queue. Its methods are safe for concurrent use.
type Queue struct {
	client  *Client
	name    string
	invalid error // why the name is not allowed
	old     error // why the name is not allowed for a new queue; it may exist
	kept    error // why its messages may not be changed like others

	defaults *Outgoing // for sends; nil if there are none
	activity *queueActivity
	dropped  *atomic.Int64 // when messages of an unsubscribed topic were dropped, in ns since 1970

	sends    *batcher[store.Outgoing, store.SendResult]
	oneByOne *batcher[store.Outgoing, store.SendResult] // sends that may change live messages or repeat others
	durables *durableSends
	settles  *batcher[store.Settlement, store.SettleResult]
}

func newQueue(c *Client, name string) *Queue {
	// Calls in flight refer to q, so that it is in use until they return.
	q := &Queue{
		client: c, name: name, old: store.CheckNewQueue(name), kept: checkUse(name, reserved.Change), defaults: c.defaults,
		dropped: new(atomic.Int64), activity: c.reporter.of(name),
	}
	q.durables = &durableSends{client: c, queue: q}
	q.sends = newBatcher(func(ctx context.Context, items []store.Outgoing) ([]store.SendResult, error) {
		return q.store(ctx, items)
	}, sendSize)
	q.sends.linger, q.sends.gathers = gatherFor, true
	q.oneByOne = newBatcher(q.store, sendSize)
	q.settles = newBatcher(func(ctx context.Context, items []store.Settlement) ([]store.SettleResult, error) {
		return c.store.Settle(ctx, q.name, items)
	}, settleSize)
	return q
}

// store stores messages in one call, and counts those that it added. Either all or none are sent one by one.
func (q *Queue) store(ctx context.Context, msgs []store.Outgoing) ([]store.SendResult, error) {
	results, err := q.client.store.Send(ctx, q.name, msgs)
	sent := 0
	for i := range results {
		if results[i].Added() {
			sent++
		}
	}
	q.activity.count(EventSent, sent)
	return results, err
}

// checkUse returns an ErrInvalid if a queue of Later's own may not be used so.
func checkUse(queue string, use reserved.Use) error {
	if why := reserved.Check(queue, use); why != "" {
		return store.Invalid("%s", why)
	}
	return nil
}

// checkChange returns an ErrInvalid if the queue's messages may not be changed like others.
func (q *Queue) checkChange() error { return q.kept }

// checkSend returns an ErrInvalid if no messages may be sent to the queue.
func (q *Queue) checkSend() error { return cmp.Or(q.invalid, q.old, q.kept) }

// Name returns the queue's name.
func (q *Queue) Name() string { return q.name }

// Send sends a message and returns its id once the store has it.
//
// Without options the message is due at once, has a generated id, and has store.DefaultMaxAttempts
// attempts. Concurrent Sends to a queue are batched. The payload may be reused when Send has returned. A lone
// Send is fastest with a context that cannot end, such as context.Background.
//
// Send returns ErrDuplicate and changes nothing when the id set by WithID is live or within its dedup
// window, unless OnDuplicate says otherwise. ErrNotDurable, for sends with a Durability, means that the
// message was stored but is not as safe as requested. After ErrInvalid, ErrTooLarge, ErrLeased, ErrDead,
// ErrFull or ErrClosed the message was not sent. When ctx ends first, it was not sent unless the error says
// that the outcome is unknown. After any other error it may or may not have been sent. Send then still
// returns the id, and sending again with that id is safe.
//
// Send returns when ctx ends. Set a deadline: without one, a Send blocks while the store cannot be reached.
// Its call ends after 30 seconds (for durable sends, 30 seconds plus their timeout), or earlier if the
// engine stops retrying; the Redis engine does after 10 seconds by default, or after what redisstore.RetryFor or
// retry in the store URL set, as in redis://localhost:6379/0?retry=2s. A Send that waits behind earlier calls can take
// longer.
func (q *Queue) Send(ctx context.Context, payload []byte, opts ...SendOption) (string, error) {
	if err := q.checkSend(); err != nil {
		return "", err
	}
	var m store.Outgoing
	var err error
	chosen := false
	if len(opts) == 0 && q.defaults == nil && len(q.client.sendMiddleware) == 0 {
		plain := Outgoing{Payload: payload}
		m, err = plain.prepare()
	} else {
		m, chosen, err = q.prepareWith(ctx, payload, opts)
	}
	if err != nil {
		return "", err
	}
	result, err := q.sendPrepared(ctx, &m, chosen)
	return result.ID, err
}

// SendMessage is Send with a message in place of a payload and options. It returns the id and what the send did, and the
// errors of Send; SendResult.Err is not set.
func (q *Queue) SendMessage(ctx context.Context, o Outgoing) (SendResult, error) {
	if err := q.checkSend(); err != nil {
		return SendResult{}, err
	}
	if q.defaults != nil || len(q.client.sendMiddleware) > 0 {
		return q.sendCompleted(ctx, o)
	}
	m, err := o.prepare()
	if err != nil {
		return SendResult{}, err
	}
	return q.sendPrepared(ctx, &m, o.ID != "")
}

// sendCompleted is separate because a message that middleware changes does not stay on the stack.
func (q *Queue) sendCompleted(ctx context.Context, o Outgoing) (SendResult, error) {
	m, err := q.complete(ctx, &o)
	if err != nil {
		return SendResult{}, err
	}
	return q.sendPrepared(ctx, &m, o.ID != "") // middleware can have chosen an id
}

// sendPrepared sends a message that was checked, together with those of other goroutines. chosen is set unless its id
// was generated.
func (q *Queue) sendPrepared(ctx context.Context, m *store.Outgoing, chosen bool) (SendResult, error) {
	if ctx.Done() != nil {
		// It may return while its call is in flight.
		m.Payload = bytes.Clone(m.Payload)
	}
	for {
		var result store.SendResult
		var err error
		switch {
		case m.Durable.Asked():
			result, err = q.durables.do(ctx, *m)
		case m.OneByOne():
			result, err = q.oneByOne.do(ctx, *m)
		default:
			result, err = q.sends.do(ctx, *m)
		}
		sent := SendResult{ID: m.ID, Outcome: outcomeOf(m, &result)}
		if result.First != nil {
			sent.ID, sent.Due = result.First.ID, result.First.Due
		}
		switch {
		case err != nil:
			return SendResult{ID: m.ID}, err
		case isRepetition(&result):
			sent.Duplicate = true
			q.repeated(ctx, m, &result)
			return sent, result.Err
		case result.Added():
			q.sent(ctx, m)
			return sent, result.Err
		case !result.Duplicate:
			return sent, q.collapsed(ctx, m, &result)
		case chosen:
			sent.Duplicate = true
			q.duplicate(ctx, m)
			if result.Err != nil {
				return sent, fmt.Errorf("id %q is already in queue %q: %w", m.ID, q.name, result.Err)
			}
			return sent, fmt.Errorf("id %q is already in queue %q: %w", m.ID, q.name, ErrDuplicate)
		}
		m.ID = store.NewID() // another process generated the same id in the same millisecond
	}
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
	m, err = q.complete(ctx, o)
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

// event reports an event of a message without a claim, or of the queue.
func (q *Queue) event(ctx context.Context, kind EventKind, id string) {
	if q.wantsEvents() {
		q.report(Event{Kind: kind, ID: id, Context: ctx})
	}
	q.activity.count(kind, 1)
}

// sent reports a message that store has counted.
func (q *Queue) sent(ctx context.Context, m *store.Outgoing) { q.reportSend(ctx, EventSent, m) }

// duplicate reports and counts a message that was not sent.
func (q *Queue) duplicate(ctx context.Context, m *store.Outgoing) {
	q.reportSend(ctx, EventDuplicate, m)
	q.activity.count(EventDuplicate, 1)
}

func (q *Queue) reportSend(ctx context.Context, kind EventKind, m *store.Outgoing) {
	if q.wantsEvents() {
		q.report(Event{Kind: kind, ID: m.ID, Context: ctx, Headers: q.client.eventHeaders.Of(m.Headers)})
	}
}

// bulkEvent reports a number of messages.
func (q *Queue) bulkEvent(ctx context.Context, kind EventKind, n int) {
	if n > 0 && q.wantsEvents() {
		q.report(Event{Kind: kind, Context: ctx, Count: n})
	}
	q.activity.count(kind, n)
}

// wantsEvents reports whether there is an observer, or watchers of the queue.
func (q *Queue) wantsEvents() bool { return q.client.observe != nil || q.activity.wantsDetails() }

// report completes an event and passes it to the observer and to watchers. The caller counts it.
func (q *Queue) report(e Event) {
	e.Queue, e.Time = q.name, time.Now()
	if q.client.observe != nil {
		q.client.observe(e)
	}
	q.activity.collect(&e)
}

// SendBatch sends any number of messages and returns a result for each, in order.
//
// All messages are checked before the first is sent. If one is not allowed, SendBatch returns no results
// and an ErrInvalid or ErrTooLarge that names its index, and nothing was sent. A duplicate is not an error;
// its result reports it. Neither is a message that OnDuplicate does not replace, or whose Once is used: its result has
// ErrLeased, ErrDead or ErrConflict.
//
// Messages are sent in parts of up to store.MaxBatch messages and store.MaxBatchBytes each. A part is sent whole or not
// at all, unless the store makes several calls of one that takes long, as Redis does; the batch as a whole is not atomic.
// When a call fails, SendBatch stops after its part and returns the error, and the results of all messages that were not
// sent have it too. After ErrNotDurable the part was sent, and the later ones were not.
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
	for i := range msgs {
		o := msgs[i]
		m, err := q.complete(ctx, &o)
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

// sendPart sends one part in one call and fills in its results.
func (q *Queue) sendPart(ctx context.Context, asked []Outgoing, part []store.Outgoing, results []SendResult) error {
	send := q.durables.send
	if !part[0].Durable.Asked() {
		send = q.store
	}
	answers, err := send(ctx, part)
	for i := range part {
		results[i] = SendResult{ID: part[i].ID, Err: err}
	}
	if err != nil {
		return err
	}
	for i, answer := range answers {
		results[i].Outcome = outcomeOf(&part[i], &answer)
		if answer.First != nil {
			results[i].ID, results[i].Due = answer.First.ID, answer.First.Due
		}
		if answer.Err != nil {
			results[i].Err = q.notReplaced(&part[i], answer.Err)
			if !staysAsItIs(answer.Err) { // the same for the whole part
				err = answer.Err
			}
		}
		switch {
		case isRepetition(&answer):
			results[i].Duplicate = true
			q.repeated(ctx, &part[i], &answer)
		case answer.Added():
			q.sent(ctx, &part[i])
		case answer.Replaced:
			q.duplicate(ctx, &part[i])
		case !answer.Duplicate:
		case asked[i].ID != "":
			results[i].Duplicate = true
			q.duplicate(ctx, &part[i])
		default: // another process generated the same id in the same millisecond
			again := part[i : i+1]
			again[0].ID = store.NewID()
			if failed := q.sendPart(ctx, asked[i:i+1], again, results[i:i+1]); failed != nil {
				err = failed
			}
		}
	}
	return err
}
