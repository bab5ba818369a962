package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/laterq/later/store"
)

func (m *machine) Claim(r *rapid.T) {
	req := store.ClaimRequest{
		Max:   rapid.IntRange(1, 5).Draw(r, "max"),
		Lease: time.Duration(rapid.IntRange(10, 100).Draw(r, "lease ms")) * time.Millisecond,

		Uncounted: rapid.IntRange(0, 3).Draw(r, "uncounted if 0") == 0,
	}
	if rapid.Bool().Draw(r, "ahead") {
		req.Ahead = rapid.IntRange(0, req.Max).Draw(r, "messages ahead")
	}
	m.claim(r, m.store(r), req)
}

// claim claims messages, and returns them.
func (m *machine) claim(r *rapid.T, s store.Store, req store.ClaimRequest) []store.Claimed {
	c, err := s.Claim(m.ctx, m.queue, req)
	m.ok(r, err)
	m.same(r, "now", c.Now.UnixMilli(), m.model.now)
	m.same(r, "limited", c.Limited, m.model.flow.Limited())
	most := req.Max
	if m.model.flow.Limited() {
		most -= req.Ahead
	}
	if len(c.Messages) > most {
		r.Fatalf("a claim of %d returned %d messages", most, len(c.Messages))
	}
	byReceipt := map[string]string{}
	worked := m.takeInOrder(r, c, ids(c.Messages), false, func(i int, x *modelMessage) {
		want := store.Claimed{Message: x.Message, Due: store.Time(x.due), Attempt: x.attempts + 1}
		m.same(r, "claimed", claimLine(c.Messages[i]), claimLine(want))
		receipt := c.Messages[i].Receipt
		if receipt.ID != x.ID || receipt.Lease != c.Messages[0].Receipt.Lease {
			r.Fatalf("message %s has the receipt %s", x.ID, key(receipt))
		}
		x.receipt, x.modelSorted = receipt, modelSorted{}
		m.model.loose(x.ID)
		m.receipts = append(m.receipts, receipt)
		byReceipt[key(receipt)] = x.Key
		m.grouped[key(receipt)] = x.Group != ""
	})
	if c.More && !worked && most > 0 {
		r.Fatalf("a claim did nothing, but More is set")
	}
	m.checkFences(r, c)
	if m.model.flow.Fair && !m.model.paused && !c.Unsorted {
		m.checkSorted(r)
	}
	if len(c.Messages) == 0 {
		m.same(r, "deadline of an empty claim", ms(c.Deadline), 0)
		return nil
	}
	lease := c.Messages[0].Receipt.Lease
	if slices.Contains(m.leases, lease) || lease == "" {
		r.Fatalf("lease %q is not new", lease)
	}
	m.leases = append(m.leases, lease)
	deadline := m.model.now + store.Millis(req.Lease)
	m.same(r, "deadline", ms(c.Deadline), deadline)
	m.model.leases[lease] = &modelLease{uncounted: req.Uncounted, deadline: deadline, flow: m.model.flow.number,
		keys: byReceipt, cancelled: map[string]bool{}, purged: map[string]bool{}}
	if m.model.flow.Fair {
		m.model.leases[lease].keyed = m.model.keys.number
	}
	return c.Messages
}

// takeInOrder checks a claim, or another call that does its housekeeping and took messages with ids, against the ready
// messages of the model, earliest first; in a Fair queue those of each key. Up to some point, each message was taken,
// or died because it was unreadable or had expired. It calls took for each one that was taken, with its index. Limits
// of the queue may have held back the rest. It reports whether the call did anything.
func (m *machine) takeInOrder(
	r *rapid.T, c store.Claim, ids []string, forwards bool, took func(i int, x *modelMessage),
) (worked bool) {
	leases := len(m.model.leases)
	mustDie := m.model.reap()
	limit := m.model.limit(forwards)
	if len(ids) > limit {
		r.Fatalf("%d messages started, and the limits allow %d", len(ids), limit)
	}
	m.model.start(len(ids))
	worked = leases > len(m.model.leases) || len(ids)+len(c.Died)+len(c.Dropped) > 0
	m.same(r, "dropped", strings.Join(c.Dropped, " "), strings.Join(m.model.dropDead(), " "))
	died := slices.Clone(c.Died)
	for _, id := range mustDie {
		at := slices.Index(died, id)
		if at < 0 {
			r.Fatalf("the last lease of %s expired, but Died lacks it", id)
		}
		died = slices.Delete(died, at, at+1)
	}
	var ready []*modelMessage
	if !m.model.paused {
		ready = m.model.in(store.StateReady)
	}
	m.checkUrgencies(r, ready, ids, forwards)
	most := map[string]int{"": limit}
	for _, x := range ready {
		most[x.Key] = m.model.keyLimit(x.Key, forwards)
	}
	started, rest := map[string]int{}, map[string]bool{}
	for lane, msgs := range m.model.lanes(ready) {
		n, more := m.takeLane(r, msgs, ids, &died, took)
		started[lane.key] += n
		rest[lane.key] = rest[lane.key] || more
	}
	taken, left := 0, false
	for name, n := range started {
		if n > most[name] {
			r.Fatalf("%d messages of key %q started, and its limits allow %d", n, name, most[name])
		}
		m.model.keyStart(name, n)
		taken, left = taken+n, left || rest[name] && n < most[name]
	}
	if taken < len(ids) || len(died) > 0 {
		r.Fatalf("taken out of order, of %v; died without a reason: %v", ids, died)
	}
	if left && !c.More && taken < limit {
		r.Fatalf("ready messages are left, but More is not set")
	}
	return worked
}

// takeLane is takeInOrder for messages that start in their order. It removes the messages that died, and returns how
// many were taken, and whether messages are left.
func (m *machine) takeLane(
	r *rapid.T, lane []*modelMessage, ids []string, died *[]string, took func(i int, x *modelMessage),
) (taken int, left bool) {
	last := -1
	for _, x := range lane {
		at := slices.Index(*died, x.ID)
		switch {
		case x.raw == nil && !m.model.expired(x):
			i := slices.Index(ids, x.ID)
			if i < 0 {
				return taken, true
			}
			if i < last {
				r.Fatalf("message %s was taken before its turn: %v", x.ID, ids)
			}
			took(i, x)
			last = i
			taken++
			continue
		case at < 0:
			return taken, true
		case x.raw != nil:
			m.model.die(x, store.DeadUnreadable, store.UnreadableText)
		default:
			m.model.die(x, store.DeadExpired, store.ExpiredText)
		}
		m.model.loose(x.ID)
		*died = slices.Delete(*died, at, at+1)
	}
	return taken, false
}

func claimLine(c store.Claimed) string {
	return fmt.Sprintf("attempt %d: %s", c.Attempt, describe(&store.Info{Message: c.Message, Due: c.Due}))
}
