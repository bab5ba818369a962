package storetest

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/laterq/later/store"
)

// The steps of the state machine that restore messages and remove unchanged ones.

// drawInfo draws a message as another store may return it.
func (m *machine) drawInfo(r *rapid.T) store.Info {
	info := store.Info{
		Message:   m.drawMessage(r).Message,
		State:     rapid.SampledFrom(allStates).Draw(r, "state"),
		Due:       m.drawTime(r, "due"),
		Attempts:  rapid.IntRange(0, 2).Draw(r, "attempts"),
		Delivered: rapid.Bool().Draw(r, "delivered"),
		LastError: rapid.SampledFrom([]string{"", "no", "tab\tand\nline"}).Draw(r, "last error"),
	}
	for range rapid.IntRange(0, store.MaxFailures).Draw(r, "failures") {
		info.Failures = append(info.Failures, store.Failure{
			Time: m.drawTime(r, "failed at"), Attempt: rapid.IntRange(1, 3).Draw(r, "attempt"),
			Duration: time.Duration(rapid.IntRange(0, 2).Draw(r, "took ms")) * time.Millisecond,
			Worker:   rapid.SampledFrom([]string{"", "host:1"}).Draw(r, "worker"),
			Error:    rapid.SampledFrom([]string{"", "no", "über"}).Draw(r, "error"),
		})
	}
	if info.State == store.StateLeased {
		info.LeaseDeadline = m.drawTime(r, "deadline")
	}
	if info.State == store.StateDead {
		info.DiedAt = m.drawTime(r, "died at")
		info.DeadReason = rapid.SampledFrom([]store.DeadReason{
			store.DeadFailed, store.DeadLeaseExpired, store.DeadBuried, store.DeadExpired, store.DeadUnreadable,
		}).Draw(r, "reason")
	}
	if rapid.IntRange(0, 3).Draw(r, "unreadable if 0") == 0 {
		info.Message = store.Message{ID: info.ID}
		info.Raw = []byte(rapid.SampledFrom([]string{"", "\xff", "\xfflater", "\x80", "\x80later format"}).Draw(r,
			"raw"))
	}
	return info
}

func (m *machine) Restore(r *rapid.T) {
	msgs := rapid.SliceOfN(rapid.Custom(m.drawInfo), 1, 4).Draw(r, "messages")
	for _, info := range msgs {
		m.ok(r, info.Check())
	}
	got, err := m.store(r).Restore(m.ctx, m.queue, msgs)
	m.ok(r, err)
	var want []store.SendResult
	for _, info := range msgs {
		want = append(want, m.model.restore(info))
	}
	m.same(r, "restore", got, want)
}

// Remove removes messages, some of them given with a change.
func (m *machine) Remove(r *rapid.T) {
	var msgs []store.Info
	for _, id := range drawIDs(r, 1) {
		info := m.model.info(id)
		if info == nil {
			info = &store.Info{Message: store.Message{ID: id}, State: store.StateReady, Due: m.drawTime(r, "due")}
		}
		switch rapid.IntRange(0, 8).Draw(r, "changed") {
		case 0:
			info.Due = info.Due.Add(time.Millisecond)
		case 1:
			info.Attempts++
		case 2:
			info.Payload = append([]byte("another "), info.Payload...)
		case 3:
			info.LastError += "!"
		case 4:
			info.Failures = store.AddFailure(store.LeaseExpired(info.Due, 1), info.Failures)
		}
		msgs = append(msgs, *info)
	}
	got, err := m.store(r).Remove(m.ctx, m.queue, msgs)
	m.ok(r, err)
	var want []bool
	for _, info := range msgs {
		want = append(want, m.model.remove(info))
	}
	m.same(r, "remove", got, want)
}

func (m *model) restore(i store.Info) store.SendResult {
	if m.messages[i.ID] != nil || m.dedup[i.ID] > m.now {
		return store.SendResult{Duplicate: true}
	}
	m.exists = true
	x := &modelMessage{
		Message: i.Message, raw: i.Raw, attempts: i.Attempts, delivered: i.Delivered,
		lastError: i.LastError,
		failures:  slices.Clone(i.Failures),
	}
	x.setDue(ms(i.Due))
	if i.State == store.StateDead {
		x.reason, x.diedAt = i.DeadReason, min(ms(i.DiedAt), m.now)
	}
	m.messages[i.ID] = x
	return store.SendResult{}
}

func (m *model) remove(i store.Info) bool {
	x := m.messages[i.ID]
	if x == nil || m.state(x) == store.StateLeased || !m.info(i.ID).Same(&i) {
		return false
	}
	delete(m.messages, i.ID)
	m.loose(i.ID)
	return true
}
