package memstore

import (
	"bytes"
	"slices"

	"github.com/laterq/later/store"
)

// restore adds messages with the state they had in another store.
func (q *queue) restore(now int64, msgs []store.Info) []store.SendResult {
	q.dropDedup(now)
	return each(msgs, func(info store.Info) store.SendResult {
		if q.taken(now, info.ID) {
			return store.SendResult{Duplicate: true}
		}
		m := &message{
			Message:   normalize(info.Message),
			attempts:  info.Attempts,
			delivered: info.Delivered,
			lastError: info.LastError,
			failures:  slices.Clone(info.Failures),
		}
		m.setDue(store.UnixMillis(info.Due))
		if info.Raw != nil {
			m.Message, m.raw = store.Message{ID: info.ID}, bytes.Clone(info.Raw)
		}
		q.add(m)
		if info.State == store.StateDead {
			q.die(min(store.UnixMillis(info.DiedAt), now), m, info.DeadReason)
		} else {
			q.wait(m, false)
		}
		return store.SendResult{}
	})
}

// removeUnchanged removes a message if it is still the same and not leased, and reports whether it did.
func (q *queue) removeUnchanged(now int64, was *store.Info) bool {
	m := q.messages[was.ID]
	if m == nil || m.lease != nil || !q.get(now, was.ID).Same(was) {
		return false
	}
	q.remove(m)
	return true
}
