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
		return corrupt("message %q of queue %q is due and does not exist", f.id, r.q.name)
	}
	m, err := parseMessage(r.it.Value())
	if err != nil {
		return err
	}
	if f.record.stored {
		if f.record, err = t.record(r.q, f.id, m.due); err != nil {
			return err
		}
	}
	f.message.ID, f.length = f.id, len(m.envelope)
	switch {
	case envelope.Decode(m.envelope, &f.message) != nil:
		f.death = store.DeadUnreadable
	case expired(t.now, &f.record, &f.message):
		f.death = store.DeadExpired
	}
	return nil
}
