package store

import (
	"errors"
	"fmt"
	"strings"
)

// Error is a kind of error with a stable code.
type Error struct {
	Code Code
	text string
}

// Code names a kind of error, such as "not_found". Codes never change.
type Code string

func (e *Error) Error() string { return e.text }

// The kinds of error. Test for them with errors.Is; the texts of returned errors are more specific than these.
var (
	// ErrInvalid means that an argument is not allowed. Nothing was done.
	ErrInvalid = &Error{"invalid", "invalid argument"}
	// ErrTooLarge means that a payload, header, batch, reason or property exceeds its limit. Nothing was done.
	ErrTooLarge = &Error{"too_large", "too large"}
	// ErrNotFound means that no live message has the id, or no queue has the name.
	ErrNotFound = &Error{"not_found", "not found"}
	// ErrDuplicate means that the id is live or within its dedup window. Nothing was changed.
	ErrDuplicate = &Error{"duplicate", "duplicate id"}
	// ErrLeased means that a worker holds the message, so that it cannot be moved now.
	ErrLeased = &Error{"leased", "message is leased"}
	// ErrDead means that the message is dead; replay it instead.
	ErrDead = &Error{"dead", "message is dead"}
	// ErrConflict means that the message, or the property of a Condition, is not as the caller knew it, or that an
	// idempotency key was used with another request. Nothing was changed; read it again.
	ErrConflict = &Error{"conflict", "message has changed"}
	// ErrLeaseLost means that the caller no longer holds the message. Nothing was changed.
	ErrLeaseLost = &Error{"lease_lost", "lease lost"}
	// ErrCancelled is the cause of a handler's context when its message was cancelled. It is also an
	// ErrLeaseLost.
	ErrCancelled = fmt.Errorf("message was cancelled: %w", ErrLeaseLost)
	// ErrFull means that the store has no room. Nothing was done; claims and acks still succeed.
	ErrFull = &Error{"full", "store is full"}
	// ErrNotDurable means that the write was done but not confirmed to be as durable as asked.
	ErrNotDurable = &Error{"not_durable", "not durable"}
	// ErrUnavailable means that the store cannot be reached or cannot serve calls now. Retrying with the same
	// ids is safe.
	ErrUnavailable = &Error{"unavailable", "store unavailable"}
	// ErrMisconfigured means that the store refuses this client as it is configured: a wrong password or database, a
	// user without permission, a certificate that is not trusted. Nothing was done; retrying does not help.
	ErrMisconfigured = &Error{"misconfigured", "store refuses this configuration"}
	// ErrUnauthenticated means that a server does not know the caller: a token, password or login is missing or wrong.
	// Nothing was done; retrying does not help.
	ErrUnauthenticated = &Error{"unauthenticated", "caller is not known"}
	// ErrForbidden means that a server knows the caller and refuses what it asked. Nothing was done; retrying does not
	// help.
	ErrForbidden = &Error{"forbidden", "not permitted"}
	// ErrUnsupported means that the store cannot do what was asked: the server is too old, its configuration
	// could lose messages, it holds another format, or it cannot be as durable as asked.
	ErrUnsupported = &Error{"unsupported", "store unsupported"}
	// ErrCorrupt means that the stored data is inconsistent. Nothing was changed.
	ErrCorrupt = &Error{"corrupt", "store corrupt"}
	// ErrClosed means that the client, worker or store is closed.
	ErrClosed = &Error{"closed", "closed"}
)

// Internal is the code of every other error.
const Internal Code = "internal"

// Kinds returns all kinds of error.
func Kinds() []*Error {
	return []*Error{
		ErrInvalid, ErrTooLarge, ErrNotFound, ErrDuplicate, ErrLeased, ErrDead, ErrConflict, ErrLeaseLost, ErrFull,
		ErrNotDurable, ErrUnavailable, ErrMisconfigured, ErrUnauthenticated, ErrForbidden, ErrUnsupported, ErrCorrupt,
		ErrClosed,
	}
}

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

// Errorf returns an error of a kind with the formatted text.
func Errorf(kind *Error, format string, args ...any) error {
	return &detail{kind, fmt.Sprintf(format, args...)}
}

// Field returns an error as one about a field, named as in JSON, such as "timeout", or nil for nil. An error may be
// about a field of a field: FieldOf returns the whole path.
func Field(name string, err error) error {
	if err == nil {
		return nil
	}
	return &fieldError{name, err}
}

// FieldOf returns the field that an error is about, such as "timeout" or "messages[3].timeout", or "".
func FieldOf(err error) string {
	var path []string
	for {
		e, ok := errors.AsType[*fieldError](err)
		if !ok {
			return strings.Join(path, ".")
		}
		path = append(path, e.field)
		err = e.err
	}
}

// fieldError is an error about a field.
type fieldError struct {
	field string
	err   error
}

func (e *fieldError) Error() string { return e.err.Error() }
func (e *fieldError) Unwrap() error { return e.err }

// detail is an error of a kind with its own text instead of the kind's.
type detail struct {
	kind *Error
	text string
}

func (d *detail) Error() string { return d.text }
func (d *detail) Unwrap() error { return d.kind }
