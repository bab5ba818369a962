package memstore

import (
	"bytes"

	"github.com/laterq/later/store"
)

// restore adds messages as another store had them.
func (q *queue) restore(now int64, msgs []store.Info) []store.SendResult {
	q.forget(now)
	return each(msgs, func(info store.Info) store.SendResult {
		if q.taken(now, info.ID) {
			return store.SendResult{Duplicate: true}
		}
		m := &message{
			Message:   sent(info.Message),
			due:       store.UnixMillis(info.Due),
			attempts:  info.Attempts,
			delivered: info.Delivered,
			lastError: info.LastError,
		}
		if info.Raw != nil {
			m.Message, m.raw = store.Message{ID: info.ID}, bytes.Clone(info.Raw)
		}
		q.messages[m.ID] = m
		q.exists = true
		if info.State == store.StateDead {
			q.die(min(store.UnixMillis(info.DiedAt), now), m, info.DeadReason)
		} else {
			q.due.add(m.due, m.ID)
		}
		return store.SendResult{}
	})
}

// removeAs removes a message that is still as it was told, and not leased.
func (q *queue) removeAs(now int64, as *store.Info) bool {
	m := q.messages[as.ID]
	if m == nil || m.lease != nil || !q.get(now, as.ID).Same(as) {
		return false
	}
	q.remove(m)
	return true
}
