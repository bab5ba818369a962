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
	// GiveBack makes the message due again after Delay, for a holder of another version: this one cannot handle it. It
	// does not count as an attempt. Reason is the LastError and a Failure of Attempt 0. Its Time is when the message
	// was first given back: a repeated GiveBack keeps it. It does not survive a Snooze, which says that a holder could
	// handle the message. If the message was first given back Within ago or earlier, GiveBack is a Bury, but with
	// DeadUnreadable.
	GiveBack
)

// Settlement settles one message.
type Settlement struct {
	Receipt Receipt
	Action  Action
	Delay   time.Duration // for Nack, Snooze and GiveBack
	Reason  string        // for Nack, Bury and GiveBack: the error, cut by the caller with CutReason
	// ResetAttempts, with a Snooze, sets the number of failed attempts to zero and forgets the last error.
	ResetAttempts bool
	// Duration and Worker are kept in the Failure of a Nack, Bury or GiveBack: the time that the attempt took, and the
	// name of the worker that held the message. Both may be left out.
	Duration time.Duration
	Worker   string
	// DedupWindow repeats Message.DedupWindow for an Ack, so that engines need not read the message again.
	DedupWindow time.Duration
	// Grouped reports, for an Ack, whether Message.Group is set, so that engines need not read the message again.
	Grouped bool
	// Then are the follow-ups of an Ack. Each passes FollowUp.Check, and all together pass FollowUpsFit. A Settle has
	// at most MaxBatch of them with at most MaxBatchBytes by Message.Size; a single one may be larger.
	Then []FollowUp
	// Within, with a GiveBack, is how long the message is given back. With 0 the first GiveBack makes it dead, and
	// below zero none does.
	Within time.Duration
	// If, unless it is nil, has the message settled only while a condition on its queue is met.
	If *Condition
}

// GiveBack returns the failures of a message that is given back at a time, and when it was first given back.
func (s *Settlement) GiveBack(at time.Time, failures []Failure) (_ []Failure, since time.Time) {
	f := NewFailure(at, 0, s)
	if since, ok := GivenBack(failures); ok {
		f.Time = since
	}
	return AddFailure(f, WithoutGivenBack(failures)), f.Time
}

// GivenBack reports whether the latest of a message's failures is that it was given back, and since when; see GiveBack.
func GivenBack(failures []Failure) (since time.Time, ok bool) {
	if len(failures) == 0 || failures[0].Attempt > 0 {
		return time.Time{}, false
	}
	return failures[0].Time, true
}

// WithoutGivenBack returns failures without the latest if that is one of being given back.
func WithoutGivenBack(failures []Failure) []Failure {
	if _, ok := GivenBack(failures); ok {
		return failures[1:]
	}
	return failures
}

// SettleResult is the result for one message of a Settle.
type SettleResult struct {
	// State is the new state of the message or of its successor: StateNone after an Ack or if Err is set.
	State State
	Err   error
}

// Extension asks for more time for a lease, or for its cancelled messages.
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

// Size returns the bytes that the settlement counts towards MaxBatchBytes.
func (s *Settlement) Size() int {
	size := len(s.Reason)
	for i := range s.Then {
		size += max(s.Then[i].Message.Size(), MaxBatchBytes/MaxBatch)
	}
	return size
}
