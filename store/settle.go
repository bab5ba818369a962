package store

import "time"

// Action is a way to settle a message.
type Action uint8

// The ways to settle a message.
const (
	// Ack completes the message, which no longer exists.
	Ack Action = iota + 1
	// Nack counts a failed attempt. The message is due again after Delay, or dead as DeadFailed if this was its
	// last attempt.
	Nack
	// Snooze makes the message due again after Delay. It does not count as an attempt.
	Snooze
	// Release returns the message untouched, with its old due time. It counts neither as an attempt nor as a
	// delivery.
	Release
	// Bury makes the message dead as DeadBuried. It counts as an attempt.
	Bury
)

// Settlement settles one message.
type Settlement struct {
	Receipt Receipt
	Action  Action
	Delay   time.Duration // for Nack and Snooze
	Reason  string        // for Nack and Bury: the error, which the caller cuts to MaxReason bytes with CutReason
	// ResetAttempts, with a Snooze, sets the number of failed attempts to zero and forgets the last error.
	ResetAttempts bool
	// Duration and Worker are kept in the Failure of a Nack or Bury: how long the attempt took, and who held the
	// message. Both may be left out.
	Duration time.Duration
	Worker   string
	// DedupWindow repeats Message.DedupWindow for an Ack, so that engines need not read the message again.
	DedupWindow time.Duration
	// Grouped reports, for an Ack, whether Message.Group is set, so that engines need not read the message again.
	Grouped bool
	// Then are the follow-ups of an Ack. Each passes FollowUp.Check, and all together pass FollowUpsFit. A Settle has at
	// most MaxBatch of them with at most MaxBatchBytes by Message.Size; a single one may be larger.
	Then []FollowUp
	// If, unless it is nil, has the message settled only while a condition on its queue is met.
	If *Condition
}

// SettleResult is the result for one message of a Settle.
type SettleResult struct {
	// State is the message's new state, or that of its successor: StateNone after an Ack or if Err is set.
	State State
	Err   error
}

// Extension asks for more time for a lease, or what was cancelled of it.
type Extension struct {
	Lease string
	For   time.Duration // 0 leaves the deadline as it is
}

// ExtendResult is the result of one Extension.
type ExtendResult struct {
	Deadline time.Time
	Lost     []Receipt
	Err      error
}
