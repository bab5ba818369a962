package diskstore

import (
	"context"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// view is a queue as it was at one moment, in a snapshot. Calls that only look at messages read a view, while the
// writer goes on.
type view struct {
	reader
	snapshot *pebble.Snapshot
	queue    string
	number   uint32 // 0 when there is no such queue
	now      int64
	due      *indexView
	dead     *indexView
	groups   *indexView // only while a group is listed
}

// view returns a view of everything that was acknowledged; its content is durable. prepare, which may be nil, is called
// by the writer at that moment. The caller is within a call, and closes the view.
func (s *Store) view(ctx context.Context, name string, prepare func(t *tx, q *queue)) (*view, error) {
	v := &view{reader: reader{s: s}, queue: name}
	var failed error
	err := s.do(ctx, name, urgent, func(t *tx) {
		q := s.queue(name)
		if failed = q.damage; failed != nil {
			return
		}
		if failed = t.flush(); failed != nil {
			return
		}
		v.snapshot = s.db.NewSnapshot()
		v.src, v.number, v.now = v.snapshot, q.number, t.now
		v.due, v.dead = q.due.view(), q.dead.view()
		if prepare != nil {
			prepare(t, q)
		}
	})
	if err == nil { // else the writer may never leave it
		err = failed
	}
	if err != nil {
		if !s.isStuck() {
			err = v.close(err)
		}
		return nil, err
	}
	return v, nil
}

// close ends the view, and has the queue learn the gaps that it found. It returns err, else the error of closing.
func (v *view) close(err error) error {
	if v.snapshot == nil {
		return err
	}
	views := []*indexView{v.due, v.dead, v.groups}
	views = slices.DeleteFunc(views, func(x *indexView) bool { return x == nil || len(x.found) == 0 })
	if len(views) > 0 {
		v.s.post(v.queue, func(*tx) {
			q := v.s.queues[v.queue]
			if q == nil || q.number != v.number {
				return
			}
			for _, x := range views {
				for _, index := range q.indexes() {
					if index.kind == x.kind {
						index.learnFrom(x)
					}
				}
			}
		})
	}
	return v.s.closeSnapshot(v.snapshot, err)
}

// closeSnapshot returns err, else the error of closing the snapshot.
func (s *Store) closeSnapshot(snapshot *pebble.Snapshot, err error) error {
	closed := s.guarded(snapshot.Close)
	if err == nil && closed != nil {
		return s.unreadable(closed)
	}
	return err
}

// each calls f for the entries of an index from one on to the end of the millisecond last, until it returns false.
func (v *view) each(x *indexView, from entry, last int64, f func(e entry, value []byte) (bool, error)) error {
	return v.scan(v.number, x, from, last, func(g gap) { x.found = append(x.found, g) }, f)
}

// read calls f with a view. It returns early if Pebble fails for good meanwhile.
func read[T any](ctx context.Context, s *Store, name string, prepare func(t *tx, q *queue),
	f func(v *view) (T, error)) (T, error) {
	var none T
	if err := s.enter(ctx); err != nil {
		return none, err
	}
	defer s.calls.Done()
	v, err := s.view(ctx, name, prepare)
	if err != nil {
		return none, err
	}
	var result T
	err = s.guarded(func() error {
		var err error
		result, err = f(v)
		return v.close(err)
	})
	if err != nil {
		return none, err
	}
	return result, nil
}
