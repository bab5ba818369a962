package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/laterq/later/internal/jsonfields"
	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// Limits says what a Copy or an Import did with the limits of a queue.
type Limits string

// What a Copy or an Import did with the limits of a queue.
const (
	LimitsNone Limits = ""     // there were none
	LimitsSet  Limits = "set"  // the queue has them
	LimitsKept Limits = "kept" // the queue has others, which were not changed
)

// setLimits gives a queue limits unless it has others. If it has the same, it got them from an earlier Copy or Import,
// which may have ended before the limits of single keys were set.
func setLimits(ctx context.Context, to store.Store, queue string, f store.Flow) (Limits, error) {
	stats, err := to.Stats(ctx, queue)
	switch has := stats.Flow.Flow; {
	case err != nil:
		return LimitsNone, err
	case has.Normal() == f.Normal():
		return LimitsSet, nil
	case has.Limited():
		return LimitsKept, nil
	}
	err = to.SetFlow(ctx, queue, f, &store.Flow{})
	if errors.Is(err, store.ErrConflict) { // it has got some at this moment
		return LimitsKept, nil
	}
	return LimitsSet, err
}

// setKeyLimits gives a key limits of its own unless it has some.
func setKeyLimits(ctx context.Context, to store.Store, queue, key string, o store.KeyOverride) error {
	has, err := to.Keys(ctx, queue, store.KeysRequest{Key: key, Limit: 1})
	if err != nil || len(has) > 0 && has[0].Override != nil {
		return err
	}
	return to.SetKeyFlow(ctx, queue, key, o)
}

// eachOverride calls do for each key of a queue with limits of its own.
func eachOverride(
	ctx context.Context, from store.Store, queue string, do func(key string, o store.KeyOverride) error,
) error {
	req := store.KeysRequest{Overridden: true, Limit: store.MaxKeysPage}
	for {
		keys, err := from.Keys(ctx, queue, req)
		if err != nil || len(keys) == 0 {
			return err
		}
		for i := range keys {
			if err := do(keys[i].Key, *keys[i].Override); err != nil {
				return err
			}
		}
		req.After = keys[len(keys)-1].Key
	}
}

// copyLimits gives the queue of the target the limits of the source.
func (q *queueCopy) copyLimits(ctx context.Context, f store.Flow) (err error) {
	if !f.Limited() {
		return nil
	}
	if q.Limits, err = setLimits(ctx, q.to.store, q.Queue, f); err != nil {
		return q.to.wrap(err)
	}
	if q.Limits != LimitsSet || !f.Normal().Fair {
		return nil
	}
	var failed error
	err = eachOverride(ctx, q.from.store, q.Queue, func(key string, o store.KeyOverride) error {
		failed = q.to.wrap(setKeyLimits(ctx, q.to.store, q.Queue, key, o))
		return failed
	})
	if failed != nil {
		return failed
	}
	return q.from.wrap(err)
}

// limitsLine is the line of an export with the limits of a queue, or of one of its keys.
type limitsLine struct {
	Queue    string            `json:"later_limits"`
	Flow     *wire.Flow        `json:"flow,omitempty"`
	Key      string            `json:"key,omitempty"`
	Override *wire.KeyOverride `json:"override,omitempty"`
}

// maxLimitsLine is the number of bytes that such a line may have.
const maxLimitsLine = 4096

// limits writes the limits of a queue.
func (e *exporter) limits(ctx context.Context, queue string, f store.Flow) error {
	if !f.Limited() {
		return nil
	}
	flow := wire.NewFlow(f)
	write := func(l limitsLine) error {
		e.line = append(jsontext.Append(e.line[:0], l), '\n')
		if _, err := e.w.Write(e.line); err != nil {
			return writing(err)
		}
		return nil
	}
	if err := write(limitsLine{Queue: queue, Flow: &flow}); err != nil || !f.Normal().Fair {
		return err
	}
	return eachOverride(ctx, e.store, queue, func(key string, o store.KeyOverride) error {
		return write(limitsLine{Queue: queue, Key: key, Override: wire.NewKeyOverride(&o)})
	})
}

// parseLimits returns the limits in a line, which are allowed for its queue.
func parseLimits(line []byte) (l limitsLine, err error) {
	if len(line) > maxLimitsLine {
		return l, store.TooLarge("line with limits is %d bytes: the limit is %d", len(line), maxLimitsLine)
	}
	if err := jsonfields.Decode(line, &l); err != nil {
		return l, err
	}
	l.Queue = store.NewQueueName(l.Queue)
	if err := store.CheckNewQueue(l.Queue); err != nil {
		return l, store.Field("later_limits", err)
	}
	switch {
	case (l.Flow == nil) == (l.Override == nil):
		return l, store.Invalid(`line with limits has not one of the fields "flow" and "override": give one`)
	case l.Flow != nil && l.Key != "":
		return l, store.Field("key", store.Invalid(`field "key" is given beside "flow": leave it out`))
	case l.Flow != nil:
		return l, store.CheckFlow(l.Queue, l.Flow.Flow())
	}
	return l, store.CheckKeyFlow(l.Queue, l.Key, l.Override.KeyOverride())
}

// limit takes in a line with limits.
func (i *importer) limit(ctx context.Context, line []byte) error {
	l, err := parseLimits(line)
	if err != nil || i.lines.number < i.cfg.FromLine {
		return err
	}
	if err := i.flush(ctx, i.lines.number); err != nil {
		return err
	}
	if err := i.setLimits(ctx, &l); err != nil {
		return &restoreError{ended(ctx, fmt.Errorf("line %d, limits of queue %q: %w", i.lines.number, l.Queue, err))}
	}
	return nil
}

// setLimits sets the limits of a line. Those of a key are not set if the queue kept its own.
func (i *importer) setLimits(ctx context.Context, l *limitsLine) (err error) {
	q := i.resultOf(l.Queue)
	if l.Flow != nil {
		q.Limits, err = setLimits(ctx, i.store, l.Queue, l.Flow.Flow())
		return err
	}
	if q.Limits == LimitsNone { // those of the queue are before FromLine
		stats, err := i.store.Stats(ctx, l.Queue)
		if err != nil {
			return err
		}
		if q.Limits = LimitsSet; !stats.Flow.Fair {
			q.Limits = LimitsKept
		}
	}
	if q.Limits == LimitsKept {
		return nil
	}
	return setKeyLimits(ctx, i.store, l.Queue, l.Key, l.Override.KeyOverride())
}
