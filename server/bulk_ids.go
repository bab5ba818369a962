package server

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"

	"github.com/laterq/later"
	"github.com/laterq/later/inspect"
	"github.com/laterq/later/store"
)

const (
	idsAtOnce   = 16 // messages that a bulk change of ids gets at the same time
	idsInChange = 10 // ids that the list of changes has of a bulk change
)

// BulkFilter selects the messages of a bulk change: all that match, or the messages with some ids that match.
type BulkFilter struct {
	Filter
	IDs []string `json:"ids,omitempty" minItems:"1" maxItems:"1000" doc:"Only the messages with these ids. They must match the rest of the filter, too: a message in another state, or that is gone, is skipped. An id that is given twice counts once. Default: all messages that match"`
}

// ids returns the ids in their order, each once. Errors name the field.
func (f *BulkFilter) ids() ([]string, error) {
	var all []string
	seen := make(map[string]bool, len(f.IDs))
	for i, id := range f.IDs {
		name := "ids[" + strconv.Itoa(i) + "]"
		if id == "" {
			return nil, field(name, store.Invalid("is empty: omit it"))
		}
		if err := store.CheckID(id); err != nil {
			return nil, field(name, store.Invalid("%v", err)) // without its field, which is id
		}
		if !seen[id] {
			seen[id] = true
			all = append(all, id)
		}
	}
	return all, nil
}

// attrs returns the log attributes of the ids: their number and the first ones.
func (f *BulkFilter) attrs() []slog.Attr {
	if len(f.IDs) == 0 {
		return nil
	}
	return []slog.Attr{slog.Int("id_count", len(f.IDs)), slog.Any("ids", f.IDs[:min(len(f.IDs), idsInChange)])}
}

// search returns the page of the messages that match from a cursor on.
func (b *bulkChange) search(ctx context.Context, o inspect.SearchOptions) (inspect.SearchPage, error) {
	if len(b.ids) == 0 {
		return inspect.Search(ctx, b.server.client, b.queue.Name(), b.filter, o)
	}
	from, _ := strconv.Atoi(o.Cursor) // one of ours, or none
	return b.get(ctx, from)
}

// get returns a page of the messages with the ids from an index on that match. It is small, because the messages are in
// memory with their payloads.
func (b *bulkChange) get(ctx context.Context, from int) (page inspect.SearchPage, err error) {
	some := b.ids[from:min(len(b.ids), from+idsAtOnce)]
	found := make([]*later.Info, len(some))
	errs := make([]error, len(some))
	var all sync.WaitGroup
	for i, id := range some {
		all.Go(func() { found[i], errs[i] = b.queue.Get(ctx, id) })
	}
	all.Wait()
	for i, info := range found {
		switch {
		case errors.Is(errs[i], store.ErrNotFound):
		case errs[i] != nil:
			return page, errs[i]
		case b.selects(info):
			page.Messages = append(page.Messages, info)
		}
	}
	page.Looked = len(some)
	if from += len(some); from < len(b.ids) {
		page.Next = strconv.Itoa(from)
	}
	return page, nil
}

// selects reports whether a message is in the state or group and in the range of the filter, and matches the rest.
func (b *bulkChange) selects(m *later.Info) bool {
	f, at := &b.filter, m.Due
	if m.State == later.StateDead {
		at = m.DiedAt
	}
	switch {
	case f.Group != "" && m.Group != f.Group, f.Group == "" && m.State != f.State,
		!f.From.IsZero() && at.Before(f.From), !f.To.IsZero() && !at.Before(f.To):
		return false
	}
	return f.Matches(m)
}
