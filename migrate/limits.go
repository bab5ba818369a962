package migrate

import (
	"cmp"
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
	LimitsNone Limits = ""     // there were none, or it ended before it set them
	LimitsSet  Limits = "set"  // the queue got them
	LimitsSame Limits = "same" // the queue had them already; keys may have got their own limits
	LimitsKept Limits = "kept" // the queue has others; they and the limits of its keys were not changed
)

// setLimits gives a queue limits, if it has the former ones, which may be none. A queue that has the limits already got
// them from an earlier Copy or Import, which may have ended before the limits of single keys were set.
func setLimits(ctx context.Context, to store.Store, queue string, f, former store.Flow) (Limits, error) {
	for {
		stats, err := to.Stats(ctx, queue)
		switch has := stats.Flow.Flow; {
		case err != nil:
			return LimitsNone, err
		case has.Normal() == f.Normal():
			return LimitsSame, nil
		case has.Normal() != former.Normal():
			return LimitsKept, nil
		}
		err = to.SetFlow(ctx, queue, f, &stats.Flow.Flow)
		if err == nil {
			return LimitsSet, nil
		}
		if !errors.Is(err, store.ErrConflict) { // else it has got others at this moment
			return LimitsNone, err
		}
	}
}

// setKeyLimits gives a key limits of its own unless it has some. Limits that it gets at this moment are lost.
func setKeyLimits(ctx context.Context, to store.Store, queue, key string, o store.KeyOverride) error {
	has, err := to.Keys(ctx, queue, store.KeysRequest{Key: key, Limit: 1})
	if err != nil || len(has) > 0 && has[0].Override != nil {
		return err
	}
	return to.SetKeyFlow(ctx, queue, key, o)
}

// readLimitsError is an error of reading the limits of keys.
type readLimitsError struct{ error }

func (e *readLimitsError) Unwrap() error { return e.error }

// eachOverride calls do for each key of a queue with limits of its own. It returns a readLimitsError or the error of
// do.
func eachOverride(
	ctx context.Context, from side, queue string, do func(key string, o store.KeyOverride) error,
) error {
	req := store.KeysRequest{Overridden: true, Limit: store.MaxKeysPage}
	for {
		keys, err := from.store.Keys(ctx, queue, req)
		if err != nil {
			return &readLimitsError{fmt.Errorf("limits of keys: %w", from.wrap(err))}
		}
		if len(keys) == 0 {
			return nil
		}
		for i := range keys {
			if err := do(keys[i].Key, *keys[i].Override); err != nil {
				return err
			}
		}
		req.After = keys[len(keys)-1].Key
	}
}

// copyLimits gives the queue of the target the limits of the source. ErrCorrupt means that the limits of keys in the
// source cannot be read: the messages can be copied nevertheless.
func (q *queueCopy) copyLimits(ctx context.Context, f store.Flow) error {
	if !f.Limited() {
		return nil
	}
	done, err := setLimits(ctx, q.to.store, q.Queue, f, store.Flow{})
	if err == nil && done != LimitsKept && f.Normal().Fair {
		err = eachOverride(ctx, q.from, q.Queue, func(key string, o store.KeyOverride) error {
			return setKeyLimits(ctx, q.to.store, q.Queue, key, o)
		})
	}
	if _, named := errors.AsType[*readLimitsError](err); err != nil && !named {
		return q.to.wrap(err)
	}
	q.Limits = done
	return err
}

// queueLimits is the line of an export with the limits of a queue, or of one of its keys.
type queueLimits struct {
	Queue    string            `json:"later_limits"`
	Flow     *wire.Flow        `json:"flow,omitempty"`
	Key      string            `json:"key,omitempty"`
	Override *wire.KeyOverride `json:"override,omitempty"`
}

// maxLimitsLine is the number of bytes that such a line may have.
const maxLimitsLine = 4096

// limits writes the limits of a queue. It notes limits of keys that are damaged.
func (e *exporter) limits(ctx context.Context, queue string, f store.Flow) error {
	if !f.Limited() {
		return nil
	}
	flow := wire.NewFlow(f)
	write := func(l queueLimits) error {
		e.line = append(jsontext.Append(e.line[:0], l), '\n')
		if _, err := e.w.Write(e.line); err != nil {
			return writing(err)
		}
		return nil
	}
	if err := write(queueLimits{Queue: queue, Flow: &flow}); err != nil || !f.Normal().Fair {
		return err
	}
	err := eachOverride(ctx, side{store: e.store}, queue, func(key string, o store.KeyOverride) error {
		return write(queueLimits{Queue: queue, Key: key, Override: wire.NewKeyOverride(&o)})
	})
	if errors.Is(err, store.ErrCorrupt) {
		e.damaged, err = append(e.damaged, fmt.Errorf("queue %q: %w", queue, err)), nil
	}
	return err
}

// parseLimits returns the limits in a line, which are allowed for its queue.
func parseLimits(line []byte) (l queueLimits, err error) {
	if len(line) > maxLimitsLine {
		return l, store.TooLarge("line with limits is %d bytes: the limit is %d; leave it out", len(line),
			maxLimitsLine)
	}
	if err := jsonfields.Decode(line, &l); err != nil {
		return l, err
	}
	l.Queue = store.NewQueueName(l.Queue)
	if err := cmp.Or(store.CheckNewQueue(l.Queue), store.CheckFlow(l.Queue, store.Flow{})); err != nil {
		return l, store.Field("later_limits", err)
	}
	switch {
	case (l.Flow == nil) == (l.Override == nil):
		return l, store.Invalid(`line with limits has both fields "flow" and "override" or none: give one of them`)
	case l.Flow != nil && l.Key != "":
		return l, store.Field("key", store.Invalid(`field "key" is given beside "flow": leave it out`))
	case l.Flow != nil && !l.Flow.Flow().Limited():
		return l, store.Field("flow", store.Invalid(`field "flow" has no limit: leave the line out`))
	case l.Flow != nil:
		return l, store.Field("flow", l.Flow.Flow().Check())
	}
	o := l.Override.KeyOverride()
	if o.IsZero() {
		return l, store.Field("override", store.Invalid(`field "override" has no limit: leave the line out`))
	}
	return l, store.CheckKeyFlow(l.Queue, l.Key, o)
}

// limit takes in a line with limits. Of a line before FromLine it only remembers the limits of the queue.
func (i *importer) limit(ctx context.Context, line []byte) error {
	l, err := parseLimits(line)
	if i.lines.number < i.cfg.FromLine {
		if err == nil && l.Flow != nil {
			i.flows[l.Queue] = l.Flow.Flow()
		}
		return nil
	}
	if err == nil && i.began == 0 {
		err = store.Invalid("limits follow the end of the export: give each export with its header")
	}
	if err == nil {
		err = i.flush(ctx, i.lines.number)
	}
	if err != nil {
		return err
	}
	if err := i.apply(ctx, &l); err != nil {
		return &restoreError{ended(ctx, fmt.Errorf("line %d, limits of queue %q: %w", i.lines.number, l.Queue, err))}
	}
	return nil
}

// apply sets the limits of a line. Limits of a key are not set in a queue that kept its own.
func (i *importer) apply(ctx context.Context, l *queueLimits) error {
	q := i.resultOf(l.Queue)
	f, known := i.flows[l.Queue]
	switch {
	case l.Flow != nil: // the former ones are of this import, if the export was resumed after a change
		i.flows[l.Queue] = l.Flow.Flow()
		return i.setLimits(ctx, q, i.flows[l.Queue], f)
	case !known:
		return store.Field("override", store.Invalid(
			`limits of key %q come before the limits of their queue: give the line with "flow" first`, l.Key))
	case q.Limits == LimitsNone: // the ones of the queue are before FromLine
		if err := i.setLimits(ctx, q, f, store.Flow{}); err != nil {
			return err
		}
	}
	if q.Limits == LimitsKept {
		return nil
	}
	return setKeyLimits(ctx, i.store, l.Queue, l.Key, l.Override.KeyOverride())
}

// setLimits gives a queue limits, if it has the former ones, or none.
func (i *importer) setLimits(ctx context.Context, q *QueueImport, f, former store.Flow) error {
	done, err := setLimits(ctx, i.store, q.Queue, f, former)
	if done == LimitsKept && former.Limited() { // they were not set before
		done, err = setLimits(ctx, i.store, q.Queue, f, store.Flow{})
	}
	if err == nil && !(done == LimitsSame && q.Limits == LimitsSet) {
		q.Limits = done
	}
	return err
}
