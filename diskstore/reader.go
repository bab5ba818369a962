package diskstore

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// reader reads a store's keys from the database or from a snapshot.
type reader struct {
	s   *Store
	src pebble.Reader
	key []byte // scratch
}

// view shows f a value, which is valid only during the call. It reports whether there is one.
func (r *reader) view(key []byte, f func(value []byte) error) (ok bool, err error) {
	r.key = key
	value, closer, err := r.src.Get(key)
	if err == pebble.ErrNotFound {
		return false, nil
	}
	if err != nil {
		return false, r.s.unreadable(err)
	}
	err = f(value)
	if closed := closer.Close(); err == nil {
		err = r.s.unreadable(closed)
	}
	return err == nil, err
}

// get returns a copy of a value, and reports whether there is one.
func (r *reader) get(key []byte) (value []byte, ok bool, err error) {
	ok, err = r.view(key, func(v []byte) error {
		value = append([]byte{}, v...)
		return nil
	})
	return value, ok, err
}

// has reports whether there is a key.
func (r *reader) has(key []byte) (bool, error) {
	return r.view(key, func([]byte) error { return nil })
}

// iterate returns an iterator over [from, to).
func (r *reader) iterate(from, to []byte) (*pebble.Iterator, error) {
	it, err := r.src.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	return it, r.s.unreadable(err)
}

// end closes an iterator and returns err, else the iterator's error.
func (r *reader) end(it *pebble.Iterator, err error) error {
	if closed := it.Close(); err == nil {
		return r.s.unreadable(closed)
	}
	return err
}

// keys iterates over the keys of a kind of a queue, from one on. It yields each key without its prefix, and its value,
// which is valid until the next one. An error of reading is set in *err, unless the loop has set another one.
func (r *reader) keys(err *error, queue uint32, kind byte, from string) iter.Seq2[string, []byte] {
	return func(yield func(rest string, value []byte) bool) {
		it, failed := r.iterate(appendIDKey(nil, queue, kind, from), appendKey(nil, queue, kind+1))
		if failed != nil {
			*err = failed
			return
		}
		eachKey(it, yield)
		*err = r.end(it, *err)
	}
}

// keysBy is keys by an iterator that may be used for others before and after, since creating one takes longer than
// reading a few keys.
func (r *reader) keysBy(it *pebble.Iterator, err *error, queue uint32, kind byte) iter.Seq2[string, []byte] {
	return func(yield func(rest string, value []byte) bool) {
		it.SetBounds(appendKey(nil, queue, kind), appendKey(nil, queue, kind+1))
		eachKey(it, yield)
		if *err == nil {
			*err = r.s.unreadable(it.Error())
		}
	}
}

func eachKey(it *pebble.Iterator, yield func(rest string, value []byte) bool) {
	for valid := it.First(); valid && yield(string(it.Key()[prefixLength:]), it.Value()); valid = it.Next() {
	}
}

// sentDue returns the due time that a message was sent with, without reading the message.
func (r *reader) sentDue(queue uint32, id string) (due int64, ok bool, err error) {
	ok, err = r.view(appendIDKey(r.key[:0], queue, kindMessage, id), func(value []byte) error {
		m, bad := parseMessage(value[:min(len(value), timeLength)])
		due = m.due
		return bad
	})
	return due, ok, err
}

// envelope returns the bytes of a message. whole is false when they are too short to contain the due time.
func (r *reader) envelope(queue uint32, id string) (text string, whole, ok bool, err error) {
	ok, err = r.view(appendIDKey(r.key[:0], queue, kindMessage, id), func(value []byte) error {
		m, bad := parseMessage(value)
		if text, whole = m.envelope, bad == nil; !whole {
			text = string(value)
		}
		return nil
	})
	return text, whole, ok, err
}

// dedupWindow returns the dedup window of a message: 0 when it does not have one or cannot be read.
func (r *reader) dedupWindow(queue uint32, id string) (time.Duration, error) {
	text, whole, ok, err := r.envelope(queue, id)
	if err != nil || !ok || !whole {
		return 0, err
	}
	var m store.Message
	if envelope.Decode(text, &m) != nil {
		return 0, nil // the options of an unreadable message are unknown
	}
	return m.DedupWindow, nil
}

// record returns the record of a message that was sent to be due at a time.
func (r *reader) record(queue uint32, id string, due int64) (rec record, err error) {
	ok, err := r.view(appendIDKey(r.key[:0], queue, kindRecord, id), func(value []byte) (bad error) {
		rec, bad = parseRecord(value)
		return bad
	})
	if err == nil && !ok {
		rec = record{due: due}
	}
	return rec, err
}

// remembered returns until when an id is refused; 0 when it is not, or the time cannot be read.
func (r *reader) remembered(queue uint32, id string) (until int64, err error) {
	_, err = r.view(appendIDKey(r.key[:0], queue, kindRemembered, id), func(value []byte) error {
		if len(value) >= timeLength {
			until = readTime(value)
		}
		return nil
	})
	return until, err
}

// view is a queue as it was at one moment, in a snapshot. Calls that only look at messages read a view, while the
// writer goes on.
type view struct {
	reader
	snapshot *pebble.Snapshot
	queue    string
	number   uint32 // 0 when the queue does not exist
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
		if failed = cmp.Or(s.moved(name), q.damage); failed != nil {
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
	if closed := v.s.guarded(v.snapshot.Close); err == nil {
		return v.s.unreadable(closed)
	}
	return err
}

// each is scan of an index of the view, which notes the gaps.
func (v *view) each(err *error, x *indexView, from entry, last int64) iter.Seq2[entry, []byte] {
	return v.scan(err, v.number, x, from, last, func(g gap) { x.found = append(x.found, g) })
}

// read calls f with a view. It returns early if Pebble fails for good before f returns.
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
