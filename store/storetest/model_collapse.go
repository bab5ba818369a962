package storetest

import (
	"github.com/laterq/later/store"
)

// modelOnce is a send that repetitions of it find.
type modelOnce struct {
	fingerprint string
	first       store.FirstSend
	ends        int64
}

// oneByOne is send for a message that may change a live one, or repeat an earlier send.
func (m *model) oneByOne(out store.Outgoing) store.SendResult {
	if out.Once == nil {
		return m.collapse(out)
	}
	if known := m.once[out.Once.Key]; known.ends > m.now {
		if known.fingerprint != out.Once.Fingerprint {
			return store.SendResult{Err: store.ErrConflict}
		}
		return store.SendResult{Duplicate: true, First: &known.first}
	}
	send := m.send
	if out.OnDuplicate.Collapses() {
		send = m.collapse
	}
	result := send(out)
	if result.Err == nil && !result.Duplicate {
		result.First = &store.FirstSend{ID: out.ID, Due: store.Time(m.messages[out.ID].due)}
		m.once[out.Once.Key] = modelOnce{out.Once.Fingerprint, *result.First, m.now + store.Millis(store.OnceWindow)}
	}
	return result
}

// collapse is send for a message that may change a live one.
func (m *model) collapse(out store.Outgoing) store.SendResult {
	x, known := m.messages[out.ID], out.OnDuplicate.Unchanged
	switch {
	case x == nil && known != nil:
		return store.SendResult{Err: store.ErrNotFound}
	case x == nil:
		out.SentAt = store.Time(m.now)
		return m.send(out)
	}
	leased := m.state(x) == store.StateLeased
	switch {
	case leased && out.OnDuplicate.Mode != store.DuplicateFollow:
		return store.SendResult{Err: store.ErrLeased}
	case leased && !x.follows:
		out.SentAt = store.Time(m.now)
		*x = modelMessage{Message: out.Message, receipt: x.receipt, follows: true}
		x.setDue(m.dueAt(out.Due))
		return store.SendResult{Follows: true}
	case m.state(x) == store.StateDead:
		return store.SendResult{Err: store.ErrDead}
	case known != nil && !m.info(out.ID).Same(known):
		return store.SendResult{Err: store.ErrConflict}
	}
	sent := x.SentAt
	if sent.IsZero() {
		sent = store.Time(m.now)
	}
	sameKey, urgency := x.Key == out.Key, x.Urgency
	if !sameKey {
		m.loose(x.ID)
	}
	x.Message, x.raw = out.Message, nil
	x.SentAt = sent
	m.replaced(x, urgency)
	if !sameKey {
		x.modelSorted = modelSorted{}
	}
	switch {
	case leased:
		if !out.OnDuplicate.KeepDue {
			x.setDue(m.dueAt(out.Due))
		}
	case out.OnDuplicate.Mode == store.DuplicateDebounce:
		x.setDue(min(m.dueAt(out.Due), min(ms(sent), m.now)+store.Millis(out.OnDuplicate.MaxWait)))
	case !out.OnDuplicate.KeepDue:
		m.arrive(x, out.Due)
	case !sameKey:
		x.setDue(x.due)
	}
	return store.SendResult{Replaced: true, Follows: leased}
}
