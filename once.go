package later

import (
	"context"

	"github.com/laterq/later/store"
)

// OnceWindow is how long the key of a Once is remembered, counted from the send: 24 hours.
const OnceWindow = store.OnceWindow

// Once makes the request that the message is sent for safe to repeat, in any process and under whatever id each attempt
// sends it: of all sends to a queue with the same key and request within OnceWindow of the first, that one adds a
// message. It is one atomic step of the store. The others change nothing, whatever became of the message: they return
// its id, no error, and the outcome SendDuplicate. A send with the same key and another request returns ErrConflict.
//
// key is what the requests have in common, such as an Idempotency-Key with the name of the client that chose it.
// request is what they ask for, whole, so that a key that was used by mistake is noticed. Both may be of any length.
//
// A send that is refused, for example with ErrDuplicate, does not use up its key. Deleting the queue forgets its keys,
// and an export does not have them. Once is not a default of a queue or client, nor an option of follow-ups, series and
// an outbox.
func Once(key, request []byte) SendOption {
	return sendOption(func(o *Outgoing) error {
		if o.Once != nil {
			return twice("once")
		}
		o.Once = store.NewOnce(key, request)
		return nil
	})
}

var errOnceUsed error = &detail{"the key of the request was used with another request in the last 24 hours", ErrConflict}

// isRepetition reports whether a send changed nothing because it repeats another one.
func isRepetition(r *store.SendResult) bool { return r.Duplicate && r.First != nil }

// repeated reports a send that repeats another one.
func (q *Queue) repeated(ctx context.Context, m *store.Outgoing, r *store.SendResult) {
	m.ID = r.First.ID
	q.duplicate(ctx, m)
}
