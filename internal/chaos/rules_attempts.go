//go:build unix

package chaos

import "slices"

// unseen may explain an attempt that no consumer recorded: a claim that failed, so that its reply was lost, or the
// death of a consumer, which may have died between a claim and its record. It explains one attempt per message.
type unseen struct {
	from, to int64  // µs; the claim was executed in between
	queue    string // "" means any
}

// unseenReach is how long a call may be in progress when its process dies, and how long after its failure a claim may
// still be executed, for example by a server that was stopped.
const unseenReach = int64(15_000_000)

// checkAttempts checks that attempts never decrease, and that each increase is explained: by a delivery that ended, or
// by a claim that no consumer could record. A message thus never dies without having been claimed.
func (ck *checker) checkAttempts(m *message, violate violator) {
	sent := int64(0)
	for _, s := range m.sends {
		if sent == 0 || s.at < sent {
			sent = s.at
		}
	}
	for i, d := range m.deliveries {
		if ck.recreated(m, d) || i == 0 && sent == 0 {
			continue
		}
		var before *delivery
		from := sent
		if i > 0 {
			before = m.deliveries[i-1]
			from = before.call
		}
		ck.explain(m, before, from, d.now, d.ret, d.attempt-1, violate)
	}
	for _, o := range ck.observations(m) {
		if o.before != nil && (ck.recreated(m, o.before) || o.before.endedBy("ack")) ||
			m.resent() && m.gone() <= o.at || sent == 0 {
			continue
		}
		from := sent
		if o.before != nil {
			from = o.before.call
		}
		ck.explain(m, o.before, from, o.at, o.at, o.attempts, violate)
	}
}

// observation is the number of attempts of a message that was found in the store, and its last delivery before.
type observation struct {
	at, attempts int64
	before       *delivery
}

// observations returns when the message was found dead, and whether it was left in the store.
func (ck *checker) observations(m *message) (all []observation) {
	for _, o := range m.founds {
		for _, d := range m.deliveries {
			if d.ret < o.at { // a dead message cannot be claimed before it is replayed, after it was found
				o.before = d
			}
		}
		all = append(all, o)
	}
	if info := ck.left[m.id]; info != nil && info.Attempts >= 0 {
		o := observation{at: ck.ends, attempts: int64(info.Attempts)}
		if n := len(m.deliveries); n > 0 {
			o.before = m.deliveries[n-1]
		}
		all = append(all, o)
	}
	return all
}

// explain checks that a message had so many attempts at a time (now by the engine's clock, ret by the process). before
// is its previous delivery, or nil.
func (ck *checker) explain(m *message, before *delivery, from, now, ret, attempts int64, violate violator) {
	least, most := int64(0), int64(0)
	if before != nil {
		least, most = before.attempt, before.attempt
		switch {
		case before.settledBy("release", "snooze"):
			least, most = most-1, most-1
		case before.endedBy("release", "snooze"):
			least--
		}
	}
	for _, r := range m.replays {
		if r.at >= ret || r.ret != 0 && r.ret < from || r.known(outcomeNotFound) && !r.repeated() {
			continue
		}
		if least = 0; r.known(outcomeOK) && !r.repeated() && (before == nil || r.at > before.ret) {
			most, from = 0, max(from, r.at)
		}
	}
	if attempts < least {
		violate("attempts", "had %d attempts, after it had %d or more", attempts, least)
	}
	missing := attempts - most
	if missing <= 0 {
		return
	}
	explained := int64(0)
	for _, u := range ck.unseen {
		if u.queue != "" && m.queue() != "" && u.queue != m.queue() || u.to < from {
			continue
		}
		// A lease begins and ends with a millisecond of the engine's clock.
		if ck.slack > 0 && u.from < ret || u.from/1000+ck.lease <= now/1000 {
			explained++
		}
	}
	if missing > explained {
		violate("unseen", "had %d attempts, of which %d have no claim; %d claims failed or died with their "+
			"process since", attempts, missing, explained)
	}
}

// settledBy reports whether one of the actions certainly ended the delivery.
func (d *delivery) settledBy(actions ...string) bool {
	return slices.ContainsFunc(d.settles, func(s *settle) bool {
		return s.known(outcomeOK) && slices.Contains(actions, s.action)
	})
}

// queue returns the queue of the message, or "" if it was never claimed.
func (m *message) queue() string {
	if len(m.deliveries) == 0 {
		return ""
	}
	return m.deliveries[0].queue
}
