// Package event has the kinds of events of messages and queues. The root package describes them for users. It imports
// package store only.
package event

import (
	"context"

	"github.com/laterq/later/store"
)

// The kinds of events.
const (
	Sent        store.EventKind = "sent"
	Duplicate   store.EventKind = "duplicate"
	Claimed     store.EventKind = "claimed"
	Started     store.EventKind = "started"
	Acked       store.EventKind = "acked"
	Forwarded   store.EventKind = "forwarded"
	Nacked      store.EventKind = "nacked"
	Snoozed     store.EventKind = "snoozed"
	GivenBack   store.EventKind = "given_back"
	Buried      store.EventKind = "buried"
	Released    store.EventKind = "released"
	Expired     store.EventKind = "expired"
	LeaseLost   store.EventKind = "lease_lost"
	Unsettled   store.EventKind = "unsettled"
	Died        store.EventKind = "died"
	Dropped     store.EventKind = "dropped"
	Cancelled   store.EventKind = "cancelled"
	Rescheduled store.EventKind = "rescheduled"
	Edited      store.EventKind = "edited"
	Paused      store.EventKind = "paused"
	Resumed     store.EventKind = "resumed"
	Replayed    store.EventKind = "replayed"
	Purged      store.EventKind = "purged"
	KeyResumed  store.EventKind = "key_resumed"
	RunMissed   store.EventKind = "run_missed"
	RunSkipped  store.EventKind = "run_skipped"
	Missed      store.EventKind = "missed"
)

// Headers are the names of the headers that events carry; nil means all.
type Headers struct{ Names []string }

// Of returns the headers of a message that its events carry. h may be nil: events carry none.
func (h *Headers) Of(headers map[string]string) map[string]string {
	switch {
	case h == nil || len(headers) == 0:
		return nil
	case len(h.Names) == 0:
		return headers
	}
	var chosen map[string]string
	for _, name := range h.Names {
		if value, ok := headers[name]; ok {
			if chosen == nil {
				chosen = map[string]string{}
			}
			chosen[name] = value
		}
	}
	return chosen
}

// OfSettle returns the kind of the event that follows a settle after which a message has a state.
func OfSettle(action store.Action, state store.State) store.EventKind {
	if action == store.GiveBack && state == store.StateDead {
		return Buried // it had been given back for too long
	}
	return ofAction[action]
}

var ofAction = map[store.Action]store.EventKind{
	store.Ack:      Acked,
	store.Nack:     Nacked,
	store.Snooze:   Snoozed,
	store.Bury:     Buried,
	store.Release:  Released,
	store.GiveBack: GivenBack,
}

type resumedKey struct{}

// WithResumed returns a context whose calls add the halted keys that they let go on to a list.
func WithResumed(ctx context.Context, keys *[]string) context.Context {
	return context.WithValue(ctx, resumedKey{}, keys)
}

// CollectResumed adds keys to the list of a context, if it has one.
func CollectResumed(ctx context.Context, keys []string) {
	if list, _ := ctx.Value(resumedKey{}).(*[]string); list != nil {
		*list = append(*list, keys...)
	}
}
