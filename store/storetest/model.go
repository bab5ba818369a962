package storetest

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/laterq/later/store"
)

// model is a simple implementation of the contract: maps and linear scans, with times in milliseconds. Values that an
// engine may choose, such as lease ids, epochs and how far a claim gets, are taken from the engine's results and
// checked.
type model struct {
	now      int64
	exists   bool
	paused   bool
	retained store.Retention // MaxAge in whole milliseconds
	dropped  int64
	messages map[string]*modelMessage
	leases   map[string]*modelLease
	dedup    map[string]int64 // ids that are remembered, with the ends of their dedup windows
	once     map[string]modelOnce

	properties map[string]string
	flow       modelFlow
	keys       modelKeys
	arrival    int64 // the place of the last message with a key that was sent without a delay to a queue with an order
	passed     passedOver
	// stale has the urgencies of keys that may have turns without messages.
	stale map[store.Urgency]bool
}

type modelMessage struct {
	store.Message
	raw       []byte // the bytes of an unreadable message, else nil
	due       int64
	place     int64 // in the order of its key, in microseconds
	attempts  int
	delivered bool
	receipt   store.Receipt // zero unless the message is leased
	follows   bool          // it is leased, and all fields except the receipt belong to its successor
	lastError string
	failures  []store.Failure
	reason    store.DeadReason
	diedAt    int64
	modelSorted
}

// modelLease is a lease that has not ended. Its deadline may have passed.
type modelLease struct {
	uncounted bool
	deadline  int64
	// cancelled holds the messages cancelled since the last Extend, by key. The value is true if a Settle was
	// refused since then; an engine may then leave the message out of ExtendResult.Lost.
	cancelled map[string]bool
	// purged is the same for purged messages that counted. An engine may always leave them out.
	purged map[string]bool
	flow   int // the number of the flow for which its messages count
	keyed  int // the number of the limits of keys for which they count, or 0
	// keys holds the key of each message at the claim, by the key of its receipt.
	keys map[string]string
}

func newModel(now int64) *model {
	return &model{
		now:      now,
		messages: map[string]*modelMessage{},
		leases:   map[string]*modelLease{},
		dedup:    map[string]int64{},
		once:     map[string]modelOnce{},

		properties: map[string]string{},
		keys:       newModelKeys(),
		passed:     newPassedOver(),
		stale:      map[store.Urgency]bool{},
	}
}

func (m *model) setProperties(set map[string]string) {
	for name, value := range set {
		if value == "" {
			delete(m.properties, name)
			continue
		}
		m.properties[name], m.exists = value, true
	}
}

func (m *model) state(x *modelMessage) store.State {
	switch {
	case x.receipt.Lease != "":
		return store.StateLeased
	case x.reason != "":
		return store.StateDead
	case x.due > m.now:
		return store.StateScheduled
	}
	return store.StateReady
}

func (m *model) dueAt(due store.Due) int64 {
	if !due.At.IsZero() {
		return ms(due.At)
	}
	return m.now + store.Millis(due.Delay)
}

func (x *modelMessage) lastAttempt() bool {
	return x.attempts >= cmp.Or(x.MaxAttempts, store.DefaultMaxAttempts)
}

func (m *model) expired(x *modelMessage) bool {
	if x.delivered {
		return false
	}
	return x.ExpireAfter > 0 && x.due+store.Millis(x.ExpireAfter) <= m.now ||
		!x.ExpireAt.IsZero() && ms(x.ExpireAt) <= m.now
}

// in returns the messages in a state, in order of due time (for dead ones time of death), then id.
func (m *model) in(state store.State) []*modelMessage {
	var all []*modelMessage
	for _, x := range m.messages {
		if m.state(x) == state {
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(a, b *modelMessage) int {
		if state == store.StateDead {
			return cmp.Or(cmp.Compare(a.diedAt, b.diedAt), strings.Compare(a.ID, b.ID))
		}
		return cmp.Or(cmp.Compare(a.due, b.due), strings.Compare(a.ID, b.ID))
	})
	return all
}

func (m *model) info(id string) *store.Info {
	x := m.messages[id]
	if x == nil {
		return nil
	}
	info := &store.Info{
		Message: x.Message, State: m.state(x), Due: store.Time(x.due), Attempts: x.attempts,
		Delivered: x.delivered, Follows: x.follows, Raw: x.raw, LastError: x.lastError,
		Failures:   slices.Clone(x.failures),
		DeadReason: x.reason, DiedAt: store.Time(x.diedAt),
	}
	if info.State == store.StateLeased {
		info.LeaseDeadline = store.Time(m.leases[x.receipt.Lease].deadline)
	}
	return info
}

func (m *model) stats() store.Stats {
	s := store.Stats{
		Scheduled: int64(len(m.in(store.StateScheduled))), Ready: int64(len(m.in(store.StateReady))),
		Leased: int64(len(m.in(store.StateLeased))), Dead: int64(len(m.in(store.StateDead))),
		Paused: m.paused, Exists: m.exists, Now: store.Time(m.now), DeadRetention: m.retained, Dropped: m.dropped,
	}
	if waiting := slices.Concat(m.in(store.StateReady), m.in(store.StateScheduled)); len(waiting) > 0 {
		s.NextDue = store.Time(waiting[0].due)
	}
	return s
}

func (m *model) send(out store.Outgoing) store.SendResult {
	if m.messages[out.ID] != nil || m.dedup[out.ID] > m.now {
		return store.SendResult{Duplicate: true}
	}
	m.exists = true
	x := &modelMessage{Message: out.Message}
	m.arrive(x, out.Due)
	m.messages[out.ID] = x
	return store.SendResult{}
}

func (m *model) die(x *modelMessage, reason store.DeadReason, text string) {
	x.receipt, x.modelSorted = store.Receipt{}, modelSorted{}
	x.reason, x.diedAt, x.lastError = reason, m.now, text
}

// reap ends the expired leases and returns the ids of the messages that died.
func (m *model) reap() (died []string) {
	for id, l := range m.leases {
		if l.deadline > m.now {
			continue
		}
		for _, x := range m.messages {
			if x.receipt.Lease != id {
				continue
			}
			name, follows := l.keys[key(x.receipt)], x.follows
			x.receipt, x.follows = store.Receipt{}, false
			x.setDue(x.due)
			if l.uncounted || follows {
				if !follows {
					m.hold(x, l, name)
				}
				continue
			}
			x.setDue(l.deadline)
			x.delivered, x.lastError = true, store.LeaseExpiredText
			x.attempts++
			x.failures = store.AddFailure(store.LeaseExpired(store.Time(l.deadline), x.attempts), x.failures)
			if x.lastAttempt() {
				m.die(x, store.DeadLeaseExpired, store.LeaseExpiredText)
				died = append(died, x.ID)
			}
			m.hold(x, l, name)
		}
		delete(m.leases, id)
	}
	return died
}

// dropDead drops dead messages that exceed the retention and returns their ids, the oldest deaths first.
func (m *model) dropDead() (dropped []string) {
	dead := slices.DeleteFunc(m.in(store.StateDead), m.halts)
	for i, x := range dead {
		if m.retained.MaxCount > 0 && int64(len(dead)-i) > m.retained.MaxCount ||
			m.retained.MaxAge > 0 && m.now-x.diedAt >= m.retained.MaxAge.Milliseconds() {
			delete(m.messages, x.ID)
			dropped = append(dropped, x.ID)
			m.dropped++
		}
	}
	return dropped
}

// holds returns the message that is held under a receipt, or nil.
func (m *model) holds(r store.Receipt) *modelMessage {
	x := m.messages[r.ID]
	if x == nil || r.Lease == "" || key(x.receipt) != key(r) || m.leases[r.Lease].deadline <= m.now {
		return nil
	}
	return x
}

// leave ends the lease if nothing is left in it.
func (m *model) leave(lease string) {
	for _, x := range m.messages {
		if x.receipt.Lease == lease {
			return
		}
	}
	if l := m.leases[lease]; len(l.cancelled)+len(l.purged) == 0 {
		delete(m.leases, lease)
	}
}

func (m *model) meets(c *store.Condition) bool {
	return c == nil || m.properties[c.Property] == c.Value
}

func (m *model) settle(s store.Settlement) store.SettleResult {
	if !m.meets(s.If) {
		return store.SettleResult{Err: store.ErrConflict}
	}
	x := m.holds(s.Receipt)
	if x == nil {
		m.learn(s.Receipt)
		return store.SettleResult{Err: store.ErrLeaseLost}
	}
	defer m.leave(s.Receipt.Lease)
	x.receipt = store.Receipt{}
	x.setDue(x.due)
	if x.follows {
		x.follows = false
		for _, f := range s.Then {
			m.send(f.Message)
		}
		if s.Action == store.Ack {
			return store.SettleResult{}
		}
		return store.SettleResult{State: m.state(x)}
	}
	x.delivered = x.delivered || s.Action != store.Release
	switch s.Action {
	case store.Ack:
		delete(m.messages, x.ID)
		if s.DedupWindow > 0 {
			m.dedup[x.ID] = m.now + store.Millis(s.DedupWindow)
		}
		for _, f := range s.Then {
			m.send(f.Message)
		}
		return store.SettleResult{}
	case store.Nack:
		x.lastError = s.Reason
		m.fail(x, &s)
		if x.lastAttempt() {
			m.die(x, store.DeadFailed, s.Reason)
		} else {
			x.setDue(m.now + store.Millis(s.Delay))
		}
	case store.Snooze:
		if s.ResetAttempts {
			x.attempts, x.lastError = 0, ""
		}
		if x.givenBack() {
			x.failures, x.lastError = x.failures[1:], ""
		}
		x.setDue(m.now + store.Millis(s.Delay))
	case store.Bury:
		m.fail(x, &s)
		m.die(x, store.DeadBuried, s.Reason)
	case store.GiveBack:
		f := store.NewFailure(store.Time(m.now), 0, &s)
		if x.givenBack() {
			f.Time, x.failures = x.failures[0].Time, x.failures[1:]
		}
		if s.Within >= 0 && m.now-f.Time.UnixMilli() >= store.Millis(s.Within) {
			m.fail(x, &s)
			m.die(x, store.DeadUnreadable, s.Reason)
			break
		}
		x.failures, x.lastError = store.AddFailure(f, x.failures), s.Reason
		x.setDue(m.now + store.Millis(s.Delay))
	}
	l := m.leases[s.Receipt.Lease]
	m.hold(x, l, l.keys[key(s.Receipt)])
	return store.SettleResult{State: m.state(x)}
}

func (x *modelMessage) givenBack() bool { return len(x.failures) > 0 && x.failures[0].Attempt == 0 }

func (m *model) fail(x *modelMessage, s *store.Settlement) {
	x.attempts++
	x.failures = store.AddFailure(store.NewFailure(store.Time(m.now), x.attempts, s), x.failures)
}

// extend returns the result without Lost, and the keys that must and that may be in Lost.
func (m *model) extend(e store.Extension) (r store.ExtendResult, must, may []string) {
	l := m.leases[e.Lease]
	if l == nil || l.deadline <= m.now {
		return store.ExtendResult{Err: store.ErrLeaseLost}, nil, nil
	}
	for key, reported := range l.cancelled {
		may = append(may, key)
		if !reported {
			must = append(must, key)
		}
	}
	may = slices.AppendSeq(may, maps.Keys(l.purged))
	clear(l.cancelled)
	clear(l.purged)
	if e.For > 0 {
		l.deadline = m.now + store.Millis(e.For)
	}
	if m.leave(e.Lease); m.leases[e.Lease] == nil {
		return store.ExtendResult{Err: store.ErrLeaseLost}, must, may
	}
	return store.ExtendResult{Deadline: store.Time(l.deadline)}, must, may
}

func (m *model) cancel(id string, keepID bool) store.CancelResult {
	x := m.messages[id]
	if x == nil {
		return store.CancelResult{Err: store.ErrNotFound}
	}
	state := m.state(x)
	if state == store.StateLeased {
		m.leases[x.receipt.Lease].cancelled[key(x.receipt)] = false
	}
	delete(m.messages, id)
	m.loose(id)
	if keepID && x.DedupWindow > 0 {
		m.dedup[id] = m.now + store.Millis(x.DedupWindow)
	}
	return store.CancelResult{State: state}
}

func (m *model) reschedule(id string, due store.Due) error {
	x := m.messages[id]
	switch {
	case x == nil:
		return store.ErrNotFound
	case m.state(x) == store.StateLeased:
		return store.ErrLeased
	case m.state(x) == store.StateDead:
		return store.ErrDead
	}
	x.setDue(m.dueAt(due))
	return nil
}

// selected returns the messages of a selection, for a loop of calls during which the clock stands still.
func (m *model) selected(sel store.Selection) []*modelMessage {
	if len(sel.IDs) == 0 && sel.State == store.StateNone {
		return slices.Collect(maps.Values(m.messages))
	}
	if len(sel.IDs) == 0 {
		return m.in(sel.State)
	}
	return slices.DeleteFunc(m.in(store.StateDead), func(x *modelMessage) bool {
		return !slices.Contains(sel.IDs, x.ID)
	})
}

func (m *model) replay(sel store.Selection, due store.Due) int {
	chosen := m.selected(sel)
	for _, x := range chosen {
		x.reason, x.diedAt, x.lastError, x.attempts = "", 0, "", 0
		x.delivered = true // its expiry no longer counts
		x.setDue(m.dueAt(due))
		if name, ok := m.held(x.ID); ok {
			m.keys.holds[name] = modelHold{id: x.ID}
		}
	}
	return len(chosen)
}

// purge returns the number of messages that it removed, and the halted keys that go on.
func (m *model) purge(sel store.Selection) (done int, resumed []string) {
	chosen := m.selected(sel)
	for _, x := range chosen {
		delete(m.messages, x.ID)
		if name := m.loose(x.ID); name != "" {
			resumed = append(resumed, name)
		}
	}
	slices.Sort(resumed)
	m.purgeTurns(chosen)
	if len(sel.IDs) == 0 && sel.State == store.StateNone {
		m.purgeLeases(chosen)
	}
	return len(chosen), resumed
}

func (m *model) histogram(bounds []int64) []int64 {
	counts := make([]int64, len(bounds)-1)
	for _, x := range slices.Concat(m.in(store.StateReady), m.in(store.StateScheduled)) {
		for i := range counts {
			if bounds[i] <= x.due && x.due < bounds[i+1] {
				counts[i]++
			}
		}
	}
	return counts
}
