package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// ErrIncomplete is returned by Import for an export without an end, or with another number of messages than its end
// states.
var ErrIncomplete = errors.New("the export is incomplete")

// ImportConfig configures Import. The zero value imports everything.
type ImportConfig struct {
	// FromLine is the first line of the input to import; earlier lines are only counted. Default: 1.
	FromLine int64
	// Progress is called after each batch of messages. It holds up the import.
	Progress func(ImportResult)
}

// ImportResult is the result of an Import.
type ImportResult struct {
	// Queues are the queues of the messages and limits, in order of their first lines.
	Queues []QueueImport
	// Imported is the number of messages that were added; Duplicates the number of messages that were left out, because
	// their ids are live or within their dedup window.
	Imported, Duplicates int64
	// Renamed is the number of messages among both with another id, group or queue than in the export.
	Renamed int64
	// NextLine is the first line that was not imported: ImportConfig.FromLine to go on there.
	NextLine int64
}

// QueueImport is the result for one queue.
type QueueImport struct {
	Queue                         string
	Imported, Duplicates, Renamed int64
	// Limits says whether the queue has the limits of the export.
	Limits Limits
}

// Import adds the messages of an export to a store, batch by batch, in bounded memory. A message with an id that is
// live or within its dedup window there changes nothing and is counted as a duplicate, so an import that failed or was
// stopped can be made again with the same input, or go on from ImportResult.NextLine. But messages that the store's
// workers have finished in between come again: start them when the import is done. Due times are kept. A queue without
// limits gets the ones of the export, before its messages; keys of such a queue, and of one with the same limits, get
// their own limits unless they have some. Ids, groups and queues that are named . or .. become %2E and
// %2E%2E, since nothing new may have these names; see store.CheckNew.
//
// Input that is empty or does not begin with the header of an export is ErrInvalid before anything is written. A line
// that cannot be imported is ErrInvalid or ErrTooLarge and names the line and the field; the lines before it are
// imported then, as with any other error. An export that is incomplete is imported as far as it goes, and
// ErrIncomplete.
func Import(ctx context.Context, client *later.Client, r io.Reader, cfg ImportConfig) (ImportResult, error) {
	i := &importer{store: client.Store(), lines: newLineReader(r), cfg: cfg, queues: map[string]int{},
		flows: map[string]store.Flow{}}
	i.result.NextLine = 1
	if cfg.FromLine < 0 {
		return i.result, store.Invalid("line to import from is %d: must be 1 or more", cfg.FromLine)
	}
	i.result.NextLine = max(1, cfg.FromLine)
	if _, err := i.lines.readHeader(); err != nil {
		return i.result, ended(ctx, err)
	}
	i.began = 1
	err := i.all(ctx)
	if err == nil {
		err = i.complete()
	}
	return i.result, err
}

// importer is one Import.
type importer struct {
	store  store.Store
	lines  *lineReader
	cfg    ImportConfig
	result ImportResult
	queues map[string]int // index in result.Queues
	flows  map[string]store.Flow

	// The messages of one queue that are gathered for one call.
	queue string
	batch []store.Info
	size  int
	named int64 // how many of them have another name than in the export
	first int64 // line of the first of them

	began      int64 // line of the header of the export that is being read; 0 after its end
	messages   int64 // of that export
	incomplete error // the first that is
}

// all imports the lines after the first header.
func (i *importer) all(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			i.unflushed()
			return context.Cause(ctx)
		}
		line, err := i.lines.next()
		if errors.Is(err, io.EOF) {
			return i.flush(ctx, i.lines.number+1)
		}
		if err == nil {
			err = i.take(ctx, line)
		} else if !errors.Is(err, store.ErrTooLarge) {
			err = &readError{fmt.Errorf("reading the export after line %d: %w", i.lines.number, err)}
		}
		if err != nil {
			return i.stop(ctx, err)
		}
	}
}

// readError is an error of reading the input.
type readError struct{ error }

func (e *readError) Unwrap() error { return e.error }

// stop imports the messages before a line that cannot be imported, and returns why.
func (i *importer) stop(ctx context.Context, err error) error {
	if _, failed := errors.AsType[*restoreError](err); failed {
		return err
	}
	next := i.lines.number
	_, unread := errors.AsType[*readError](err)
	if unread {
		next++
	}
	if flushed := i.flush(ctx, next); flushed != nil {
		return flushed
	}
	switch {
	case unread:
		return ended(ctx, err)
	case !i.lines.whole && !errors.Is(err, store.ErrUnsupported):
		i.lack("line %d, the last one, is not whole", i.lines.number)
		return nil
	}
	return atLine(i.lines.number, err)
}

// take takes in a line.
func (i *importer) take(ctx context.Context, line []byte) error {
	kind := kindOf(line)
	switch {
	case kind == limitsLine:
		return i.limit(ctx, line)
	case kind != messageLine:
		return i.frame(kind, line)
	case i.lines.number < i.cfg.FromLine:
		i.messages++
		return nil
	}
	return i.add(ctx, line)
}

// frame takes in a line that is not a message.
func (i *importer) frame(kind lineKind, line []byte) error {
	switch kind {
	case headerLine:
		if _, err := parseHeader(line); err != nil {
			return err
		}
		if i.began > 0 {
			i.lack("the export that begins at line %d has no end before the next begins at line %d", i.began,
				i.lines.number)
		}
		i.began, i.messages = i.lines.number, 0
	case endLine:
		e, err := parseEnd(line)
		if err != nil {
			return err
		}
		if i.began == 0 {
			return store.Invalid("end of an export without its header: give the output of later export")
		}
		if e.Messages != i.messages {
			i.lack("line %d says that the export has %d messages, and there are %d", i.lines.number,
				e.Messages, i.messages)
		}
		i.began = 0
	}
	return nil
}

// lack notes that an export is incomplete.
func (i *importer) lack(format string, args ...any) {
	if i.incomplete == nil {
		i.incomplete = fmt.Errorf("%w: "+format, append([]any{ErrIncomplete}, args...)...)
	}
}

// complete returns an error unless all exports were.
func (i *importer) complete() error {
	switch {
	case i.lines.number < i.cfg.FromLine-1:
		return store.Invalid("line to import from is %d, and the input has %d lines: give a line that it has",
			i.cfg.FromLine, i.lines.number)
	case i.incomplete == nil && i.began > 0:
		i.lack("it ends after line %d without an end", i.lines.number)
	}
	return i.incomplete
}

// add takes in a message, and restores the messages before it when they fill a call.
func (i *importer) add(ctx context.Context, line []byte) error {
	if i.began == 0 {
		return store.Invalid("a message follows the end of the export: give each export with its header")
	}
	queue, info, err := wire.DecodeMessage(line)
	if err = cmp.Or(err, checkQueue(queue)); err != nil {
		return err
	}
	renamed := rename(&queue, &info)
	size := info.Size()
	if len(i.batch) > 0 && queue != i.queue || !fits(len(i.batch), i.size, size) {
		if err := i.flush(ctx, i.lines.number); err != nil {
			return err
		}
	}
	if len(i.batch) == 0 {
		i.queue, i.first = queue, i.lines.number
	}
	i.batch = append(i.batch, info)
	i.size += size
	i.messages++
	if renamed {
		i.named++
	}
	return nil
}

// rename gives a message names that are allowed for new ones, and reports whether it had others.
func rename(queue *string, info *store.Info) bool {
	toQueue, id, group := store.NewQueueName(*queue), store.NewName(info.ID), store.NewName(info.Group)
	same := toQueue == *queue && id == info.ID && group == info.Group
	*queue, info.ID, info.Group = toQueue, id, group
	return !same
}

// restoreError is an error of the store.
type restoreError struct{ error }

func (e *restoreError) Unwrap() error { return e.error }

// flush restores the messages that were gathered. The line next comes after them.
func (i *importer) flush(ctx context.Context, next int64) error {
	if len(i.batch) > 0 {
		results, err := i.store.Restore(ctx, i.queue, i.batch)
		if err != nil {
			i.unflushed()
			return &restoreError{
				ended(ctx, fmt.Errorf("importing from line %d on, into queue %q: %w", i.first, i.queue, err))}
		}
		i.count(results)
		clear(i.batch)
		i.batch, i.size, i.named = i.batch[:0], 0, 0
	}
	i.result.NextLine = max(i.result.NextLine, next)
	if i.cfg.Progress != nil {
		i.cfg.Progress(i.result)
	}
	return nil
}

// unflushed notes that the messages that were gathered may not have been imported.
func (i *importer) unflushed() {
	if len(i.batch) > 0 {
		i.result.NextLine = i.first
	}
}

func (i *importer) count(results []store.SendResult) {
	q := i.resultOf(i.queue)
	i.result.Renamed += i.named
	q.Renamed += i.named
	for _, r := range results {
		if r.Duplicate {
			i.result.Duplicates++
			q.Duplicates++
		} else {
			i.result.Imported++
			q.Imported++
		}
	}
}

// resultOf returns the result for a queue, until that for another queue is added.
func (i *importer) resultOf(queue string) *QueueImport {
	at, ok := i.queues[queue]
	if !ok {
		at = len(i.result.Queues)
		i.queues[queue] = at
		i.result.Queues = append(i.result.Queues, QueueImport{Queue: queue})
	}
	return &i.result.Queues[at]
}

// ended returns the cause of ctx when that has ended, and otherwise err.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
