package migrate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/laterq/later"
	"github.com/laterq/later/inspect"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// ExportConfig configures Export. The zero value exports all queues.
type ExportConfig struct {
	// Queues are the queues to export. Default: all that the store has, or the queues of the export that is resumed.
	Queues []string
	// Filter selects the messages to export. Its State or Group is required. Such an export cannot be resumed. Default:
	// all messages.
	Filter *inspect.Filter
	// Resume continues an export that ended early: ReadPosition returns it. The writer appends to that export, after
	// its first Position.Size bytes. Default: a new export.
	Resume *Position
	// Progress is called after each page of messages and at the end of each queue. It holds up the export.
	Progress func(QueueExport)
}

// ExportResult is the result of an Export.
type ExportResult struct {
	// Queues are the queues that were begun, in order.
	Queues []QueueExport
	// Messages is the number of messages that the export has, including messages from before it was resumed.
	Messages int64
	// Complete reports whether the export has its end.
	Complete bool
}

// QueueExport is how far the export of a queue came.
type QueueExport struct {
	Queue string
	// Total is the number of messages that the queue had when its turn came.
	Total int64
	// Exported is the number of messages that were written. Leased ones are among them.
	Exported, Leased int64
	// Refused messages were left out, because they are over a limit or are damaged. The error names some of them.
	Refused int64
	// Paused reports whether the queue was paused. A pause is not exported.
	Paused bool
}

// Export writes the messages of a store to w: their ids, payloads, headers and limits, due times, failed attempts, last
// errors, and of dead ones reason and time of death; of unreadable ones the bytes. Leased messages are written as such,
// and imported as if they had been released. The limits of queues and keys are exported too, unless there is a Filter.
// The dedup windows of acked messages, and the pauses, retentions and properties of queues, are not. The store is only
// read, page by page, and memory is bounded.
//
// An export made while workers are busy is not a snapshot: a message that changes its state is written once or twice
// (an import ignores the second), or not at all. Pause the queues and let the workers finish to have all of it.
//
// Export returns the cause of ctx, or an error of the store or of w, at once, and the written part ends with a complete
// line: it can be resumed. A queue that is named and does not exist is ErrNotFound, before anything is written. A
// damaged queue, ErrCorrupt, does not keep the others from being exported, nor do messages that no store would accept,
// which are ErrInvalid or ErrTooLarge.
func Export(ctx context.Context, client *later.Client, w io.Writer, cfg ExportConfig) (ExportResult, error) {
	e := &exporter{client: client, store: client.Store(), cfg: cfg, at: cfg.Resume}
	if e.at == nil {
		e.at = &Position{}
	}
	if err := cfg.checkFilter(e.at.Size > 0); err != nil {
		return e.result, err
	}
	e.result.Messages = e.at.Messages
	if e.at.Complete {
		e.result.Complete = true
		return e.result, nil
	}
	names, err := e.names(ctx)
	if err != nil {
		return e.result, err
	}
	e.w = bufio.NewWriterSize(w, 64<<10)
	err = e.all(ctx, names)
	if flushed := e.w.Flush(); err == nil && flushed != nil {
		e.result.Complete = false
		err = writing(flushed)
	}
	if err == nil {
		err = errors.Join(append(e.damaged, e.refused.errors()...)...)
	}
	return e.result, err
}

// checkFilter returns an error unless the filter is allowed for an export, which may be one that is resumed.
func (c *ExportConfig) checkFilter(resumed bool) error {
	switch {
	case c.Filter == nil:
		return nil
	case resumed:
		return store.Invalid("an export with a filter cannot be resumed: begin a new one")
	}
	return c.Filter.Check()
}

// exporter is one Export.
type exporter struct {
	client  *later.Client
	store   store.Store
	cfg     ExportConfig
	at      *Position
	w       *bufio.Writer
	line    []byte
	result  ExportResult
	damaged []error // of damaged queues
	refused refusals
}

// names returns the queues to export.
func (e *exporter) names(ctx context.Context) ([]string, error) {
	asked := e.cfg.Queues
	if e.at.Size > 0 {
		if len(asked) > 0 && !slices.Equal(asked, e.at.queues) {
			what := "all queues"
			if len(e.at.queues) > 0 {
				what = fmt.Sprintf("the queues %q", e.at.queues)
			}
			return nil, store.Invalid("the export to resume is one of %s: name the same, or none", what)
		}
		asked = e.at.queues
	}
	e.at.queues = asked
	return queuesOf(ctx, e.client, asked, e.at.Size > 0)
}

// all writes the whole export.
func (e *exporter) all(ctx context.Context, names []string) error {
	if e.at.Size == 0 {
		if _, err := e.w.Write(newHeader(e.at.queues)); err != nil {
			return writing(err)
		}
	}
	for _, name := range names {
		if e.at.done[name] {
			continue
		}
		err := e.queue(ctx, name)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, store.ErrCorrupt):
			e.damaged = append(e.damaged, fmt.Errorf("queue %q: %w", name, err))
		default:
			return errors.Join(append([]error{fmt.Errorf("queue %q: %w", name, err)}, e.damaged...)...)
		}
	}
	if _, err := e.w.Write(newEnd(e.result.Messages)); err != nil {
		return writing(err)
	}
	e.result.Complete = true
	return nil
}

// queue writes the messages of a queue, from where an export that is resumed ended.
func (e *exporter) queue(ctx context.Context, name string) error {
	stats, err := e.store.Stats(ctx, name)
	if err != nil || !stats.Exists {
		return err
	}
	q := &queueExport{exporter: e, QueueExport: QueueExport{
		Queue: name, Total: total(stats), Paused: stats.Paused,
	}, place: newPlace(name)}
	order, from := stateOrder, int64(0)
	if e.cfg.Filter != nil {
		order, err = nil, q.listMatching(ctx, e.cfg.Filter)
	} else if err := e.limits(ctx, name, stats.Flow.Flow); err != nil {
		return err
	}
	if last := e.at.last; last != nil && last.queue == name {
		q.place = last
		order, from = last.rest()
	}
	for _, state := range order {
		if err = q.list(ctx, state, from); err != nil {
			break
		}
		from = 0
	}
	e.result.Queues = append(e.result.Queues, q.QueueExport)
	if e.cfg.Progress != nil {
		e.cfg.Progress(q.QueueExport)
	}
	return err
}

// rest returns the states that are left to be listed, and the time where the first of them starts.
func (p *place) rest() (order []store.State, from int64) {
	i := slices.Index(stateOrder, p.state)
	if p.state == store.StateLeased {
		if p.again {
			i = 3
		}
		return stateOrder[i:], 0 // not listed by time
	}
	return stateOrder[i:], p.at
}

// queueExport writes one queue.
type queueExport struct {
	*exporter
	QueueExport
	place *place
}

// listMatching writes the messages that match a filter.
func (q *queueExport) listMatching(ctx context.Context, f *inspect.Filter) error {
	req := store.ListRequest{State: f.State, Group: f.Group, From: f.From, To: f.To}
	return q.pages(ctx, req, func(info *store.Info) bool {
		return f.Matches(later.InfoOf(q.Queue, *info))
	})
}

// list writes the messages of a state that were not written before.
func (q *queueExport) list(ctx context.Context, state store.State, from int64) error {
	req := store.ListRequest{State: state, From: store.Time(from)}
	return q.pages(ctx, req, func(*store.Info) bool { return true })
}

// pages writes the messages of a listing that matches reports true for.
func (q *queueExport) pages(ctx context.Context, req store.ListRequest, matches func(*store.Info) bool) error {
	return eachPage(ctx, q.store, q.Queue, req, func(infos []store.Info) error {
		for i := range infos {
			if !matches(&infos[i]) {
				continue
			}
			if err := q.write(&infos[i]); err != nil {
				return err
			}
		}
		if q.cfg.Progress != nil {
			q.cfg.Progress(q.QueueExport)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	})
}

// write writes a message, unless it was written before or no store would accept it.
func (q *queueExport) write(info *store.Info) error {
	if q.place.has(info.ID) {
		return nil
	}
	if err := info.Check(); err != nil {
		if q.Refused++; q.Refused <= maxSeen {
			q.place.seen[info.ID] = struct{}{} // met again, it is not counted again
		}
		q.refused.add(q.Queue, info.ID, err)
		return nil
	}
	q.line = append(wire.AppendMessage(q.line[:0], q.Queue, info), '\n')
	if _, err := q.w.Write(q.line); err != nil {
		return writing(err)
	}
	q.place.note(info)
	q.Exported++
	if info.State == store.StateLeased {
		q.Leased++
	}
	q.result.Messages++
	return nil
}

func writing(err error) error { return fmt.Errorf("writing the export: %w", err) }
