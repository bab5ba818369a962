package store

import (
	"bytes"
	"time"
)

// CheckNew returns an error if Restore cannot add the message: the error of Check, or ErrInvalid for an id or group
// that CheckNew refuses. The error names the field, the limit and the remedy.
func (i *Info) CheckNew() error {
	if err := i.Message.checkNew(); err != nil {
		return err
	}
	return i.Check()
}

// Check returns an error if i is not a message that a store can have. The error names the field, the limit and the
// remedy. A message that List or Get returned passes, unless the store holds values that no caller gave it.
func (i *Info) Check() error {
	if err := i.checkContent(); err != nil {
		return err
	}
	if i.Due.IsZero() {
		return Invalid("due time is missing: give the one that List or Get returned")
	}
	if err := checkTime("due time", i.Due); err != nil {
		return err
	}
	if i.Attempts < 0 || i.Attempts > MaxAttempts {
		return Invalid("attempts is %d: must be 0 to %d", i.Attempts, MaxAttempts)
	}
	if len(i.LastError) > MaxReason || i.LastError != CutReason(i.LastError) {
		return Invalid("last error is %d bytes long or not UTF-8: the limit is %d; cut it with CutReason",
			len(i.LastError), MaxReason)
	}
	if err := i.checkFailures(); err != nil {
		return err
	}
	switch i.State {
	case StateScheduled, StateReady, StateLeased:
		if i.DeadReason != "" || !i.DiedAt.IsZero() {
			return Invalid("dead reason %q and time of death %s are given for a message that is %s: leave them out",
				i.DeadReason, i.DiedAt.Format(time.RFC3339), i.State)
		}
		return nil
	case StateDead:
		return i.checkDeath()
	}
	return Invalid("state is %q: give scheduled, ready, leased or dead", i.State)
}

func (i *Info) checkContent() error {
	if i.Raw == nil {
		if err := checkTime("sent at", i.SentAt); err != nil {
			return err
		}
		return i.Message.check()
	}
	if err := CheckID(i.ID); err != nil {
		return err
	}
	if len(i.Payload) > 0 || len(i.Headers) > 0 || i.Group != "" || i.Key != "" {
		return Invalid("raw bytes are given with a payload, headers, a group or a key: an unreadable message has " +
			"only raw bytes")
	}
	if len(i.Raw) > MaxBatchBytes {
		return TooLarge("raw bytes are %d: the limit is %d", len(i.Raw), MaxBatchBytes)
	}
	return nil
}

func (i *Info) checkDeath() error {
	switch i.DeadReason {
	case DeadFailed, DeadLeaseExpired, DeadBuried, DeadExpired, DeadUnreadable:
	default:
		return Invalid("dead reason is %q: give %s, %s, %s, %s or %s", i.DeadReason,
			DeadFailed, DeadLeaseExpired, DeadBuried, DeadExpired, DeadUnreadable)
	}
	if i.DiedAt.IsZero() {
		return Invalid("time of death of a dead message is missing: give the one that List or Get returned")
	}
	return checkTime("time of death", i.DiedAt)
}

// Size returns the number of bytes that the message counts against MaxBatchBytes.
func (i *Info) Size() int { return i.Message.Size() + len(i.Raw) }

// SameMessage reports whether i and o are the same message as it was sent. Changes of its state since do not matter.
// Times are compared in whole milliseconds.
func (i *Info) SameMessage(o *Info) bool {
	return (i.Raw == nil) == (o.Raw == nil) && bytes.Equal(i.Raw, o.Raw) && i.Message.same(&o.Message)
}

// Same reports whether i and o are the same message in the same condition.
//
// In addition to SameMessage it compares the due time, the failed attempts, whether the message was delivered, the last
// error and failures, and the reason and time of death. A message that has become ready or has been leased is still the
// same.
func (i *Info) Same(o *Info) bool {
	return i.SameMessage(o) && sameTime(i.Due, o.Due) && i.Attempts == o.Attempts && i.Delivered == o.Delivered &&
		i.LastError == o.LastError && sameFailures(i.Failures, o.Failures) && i.DeadReason == o.DeadReason &&
		sameTime(i.DiedAt, o.DiedAt)
}

func sameTime(t, u time.Time) bool {
	return t.IsZero() == u.IsZero() && UnixMillis(t) == UnixMillis(u)
}
