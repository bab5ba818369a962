package inspect

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

const (
	// maxHeads is the number of lists that a Find reads at the same time.
	maxHeads = 4
	// maxFindCursor is the maximum length of a cursor, with lists of maxHeads queues and another one.
	maxFindCursor = 8 << 10
)

// findStates are the states in the order in which a Find looks at them. Messages that need a look most often, and that
// are fewer, come first.
var findStates = []store.State{store.StateLeased, store.StateReady, store.StateDead, store.StateScheduled}

// head is a list that a Find reads, from a cursor on: the messages of a queue in a state, or in the group of the
// filter.
type head struct {
	Queue  string      `json:"q"`
	State  store.State `json:"s,omitempty"`
	Older  bool        `json:"b,omitempty"` // of a DeadErrors: messages that died before the hours that it counts
	Cursor string      `json:"c,omitempty"`

	page store.Page
	done bool // it was read to its end
}

// before reports whether the list of a head is looked at before that of another one.
func (h *head) before(o *head) bool {
	return cmp.Or(cmp.Compare(slices.Index(findStates, h.State), slices.Index(findStates, o.State)),
		cmp.Compare(h.Queue, o.Queue)) < 0
}

// findCursor is where a Find goes on.
type findCursor struct {
	Open []*head `json:"o,omitempty"` // lists that were read in part
	Last *head   `json:"l,omitempty"` // the last list that was begun
	Hour int64   `json:"h,omitempty"` // of a DeadErrors: when the hours begin that it counts, in ms since 1970
}

func (c *findCursor) text() string {
	text, _ := json.Marshal(c) // texts can always be encoded
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseFindCursor(text string) (c findCursor, err error) {
	if text == "" {
		return c, nil
	}
	decoded, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil && len(text) <= maxFindCursor {
		d := json.NewDecoder(bytes.NewReader(decoded))
		d.DisallowUnknownFields()
		err = d.Decode(&c)
	}
	if err != nil || len(text) > maxFindCursor || c.Last == nil || len(c.Open) > maxHeads ||
		slices.Contains(c.Open, nil) {
		return findCursor{}, invalidCursor(text)
	}
	return c, nil
}

func invalidCursor(text string) error {
	return store.Field("cursor", store.Invalid("cursor %.40q is invalid: give the one that the request before ended "+
		"with, or none", text))
}

// byContent looks at messages until it has found or looked at enough.
func (f *find) byContent(ctx context.Context) error {
	waiting, err := f.sources(ctx)
	if err != nil {
		return err
	}
	if err := f.report(ByContent); err != nil {
		return err
	}
	open := slices.DeleteFunc(f.from.Open, func(h *head) bool { return !slices.Contains(f.queues, h.Queue) })
	last, enough := f.from.Last, false
	if last != nil {
		waiting = slices.DeleteFunc(waiting, func(h *head) bool { return !last.before(h) })
	}
	for !enough {
		if n := min(maxHeads-len(open), len(waiting)); n > 0 {
			open = append(open, waiting[:n]...)
			waiting, last = waiting[n:], &head{Queue: waiting[n-1].Queue, State: waiting[n-1].State}
		}
		if len(open) == 0 {
			break
		}
		if enough, err = f.round(ctx, open); err != nil {
			return err
		}
		open = slices.DeleteFunc(open, func(h *head) bool { return h.done })
		if !enough {
			if err := f.report(ByContent); err != nil {
				return err
			}
		}
	}
	if f.progress.Done = len(open) == 0 && len(waiting) == 0; !f.progress.Done {
		f.progress.Next = (&findCursor{Open: open, Last: last}).text()
	}
	return f.report(ByContent)
}

// sources returns the lists to look at, and counts the messages.
func (f *find) sources(ctx context.Context) (all []*head, err error) {
	counts := make([]Counts, len(f.queues))
	err = f.each(ctx, func(ctx context.Context, i int) error {
		s, err := f.store.Stats(ctx, f.queues[i])
		counts[i] = countsOf(s)
		return err
	})
	for i := range counts {
		f.progress.Messages.add(counts[i])
	}
	if f.filter.Group != "" {
		for _, queue := range f.queues {
			all = append(all, &head{Queue: queue})
		}
		return all, err
	}
	for _, state := range findStates {
		for i, queue := range f.queues {
			if *counts[i].of(state) > 0 {
				all = append(all, &head{Queue: queue, State: state})
			}
		}
	}
	return all, err
}

// round reads a page of each list and passes on the messages that match. It reports whether that is enough.
func (f *find) round(ctx context.Context, open []*head) (enough bool, err error) {
	left := f.Look - int(f.progress.Looked.Total())
	reading := open[:min(len(open), left)]
	part := min(store.MaxBatch, left/len(reading))
	if err := f.readHeads(ctx, reading, func(h *head) (store.Page, error) {
		return f.list(ctx, h, part, false)
	}); err != nil {
		return false, err
	}
	for _, h := range reading {
		if enough {
			break // the next call reads the other pages again
		}
		n, err := f.look(h)
		if err != nil {
			return false, err
		}
		enough = int(f.progress.Matched.Total()) >= f.Limit
		next, known := h.page.Next, true
		if n < len(h.page.Messages) {
			if next, known, err = f.after(ctx, h, n); err != nil {
				return false, err
			}
		}
		if h.page = (store.Page{}); known {
			h.Cursor, h.done = next, next == ""
		}
	}
	return enough || int(f.progress.Looked.Total()) >= f.Look, nil
}

// after returns the cursor after the first n messages of a page. It is not known if the last one of them has left the
// list meanwhile. Others may have left it, so that the cursor after n messages would be too far.
func (f *find) after(ctx context.Context, h *head, n int) (next string, known bool, err error) {
	last := h.page.Messages[n-1].ID
	for {
		page, err := f.list(ctx, h, n, true)
		if err != nil {
			return "", false, err
		}
		at := slices.IndexFunc(page.Messages, func(m store.Info) bool { return m.ID == last })
		if at < 0 || at == len(page.Messages)-1 {
			return page.Next, at >= 0, nil
		}
		n = at + 1
	}
}

func (f *find) list(ctx context.Context, h *head, limit int, idsOnly bool) (store.Page, error) {
	filter := f.filter
	filter.State = h.State
	req := filter.request(h.Cursor, limit)
	req.IDsOnly = idsOnly
	return f.store.List(ctx, h.Queue, req)
}

// look passes on the messages of a page that match, and returns how many messages it looked at.
func (f *find) look(h *head) (n int, err error) {
	p := &f.progress
	for i := range h.page.Messages {
		m := &h.page.Messages[i]
		*p.Looked.of(m.State)++
		n++
		if !f.filter.matches(m) {
			continue
		}
		*p.Matched.of(m.State)++
		if slices.Contains(f.ids, m.ID) { // found by its id
			continue
		}
		if err := f.send(&Found{Stage: ByContent, Message: later.InfoOf(h.Queue, *m)}); err != nil {
			return n, err
		}
		if int(p.Matched.Total()) >= f.Limit {
			break
		}
	}
	return n, nil
}
