package later

import (
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// confirmGrace is how much longer Close lets durable sends wait for their confirmation.
const confirmGrace = time.Second

// Durability is how safe a message must be before its send returns. Create one with Durable.
//
// It is an Option for all sends of a client, a QueueOption for the sends of a queue (see Queue.With), and a
// SendOption for one message; the one closest to the message applies. The zero Durability asks for no more
// than the store always provides. As an option it cancels the default of the queue or client.
type Durability struct {
	asked store.Durability
	kind  durabilityKind
}

type durabilityKind uint8

const (
	durabilityDefault durabilityKind = iota // the default of the queue or client
	durabilityAsked
	durabilityNone
)

// Durable makes a send wait for the server's disk and for a number of replicas.
//
// The send returns nil only when the message is confirmed. replicas is 0 to store.MaxReplicas. What is
// confirmed depends on the store:
//
//   - Redis and Valkey from 7.2 with an append-only file: fsynced by the primary and by that many replicas
//     (WAITAOF). With appendfsync everysec that takes up to a second.
//   - Redis and Valkey without an append-only file, or before 7.2: in the memory of that many replicas
//     (WAIT). Here 0 replicas is ErrUnsupported, unless the server fsyncs before it answers (appendfsync
//     always).
//   - The embedded store: 0 waits for its fsync, whatever its sync parameter is; more is ErrUnsupported.
//   - The store in memory: ErrUnsupported.
//
// A send that is not confirmed within timeout returns ErrNotDurable with the progress it made. The timeout
// is store.MinConfirm to store.MaxConfirm and starts when the store has written the message. The message
// exists all the same, and is delivered unless the store loses it. Sending it again with the same id (from
// WithID, or the id that was returned) waits for the confirmation of the first write: ErrDuplicate then
// means that the message is as durable as requested, and ErrNotDurable that it still is not.
//
// A failover can lose a confirmed message if a replica that did not confirm it is promoted; Redis prefers
// the one that has received the most. Concurrent durable sends are batched and wait together, separately
// from other sends.
func Durable(replicas int, timeout time.Duration) Durability {
	return Durability{store.Durability{Replicas: replicas, Timeout: timeout}, durabilityAsked}
}

// String returns "2 replicas within 1s", "disk within 1s" or "whatever the store guarantees".
func (d Durability) String() string {
	switch {
	case d.kind != durabilityAsked:
		return "whatever the store guarantees"
	case d.asked.Replicas == 0:
		return fmt.Sprintf("disk within %v", d.asked.Timeout)
	case d.asked.Replicas == 1:
		return fmt.Sprintf("1 replica within %v", d.asked.Timeout)
	}
	return fmt.Sprintf("%d replicas within %v", d.asked.Replicas, d.asked.Timeout)
}

func (d Durability) check() error {
	if d.kind == durabilityAsked && !d.asked.Asked() {
		return store.Invalid("durability's timeout is 0s: give %v to %v", store.MinConfirm, store.MaxConfirm)
	}
	return d.asked.Check()
}

// given returns d as an option: the zero Durability cancels the default.
func (d Durability) given() Durability {
	if d.kind == durabilityDefault {
		d.kind = durabilityNone
	}
	return d
}

func (d Durability) applySend(o *Outgoing) error {
	if o.Durability.kind != durabilityDefault {
		return twice("durability")
	}
	o.Durability = d.given()
	return d.check()
}

func (d Durability) applyClient(o *options) error {
	return d.applySend(&o.defaults)
}
