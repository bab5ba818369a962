package diskstore

import (
	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// checkUrgencies refuses messages with an urgency that the queue does not take.
func (q *queue) checkUrgencies(msgs []store.Outgoing) (err error) {
	for i := 0; i < len(msgs) && err == nil; i++ {
		err = store.CheckUrgency(q.name, &q.flow.Flow, &msgs[i])
	}
	return err
}

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

// add adds a message that was accepted, and returns when it is due.
func (t *tx) add(q *queue, m *store.Outgoing) (due int64) {
	r := t.sentRecord(q, m.Key, m.Due)
	t.addAs(q, &m.Message, &r)
	return r.due
}

// addAs adds a message that was accepted, or takes the place of another one, with its record.
func (t *tx) addAs(q *queue, m *store.Message, r *record) {
	t.putMessage(q, m, r.due)
	if r.stored {
		t.keep(q, m.ID, r)
	}
	t.addSent(q, m, r)
}

// addThen adds a message that follows an acked one. If it is that message, forwarded, it keeps its rank.
func (t *tx) addThen(q *queue, m *store.Outgoing, ackedID string, acked *record) {
	r := t.sentRecord(q, m.Key, m.Due)
	if q.isOrdered() && m.Key != "" && m.ID == ackedID && store.UnixMillis(m.Due.At) == acked.due {
		r = record{due: acked.due, rank: rank{micros: acked.rank.micros}}
	}
	t.addAs(q, &m.Message, &r)
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

// putMessage stores a message with its due time, and puts it into its group.
func (t *tx) putMessage(q *queue, m *store.Message, due int64) {
	t.value = appendMessage(t.value[:0], due, m)
	t.addMessage(q, m.ID, t.value)
	t.joinGroup(q, m.ID, groupNumber(m.Group))
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
	t.addEntry(q, &q.forget, entry{until, id})
}

// forget drops a bounded number of remembered ids after their time. An id that was remembered again since stays.
func (t *tx) forget(q *queue) (err error) {
	if q.forget.first.at > t.now {
		return nil
	}
	if err := t.flush(); err != nil {
		return err
	}
	var past []entry
	next := entry{at: never}
	for e := range t.each(&err, q, &q.forget, q.forget.first, lastTime) {
		if e.at > t.now || len(past) == store.MaxBatch {
			next = e
			break
		}
		past = append(past, e)
	}
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
		t.removeEntry(q, &q.forget, e)
	}
	q.forget.startAt(next, true)
	t.touch(q)
	return nil
}

// sendOneByOne sends messages that may change live ones, or repeat earlier sends. The caller has flushed. Each message
// is one step: a message with an unreadable place gets the error, and the others are sent. With ifKnown it adds none.
func (t *tx) sendOneByOne(name string, msgs []store.Outgoing, ifKnown bool) ([]store.SendResult, error) {
	if err := t.checkRoom(); err != nil {
		return nil, err
	}
	if err := t.forget(t.s.queue(name)); err != nil {
		return nil, err
	}
	results := make([]store.SendResult, len(msgs))
	for i := range msgs {
		var err error
		if msgs[i].Once == nil {
			results[i], _, err = t.collapse(name, &msgs[i], ifKnown)
		} else {
			results[i], err = t.sendOnce(name, &msgs[i], ifKnown)
		}
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}

// collapse sends one message, and returns when it is due if it was sent.
func (t *tx) collapse(name string, out *store.Outgoing, ifKnown bool) (result store.SendResult, due int64, err error) {
	q := t.s.queue(name)
	if _, ok := q.unread[out.ID]; ok { // sent by this call before
		if err := t.flush(); err != nil {
			return result, 0, err
		}
	}
	p, ok, err := t.place(q, out.ID)
	switch {
	case isFormatError(err):
		return store.SendResult{Err: err}, 0, nil
	case err != nil:
		return result, 0, err
	case ok && ifKnown && out.OnDuplicate.Collapses() && p.held == nil && p.record.deadReason == "":
		return store.SendResult{Err: store.ErrNotFound}, 0, nil
	case ok:
		return t.replace(q, out, &p)
	case out.OnDuplicate.Unchanged != nil:
		return store.SendResult{Err: store.ErrNotFound}, 0, nil
	}
	return t.sendFirst(name, out, ifKnown)
}

// sendFirst sends a message with an id that is not live.
func (t *tx) sendFirst(name string, out *store.Outgoing, ifKnown bool) (result store.SendResult, due int64, err error) {
	taken, err := t.taken(t.s.queue(name), out.ID)
	switch {
	case taken || err != nil:
		return store.SendResult{Duplicate: taken}, 0, err
	case ifKnown:
		return store.SendResult{Err: store.ErrNotFound}, 0, nil
	}
	q, err := t.create(name)
	if err != nil {
		return result, 0, err
	}
	m := *out
	if out.OnDuplicate.Collapses() {
		m.SentAt = store.Time(t.now)
	}
	return result, t.add(q, &m), nil
}

// replace puts a message in the place of a live one, if that is scheduled or ready, or behind it if that is leased.
// Everything is read before the first change.
func (t *tx) replace(q *queue, out *store.Outgoing, p *place) (result store.SendResult, due int64, err error) {
	state := p.state(t.now)
	switch {
	case !out.OnDuplicate.Collapses():
		return store.SendResult{Duplicate: true}, 0, nil
	case state == store.StateLeased && out.OnDuplicate.Mode != store.DuplicateFollow:
		return store.SendResult{Err: store.ErrLeased}, 0, nil
	case state == store.StateDead:
		return store.SendResult{Err: store.ErrDead}, 0, nil
	}
	if out.OnDuplicate.Unchanged != nil {
		info, err := t.info(q.number, out.ID, p, t.now)
		if err != nil {
			return result, 0, err
		}
		if info == nil || !info.Same(out.OnDuplicate.Unchanged) {
			return store.SendResult{Err: store.ErrConflict}, 0, nil
		}
	}
	text, _, _, err := t.envelope(q.number, out.ID)
	if err != nil {
		return result, 0, err
	}
	m := out.Message
	m.SentAt = store.Time(t.now)
	old := store.Message{ID: out.ID}
	first := state == store.StateLeased && !p.held.follows
	if !first && envelope.Decode(text, &old) == nil && !old.SentAt.IsZero() {
		m.SentAt = old.SentAt
	}
	if state == store.StateLeased {
		if first {
			t.keepOriginal(q, p.held, text)
		}
		t.follow(q, out, &m, p.held)
		return store.SendResult{Follows: true, Replaced: !first}, p.held.record.due, nil
	}
	r, before := &p.record, entry{p.record.due, out.ID}
	switch {
	case !out.OnDuplicate.KeepDue:
		sent := t.sentRecord(q, m.Key, out.Due)
		r.due, r.rank = sent.due, sent.rank
	case old.Key == m.Key && old.Urgency == m.Urgency: // it stays in its lane
		t.leaveGroup(q, out.ID, groupIn(text))
		t.putMessage(q, &m, r.due)
		t.touch(q)
		return store.SendResult{Replaced: true}, r.due, nil
	case old.Key == m.Key:
		if r.rank, err = t.rankOf(q.number, before); err != nil {
			return result, 0, err
		}
		r.rank.class = q.classAgain(out.ID, m.Urgency, r.rank.class)
	}
	if out.OnDuplicate.Mode == store.DuplicateDebounce {
		limit := min(m.SentAt.UnixMilli(), t.now) + store.Millis(out.OnDuplicate.MaxWait)
		if r.due > limit {
			r.setDue(limit)
		}
	}
	t.removeDue(q, before)
	if old.Key != m.Key {
		t.dropHold(q, out.ID)
	}
	t.leaveGroup(q, out.ID, groupIn(text))
	t.addAs(q, &m, r)
	return store.SendResult{Replaced: true}, r.due, nil
}

// follow makes m, which was sent as out, the successor of a held message, or replaces its successor.
func (t *tx) follow(q *queue, out *store.Outgoing, m *store.Message, held *member) {
	due := held.record.due
	if !held.follows || !out.OnDuplicate.KeepDue {
		due = t.dueAt(out.Due)
	}
	if held.record.stored {
		t.remove(appendIDKey(t.key[:0], q.number, kindRecord, m.ID))
	}
	t.leaveGroup(q, m.ID, held.group)
	t.putMessage(q, m, due)
	held.record, held.group, held.follows = record{due: due}, groupNumber(m.Group), true
	held.lease.rewrite = true
	t.touchLease(q, held.lease)
}

// Sends with a store.Once are remembered like acked ids, under ids that no message has: a zero byte and the key. The
// value has the fingerprint, the due time and the id behind the time until which it counts.
const (
	oncePrefix = "\x00"
	onceID     = timeLength + store.OnceSize + timeLength // where the id begins
)

// sendOnce sends a message with a Once, unless that repeats an earlier send.
func (t *tx) sendOnce(name string, out *store.Outgoing, ifKnown bool) (store.SendResult, error) {
	q, key := t.s.queue(name), oncePrefix+out.Once.Key
	if q.forget.n > 0 {
		if err := t.flush(); err != nil { // an earlier message of this call may have the key
			return store.SendResult{}, err
		}
		if result, known, err := t.repeats(q, key, out.Once); known || err != nil {
			return result, err
		}
	}
	result, due, err := t.collapse(name, out, ifKnown)
	if err != nil || result.Err != nil || result.Duplicate {
		return result, err
	}
	result.First = &store.FirstSend{ID: out.ID, Due: store.Time(due)}
	until := t.now + store.Millis(store.OnceWindow)
	t.value = append(appendTime(t.value[:0], until), out.Once.Fingerprint...)
	t.value = append(appendTime(t.value, due), out.ID...)
	t.rememberValue(t.s.queue(name), key, until)
	return result, nil
}

// repeats returns the result of a send with a remembered key.
func (t *tx) repeats(q *queue, key string, o *store.Once) (result store.SendResult, known bool, err error) {
	_, err = t.view(appendIDKey(t.key[:0], q.number, kindRemembered, key), func(value []byte) error {
		if len(value) <= onceID || readTime(value) <= t.now {
			return nil
		}
		known = true
		if string(value[timeLength:timeLength+store.OnceSize]) != o.Fingerprint {
			result.Err = store.ErrConflict
			return nil
		}
		result.Duplicate = true
		due := readTime(value[timeLength+store.OnceSize:])
		result.First = &store.FirstSend{ID: string(value[onceID:]), Due: store.Time(due)}
		return nil
	})
	return result, known, err
}

// isRemembered reports whether a key of kindRemembered has such a value.
func isRemembered(id, value []byte) bool {
	if len(id) > 0 && string(id[:1]) == oncePrefix {
		return len(id) == len(oncePrefix)+store.OnceSize && len(value) > onceID
	}
	return len(value) == timeLength
}
