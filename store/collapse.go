package store

import (
	"errors"
	"time"
)

// DuplicateMode is the effect of a Send if the id of its message is live.
type DuplicateMode uint8

// The modes.
const (
	// DuplicateKeep changes nothing.
	DuplicateKeep DuplicateMode = iota
	// DuplicateReplace puts the sent message in the place of the live one.
	DuplicateReplace
	// DuplicateDebounce is DuplicateReplace with a due time that each further Send moves.
	DuplicateDebounce
	// DuplicateFollow is DuplicateReplace, and puts the sent message behind one that is leased.
	DuplicateFollow
)

// OnDuplicate is the effect of a Send if the id of its message is live. A Send that changes the live message collapses:
// of several messages that are sent under one id, the last is delivered. It is one atomic step.
//
// A scheduled or ready message gets the payload, headers, group and options of the sent one, and a due time that
// depends on the mode. Its failed attempts, its failures and Info.Delivered stay, as with Reschedule. A leased message
// does not change unless the mode is DuplicateFollow, and ErrLeased is in the result; for a dead one it is ErrDead. An
// id within its dedup window is a duplicate in every mode.
//
// With DuplicateFollow, a leased message gets a successor: the sent message. Its holder keeps the lease and the message
// that it was given. When the hold ends, the successor becomes scheduled or ready at its own due time, as if it had
// just been sent. It takes the place of the held message however the hold ends: by an Ack, which starts no dedup window
// then; by any other Settlement, which has no other effect than its SettleResult; or by the expiry of the lease, which
// kills nothing then. A further DuplicateFollow replaces the successor. Until the hold ends, the id has one message,
// which is leased: it counts once, and Cancel and Purge remove both. Everything else shows the successor; see
// Info.Follows. Only a repeated Claim returns the held message, which an engine that repeats keeps until the hold ends.
//
// A message that is sent with a mode other than DuplicateKeep gets the engine's clock as its SentAt, and keeps it
// when it is replaced. So SentAt is when the id, or the successor, was first sent. A replaced message without SentAt
// gets the engine's clock.
//
// A message with a mode other than DuplicateKeep is OneByOne. A Send of such messages that fails in part has the error
// in the results of the messages that were not sent.
type OnDuplicate struct {
	Mode DuplicateMode
	// KeepDue has a DuplicateReplace or DuplicateFollow keep the due time of the message that it replaces. Otherwise it
	// sets Outgoing.Due, which is also the due time of a new message or successor.
	KeepDue bool
	// MaxWait limits how long DuplicateDebounce moves the due time. A new message is due at Outgoing.Due, which is a
	// delay. With a live one it is that delay from now, but no later than MaxWait after SentAt, or after now if SentAt
	// is later. MaxWait is not below the delay.
	MaxWait time.Duration
	// Unchanged has a DuplicateReplace replace only a message that is still as Get or List of this store returned it,
	// by Info.Same. Otherwise nothing changes, and the result has ErrConflict if the message has changed since,
	// ErrNotFound if it is gone, and ErrLeased if it is leased.
	Unchanged *Info
}

// Collapses reports whether a message with a live id may change the live one.
func (o *OnDuplicate) Collapses() bool { return o.Mode != DuplicateKeep }

// check returns an ErrInvalid unless o is allowed for a message that is due at a time.
func (o *OnDuplicate) check(due Due) error {
	switch {
	case o.Mode > DuplicateFollow:
		return Invalid("mode for duplicates is %d: must be %d to %d", o.Mode, DuplicateKeep, DuplicateFollow)
	case o.Unchanged != nil && o.Mode != DuplicateReplace:
		return Invalid("a message is to be unchanged without a replace: give DuplicateReplace too")
	case o.KeepDue && o.Mode != DuplicateReplace && o.Mode != DuplicateFollow:
		return Invalid("a due time is kept without a replace: give DuplicateReplace or DuplicateFollow too")
	case o.Mode != DuplicateDebounce:
		return nil
	case !due.At.IsZero() || due.Delay <= 0:
		return Invalid("debounce waits %v: must be more than 0 and up to %v", due.Delay, MaxDelay)
	case o.MaxWait < due.Delay || o.MaxWait > MaxDelay:
		return Invalid("maximum wait of debounce is %v: give its wait of %v to %v", o.MaxWait, due.Delay, MaxDelay)
	}
	return nil
}

// Added reports whether the Send or Restore added a message.
func (r *SendResult) Added() bool {
	return !r.Duplicate && !r.Replaced && (r.Err == nil || errors.Is(r.Err, ErrNotDurable))
}

// SendError returns the first error of results that means that a message is not in the queue, or may not be, or nil.
func SendError(results []SendResult) error {
	for i := range results {
		if err := results[i].Err; err != nil && !errors.Is(err, ErrNotDurable) {
			return err
		}
	}
	return nil
}
