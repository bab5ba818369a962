package diskstore

import (
	"cmp"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// messageReader reads many messages of a queue. It goes over them by id, with one iterator: neighbors are in one
// block of the file, and a lookup for each would find and check that block anew each time.
type messageReader struct {
	t  *tx
	q  *queue
	it *pebble.Iterator
}

func (t *tx) readMessages(q *queue) (*messageReader, error) {
	it, err := t.s.db.NewIter(&pebble.IterOptions{
		LowerBound: appendKey(nil, q.number, kindMessage), UpperBound: appendKey(nil, q.number, kindMessage+1),
	})
	if err != nil {
		return nil, t.s.unreadable(err)
	}
	return &messageReader{t, q, it}, nil
}

func (r *messageReader) close() error {
	if r == nil {
		return nil
	}
	if err := r.it.Close(); err != nil {
		return r.t.s.unreadable(err)
	}
	return nil
}

// read reads ready messages and tells which of them die instead of being given.
func (r *messageReader) read(window []found) error {
	byID := make([]*found, len(window))
	for i := range window {
		byID[i] = &window[i]
	}
	slices.SortFunc(byID, func(a, b *found) int { return cmp.Compare(a.id, b.id) })
	for _, f := range byID {
		if err := r.one(f); err != nil {
			return err
		}
	}
	return nil
}

func (r *messageReader) one(f *found) error {
	t := r.t
	t.key = appendIDKey(t.key[:0], r.q.number, kindMessage, f.id)
	if !r.it.SeekGE(t.key) || string(r.it.Key()) != string(t.key) {
		if err := r.it.Error(); err != nil {
			return t.s.unreadable(err)
		}
		f.gone = true
		return nil
	}
	value, err := r.it.ValueAndErr()
	if err != nil {
		return t.s.unreadable(err)
	}
	f.length = len(value)
	m, bad := parseMessage(value)
	if bad != nil {
		m.due = f.at
	}
	if f.record.stored {
		f.record, err = t.record(r.q, f.id, m.due)
		if isFormatError(err) {
			f.record, bad = record{due: f.at}, err
		} else if err != nil {
			return err
		}
	}
	f.message.ID = f.id
	switch {
	case bad != nil, envelope.Decode(m.envelope, &f.message) != nil:
		f.death = store.DeadUnreadable
	case expired(t.now, &f.record, &f.message):
		f.death = store.DeadExpired
	}
	if f.death != "" {
		f.message = store.Message{} // it stays where it is, and nobody asks for it
	}
	return nil
}
