package later

import (
	"cmp"
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// SendOption sets a field of an Outgoing. Send returns ErrInvalid for an option that is nil, is set twice,
// or has a value that is not allowed.
type SendOption interface {
	applySend(*Outgoing) error
}

type sendOption func(*Outgoing) error

func (f sendOption) applySend(o *Outgoing) error { return f(o) }

// When is the time at which a message falls due. The zero When means at once. A When is also a SendOption.
type When struct {
	due  store.Due
	kind whenKind
}

type whenKind uint8

const (
	whenIn whenKind = iota + 1
	whenAt
)

// In returns the When that is d from now on the store's clock, rounded up to a millisecond. The sender's
// clock does not matter. A d below zero means at once.
func In(d time.Duration) When {
	return When{due: store.Due{Delay: max(0, d)}, kind: whenIn}
}

// At returns the When that is t on the store's clock, rounded up to a millisecond. t must be from 1970 to
// 2199. A time in the past means at once, ahead of messages that are due later.
func At(t time.Time) When {
	return When{due: store.Due{At: t}, kind: whenAt}
}

// Time returns the due time of a message that is sent at now, or the zero time for a message that is due at once. Send
// itself does not use it: it adds the delay of In to the store's clock.
func (w When) Time(now time.Time) time.Time {
	if w.due.Delay > 0 {
		return now.Add(w.due.Delay)
	}
	return w.due.At
}

// String returns "at once", "in 30m0s" or "at 2030-01-01T00:00:00Z".
func (w When) String() string {
	switch {
	case w.kind == whenAt:
		return "at " + w.due.At.Format(time.RFC3339Nano)
	case w.due.Delay > 0:
		return fmt.Sprintf("in %v", w.due.Delay)
	}
	return "at once"
}

func (w When) applySend(o *Outgoing) error {
	if o.When.kind != 0 {
		return twice("due time")
	}
	o.When = w
	return nil
}

// check returns an error for a time that is too far away, and for the zero time, which is most likely a
// mistake.
func (w When) check() error {
	if w.kind == whenAt && w.due.At.IsZero() {
		return store.Field("at", store.Invalid("due time is the zero time: give a time, or leave it out to send at "+
			"once"))
	}
	return w.due.Check()
}

func nilOption(index int) error {
	return store.Invalid("option %d is nil: leave it out", index)
}

func twice(option string) error {
	return store.Invalid("%s is given twice: give it once", option)
}

// WithID sets the id of the message, 1 to store.MaxID bytes. While the queue has a live message with that
// id, sending it again changes nothing and returns ErrDuplicate, so a Send can safely be retried.
func WithID(id string) SendOption {
	err := cmp.Or(store.CheckID(id), store.CheckNew("id", id))
	return setOnce("id", id, err, func(o *Outgoing) *string { return &o.ID })
}

// setOnce returns the option that sets a field to a value, or refuses it with an error.
func setOnce[T comparable](name string, value T, refused error, field func(*Outgoing) *T) SendOption {
	if refused != nil {
		return sendOption(func(*Outgoing) error { return refused })
	}
	return sendOption(func(o *Outgoing) error {
		f, unset := field(o), *new(T)
		if *f != unset {
			return twice(name)
		}
		*f = value
		return nil
	})
}

// Key sets the key of the message, which says whom or which thing it is about, such as a customer or an order. A key
// has 1 to store.MaxKey bytes of UTF-8 without control characters and slashes, and is not . or ... Messages of any
// queue can have the same key, and it goes along when a message is replayed, forwarded, copied or distributed by a
// topic. The generated ids of a key end alike; see store.IDs. Messages without a key cost nothing more.
func Key(key string) SendOption {
	return setOnce("key", key, store.CheckKey(key), func(o *Outgoing) *string { return &o.Key })
}

// Urgent has the message start before others of the queue that may start too. The flow of the queue must have Urgency;
// see Flow. Messages without the option still get one of eight starts.
func Urgent() SendOption { return urgency(UrgencyHigh) }

// Background has the message start after others of the queue that may start too, but with at least one of 64 starts.
// The flow of the queue must have Urgency; see Flow.
func Background() SendOption { return urgency(UrgencyLow) }

func urgency(u Urgency) SendOption {
	return setOnce("urgency", u, nil, func(o *Outgoing) *Urgency { return &o.Urgency })
}

// MaxAttempts sets the number of failed attempts after which the message is dead. It is 1 to
// store.MaxAttempts. Default: store.DefaultMaxAttempts.
func MaxAttempts(n int) SendOption {
	var err error
	if n < 1 || n > store.MaxAttempts {
		err = store.Invalid("max attempts is %d: must be 1 to %d", n, store.MaxAttempts)
	}
	return setOnce("max attempts", n, err, func(o *Outgoing) *int { return &o.MaxAttempts })
}

// Header adds a header. A message can have up to store.MaxHeaders headers with up to store.MaxHeaderBytes
// in all. Names and values are UTF-8; names are not empty and contain no control characters.
func Header(key, value string) SendOption {
	return sendOption(func(o *Outgoing) error { return o.addHeader(key, value) })
}

// Headers adds headers. See Header.
func Headers(headers map[string]string) SendOption {
	return sendOption(func(o *Outgoing) error {
		for key, value := range headers {
			if err := o.addHeader(key, value); err != nil {
				return err
			}
		}
		return nil
	})
}

func (o *Outgoing) addHeader(key, value string) error {
	if _, taken := o.Headers[key]; taken {
		return twice(fmt.Sprintf("header %q", key))
	}
	if o.Headers == nil {
		o.Headers = map[string]string{}
	}
	o.Headers[key] = value
	return nil
}

// Timeout limits one run of the handler, up to store.MaxTimeout. An exceeded limit is a failed attempt; see
// WorkerConfig.Timeout for details. Default: the worker's limit.
func Timeout(d time.Duration) SendOption {
	return durationOption("timeout", d, store.MaxTimeout, func(o *Outgoing) *time.Duration { return &o.Timeout })
}

// ExpireAfter makes the message dead if it has not been delivered d after its due time. d is up to
// store.MaxDelay.
func ExpireAfter(d time.Duration) SendOption {
	return durationOption("expiry", d, store.MaxDelay, func(o *Outgoing) *time.Duration { return &o.ExpireAfter })
}

// DedupWindow sets how long the id, which WithID must set, is refused as a duplicate after an ack. d is up to
// store.MaxDelay. Default: no window.
func DedupWindow(d time.Duration) SendOption {
	return durationOption("dedup window", d, store.MaxDelay, func(o *Outgoing) *time.Duration { return &o.DedupWindow })
}

func durationOption(name string, d, limit time.Duration, field func(*Outgoing) *time.Duration) SendOption {
	var err error
	if d <= 0 || d > limit {
		err = store.Invalid("%s is %v: give more than 0 and up to %v", name, d, limit)
	}
	return setOnce(name, d, err, field)
}

// ExpireAt makes the message dead if it has not been delivered by t, which may not be before it is due.
func ExpireAt(t time.Time) SendOption {
	var err error
	if t.IsZero() {
		err = store.Field("expire_at", store.Invalid("expiry is the zero time: give a time, or leave it out"))
	}
	return setOnce("expiry", t, err, func(o *Outgoing) *time.Time { return &o.ExpireAt })
}

// ReceiveOption configures one Receive. Receive returns ErrInvalid for an option that is nil, is set twice,
// or has a value that is not allowed.
type ReceiveOption interface {
	applyReceive(*receiveOptions) error
}

type receiveOptions struct {
	lease  time.Duration
	noWait bool
}

type receiveOption func(*receiveOptions) error

func (f receiveOption) applyReceive(o *receiveOptions) error { return f(o) }

// Lease sets how long the received messages are held unless they are extended. It is store.MinLease to
// store.MaxLease. Default: 30 s.
func Lease(d time.Duration) ReceiveOption {
	return receiveOption(func(o *receiveOptions) error {
		if o.lease != 0 {
			return twice("lease")
		}
		o.lease = d
		return store.CheckLease(d)
	})
}

// NoWait has Receive return no messages and no error when none is ready, instead of waiting for one.
func NoWait() ReceiveOption {
	return receiveOption(func(o *receiveOptions) error {
		if o.noWait {
			return twice("no-wait")
		}
		o.noWait = true
		return nil
	})
}

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
// The rules of OnDuplicate for all modes apply.
func Replace() DuplicateMode {
	return DuplicateMode{asked: store.OnDuplicate{Mode: store.DuplicateReplace}, given: true}
}

// Debounce delivers the last of several sends in quick succession: the message is due when none has replaced it for
// wait, but no later than most after the first of them, on the store's clock. Each send replaces the message
// like Replace. It may not have a due time of its own. wait is more than 0, and most is wait to store.MaxDelay.
//
// The rules of OnDuplicate for all modes apply.
func Debounce(wait, most time.Duration) DuplicateMode {
	return DuplicateMode{
		asked: store.OnDuplicate{Mode: store.DuplicateDebounce, MaxWait: most}, wait: wait, given: true,
	}
}

// Follow delivers the last send after the run that is under way: a message that a worker holds gets one successor, and
// a further send replaces that successor. So any number of sends during a run cause one more run, with the message of
// the last send. A message that no worker holds is replaced like with Replace.
//
// The successor becomes scheduled or ready when the worker is done with the message, or its lease ends. It takes the
// place of the message, however that went: with its own due time, no failed attempts, and without a trace of a nack or
// bury. The dedup window of the message does not start, only that of the successor. Cancel removes both, and Info shows
// the successor; see Info.Follows.
//
// The rules of OnDuplicate for all modes apply.
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

// OnDuplicate sets the effect of the send if the queue has a live message with its id. WithID must set the id. Default:
// Keep. It is one atomic step of the store, whatever other calls send, cancel or claim the message.
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
	mode.given = true
	return setOnce("mode for duplicates", mode, nil, func(o *Outgoing) *DuplicateMode { return &o.OnDuplicate })
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
		return store.Field("on_duplicate", store.Invalid("mode for duplicates is %v and there is no id: give the id "+
			"that sends share", o.OnDuplicate))
	case out.OnDuplicate.Mode != store.DuplicateDebounce:
		out.OnDuplicate.KeepDue = !timed
	case timed:
		return store.Field("on_duplicate", store.Invalid("due time is %v and the mode for duplicates is %v: give only one "+
			"of them", o.When, o.OnDuplicate))
	default:
		out.Due = store.Due{Delay: o.OnDuplicate.wait}
	}
	return nil
}

// Once makes the request that the message is sent for safe to repeat, in any process and under whatever id each attempt
// sends it: of all sends to a queue with the same key and request within 24 hours of the first, that one adds a
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
	return setOnce("once", store.NewOnce(key, request), nil, func(o *Outgoing) **store.Once { return &o.Once })
}

// confirmGrace is how much longer Close lets durable sends wait for their confirmation.
const confirmGrace = time.Second

// Durability is how safe a message must be before its send returns. Create one with Durable.
//
// It is an Option for all sends of a client, a QueueOption for the sends of a queue (see Queue.With), and a
// SendOption for one message; the one closest to the message applies. The zero Durability asks for no more
// than the store always provides. As an option it cancels the default of the queue or client.
type Durability struct {
	asked store.Durability
	kind  durabilityKind
}

type durabilityKind uint8

const (
	durabilityDefault durabilityKind = iota // the default of the queue or client
	durabilityAsked
	durabilityNone
)

// Durable makes a send wait for the server's disk and for a number of replicas.
//
// The send returns nil only when the message is confirmed. replicas is 0 to store.MaxReplicas. The meaning of a
// confirmation depends on the store:
//
//   - Redis and Valkey from 7.2 with an append-only file: fsynced by the primary and by that many replicas
//     (WAITAOF). With appendfsync everysec that takes up to a second.
//   - Redis and Valkey without an append-only file, or before 7.2: in the memory of that many replicas
//     (WAIT). Here 0 replicas is ErrUnsupported, unless the server fsyncs before it answers (appendfsync
//     always).
//   - The embedded store: 0 waits for its fsync, whatever its sync parameter is; more is ErrUnsupported.
//   - The store in memory: ErrUnsupported.
//
// A send that is not confirmed within timeout returns ErrNotDurable with the progress it made. The timeout
// is store.MinConfirm to store.MaxConfirm and starts when the store has written the message. The message
// exists all the same, and is delivered unless the store loses it. Sending it again with the same id (from
// WithID, or the id that was returned) waits for the confirmation of the first write: ErrDuplicate then
// means that the message is as durable as requested, and ErrNotDurable that it still is not.
//
// A failover can lose a confirmed message if a replica that did not confirm it is promoted; Redis prefers
// the one that has received the most. Concurrent durable sends are batched and wait together, separately
// from other sends.
func Durable(replicas int, timeout time.Duration) Durability {
	return Durability{store.Durability{Replicas: replicas, Timeout: timeout}, durabilityAsked}
}

// String returns "2 replicas within 1s", "disk within 1s" or "whatever the store guarantees".
func (d Durability) String() string {
	switch {
	case d.kind != durabilityAsked:
		return "whatever the store guarantees"
	case d.asked.Replicas == 0:
		return fmt.Sprintf("disk within %v", d.asked.Timeout)
	case d.asked.Replicas == 1:
		return fmt.Sprintf("1 replica within %v", d.asked.Timeout)
	}
	return fmt.Sprintf("%d replicas within %v", d.asked.Replicas, d.asked.Timeout)
}

func (d Durability) check() error {
	if d.kind == durabilityAsked && !d.asked.Asked() {
		return store.Invalid("durability's timeout is 0s: give %v to %v", store.MinConfirm, store.MaxConfirm)
	}
	return d.asked.Check()
}

// given returns d as an option: the zero Durability cancels the default.
func (d Durability) given() Durability {
	if d.kind == durabilityDefault {
		d.kind = durabilityNone
	}
	return d
}

func (d Durability) applySend(o *Outgoing) error {
	if o.Durability.kind != durabilityDefault {
		return twice("durability")
	}
	o.Durability = d.given()
	return d.check()
}

func (d Durability) applyClient(o *options) error {
	return d.applySend(&o.defaults)
}
