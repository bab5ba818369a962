package store

import "context"

// Examiner is implemented by a Store that can check the data it holds and repair it.
type Examiner interface {
	// Examine checks the whole store and reports what it finds.
	//
	// It calls report for each Finding, in the order of the checks and from one goroutine. It reads all stored
	// data, in bounded memory; other calls may run at the same time unless the engine says otherwise.
	//
	// With Examination.Repair it also repairs what it can, each repair in one atomic step. A later Examine no
	// longer finds what was repaired. No repair removes a message that can be read.
	//
	// An error means that the checks could not be completed: ErrUnavailable, ErrClosed or the cause of ctx.
	// Damage is not an error but a Finding.
	Examine(ctx context.Context, opts Examination, report func(Finding)) error
}

// Examination holds the options of an Examine.
type Examination struct {
	// Repair makes Examine repair what it can.
	Repair bool
}

// Finding is one result of a check, good or bad.
type Finding struct {
	Severity Severity
	// Check is the short name of the check, such as "counters", "orphans" or "log". It is the same in every
	// version.
	Check string
	// Queue is the queue that was checked, or "" for the whole store.
	Queue string
	// Text describes in one line what was found, with numbers and names.
	Text string
	// Advice says what to do; it is "" if nothing needs to be done.
	Advice string
	// Count is the number of messages, keys, files or bytes concerned, or 0 if nothing was counted.
	Count int64
	// Repaired is set if the issue has been repaired. Severity is how bad it was.
	Repaired bool
}

// Severity is how bad a Finding is.
type Severity string

// The severities, in increasing order.
const (
	// SeverityOK means that the check found nothing wrong.
	SeverityOK Severity = "ok"
	// SeverityNote means that nothing needs to be done, but the finding is worth knowing.
	SeverityNote Severity = "note"
	// SeverityWarning means that nothing is lost, but something should be done.
	SeverityWarning Severity = "warning"
	// SeverityError means that messages are lost or cannot be delivered correctly, or that counts are wrong.
	SeverityError Severity = "error"
)
