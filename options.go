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

// Time returns the time at which a message that is sent at now falls due, or the zero time if that is at once. Send
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
		return store.Field("at", store.Invalid("due time is the zero time: give a time, or leave it out to send at once"))
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
	return sendOption(func(o *Outgoing) error {
		if o.ID != "" {
			return twice("id")
		}
		o.ID = id
		return cmp.Or(store.CheckID(id), store.CheckNew("id", id))
	})
}

// MaxAttempts sets the number of failed attempts after which the message is dead. It is 1 to
// store.MaxAttempts. Default: store.DefaultMaxAttempts.
func MaxAttempts(n int) SendOption {
	return sendOption(func(o *Outgoing) error {
		if o.MaxAttempts != 0 {
			return twice("max attempts")
		}
		if n < 1 || n > store.MaxAttempts {
			return store.Invalid("max attempts is %d: give 1 to %d", n, store.MaxAttempts)
		}
		o.MaxAttempts = n
		return nil
	})
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
	return sendOption(func(o *Outgoing) error {
		f := field(o)
		if *f != 0 {
			return twice(name)
		}
		if d <= 0 || d > limit {
			return store.Invalid("%s is %v: give more than 0 and up to %v", name, d, limit)
		}
		*f = d
		return nil
	})
}

// ExpireAt makes the message dead if it has not been delivered by t, which may not be before it is due.
func ExpireAt(t time.Time) SendOption {
	return sendOption(func(o *Outgoing) error {
		if !o.ExpireAt.IsZero() {
			return twice("expiry")
		}
		if t.IsZero() {
			return store.Field("expire_at", store.Invalid("expiry is the zero time: give a time, or leave it out"))
		}
		o.ExpireAt = t
		return nil
	})
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
