package outbox

import (
	"fmt"
	"time"
)

// maxHeld is the number of held queues at which a relay stops reading rows. A query can leave out only so many queues.
const maxHeld = 100

// queueError is the failure of the sends to one queue. The other queues go on.
type queueError struct {
	queue string
	err   error
}

func (e *queueError) Error() string { return fmt.Sprintf("send to queue %q: %v", e.queue, e.err) }
func (e *queueError) Unwrap() error { return e.err }

// hold keeps the rows of a queue in the outbox after a failure.
type hold struct {
	until   time.Time
	backoff time.Duration
}

// longer returns the hold after one more failure.
func (h hold) longer() hold {
	backoff := nextBackoff(h.backoff)
	return hold{time.Now().Add(backoff), backoff}
}

// heldQueues returns the queues with rows that have to wait, as arguments of a query.
func (m *mover) heldQueues(now time.Time) (queues []any) {
	for queue, h := range m.held {
		if now.Before(h.until) {
			queues = append(queues, queue)
		}
	}
	return queues
}

// dropHolds forgets the queues that need not wait any longer. It is called when the table has no rows of these queues,
// because other relays have moved them.
func (m *mover) dropHolds(now time.Time) {
	for queue, h := range m.held {
		if !now.Before(h.until) {
			delete(m.held, queue)
		}
	}
}

// wait returns how long to wait when there are no more rows: poll, or less if a queue is held for less.
func (m *mover) wait(poll time.Duration) time.Duration {
	for _, h := range m.held {
		poll = min(poll, max(0, time.Until(h.until)))
	}
	return poll
}
