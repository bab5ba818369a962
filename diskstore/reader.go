package diskstore

import (
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
	if closed := closer.Close(); err == nil && closed != nil {
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
	if err != nil {
		return nil, r.s.unreadable(err)
	}
	return it, nil
}

// end closes an iterator and returns err, else the iterator's error.
func (r *reader) end(it *pebble.Iterator, err error) error {
	if closed := it.Close(); err == nil && closed != nil {
		return r.s.unreadable(closed)
	}
	return err
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

// envelope returns the bytes of a message; whole is false when they are cut so short that there is no due time.
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

// dedupWindow returns the dedup window of a message; 0 when it has none or cannot be read.
func (r *reader) dedupWindow(queue uint32, id string) (time.Duration, error) {
	text, whole, ok, err := r.envelope(queue, id)
	if err != nil || !ok || !whole {
		return 0, err
	}
	var m store.Message
	if envelope.Decode(text, &m) != nil {
		return 0, nil // unreadable messages have no options
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
