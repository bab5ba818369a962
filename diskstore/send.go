package diskstore

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// minFree is how many bytes of the disk are left for claims and acks, and for Pebble to tidy up: a Send that
// finds less is refused.
const minFree = 256 << 20

// checkRoom refuses when the disk is nearly full. It looks once in a group.
func (t *tx) checkRoom() error {
	if t.checked {
		return t.room
	}
	t.checked, t.room = true, nil
	usage, err := t.s.fs.GetDiskUsage(t.s.dir)
	switch {
	case t.s.reserve.isFullNow():
		t.room = fmt.Errorf("%w: the disk of %s was full a moment ago, and what room it has is kept for claims and acks: free some space",
			store.ErrFull, t.s.dir)
	case errors.Is(err, vfs.ErrUnsupported): // a platform or file system that does not tell
	case err != nil:
		t.room = fmt.Errorf("%w: free space of %s is unknown: %w", store.ErrUnavailable, t.s.dir, err)
	case usage.AvailBytes < minFree:
		t.room = fmt.Errorf("%w: the disk of %s has %d MiB left and %d MiB are kept for claims and acks: free some space",
			store.ErrFull, t.s.dir, usage.AvailBytes>>20, minFree>>20)
	}
	return t.room
}

func (t *tx) send(name string, msgs []store.Outgoing) ([]store.SendResult, error) {
	if err := t.checkRoom(); err != nil {
		return nil, err
	}
	q := t.s.queue(name)
	if err := t.forget(q); err != nil {
		return nil, err
	}
	results := make([]store.SendResult, len(msgs))
	var earlier map[string]bool // ids of this call that will be living
	if len(msgs) > 1 {
		earlier = make(map[string]bool, len(msgs))
	}
	fresh := 0
	for i := range msgs {
		id := msgs[i].ID
		taken := earlier[id]
		if !taken {
			var err error
			if taken, err = t.taken(q, id); err != nil {
				return nil, err
			}
		}
		results[i].Duplicate = taken
		if !taken {
			fresh++
			if earlier != nil {
				earlier[id] = true
			}
		}
	}
	if fresh == 0 {
		return results, nil
	}
	q, err := t.create(name)
	if err != nil {
		return nil, err
	}
	for i := range msgs {
		if results[i].Duplicate {
			continue
		}
		m := &msgs[i].Message
		r := record{due: t.dueAt(msgs[i].Due)}
		t.value = appendMessage(t.value[:0], r.due, m)
		q.longest = max(q.longest, int64(len(t.value)))
		t.set(appendIDKey(t.key[:0], q.number, kindMessage, m.ID), t.value)
		q.unread[m.ID] = true
		q.highest = max(q.highest, m.ID)
		t.addDue(q, m.ID, &r)
	}
	return results, nil
}

// taken tells whether an id is living or remembered.
func (t *tx) taken(q *queue, id string) (bool, error) {
	if living, ok := q.unread[id]; living || ok && q.forgetting == 0 {
		return living, nil
	}
	if _, ok := q.unread[id]; !ok && id <= q.highest {
		t.key = appendIDKey(t.key[:0], q.number, kindMessage, id)
		if _, ok, err := t.get(t.key); ok || err != nil {
			return ok, err
		}
	}
	if q.forgetting == 0 {
		return false, nil
	}
	if err := t.flush(); err != nil {
		return false, err
	}
	until, err := t.remembered(q, id)
	return until > t.now, err
}

// remembered gives until when an id is refused, 0 for never or if that cannot be read.
func (t *tx) remembered(q *queue, id string) (int64, error) {
	t.key = appendIDKey(t.key[:0], q.number, kindRemembered, id)
	value, ok, err := t.get(t.key)
	if !ok || err != nil || len(value) != timeLength {
		return 0, err
	}
	return readTime(value), nil
}

// remember refuses an id until a time.
func (t *tx) remember(q *queue, id string, until int64) {
	t.value = appendTime(t.value[:0], until)
	t.set(appendIDKey(t.key[:0], q.number, kindRemembered, id), t.value)
	t.set(appendTimeKey(t.key[:0], q.number, kindForget, entry{until, id}), nil)
	q.forgetting++
	q.forgetAt = min(q.forgetAt, until)
	t.touch(q)
}

// forget drops a bounded number of remembered ids whose time has passed. An id that was remembered again
// meanwhile stays.
func (t *tx) forget(q *queue) error {
	if q.forgetting == 0 || q.forgetAt > t.now {
		return nil
	}
	if err := t.flush(); err != nil {
		return err
	}
	var past []entry
	next := int64(never)
	err := t.each(q, kindForget, entry{at: q.forgetAt}, lastTime, func(e entry, _ []byte) (bool, error) {
		if e.at > t.now || len(past) == store.MaxBatch {
			next = e.at
			return false, nil
		}
		past = append(past, e)
		return true, nil
	})
	if err != nil {
		return err
	}
	var over []string
	for _, e := range past {
		until, err := t.remembered(q, e.id)
		if err != nil {
			return err
		}
		if until == e.at {
			over = append(over, e.id)
		}
	}
	for _, id := range over {
		t.remove(appendIDKey(t.key[:0], q.number, kindRemembered, id))
	}
	for _, e := range past {
		t.remove(appendTimeKey(t.key[:0], q.number, kindForget, e))
	}
	q.forgetting -= int64(len(past))
	q.forgetAt = next
	t.touch(q)
	return nil
}
