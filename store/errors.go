package store

import (
	"errors"
	"fmt"
)

// Error is a kind of error with a stable code: the same in Go, JSON, HTTP and the exit status of the later command.
type Error struct {
	Code Code
	text string
}

// Code names a kind of error. Codes never change.
type Code struct {
	Name string // in JSON
	Exit int    // exit status of the later command
	HTTP int    // status code
}

func (e *Error) Error() string { return e.text }

// The kinds of error. Test for them with errors.Is; the texts of returned errors are more specific than these.
var (
	// ErrInvalid means that an argument is not allowed. Nothing was done.
	ErrInvalid = &Error{Code{"invalid", 2, 400}, "invalid argument"}
	// ErrTooLarge means that a payload, header, batch or reason exceeds its limit. Nothing was done.
	ErrTooLarge = &Error{Code{"too_large", 10, 413}, "too large"}
	// ErrNotFound means that no live message has the id, or no queue has the name.
	ErrNotFound = &Error{Code{"not_found", 11, 404}, "not found"}
	// ErrDuplicate means that the id is live or within its dedup window. Nothing was changed.
	ErrDuplicate = &Error{Code{"duplicate", 12, 409}, "duplicate id"}
	// ErrLeased means that a worker holds the message, so that it cannot be moved now.
	ErrLeased = &Error{Code{"leased", 13, 409}, "message is leased"}
	// ErrDead means that the message is dead; replay it instead.
	ErrDead = &Error{Code{"dead", 14, 409}, "message is dead"}
	// ErrLeaseLost means that the caller no longer holds the message. Nothing was changed.
	ErrLeaseLost = &Error{Code{"lease_lost", 15, 409}, "lease lost"}
	// ErrCancelled is the cause of a handler's context when its message was cancelled. It is also an
	// ErrLeaseLost.
	ErrCancelled = fmt.Errorf("message was cancelled: %w", ErrLeaseLost)
	// ErrFull means that the store has no room. Nothing was done; claims and acks still succeed.
	ErrFull = &Error{Code{"full", 16, 507}, "store is full"}
	// ErrNotDurable means that the write was done but not confirmed to be as durable as asked.
	ErrNotDurable = &Error{Code{"not_durable", 17, 503}, "not durable"}
	// ErrUnavailable means that the store cannot be reached or cannot serve calls now. Retrying with the same
	// ids is safe.
	ErrUnavailable = &Error{Code{"unavailable", 18, 503}, "store unavailable"}
	// ErrUnsupported means that the store cannot do what was asked: the server is too old, its configuration
	// could lose messages, it holds another format, or it cannot be as durable as asked.
	ErrUnsupported = &Error{Code{"unsupported", 19, 501}, "store unsupported"}
	// ErrCorrupt means that the stored data is inconsistent. Nothing was changed.
	ErrCorrupt = &Error{Code{"corrupt", 20, 500}, "store corrupt"}
	// ErrClosed means that the client, worker or store is closed.
	ErrClosed = &Error{Code{"closed", 21, 503}, "closed"}
)

// Internal is the code of every other error.
var Internal = Code{"internal", 1, 500}

// CodeOf returns the code of the first *Error in err's tree, or Internal if there is none.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Internal
}

// Invalid returns an ErrInvalid with the formatted text.
func Invalid(format string, args ...any) error {
	return &detail{ErrInvalid, fmt.Sprintf(format, args...)}
}

// TooLarge returns an ErrTooLarge with the formatted text.
func TooLarge(format string, args ...any) error {
	return &detail{ErrTooLarge, fmt.Sprintf(format, args...)}
}

// detail is an error of a kind with its own text instead of the kind's.
type detail struct {
	kind *Error
	text string
}

func (d *detail) Error() string { return d.text }
func (d *detail) Unwrap() error { return d.kind }
