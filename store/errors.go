package store

import (
	"errors"
	"fmt"
)

// Error is an error with a stable code, the same in Go and in the exit of the later command, and over HTTP once there is
// a server.
type Error struct {
	Code Code
	text string
}

// Code names a kind of error. Codes never change.
type Code struct {
	Name string // in JSON
	Exit int    // of the later command
	HTTP int    // status
}

func (e *Error) Error() string { return e.text }

// The kinds of error. Test for them with errors.Is; errors that are returned say more than these texts.
var (
	// ErrInvalid: an argument is outside what is allowed. Nothing was done.
	ErrInvalid = &Error{Code{"invalid", 2, 400}, "invalid argument"}
	// ErrTooLarge: a payload, header, batch or reason is over its limit. Nothing was done.
	ErrTooLarge = &Error{Code{"too_large", 10, 413}, "too large"}
	// ErrNotFound: no living message has the id, or no queue the name.
	ErrNotFound = &Error{Code{"not_found", 11, 404}, "not found"}
	// ErrDuplicate: the id is living or remembered; nothing was changed.
	ErrDuplicate = &Error{Code{"duplicate", 12, 409}, "duplicate id"}
	// ErrLeased: the message is held by a worker, so it cannot be moved now.
	ErrLeased = &Error{Code{"leased", 13, 409}, "message is leased"}
	// ErrDead: the message is dead; replay it instead.
	ErrDead = &Error{Code{"dead", 14, 409}, "message is dead"}
	// ErrLeaseLost: the caller no longer holds the message. Nothing was changed.
	ErrLeaseLost = &Error{Code{"lease_lost", 15, 409}, "lease lost"}
	// ErrCancelled is the cause with which a handler's context ends when its message was cancelled. It is an
	// ErrLeaseLost too.
	ErrCancelled = fmt.Errorf("message was cancelled: %w", ErrLeaseLost)
	// ErrFull: the store has no room for more. Nothing was done; claims and acks go on.
	ErrFull = &Error{Code{"full", 16, 507}, "store is full"}
	// ErrNotDurable: the write was done but not confirmed as durable as asked.
	ErrNotDurable = &Error{Code{"not_durable", 17, 503}, "not durable"}
	// ErrUnavailable: the store cannot be reached or cannot serve now. Trying again with the same ids is safe.
	ErrUnavailable = &Error{Code{"unavailable", 18, 503}, "store unavailable"}
	// ErrUnsupported: the server is too old, or is set up so that messages could be lost, or holds another
	// format.
	ErrUnsupported = &Error{Code{"unsupported", 19, 501}, "store unsupported"}
	// ErrCorrupt: what is stored contradicts itself. Nothing was changed.
	ErrCorrupt = &Error{Code{"corrupt", 20, 500}, "store corrupt"}
	// ErrClosed: the client, worker or store was closed.
	ErrClosed = &Error{Code{"closed", 21, 503}, "closed"}
)

// Internal is the code of every error that is none of the kinds.
var Internal = Code{"internal", 1, 500}

// CodeOf gives the code of an error.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Internal
}

// Invalid makes an ErrInvalid with a text of its own.
func Invalid(format string, args ...any) error {
	return &detail{ErrInvalid, fmt.Sprintf(format, args...)}
}

// TooLarge makes an ErrTooLarge with a text of its own.
func TooLarge(format string, args ...any) error {
	return &detail{ErrTooLarge, fmt.Sprintf(format, args...)}
}

// detail is an error of a kind that says more than the kind's text and does not repeat it.
type detail struct {
	kind *Error
	text string
}

func (d *detail) Error() string { return d.text }
func (d *detail) Unwrap() error { return d.kind }
