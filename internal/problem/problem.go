// Package problem writes errors as RFC 9457 problem details, for everything that answers over HTTP. It imports package
// store only. Start with Write.
package problem

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/laterq/later/store"
)

// MediaType is the type of a body with a Problem.
const MediaType = "application/problem+json"

// TypePrefix begins the Type of each Problem, which goes on with its code: where the code is documented.
const TypePrefix = "https://github.com/laterq/later/blob/main/docs/http.md#code-"

// Problem is an error as a JSON object, as in RFC 9457.
type Problem struct {
	Type     string     `json:"type" format:"uri" doc:"Where the code is documented"`
	Title    string     `json:"title" doc:"The text of the status"`
	Status   int        `json:"status" minimum:"400" maximum:"599" doc:"The status of the reply, or what it would be of a single one"`
	Code     store.Code `json:"code" doc:"The kind of error, which never changes"`
	Detail   string     `json:"detail" doc:"What is wrong and how to mend it, for people"`
	Field    string     `json:"field,omitempty" doc:"The part of the request that is wrong, if it is a single one"`
	Instance string     `json:"instance,omitempty" format:"uri" doc:"What the server's log has the error under, if it was logged"`
}

// Error is an error with a Problem that says more than its code does.
type Error struct {
	Err    error
	Status int    // in place of the status of the code, unless it is 0
	Field  string // the part of the request that is wrong, or ""
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Status returns the HTTP status of an error with a code: 4xx if the request or the state of a message is the reason,
// 5xx if the server or its store is.
func Status(code store.Code) int {
	switch code {
	case store.ErrInvalid.Code:
		return http.StatusBadRequest
	case store.ErrTooLarge.Code:
		return http.StatusRequestEntityTooLarge
	case store.ErrNotFound.Code:
		return http.StatusNotFound
	case store.ErrDuplicate.Code, store.ErrLeased.Code, store.ErrDead.Code, store.ErrConflict.Code,
		store.ErrLeaseLost.Code:
		return http.StatusConflict
	case store.ErrFull.Code:
		return http.StatusInsufficientStorage
	case store.ErrNotDurable.Code:
		return http.StatusGatewayTimeout
	case store.ErrUnavailable.Code, store.ErrClosed.Code:
		return http.StatusServiceUnavailable
	case store.ErrUnauthenticated.Code:
		return http.StatusUnauthorized
	case store.ErrForbidden.Code:
		return http.StatusForbidden
	case store.ErrMisconfigured.Code: // the store refuses the server, not the server its client
		return http.StatusBadGateway
	case store.ErrUnsupported.Code:
		return http.StatusNotImplemented
	}
	return http.StatusInternalServerError // ErrCorrupt, and every other error
}

// StatusOf returns the HTTP status of an error: from an Error in its tree, or else from its code.
func StatusOf(err error) int {
	if e, ok := errors.AsType[*Error](err); ok && e.Status != 0 {
		return e.Status
	}
	return Status(store.CodeOf(err))
}

// New returns the Problem of an error. A status of 0 stands for StatusOf.
func New(status int, err error) Problem {
	if status == 0 {
		status = StatusOf(err)
	}
	code := store.CodeOf(err)
	p := Problem{Type: TypePrefix + string(code), Title: http.StatusText(status), Status: status, Code: code,
		Detail: err.Error()}
	p.Field = FieldOf(err)
	return p
}

// FieldOf returns the part of a request that an error is about: from an Error in its tree, or else the field that
// package store names.
func FieldOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok && e.Field != "" {
		return e.Field
	}
	return store.FieldOf(err)
}

// Write answers a request with an error. A status of 0 stands for StatusOf.
func Write(w http.ResponseWriter, status int, err error) { New(status, err).Write(w) }

// Write answers a request with the problem.
func (p Problem) Write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil { // texts and numbers can always be encoded
		panic(err)
	}
	header := w.Header()
	header.Del("Content-Length") // of the body that was to be
	header.Del("Content-Encoding")
	header.Set("Content-Type", MediaType)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	SetRetryAfter(header, p.Status)
	w.WriteHeader(p.Status)
	w.Write(append(body, '\n')) // if that fails the client has gone
}

// SetRetryAfter says when to try again in the header of a reply with a status that asks for that: 429 or 503. Both mean
// that the server is busy, starts or ends, which takes seconds at most.
func SetRetryAfter(header http.Header, status int) {
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		header.Set("Retry-After", "1")
	}
}
