package later

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/laterq/later/internal/pump"
	"github.com/laterq/later/store"
)

// deliverer is the pump.Work of a custom destination.
type deliverer struct {
	*pump.Forward
	f *forwarder
}

// Do calls the destination and changes the settlements of messages that were not delivered.
func (d *deliverer) Do(ctx context.Context, claim store.Claim, settlements []store.Settlement) error {
	f := d.f
	msgs := make([]*Message, len(claim.Messages))
	for i := range claim.Messages {
		msgs[i] = new(Message)
		msgs[i].fill(f.queue.name, &claim.Messages[i], claim.Now)
	}
	var away error
	for i, err := range f.callCustom(ctx, msgs) {
		if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrFull) || err != nil && ctx.Err() != nil {
			settlements[i].Action = store.Release
			away = err
			continue
		}
		r := f.resultOf(msgs[i], err)
		settlements[i].Action, settlements[i].Delay, settlements[i].Reason = r.action, r.delay, r.reason
		settlements[i].Within = r.within
	}
	return away
}

// Settled records a message that was given back.
func (d *deliverer) Settled(m *store.Claimed, s *store.Settlement, state store.State) {
	if s.Action == store.GiveBack && state != StateDead {
		d.f.misfits.wait(misfitOf(m.Headers, nil), s.Delay)
	}
}

// resultOf converts an error of a custom destination to a settlement.
func (f *forwarder) resultOf(m *Message, err error) (r result) {
	defer func() {
		if p := recover(); p != nil { // the queue's backoff panicked
			f.logPanic("Backoff", p)
			r = resultOf(m, &panicError{p, panicStack()}, defaultBackoff, f.misfits)
		}
	}()
	return resultOf(m, err, f.cfg.Backoff, f.misfits)
}

func (f *forwarder) logPanic(in string, value any) {
	f.run.log.Error("later: "+in+" panicked", "queue", f.queue.name, "to", f.to.String(), "panic", value,
		"stack", string(debug.Stack()))
}

// callCustom returns an error for each message. A Deliver that ignores the end of its context at shutdown is left
// running, like a handler.
func (f *forwarder) callCustom(ctx context.Context, msgs []*Message) []error {
	returned := make(chan []error, 1)
	go func() {
		errs := forEach(msgs, errDeliverGoexit)
		defer func() {
			if p := recover(); p != nil {
				f.logPanic("Deliver", p)
				errs = forEach(msgs, &panicError{p, panicStack()})
			}
			returned <- errs
		}()
		got := f.to.custom.Deliver(ctx, msgs)
		switch {
		case got == nil:
			errs = forEach(msgs, nil)
		case len(got) != len(msgs):
			errs = forEach(msgs, fmt.Errorf("destination returned %d errors for %d messages: return one for each, or nil",
				len(got), len(msgs)))
		default:
			errs = got
		}
	}()
	select {
	case errs := <-returned:
		return errs
	case <-f.run.calling.Done():
	}
	grace := time.NewTimer(pump.Grace)
	defer grace.Stop()
	select {
	case errs := <-returned:
		return errs
	case <-grace.C:
	}
	f.run.abandoned.Add(1)
	return forEach(msgs, ErrShutdown)
}

var errDeliverGoexit = errors.New("destination called runtime.Goexit")

// forEach returns the same error for each message.
func forEach(msgs []*Message, err error) []error { return slices.Repeat([]error{err}, len(msgs)) }
