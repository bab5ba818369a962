package store

import "context"

// Examiner is what a Store may implement besides: it can check what it keeps, and mend what contradicts itself.
type Examiner interface {
	// Examine checks the whole store and calls report for everything it finds, in the order of the checks and
	// from one goroutine. It reads all that is stored, in bounded memory; other calls may go on unless the
	// engine says otherwise. With Examination.Repair it also mends what it can, each repair in one atomic step,
	// so that an Examine afterwards finds none of it; no message that can be read is removed by a repair.
	//
	// An error means that the examination could not be finished: ErrUnavailable, ErrClosed, the cause of ctx.
	// Damage is no error but a Finding.
	Examine(ctx context.Context, opts Examination, report func(Finding)) error
}

// Examination says what an Examine does.
type Examination struct {
	// Repair mends what can be mended.
	Repair bool
}

// Finding is one thing that an Examine found, right or wrong.
type Finding struct {
	Severity Severity
	// Check is the short name of the check, the same in every version: "counters", "orphans", "log".
	Check string
	// Queue is the queue it is about; "" when it is about the store.
	Queue string
	// Text says what was found, with numbers and names, in one line.
	Text string
	// Advice says what to do; "" when there is nothing to do.
	Advice string
	// Count is how many messages, keys, files or bytes the finding is about; 0 when it counts nothing.
	Count int64
	// Repaired: it was wrong and is mended. Severity tells how bad it was.
	Repaired bool
}

// Severity is how bad a Finding is.
type Severity string

// The severities, in rising order.
const (
	// SeverityOK: it was looked at and is right.
	SeverityOK Severity = "ok"
	// SeverityNote: worth knowing, and nothing needs to be done.
	SeverityNote Severity = "note"
	// SeverityWarning: nothing is lost, and something should be done.
	SeverityWarning Severity = "warning"
	// SeverityError: messages are lost, or cannot be delivered as they should, or counts are wrong.
	SeverityError Severity = "error"
)
