package diskstore

import (
	"github.com/laterq/later/store"
)

func (t *tx) send(name string, msgs []store.Outgoing) ([]store.SendResult, error) {
	q, results, err := t.accept(name, "", len(msgs), func(i int) string { return msgs[i].ID })
	if err != nil || q == nil {
		return results, err
	}
	for i := range msgs {
		if !results[i].Duplicate {
			t.add(q, &msgs[i])
		}
	}
	return results, nil
}

// add adds a message that was accepted.
func (t *tx) add(q *queue, m *store.Outgoing) {
	r := record{due: t.dueAt(m.Due)}
	t.value = appendMessage(t.value[:0], r.due, &m.Message)
	t.addMessage(q, m.ID, t.value)
	t.addDue(q, m.ID, &r)
	t.joinGroup(q, m.ID, groupNumber(m.Group))
}

// accept finds out which of n messages are duplicates, before anything is written. It returns the queue, created if
// need be, or nil when there is nothing to add. The id freed, if it is not empty, does not count as live.
func (t *tx) accept(name, freed string, n int, id func(i int) string) (*queue, []store.SendResult, error) {
	if err := t.checkRoom(); err != nil {
		return nil, nil, err
	}
	q := t.s.queue(name)
	if err := t.forget(q); err != nil {
		return nil, nil, err
	}
	results := make([]store.SendResult, n)
	var earlier map[string]bool // ids of this call that will be live
	if n > 1 {
		earlier = make(map[string]bool, n)
	}
	fresh := false
	for i := range n {
		taken := earlier[id(i)]
		if !taken && id(i) != freed {
			var err error
			if taken, err = t.taken(q, id(i)); err != nil {
				return nil, nil, err
			}
		}
		results[i].Duplicate = taken
		if !taken {
			fresh = true
			if earlier != nil {
				earlier[id(i)] = true
			}
		}
	}
	if !fresh {
		return nil, results, nil
	}
	q, err := t.create(name)
	return q, results, err
}

// addMessage stores a message that is put into an index next.
func (t *tx) addMessage(q *queue, id string, value []byte) {
	t.set(appendIDKey(t.key[:0], q.number, kindMessage, id), value)
	q.unread[id] = true
	q.highest = max(q.highest, id)
}

// taken reports whether an id is live or remembered.
func (t *tx) taken(q *queue, id string) (bool, error) {
	if live, ok := q.unread[id]; live || ok && q.forget.n == 0 {
		return live, nil
	}
	if _, ok := q.unread[id]; !ok && id <= q.highest {
		if ok, err := t.has(appendIDKey(t.key[:0], q.number, kindMessage, id)); ok || err != nil {
			return ok, err
		}
	}
	if q.forget.n == 0 {
		return false, nil
	}
	if err := t.flush(); err != nil {
		return false, err
	}
	until, err := t.remembered(q.number, id)
	return until > t.now, err
}

// remember refuses an id until a time.
func (t *tx) remember(q *queue, id string, until int64) {
	t.value = appendTime(t.value[:0], until)
	t.rememberValue(q, id, until)
}

// rememberValue is remember with t.value, which begins with the time.
func (t *tx) rememberValue(q *queue, id string, until int64) {
	t.set(appendIDKey(t.key[:0], q.number, kindRemembered, id), t.value)
	e := entry{until, id}
	t.set(appendTimeKey(t.key[:0], q.number, kindForget, e), nil)
	q.forget.add(e)
	t.touch(q)
}

// forget drops a bounded number of remembered ids after their time. An id that was remembered again since stays.
func (t *tx) forget(q *queue) error {
	if q.forget.first.at > t.now {
		return nil
	}
	if err := t.flush(); err != nil {
		return err
	}
	var past []entry
	next := entry{at: never}
	err := t.each(q, &q.forget, q.forget.first, lastTime, func(e entry, _ []byte) (bool, error) {
		if e.at > t.now || len(past) == store.MaxBatch {
			next = e
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
		until, err := t.remembered(q.number, e.id)
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
		q.forget.remove(e)
	}
	q.forget.startAt(next, true)
	t.touch(q)
	return nil
}
