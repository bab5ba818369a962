package later

import (
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// DuplicateMode is the effect of a send if its id is live. Create one with Keep, Replace, Debounce or Follow; the zero
// DuplicateMode is Keep, or the default of the queue.
type DuplicateMode struct {
	asked store.OnDuplicate
	wait  time.Duration // of a debounce
	given bool
}

// Keep leaves the live message as it is: the send returns ErrDuplicate. Together with a DedupWindow it throttles: of
// all sends of an id within the window after an ack, none is delivered.
func Keep() DuplicateMode { return DuplicateMode{given: true} }

// Replace puts the sent message in the place of a scheduled or ready one with its id: payload, headers, group and all
// options. The due time stays, unless the send has one: with In(0) the message is due now. Without a live message,
// the message is due at once, or at the due time of the send.
//
// See OnDuplicate for what holds for all modes.
func Replace() DuplicateMode {
	return DuplicateMode{asked: store.OnDuplicate{Mode: store.DuplicateReplace}, given: true}
}

// Debounce delivers the last of several sends in quick succession: the message is due when none has replaced it for
// wait, but no later than most after the first of them, on the store's clock. Each send replaces the message
// like Replace. It may not have a due time of its own. wait is more than 0, and most is wait to store.MaxDelay.
//
// See OnDuplicate for what holds for all modes.
func Debounce(wait, most time.Duration) DuplicateMode {
	return DuplicateMode{
		asked: store.OnDuplicate{Mode: store.DuplicateDebounce, MaxWait: most}, wait: wait, given: true,
	}
}

// Follow delivers the last send after the run that is under way: a message that a worker holds gets one successor,
// which a further send replaces. So any number of sends during a run cause one more run, which has what the last one
// sent. A message that no worker holds is replaced like with Replace.
//
// The successor becomes scheduled or ready when the worker is done with the message, or its lease ends. It takes the
// place of the message, however that went: with its own due time, no failed attempts, and without a trace of a nack or
// bury. The dedup window of the message does not start, only that of the successor. Cancel removes both, and Info shows
// the successor; see Info.Follows.
//
// See OnDuplicate for what holds for all modes.
func Follow() DuplicateMode {
	return DuplicateMode{asked: store.OnDuplicate{Mode: store.DuplicateFollow}, given: true}
}

// String returns "keep", "replace", "debounce for 2s, at most 30s" or "follow".
func (m DuplicateMode) String() string {
	switch m.asked.Mode {
	case store.DuplicateReplace:
		return "replace"
	case store.DuplicateDebounce:
		return fmt.Sprintf("debounce for %v, at most %v", m.wait, m.asked.MaxWait)
	case store.DuplicateFollow:
		return "follow"
	}
	return "keep"
}

// OnDuplicate sets the effect of the send if the queue has a live message with its id, which WithID must set. Default:
// Keep. It is one atomic step of the store, whoever else sends, cancels or claims the message.
//
// A send that replaced a message returns its id and nil; in SendResult.Outcome it differs from one that added one, and
// both engines and observers count it as a duplicate, because no message was added. The replaced message keeps its
// failed attempts and failures, as with Reschedule, and its SentAt, which is the time of its first send on the store's
// clock.
//
// A message that a worker holds is not replaced: the send returns ErrLeased, unless its mode is Follow. For a dead one
// it returns ErrDead. For an id within its dedup window it returns ErrDuplicate. Nothing was changed then.
//
// It is not a default of a client (see Queue.With for a queue), nor an option of follow-ups and of an outbox.
func OnDuplicate(mode DuplicateMode) SendOption {
	return sendOption(func(o *Outgoing) error {
		if o.OnDuplicate.given {
			return twice("mode for duplicates")
		}
		mode.given = true
		o.OnDuplicate = mode
		return nil
	})
}

// SendOutcome is the effect of a send.
type SendOutcome string

// The outcomes of sends. A message that was not sent has none.
const (
	SendSent      SendOutcome = "sent"      // a message was added
	SendDuplicate SendOutcome = "duplicate" // nothing was changed: the id is live or within its dedup window
	SendReplaced  SendOutcome = "replaced"  // the message took the place of the live one, by Replace
	SendDebounced SendOutcome = "debounced" // the message took the place of the live one, by Debounce
	SendFollows   SendOutcome = "follows"   // the message is delivered after the one that a worker holds, by Follow
)

// collapse sets the fields of the stored message that the mode of o asks for.
func (o *Outgoing) collapse(out *store.Outgoing) error {
	out.OnDuplicate = o.OnDuplicate.asked
	timed := o.When.kind != 0
	switch {
	case o.ID == "":
		return store.Field("on_duplicate", store.Invalid("mode for duplicates is %v and there is no id: give the id that sends share", o.OnDuplicate))
	case out.OnDuplicate.Mode != store.DuplicateDebounce:
		out.OnDuplicate.KeepDue = !timed
	case timed:
		return store.Field("on_duplicate", store.Invalid("due time is %v and the mode for duplicates is %v: give only one of them", o.When, o.OnDuplicate))
	default:
		out.Due = store.Due{Delay: o.OnDuplicate.wait}
	}
	return nil
}

// OnceWindow is how long the key of a Once is remembered, counted from the send: 24 hours.
const OnceWindow = store.OnceWindow

// Once makes the request that the message is sent for safe to repeat, in any process and under whatever id each attempt
// sends it: of all sends to a queue with the same key and request within OnceWindow of the first, that one adds a
// message. It is one atomic step of the store. The others change nothing, whatever became of the message: they return
// its id, no error, and the outcome SendDuplicate. A send with the same key and another request returns ErrConflict.
//
// key identifies a request, such as an Idempotency-Key with the name of the client that chose it.
// request is the whole request, so that a key that was used by mistake is noticed. Both may be of any length.
//
// A send that is refused, for example with ErrDuplicate, does not use up its key. Deleting the queue forgets its keys,
// and an export does not have them. Once is not a default of a queue or client, nor an option of follow-ups, series and
// an outbox.
func Once(key, request []byte) SendOption {
	return sendOption(func(o *Outgoing) error {
		if o.Once != nil {
			return twice("once")
		}
		o.Once = store.NewOnce(key, request)
		return nil
	})
}
