package store

import "context"

// Checker is implemented by a Store that can check the data it holds and repair it.
type Checker interface {
	// Check checks the whole store and reports the issues.
	//
	// It calls report for each CheckResult, in the order of the checks and from one goroutine. It reads all
	// stored data, in bounded memory; other calls may run at the same time unless the engine says otherwise.
	//
	// With CheckOptions.Repair it also repairs the issues that it can. No other call sees a repair half done: a repair
	// is one atomic step, or the engine holds back or refuses calls on the queue until the repair is complete, even
	// after a crash. Repeating the Check completes a repair that was interrupted. A later Check no longer finds
	// repaired issues. No repair removes a message that can be read.
	//
	// An error means that the checks could not be completed: ErrUnavailable, ErrClosed or the cause of ctx.
	// Damage is not an error but a CheckResult.
	Check(ctx context.Context, opts CheckOptions, report func(CheckResult)) error
}

// CheckOptions holds the options of a Check.
type CheckOptions struct {
	// Repair makes Check repair the issues that it can.
	Repair bool
}

// CheckResult is one result of a check: that nothing is wrong, something worth knowing, or an issue.
type CheckResult struct {
	Severity Severity
	// Check is the short name of the check, such as "counters", "entries" or "log". It is the same in every
	// version; docs/cli.md lists all names.
	Check string
	// Queue is the queue that was checked, or "" for the whole store.
	Queue string
	// Text describes the result in one line, with numbers and names.
	Text string
	// Advice is the remedy; it is "" if nothing needs to be done.
	Advice string
	// Count is the number of messages, keys, files or bytes concerned, or 0 if nothing was counted.
	Count int64
	// Repaired is set if the issue has been repaired. Severity is how bad it was.
	Repaired bool
}

// IsIssue reports whether something is wrong: whether the severity is warning or error.
func (r CheckResult) IsIssue() bool {
	return r.Severity == SeverityWarning || r.Severity == SeverityError
}

// Severity is how bad a CheckResult is.
type Severity string

// The severities, in increasing order.
const (
	// SeverityOK means that the check found nothing wrong.
	SeverityOK Severity = "ok"
	// SeverityNote means that the result is worth knowing, but nothing needs to be done.
	SeverityNote Severity = "note"
	// SeverityWarning means that nothing is lost, but something should be done.
	SeverityWarning Severity = "warning"
	// SeverityError means that messages are lost or cannot be delivered correctly, or that counts are wrong.
	SeverityError Severity = "error"
)
