package later

import (
	"context"
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// The orders in which the states of a queue are copied: a message goes from scheduled to ready by itself, and to leased
// or dead by workers, so each state comes after those that lead to it. A lease may end in any of them, so leased ones
// come first too. A Move has paused its queue, and leaves leased messages.
var (
	copyOrder = []store.State{StateLeased, StateScheduled, StateReady, StateLeased, StateDead}
	moveOrder = []store.State{StateScheduled, StateReady, StateDead}
)

// queueCopy copies one queue.
type queueCopy struct {
	*copier
	QueueCopy
	began    time.Time // on the source's clock
	refusals []error   // of the first messages that were refused
}

// run copies the queue. begun is false when there was nothing to begin with.
func (q *queueCopy) run(ctx context.Context) (begun bool, err error) {
	stats, err := q.from.stats(ctx, q.Queue)
	if err != nil || !stats.Exists {
		return false, err
	}
	q.began = stats.Now
	q.Total = stats.Scheduled + stats.Ready + stats.Leased + stats.Dead
	q.Paused = stats.Paused
	if q.cfg.Move {
		err = q.move(ctx)
	} else {
		err = q.pass(ctx, copyOrder)
	}
	q.progress()
	return true, err
}

func (q *queueCopy) progress() {
	if q.cfg.Progress != nil {
		q.cfg.Progress(q.QueueCopy)
	}
}

// page is one page of a listing of the source.
type page struct {
	state store.State
	again bool // the state was listed before
	infos []store.Info
	err   error
}

// pass copies the messages of the states. It reads a page while it writes the one before.
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
		for range pages { // until the reader has ended
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

// read lists the states and sends the pages, until ctx ends.
func (q *queueCopy) read(ctx context.Context, order []store.State, pages chan<- page) {
	seen := map[store.State]bool{}
	for _, state := range order {
		req := store.ListRequest{State: state, Limit: store.MaxBatch}
		if state == StateLeased {
			req.Limit = leasedPage
		}
		for {
			listed, err := on(q.from, func(s store.Store) (store.Page, error) { return s.List(ctx, q.Queue, req) })
			if len(listed.Messages) > 0 || err != nil {
				select {
				case pages <- page{state, seen[state], listed.Messages, err}:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
			if req.Cursor = listed.Next; req.Cursor == "" {
				break
			}
		}
		seen[state] = true
	}
}

// write copies a page, in parts that fit into one call. Once begun it is finished, also when ctx ends.
func (q *queueCopy) write(ctx context.Context, p *page) error {
	ctx, release := outlive(ctx, copyGrace)
	defer release()
	infos := q.sound(p.infos)
	for start := 0; start < len(infos); {
		end := restoreEnd(infos, start)
		results, err := q.to.restore(ctx, q.Queue, infos[start:end])
		if err != nil {
			return err
		}
		if q.cfg.Move {
			err = q.settle(ctx, infos[start:end], results)
		} else {
			q.count(p, infos[start:end], results)
		}
		if err != nil {
			return err
		}
		start = end
	}
	return nil
}

// sound leaves out, and counts, the messages that no store would take.
func (q *queueCopy) sound(infos []store.Info) []store.Info {
	sound := infos[:0]
	for i := range infos {
		err := infos[i].Check()
		if err == nil {
			sound = append(sound, infos[i])
			continue
		}
		q.Refused++
		if len(q.refusals) < maxRefusals {
			q.refusals = append(q.refusals, fmt.Errorf("message %q of queue %q was left out: %w", infos[i].ID, q.Queue, err))
		}
	}
	return sound
}

// restoreEnd gives the end of the part that begins at start and fits into one call.
func restoreEnd(infos []store.Info, start int) int {
	size := 0
	for i := start; i < len(infos); i++ {
		size += infos[i].Size()
		if i > start && (i-start == store.MaxBatch || size > store.MaxBatchBytes) {
			return i
		}
	}
	return len(infos)
}

// count counts what a plain copy restored. What is met a second time, because it was leased then and still is, or was
// scheduled then and is ready now, is a duplicate of our own making.
func (q *queueCopy) count(p *page, infos []store.Info, results []store.SendResult) {
	for i, r := range results {
		switch {
		case !r.Duplicate:
			q.Copied++
		case p.again || p.state == StateReady && infos[i].Due.After(q.began):
			continue
		default:
			q.Duplicates++
		}
		if p.state == StateLeased {
			q.Leased++
		}
	}
}
