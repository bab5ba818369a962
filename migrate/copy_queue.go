package migrate

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// moveOrder is the order of the states in a move. Move has paused the queue and leaves leased messages alone.
var moveOrder = []store.State{store.StateScheduled, store.StateReady, store.StateDead}

// queueCopy is the state of copying one queue.
type queueCopy struct {
	*copier
	QueueCopy
	began    time.Time // on the source's clock
	refusals refusals
}

// run copies the queue. begun is false if the queue could not be read or does not exist.
func (q *queueCopy) run(ctx context.Context) (begun bool, err error) {
	stats, err := q.from.stats(ctx, q.Queue)
	if err != nil || !stats.Exists {
		return false, err
	}
	if err := store.CheckNewQueue(q.Queue); err != nil {
		return true, err
	}
	q.began = stats.Now
	q.Total = total(stats)
	q.Paused = stats.Paused
	if err := q.copyProperties(ctx); err != nil {
		return true, err
	}
	damaged := q.copyLimits(ctx, stats.Flow.Flow)
	_, unread := errors.AsType[*readLimitsError](damaged)
	if damaged != nil && !(unread && errors.Is(damaged, store.ErrCorrupt)) {
		return true, damaged
	}
	if q.cfg.Move {
		err = q.move(ctx)
	} else {
		err = q.pass(ctx, stateOrder)
	}
	q.progress()
	return true, cmp.Or(err, damaged)
}

// copyProperties sets the properties that the target's queue lacks. Its own properties are left alone, as messages are.
func (q *queueCopy) copyProperties(ctx context.Context) error {
	missing, err := q.from.properties(ctx, q.Queue)
	if err != nil || len(missing) == 0 {
		return err
	}
	has, err := q.to.properties(ctx, q.Queue)
	if err != nil {
		return err
	}
	for name := range has {
		delete(missing, name)
	}
	for names := range slices.Chunk(slices.Sorted(maps.Keys(missing)), store.MaxBatch) {
		set := make(map[string]string, len(names))
		for _, name := range names {
			set[name] = missing[name]
		}
		if err := q.to.store.SetProperties(ctx, q.Queue, set, nil); err != nil {
			return q.to.wrap(err)
		}
	}
	return nil
}

func (q *queueCopy) progress() {
	if q.cfg.Progress != nil {
		q.cfg.Progress(q.QueueCopy)
	}
}

// page is one page of a listing of the source.
type page struct {
	state store.State
	again bool // the state was already listed
	infos []store.Info
	err   error
}

// pass copies the messages in the given states. It reads a page while it writes the previous one.
func (q *queueCopy) pass(ctx context.Context, order []store.State) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	pages := make(chan page)
	go func() {
		defer close(pages)
		q.read(ctx, order, pages)
	}()
	defer func() {
		stop()
		for range pages { // wait for the reader
		}
	}()
	for p := range pages {
		if ctx.Err() != nil {
			break
		}
		if p.err != nil {
			return p.err
		}
		if err := q.write(ctx, &p); err != nil {
			return err
		}
		q.progress()
	}
	return context.Cause(ctx)
}

// read lists the states and sends the pages until ctx ends.
func (q *queueCopy) read(ctx context.Context, order []store.State, pages chan<- page) {
	send := func(p page) error {
		select {
		case pages <- p:
			return p.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	seen := map[store.State]bool{}
	for _, state := range order {
		err := eachPage(ctx, q.from.store, q.Queue, store.ListRequest{State: state}, func(infos []store.Info) error {
			if len(infos) == 0 {
				return nil
			}
			return send(page{state: state, again: seen[state], infos: infos})
		})
		if err != nil {
			send(page{err: q.from.wrap(err)})
			return
		}
		seen[state] = true
	}
}

// write copies a page, in parts that fit into one call. It finishes the page even if ctx ends.
func (q *queueCopy) write(ctx context.Context, p *page) error {
	ctx, release := outlive(ctx, copyGrace)
	defer release()
	infos := q.valid(p.infos)
	for len(infos) > 0 {
		part := infos[:fitting(infos, (*store.Info).Size)]
		results, err := q.to.restore(ctx, q.Queue, part)
		if err != nil {
			return err
		}
		if q.cfg.Move {
			err = q.settle(ctx, part, results)
		} else {
			q.count(p, part, results)
		}
		if err != nil {
			return err
		}
		infos = infos[len(part):]
	}
	return nil
}

// valid returns the messages that a store accepts, and counts the others as refused.
func (q *queueCopy) valid(infos []store.Info) []store.Info {
	valid := infos[:0]
	for i := range infos {
		if err := infos[i].CheckNew(); err != nil {
			q.Refused++
			q.refusals.add(q.Queue, infos[i].ID, err)
			continue
		}
		valid = append(valid, infos[i])
	}
	return valid
}

// count counts the results of a plain copy. A message that appears a second time in this copy, because it
// is still leased or because it was scheduled and is now ready, is not counted as a duplicate.
func (q *queueCopy) count(p *page, infos []store.Info, results []store.SendResult) {
	for i, r := range results {
		switch {
		case !r.Duplicate:
			q.Copied++
		case p.again || p.state == store.StateReady && infos[i].Due.After(q.began):
			continue
		default:
			q.Duplicates++
		}
		if p.state == store.StateLeased {
			q.Leased++
		}
	}
}
