package later

import (
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// Receipt returns a text that lets any process settle and extend the message; see Queue.Delivery. It has up to
// store.MaxReceipt bytes and is safe in a URL. Treat it as a secret: whoever has it can settle the message.
func (d *Delivery) Receipt() string {
	r := wire.Receipt{
		Queue:       d.Queue,
		Receipt:     d.receipt,
		DedupWindow: d.dedupWindow,
		Grouped:     d.grouped,
		Deadline:    d.lease.storeDeadline(),
		Attempt:     d.Attempt,
	}
	return r.String()
}

// Delivery returns the delivery that a receipt stands for, in any process and with any client of the same store. It
// does not call the store.
//
// Only ID, Queue and Attempt of its Message are set. Settles and Extend work as on the original Delivery, and at most
// one settle of all deliveries with the same receipt takes effect. A repeated Ack returns nil only on the same
// Delivery; on another one it returns ErrLeaseLost, like every settle after the lease has ended. Extend extends the
// lease of all messages of the Receive that returned the original.
//
// Delivery returns ErrInvalid when the text is not a receipt or is one of another queue.
func (q *Queue) Delivery(receipt string) (*Delivery, error) {
	if q.invalid != nil {
		return nil, q.invalid
	}
	r, err := wire.ParseReceipt(receipt)
	if err != nil {
		return nil, err
	}
	if r.Queue != q.name {
		return nil, store.Invalid("receipt is of queue %q, not %q: use its queue", r.Queue, q.name)
	}
	m := &Message{ID: r.ID, Queue: q.name, Attempt: r.Attempt, dedupWindow: r.DedupWindow, grouped: r.Grouped}
	return &Delivery{Message: m, queue: q, lease: &receivedLease{until: r.Deadline}, receipt: r.Receipt}, nil
}
