package topic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/store"
)

// Start is a place in a topic's history: a due time, or that of the message with an id. The zero value is none.
type Start struct {
	At time.Time
	ID string
}

// Set reports whether there is a place.
func (s Start) Set() bool { return s.ID != "" || !s.At.IsZero() }

// resolve returns the due time of a place in the history.
func (t *Topic) resolve(ctx context.Context, cfg Config, h Start) (time.Time, error) {
	switch {
	case !cfg.Retains():
		return h.At, fmt.Errorf("topic %q retains no history: set its age or number first: %w", t.Name, store.ErrNotFound)
	case h.ID == "":
		return h.At, nil
	}
	infos, err := t.Store.Get(ctx, t.History, []string{h.ID})
	if err != nil {
		return h.At, err
	}
	if infos[0] == nil {
		return h.At, fmt.Errorf("message %q is not in the history of topic %q, or not any more: start at a time: %w", h.ID,
			t.Name, store.ErrNotFound)
	}
	return infos[0].Due, nil
}

// Rewind sends a subscribed queue what the history has from a place on, up to now.
func (t *Topic) Rewind(ctx context.Context, queue string, from Start) (r Rewound, err error) {
	state, err := t.Load(ctx)
	if err != nil {
		return r, err
	}
	at, err := t.resolve(ctx, state.Config, from)
	if err != nil {
		return r, err
	}
	stats, err := t.Store.Stats(ctx, t.History)
	if err != nil {
		return r, err
	}
	return t.resend(ctx, queue, at, stats.Now)
}

// Rewound is the result of a Rewind.
type Rewound struct {
	Sent int // messages that the queue receives again
	Kept int // messages that it has or remembers, and that do not match its filter
}

// resend sends history to a subscribed queue.
func (t *Topic) resend(ctx context.Context, queue string, from, to time.Time) (r Rewound, err error) {
	state, err := t.Load(ctx)
	if err != nil {
		return r, err
	}
	notSubscribed := fmt.Errorf("queue %q is not subscribed to topic %q: %w", queue, t.Name, store.ErrNotFound)
	subscription := state.Subscribed(queue)
	if subscription == nil {
		return r, notSubscribed
	}
	req := store.ListRequest{State: store.StateReady, From: from, To: to, Limit: store.MaxBatch}
	for {
		page, err := t.Store.List(ctx, t.History, req)
		if err != nil {
			return r, err
		}
		var out []store.Outgoing
		for i := range page.Messages {
			m := &page.Messages[i]
			if m.Raw != nil || !subscription.Filter.Matches(m.Headers) {
				r.Kept++
				continue
			}
			o := store.Outgoing{Message: m.Message, Due: store.Due{At: m.Due}, If: t.linked(), Relayed: true}
			o.ExpireAfter, o.ExpireAt = 0, time.Time{}
			out = append(out, o)
		}
		for len(out) > 0 {
			n := calls.PartEnd(out, 0)
			results, err := t.Store.Send(ctx, queue, out[:n])
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

// Trim removes messages beyond the history's limits, a bounded number of messages at a time.
func (t *Topic) Trim(ctx context.Context, cfg Config) error {
	for range 100 {
		stats, err := t.Store.Stats(ctx, t.History)
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
		page, err := t.Store.List(ctx, t.History, first)
		if err != nil || len(page.Messages) == 0 {
			return err
		}
		ids := make([]string, len(page.Messages))
		for i := range page.Messages {
			ids[i] = page.Messages[i].ID
		}
		if _, err := t.Store.Cancel(ctx, t.History, store.CancelRequest{IDs: ids}); err != nil {
			return err
		}
	}
	return nil
}
