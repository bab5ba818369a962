package later

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/laterq/later/internal/outcome"
	"github.com/laterq/later/internal/pump"
	"github.com/laterq/later/store"
)

// followUpWindow is the dedup window of a follow-up that is sent before the ack, unless its sender set one.
const followUpWindow = pump.Window

// FollowUps are messages that are sent with the ack of another one. Create them with Then.
type FollowUps struct {
	msgs []followUp
	size int
	err  error // of the first one that is not allowed
}

type followUp struct {
	queue string
	out   Outgoing
}

// Then returns follow-ups: a handler that returns them acks its message and sends them, and so does
// Delivery.AckThen. Both happen or neither does, whatever is killed at whatever moment:
//
//	return later.Then("invoices", payload, later.In(time.Hour))
//	return later.Then("mail", hello).Then("audit", entry)
//
// A follow-up takes the options of a send. Unless WithID sets an id, the id is derived from the message that the
// handler acks. A follow-up with an id that is live or within its dedup window changes nothing. There are up to
// store.MaxBatch follow-ups with up to store.MaxBatchBytes in total. Their payloads must not be modified.
//
// The embedded engine, and a Redis that is not a Cluster, ack and send in one step. Otherwise, if a Durability
// is asked for, and if there are several with more than store.MaxFollowUpBytes or in more than
// store.MaxFollowUpQueues queues, the follow-ups are sent first, with a dedup window of a day unless DedupWindow
// sets another. A message that is delivered again before its ack then sends nothing twice while the ids of
// its follow-ups are remembered.
//
// A follow-up that is not allowed, or cannot be sent, makes the attempt fail.
func Then(queue string, payload []byte, opts ...SendOption) *FollowUps {
	return new(FollowUps).Then(queue, payload, opts...)
}

// Then adds a follow-up and returns f.
func (f *FollowUps) Then(queue string, payload []byte, opts ...SendOption) *FollowUps {
	var o Outgoing
	if err := o.apply(payload, opts); err != nil {
		return f.refuse(queue, err)
	}
	return f.ThenMessage(queue, o)
}

// ThenMessage adds a follow-up with all that options can say, and returns f.
func (f *FollowUps) ThenMessage(queue string, o Outgoing) *FollowUps {
	if err := f.add(queue, o); err != nil {
		return f.refuse(queue, err)
	}
	return f
}

// refuse keeps the first error, and returns f.
func (f *FollowUps) refuse(queue string, err error) *FollowUps {
	if f.err == nil {
		f.err = fmt.Errorf("follow-up %d, in queue %q: %w", len(f.msgs), queue, err)
	}
	return f
}

var errFollowUpOnce = store.Invalid("a follow-up has Once: an ack sends it once anyway; leave it out")

var errFollowUpCollapses = store.Invalid("a follow-up has a mode for duplicates: a follow-up never changes a live " +
	"message; leave it out, or send the message before the ack")

// add adds a message that passes all checks.
func (f *FollowUps) add(queue string, o Outgoing) error {
	if err := store.CheckNewQueue(queue); err != nil {
		return err
	}
	if o.OnDuplicate.asked.Collapses() {
		return errFollowUpCollapses
	}
	if o.Once != nil {
		return errFollowUpOnce
	}
	checked := o
	if o.ID == "" {
		checked.ID = "derived later" // so that a dedup window is allowed
	}
	m, err := checked.prepare(new(store.IDs))
	if err != nil {
		return err
	}
	f.msgs = append(f.msgs, followUp{queue, o})
	f.size += m.Size()
	switch n := len(f.msgs); {
	case n > store.MaxBatch:
		return store.TooLarge("there are more than %d: send some of them before", store.MaxBatch)
	case n > 1 && f.size > store.MaxBatchBytes:
		return store.TooLarge("all have %d bytes: the limit is %d; send some of them before", f.size, store.MaxBatchBytes)
	}
	return nil
}

// Error returns a text for handlers' middleware, which sees follow-ups as an error.
func (f *FollowUps) Error() string {
	if f.err != nil {
		return f.err.Error()
	}
	return fmt.Sprintf("acked, with %d follow-ups", len(f.msgs))
}

// followUpsOf returns the follow-ups that a handler returned, or nil. A panic with follow-ups returned none.
func followUpsOf(err error) *FollowUps {
	if _, panicked := errors.AsType[*outcome.Panic](err); panicked {
		return nil
	}
	f, _ := errors.AsType[*FollowUps](err)
	return f
}

// after prepares the follow-ups of a message. It returns the follow-ups to write with its ack. If the store cannot, it
// sends them instead.
func (f *FollowUps) after(ctx context.Context, c *Client, m *Message) ([]store.FollowUp, error) {
	if f.err != nil {
		return nil, f.err
	}
	linked := true
	then := make([]store.FollowUp, len(f.msgs))
	for i := range f.msgs {
		o := f.msgs[i].out
		if o.ID == "" {
			o.ID = followUpID(m, i)
		}
		out, err := c.Queue(f.msgs[i].queue).complete(ctx, &o, new(store.IDs))
		if err == nil && out.OnDuplicate.Collapses() {
			err = errFollowUpCollapses // set by a middleware
		}
		if err == nil && out.Once != nil {
			err = errFollowUpOnce
		}
		if err != nil {
			return nil, err
		}
		then[i] = store.FollowUp{Queue: f.msgs[i].queue, Message: out}
		linked = linked && !out.Durable.Asked() && store.Linked(c.store, m.Queue, then[i].Queue)
		if then[i].Queue == m.Queue && out.ID == m.ID {
			return nil, store.Invalid("a follow-up has the id and the queue of the message that it follows: give it another id")
		}
	}
	if linked && store.FollowUpsFit(then) {
		return then, nil
	}
	for i := range then {
		if then[i].Message.DedupWindow == 0 {
			then[i].Message.DedupWindow = followUpWindow
		}
		then[i].Message.Relayed = true // as one that is written with the ack
		if err := c.Queue(then[i].Queue).sendFollowUp(ctx, then[i].Message); err != nil {
			return nil, fmt.Errorf("follow-up in queue %q could not be sent: %w", then[i].Queue, err)
		}
	}
	return nil, nil
}

// sentWithAck reports follow-ups that were written with the ack of their message to the observer.
func (c *Client) sentWithAck(ctx context.Context, then []store.FollowUp) {
	for i := range then {
		c.Queue(then[i].Queue).event(ctx, EventSent, then[i].Message.ID)
	}
}

// sendFollowUp sends a message unless an earlier attempt did.
func (q *Queue) sendFollowUp(ctx context.Context, m store.Outgoing) error {
	result, err := q.sends.Do(ctx, m)
	if err == nil {
		err = result.Err
	}
	if err == nil && !result.Duplicate {
		q.sent(ctx, &m)
	}
	return err
}

// followUpID returns the id of the follow-up at an index. It is the same in each attempt of the message, and
// differs from the ids for another message that had the same id before. Follow-ups of one message sort by index.
func followUpID(m *Message, index int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d", m.Queue, m.ID, m.SentAt.UnixMilli()))
	return fmt.Sprintf("%s-%03d", base64.RawURLEncoding.EncodeToString(sum[:16]), index)
}

// AckThen acks the message and sends the follow-ups, as described at Then. Errors are as from Ack; moreover, it returns
// ErrInvalid or ErrTooLarge for a follow-up that is not allowed, and ErrFull if the store is full. The message is then
// held as before.
func (d *Delivery) AckThen(ctx context.Context, f *FollowUps) error {
	if f == nil {
		return d.Ack(ctx)
	}
	if done, err := d.held.Done(store.Ack); done {
		return err
	}
	then, err := f.after(ctx, d.queue.client, d.Message)
	if err != nil {
		return err
	}
	return d.settle(ctx, store.Settlement{Action: store.Ack, Then: then}, nil)
}

// Then returns follow-ups with a value for this queue; see the function Then.
func (t Typed[T]) Then(value T, opts ...SendOption) *FollowUps {
	payload, err := t.encode(value)
	if err != nil {
		return &FollowUps{err: err}
	}
	return Then(t.name, payload, t.withType(opts)...)
}
