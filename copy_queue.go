package later

import (
	"context"
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// The orders in which the states of a queue are copied. A message becomes ready by itself after being
// scheduled, and leased or dead through workers, so each state comes after those that lead to it. A lease
// can end in any state, so leased messages also come first. A Move has paused its queue and leaves leased
// messages alone.
var (
	copyOrder = []store.State{StateLeased, StateScheduled, StateReady, StateLeased, StateDead}
	moveOrder = []store.State{StateScheduled, StateReady, StateDead}
)

// queueCopy is the state of copying one queue.
type queueCopy struct {
	*copier
	QueueCopy
	began    time.Time // on the source's clock
	refusals []error   // for the first refused messages
}

// run copies the queue. begun is false if the queue could not be read or does not exist.
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

// write copies a page, in parts that fit into one call. It finishes the page even if ctx ends.
func (q *queueCopy) write(ctx context.Context, p *page) error {
	ctx, release := outlive(ctx, copyGrace)
	defer release()
	infos := q.valid(p.infos)
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

// valid returns the messages that a store accepts, and counts the others as refused.
func (q *queueCopy) valid(infos []store.Info) []store.Info {
	valid := infos[:0]
	for i := range infos {
		err := infos[i].Check()
		if err == nil {
			valid = append(valid, infos[i])
			continue
		}
		q.Refused++
		if len(q.refusals) < maxRefusals {
			q.refusals = append(q.refusals, fmt.Errorf("message %q of queue %q was left out: %w", infos[i].ID, q.Queue, err))
		}
	}
	return valid
}

// restoreEnd returns the end of the part that begins at start and fits into one call.
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

// count counts the results of a plain copy. A message that appears a second time in this copy, because it
// is still leased or because it was scheduled and is now ready, is not counted as a duplicate.
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
