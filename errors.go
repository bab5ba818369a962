package later

import (
	"context"
	"errors"

	"github.com/laterq/later/store"
)

// The kinds of error, each with one stable code (see CodeOf). Test for them with errors.Is. An error that is
// none of ErrInvalid, ErrTooLarge, ErrNotFound, ErrDuplicate, ErrLeased, ErrDead, ErrLeaseLost, ErrFull and
// ErrClosed leaves open whether the call had its effect; calling again with the same id is safe.
var (
	// ErrInvalid: an argument is outside what is allowed. Nothing was done.
	ErrInvalid error = store.ErrInvalid
	// ErrTooLarge: a payload, header or batch is over its limit. Nothing was done.
	ErrTooLarge error = store.ErrTooLarge
	// ErrNotFound: no living message has the id.
	ErrNotFound error = store.ErrNotFound
	// ErrDuplicate: the id is living or remembered; nothing was changed.
	ErrDuplicate error = store.ErrDuplicate
	// ErrLeased: the message is held by a worker, so it cannot be moved now.
	ErrLeased error = store.ErrLeased
	// ErrDead: the message is dead; replay it instead.
	ErrDead error = store.ErrDead
	// ErrLeaseLost: the caller no longer holds the message; nothing was changed. It is also the cause with
	// which a handler's context ends when another worker may have the message.
	ErrLeaseLost error = store.ErrLeaseLost
	// ErrCancelled is the cause with which a handler's context ends when its message was cancelled. It is an
	// ErrLeaseLost too.
	ErrCancelled error = store.ErrCancelled
	// ErrFull: the store has no room for more. Nothing was done; deliveries and settles go on.
	ErrFull error = store.ErrFull
	// ErrNotDurable: the write was done but not confirmed as durable as asked.
	ErrNotDurable error = store.ErrNotDurable
	// ErrUnavailable: the store cannot be reached or cannot serve now.
	ErrUnavailable error = store.ErrUnavailable
	// ErrUnsupported: the server is too old, or is set up so that messages could be lost, or holds another
	// format.
	ErrUnsupported error = store.ErrUnsupported
	// ErrCorrupt: what is stored contradicts itself. Nothing was changed.
	ErrCorrupt error = store.ErrCorrupt
	// ErrClosed: the client or the store was closed.
	ErrClosed error = store.ErrClosed
)

var errClientClosed error = &detail{"client is closed", ErrClosed}

// Causes with which a handler's context ends, beside ErrLeaseLost and ErrCancelled; see context.Cause.
var (
	// ErrTimeout: the handler's time limit has passed. It is a context.DeadlineExceeded.
	ErrTimeout error = &detail{"handler's time limit has passed", context.DeadlineExceeded}
	// ErrShutdown: the worker is shutting down and ShutdownTimeout has passed. It is a context.Canceled.
	ErrShutdown error = &detail{"worker is shutting down", context.Canceled}
)

// detail is an error of a kind with a text of its own.
type detail struct {
	text string
	kind error
}

func (d *detail) Error() string { return d.text }
func (d *detail) Unwrap() error { return d.kind }

// Code names a kind of error, the same in Go and in the exit of the later command.
type Code = store.Code

// CodeOf gives the code of an error; one that is none of the kinds has the code "internal".
func CodeOf(err error) Code { return store.CodeOf(err) }

// State is where a living message is.
type State = store.State

// The states of a message. A message that is not living has StateNone.
const (
	StateNone      = store.StateNone
	StateScheduled = store.StateScheduled // not yet due
	StateReady     = store.StateReady     // due and unclaimed
	StateLeased    = store.StateLeased    // held by a worker
	StateDead      = store.StateDead      // set aside
)

// DeadReason is why a message is dead.
type DeadReason = store.DeadReason

// The reasons for which a message is set aside.
const (
	DeadFailed       = store.DeadFailed       // its last attempt failed
	DeadLeaseExpired = store.DeadLeaseExpired // its last attempt never came back
	DeadBuried       = store.DeadBuried       // Bury
	DeadExpired      = store.DeadExpired      // not delivered before its expiry
	DeadUnreadable   = store.DeadUnreadable   // its stored bytes cannot be read
)

// isPermanent tells whether calling again cannot help.
func isPermanent(err error) bool {
	for _, kind := range []error{ErrInvalid, ErrTooLarge, ErrUnsupported, ErrCorrupt, ErrClosed} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
