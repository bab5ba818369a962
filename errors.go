package later

import (
	"errors"

	"github.com/laterq/later/internal/handle"
	"github.com/laterq/later/store"
)

// The kinds of error. Each has one stable code (see CodeOf); test for them with errors.Is.
//
// After ErrInvalid, ErrTooLarge, ErrNotFound, ErrDuplicate, ErrLeased, ErrDead, ErrConflict, ErrLeaseLost, ErrFull,
// ErrMisconfigured, ErrUnauthenticated, ErrForbidden and ErrClosed the outcome of the call is certain. After any other
// error the call may or may not have taken effect; repeating it with the same id is safe.
var (
	// ErrInvalid is returned for an argument that is not allowed. Nothing was changed.
	ErrInvalid error = store.ErrInvalid
	// ErrTooLarge is returned for a payload, header or batch over its limit. Nothing was changed.
	ErrTooLarge error = store.ErrTooLarge
	// ErrNotFound is returned when no live message has the id, and by Client.Watch when no queue has the name.
	ErrNotFound error = store.ErrNotFound
	// ErrDuplicate is returned when the id is live or within its dedup window. Nothing was changed.
	ErrDuplicate error = store.ErrDuplicate
	// ErrLeased is returned when a worker holds the message, so it cannot be moved now.
	ErrLeased error = store.ErrLeased
	// ErrDead is returned when the message is dead. Replay it instead.
	ErrDead error = store.ErrDead
	// ErrConflict is returned when something has changed since the caller read it, or an idempotency key was used with
	// another request. Nothing was changed; read it again.
	ErrConflict error = store.ErrConflict
	// ErrLeaseLost is returned when the caller no longer holds the message. Nothing was changed. It is also
	// the cause of a handler's context when another worker may have the message.
	ErrLeaseLost error = store.ErrLeaseLost
	// ErrCancelled is the cause of a handler's context when its message was cancelled. It is also an
	// ErrLeaseLost.
	ErrCancelled error = store.ErrCancelled
	// ErrFull is returned when the store is full. Nothing was changed; deliveries and settles continue.
	ErrFull error = store.ErrFull
	// ErrNotDurable is returned when a write was made but not confirmed as durable as requested.
	ErrNotDurable error = store.ErrNotDurable
	// ErrUnavailable is returned when the store cannot be reached or cannot serve the call now.
	ErrUnavailable error = store.ErrUnavailable
	// ErrMisconfigured is returned when the store refuses this client as it is configured: a wrong password or
	// database, a user without permission, a certificate that is not trusted. Retrying does not help.
	ErrMisconfigured error = store.ErrMisconfigured
	// ErrUnauthenticated is returned when a server of Later does not know the caller: a token, password or login is
	// missing or wrong. Retrying does not help.
	ErrUnauthenticated error = store.ErrUnauthenticated
	// ErrForbidden is returned when a server of Later knows the caller and refuses its request. Retrying does not help.
	ErrForbidden error = store.ErrForbidden
	// ErrUnsupported is returned when the server is too old, holds another format, or could lose messages as
	// it is configured. A call that the store does not support returns it too.
	ErrUnsupported error = store.ErrUnsupported
	// ErrCorrupt is returned when stored data is inconsistent. Nothing was changed.
	ErrCorrupt error = store.ErrCorrupt
	// ErrClosed is returned when the client or the store is closed.
	ErrClosed error = store.ErrClosed
)

var errClientClosed error = &detail{"client is closed", ErrClosed}

// Further causes of a handler's context, in addition to ErrLeaseLost and ErrCancelled. See context.Cause.
var (
	// ErrTimeout is the cause when the handler exceeds its time limit. It is also a context.DeadlineExceeded.
	ErrTimeout error = handle.ErrTimeout
	// ErrShutdown is the cause when a worker shuts down and ShutdownTimeout has passed. It is also a
	// context.Canceled.
	ErrShutdown error = handle.ErrShutdown
)

// ErrRestart is returned by Worker.Run after a drain that CommandRestart asked for. The program should then execute
// itself again, or end so that its supervisor starts it.
var ErrRestart = errors.New("worker was told to restart")

// detail is an error of some kind with a text of its own.
type detail struct {
	text string
	kind error
}

func (d *detail) Error() string { return d.text }
func (d *detail) Unwrap() error { return d.kind }

// Code is the stable name of a kind of error, such as "not_found".
type Code = store.Code

// CodeOf returns the code of an error. An error of no known kind has the code "internal".
func CodeOf(err error) Code { return store.CodeOf(err) }

// State is the state of a message.
type State = store.State

// The states of a message. Its state is "" if it is not live.
const (
	StateScheduled = store.StateScheduled // not yet due
	StateReady     = store.StateReady     // due and not claimed
	StateLeased    = store.StateLeased    // held by a worker
	StateDead      = store.StateDead      // set aside with a reason
)

// DeadReason is why a message is dead.
type DeadReason = store.DeadReason

// The reasons of a message's death.
const (
	DeadFailed       = store.DeadFailed       // its last attempt failed
	DeadLeaseExpired = store.DeadLeaseExpired // the lease of its last attempt expired
	DeadBuried       = store.DeadBuried       // buried by its holder
	DeadExpired      = store.DeadExpired      // not delivered before its expiry
	DeadUnreadable   = store.DeadUnreadable   // its stored bytes cannot be read, or no worker could decode its payload
)
