package diskstore

import (
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/store"
)

// Histogram implements store.Store. It reads few keys (cells.go), unless the queue was not counted since a crash: then
// it waits until all its messages are counted, 2 to 5 million a second, while other calls go on.
func (s *Store) Histogram(ctx context.Context, name string, times []time.Time) ([]int64, error) {
	bounds, buckets := store.BoundMillis(times), len(times)-1
	for {
		var all []cell
		var counting *recount
		prepare := func(t *tx, q *queue) {
			q.cells.fold(q.due.n)
			if all = q.cells.all; !q.cells.known {
				counting = t.startCount(q)
			}
		}
		counts, err := read(ctx, s, name, prepare, func(v *view) ([]int64, error) {
			if counting != nil {
				return nil, nil
			}
			counts, n := make([]int64, buckets+2), 0
			learn := func(g gap) { v.due.found = append(v.due.found, g) }
			err := v.scanEdges(v.number, v.due, spread(all, bounds, counts), learn, func(p *edge) error {
				p.move(counts)
				if n++; n%interruptEvery == 0 {
					return s.interrupted(ctx)
				}
				return nil
			})
			return counts[1 : buckets+1], err
		})
		if err == nil && counting != nil {
			err = s.awaitCount(ctx, counting)
		}
		if err != nil || counting == nil {
			return counts, err
		}
	}
}

// count has the cells of a queue count one message more or less.
func (t *tx) count(q *queue, at int64, removed bool) {
	if q.cells.note(at, removed) {
		t.uncount = append(t.uncount, q)
	}
}

// foldCells folds the cells with many changes, and splits some crowded ones.
func (t *tx) foldCells() error {
	for i, q := range t.uncount {
		t.uncount[i] = nil
		q.cells.fold(q.due.n)
		if !q.cells.crowded || t.s.queues[q.name] != q {
			continue
		}
		if err := t.flush(); err != nil {
			return err
		}
		t.splitCells(q)
	}
	t.uncount = t.uncount[:0]
	return nil
}

// splitCells splits a bounded number of crowded cells. The caller has folded and flushed.
func (t *tx) splitCells(q *queue) {
	crowded, splits := crowdOf(q.due.n), 0
	q.cells.crowded = false
	all := make([]cell, 0, len(q.cells.all))
	for _, x := range q.cells.all {
		if !x.isCrowded(crowded) || splits == maxSplits {
			all = append(all, x)
			continue
		}
		splits++
		b := cellBuilder{most: mergedCount(q.due.n)}
		err := t.each(q, &q.due, entry{at: x.from}, x.last(), func(e entry, _ []byte) (bool, error) {
			b.add(e.at)
			return true, nil
		})
		if err != nil {
			return // an unreadable cell is not split; calls that need it return the error
		}
		if b.n != int64(x.n) {
			t.s.logger.Error("later: the counts by due time of a queue were wrong; they are counted anew",
				"dir", t.s.dir, "queue", q.name)
			q.cells.forget()
			return
		}
		all = append(all, b.end()...)
	}
	q.cells.all = all
}

// countDue returns how many messages are due from one millisecond to another, by cells, which are known and folded. The
// caller has flushed.
func (t *tx) countDue(q *queue, first, last int64) (int64, error) {
	counts := make([]int64, 3)
	at := indexView{kind: kindDue, first: q.due.first, gaps: q.due.gaps}
	var found []gap
	learn := func(g gap) { found = append(found, g) }
	edges := spread(q.cells.all, []int64{first, last + 1}, counts)
	err := t.scanEdges(q.number, &at, edges, learn, func(p *edge) error {
		p.move(counts)
		return nil
	})
	for _, g := range found {
		q.due.learn(g)
	}
	return counts[1], err
}

// recount is a count of the cells of a queue in the background.
type recount struct {
	done chan struct{} // closed at its end
	err  error         // set before
}

// startCount has the cells of a queue counted, unless they are being counted already.
func (t *tx) startCount(q *queue) *recount {
	if q.cells.counting == nil {
		s, c := t.s, &recount{done: make(chan struct{})}
		q.cells.counting = c
		s.loops.Go(func() {
			c.err = s.countCells(q.name, c)
			close(c.done)
		})
	}
	return q.cells.counting
}

// awaitCount waits for the end of a count.
func (s *Store) awaitCount(ctx context.Context, c *recount) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	case <-s.closed:
	case <-s.failed:
	}
	return s.interrupted(ctx)
}

// countCells counts a queue in a snapshot, and adds the changes that the writer has noted since.
func (s *Store) countCells(name string, own *recount) error {
	ctx := context.Background()
	var b cellBuilder
	begin := func(_ *tx, q *queue) {
		if q.cells.counting == own {
			q.cells.changes, b.most = nil, mergedCount(q.due.n)
		}
	}
	all, err := read(ctx, s, name, begin, func(v *view) ([]cell, error) {
		err := v.each(v.due, entry{}, lastTime, func(e entry, _ []byte) (bool, error) {
			b.add(e.at)
			if b.n%interruptEvery == 0 {
				return true, s.interrupted(ctx)
			}
			return true, nil
		})
		return b.end(), err
	})
	for done := false; !done; {
		var changes []int64
		failed := s.do(ctx, name, urgent, func(*tx) {
			q := s.queues[name]
			if done = q == nil || q.cells.counting != own; done {
				return
			}
			if done = err != nil || len(q.cells.changes) < maxChanges; !done {
				changes, q.cells.changes = q.cells.changes, nil
				return
			}
			if q.cells.counting = nil; err == nil {
				q.cells.known, q.cells.all = true, all
			} else {
				q.cells.forget()
			}
		})
		if failed != nil {
			return failed
		}
		if len(changes) > 0 {
			var ok bool
			if all, ok = fold(all, changes); !ok {
				err = corrupt("queue %q has fewer messages than were removed while they were counted", name)
			}
		}
	}
	return err
}

// loadCells reads the cells of a queue, which has its counters, with an iterator as in loadQueue.
func (s *Store) loadCells(it *pebble.Iterator, q *queue) error {
	if q.due.n == 0 {
		return nil
	}
	q.cells = cells{}
	if q.due.n < worthStoring {
		return nil
	}
	boundTo(it, q.number, kindCells)
	if !it.First() {
		if err := it.Error(); err != nil {
			return s.unreadable(err)
		}
		return nil
	}
	all, err := parseCells(it.Value(), q.due.n)
	q.cells = cells{stored: true, known: err == nil, all: all}
	if err != nil {
		s.logger.Error("later: the counts by due time of a queue cannot be read; they are counted anew",
			"dir", s.dir, "queue", q.name, "cause", err)
	}
	return nil
}
