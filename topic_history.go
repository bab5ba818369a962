package later

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// HistoryOptions selects messages of a topic's history.
type HistoryOptions struct {
	// From and To limit the due time to [From, To). Default: no limit.
	From, To time.Time
	// Limit is the maximum number of messages in a page, 1 to store.MaxBatch. Default: 100.
	Limit int
	// Cursor is Page.Next of the previous page. Default: the first page.
	Cursor string
}

// History returns a page of the messages that the topic retains, in order of due time; see TopicConfig. They are in the
// queue "topic-history:NAME", from which nobody claims.
func (t *Topic) History(ctx context.Context, o HistoryOptions) (Page, error) {
	if t.invalid != nil {
		return Page{}, t.invalid
	}
	return t.history.List(ctx, ListOptions{
		State: StateReady, From: o.From, To: o.To, Limit: o.Limit, Cursor: o.Cursor,
	})
}

// HistoryStart is a place in a topic's history. It is also a SubscribeOption, with which the queue receives what the
// history has from there on.
type HistoryStart struct {
	at  time.Time
	id  string
	bad error
}

// From returns the HistoryStart at a due time.
func From(t time.Time) HistoryStart {
	if t.IsZero() {
		return HistoryStart{bad: store.Invalid("From has no time: give one from 1970 on, which for the whole history is " +
			"time.Unix(0, 0)")}
	}
	return HistoryStart{at: t}
}

// FromID returns the HistoryStart at the due time of a message. Others that were due in the same millisecond are
// included.
func FromID(id string) HistoryStart { return HistoryStart{id: id, bad: checkID(id)} }

func (h HistoryStart) set() bool { return h.id != "" || !h.at.IsZero() }

func (h HistoryStart) applySubscribe(o *subscribeOptions) error {
	if o.from.set() {
		return twice("start in the history")
	}
	o.from = h
	return h.bad
}

// resolve returns the due time of a place in the history.
func (t *Topic) resolve(ctx context.Context, cfg TopicConfig, h HistoryStart) (time.Time, error) {
	switch {
	case h.bad != nil:
		return h.at, h.bad
	case !cfg.retains():
		return h.at, fmt.Errorf("topic %q retains no history: set its age or number first: %w", t.name, ErrNotFound)
	case h.id == "":
		return h.at, nil
	}
	infos, err := t.client.store.Get(ctx, t.history.name, []string{h.id})
	if err != nil {
		return h.at, err
	}
	if infos[0] == nil {
		return h.at, fmt.Errorf("message %q is not in the history of topic %q, or not any more: start at a time: %w", h.id,
			t.name, ErrNotFound)
	}
	return infos[0].Due, nil
}

// Rewound is the result of a Rewind.
type Rewound struct {
	Sent int // messages that the queue receives again
	Kept int // messages that it has or remembers, and that do not match its filter
}

// Rewind has a subscribed queue receive again what the history has from a place on, up to now. Messages that it
// still has, dead ones included, are left alone, and so are those whose ids it remembers. The others start without
// failed attempts, and no longer expire. Rewind returns ErrNotFound if the queue is not subscribed or the topic retains
// no history, or not the message of FromID.
func (t *Topic) Rewind(ctx context.Context, queue string, from HistoryStart) (r Rewound, err error) {
	err = t.call(func() error {
		state, err := t.load(ctx)
		if err != nil {
			return err
		}
		at, err := t.resolve(ctx, state.cfg, from)
		if err != nil {
			return err
		}
		stats, err := t.client.store.Stats(ctx, t.history.name)
		if err != nil {
			return err
		}
		r, err = t.resend(ctx, queue, at, stats.Now)
		return err
	})
	return r, err
}

// resend sends history to a subscribed queue.
func (t *Topic) resend(ctx context.Context, queue string, from, to time.Time) (r Rewound, err error) {
	state, err := t.load(ctx)
	if err != nil {
		return r, err
	}
	notSubscribed := fmt.Errorf("queue %q is not subscribed to topic %q: %w", queue, t.name, ErrNotFound)
	subscription := state.subscribed(queue)
	if subscription == nil {
		return r, notSubscribed
	}
	req := store.ListRequest{State: store.StateReady, From: from, To: to, Limit: store.MaxBatch}
	for {
		page, err := t.client.store.List(ctx, t.history.name, req)
		if err != nil {
			return r, err
		}
		var out []store.Outgoing
		for i := range page.Messages {
			m := &page.Messages[i]
			if m.Raw != nil || !subscription.filter.matches(m.Headers) {
				r.Kept++
				continue
			}
			o := store.Outgoing{Message: m.Message, Due: store.Due{At: m.Due}, If: t.linked()}
			o.ExpireAfter, o.ExpireAt = 0, time.Time{}
			out = append(out, o)
		}
		for len(out) > 0 {
			n := partEnd(out, 0)
			results, err := t.client.store.Send(ctx, queue, out[:n])
			err = cmp.Or(err, store.SendError(results))
			if errors.Is(err, store.ErrConflict) {
				if linked, err := t.relink(ctx, queue); err != nil || !linked {
					return r, cmp.Or(err, notSubscribed)
				}
				continue
			}
			if err != nil {
				return r, err
			}
			for _, result := range results {
				if result.Duplicate {
					r.Kept++
				} else {
					r.Sent++
				}
			}
			out = out[n:]
		}
		if req.Cursor = page.Next; req.Cursor == "" {
			return r, nil
		}
	}
}

// trimHistory removes what exceeds the history's limits, a bounded number of messages at a time.
func (t *Topic) trimHistory(ctx context.Context, cfg TopicConfig) error {
	for range 100 {
		stats, err := t.client.store.Stats(ctx, t.history.name)
		if err != nil {
			return err
		}
		excess := int64(0)
		if cfg.HistoryCount > 0 {
			excess = max(0, stats.Ready-cfg.HistoryCount)
		}
		first := store.ListRequest{State: store.StateReady, IDsOnly: true, Limit: int(min(excess, store.MaxBatch))}
		if excess == 0 {
			if cfg.HistoryAge == 0 {
				return nil
			}
			first.Limit, first.To = store.MaxBatch, stats.Now.Add(-cfg.HistoryAge)
		}
		page, err := t.client.store.List(ctx, t.history.name, first)
		if err != nil || len(page.Messages) == 0 {
			return err
		}
		if _, err := t.client.store.Cancel(ctx, t.history.name, store.CancelRequest{IDs: pageIDs(page)}); err != nil {
			return err
		}
	}
	return nil
}
