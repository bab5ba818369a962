//go:build unix

package chaos

import (
	"cmp"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// Guarantees of lock.PerKey that these rules verify:
//
//   - While a handler runs and its process took or extended the lock less than a TTL ago, no other handler of the key
//     runs. If the extensions failed, or the process did not run, another one may run after the TTL.
//   - A handler with an expired lock learns of it by the end of its context, as soon as its process runs.
//   - A handler does not learn so while it has the lock, and if it does, its attempt is not acked.
//   - A handler of a message with a key runs only with the lock.
//   - After a holder died, the key's next handler runs when the lock has expired.

// section is a run of a handler under the lock of its key.
type section struct {
	actor, key string
	id         string
	attempt    int64
	begin, end int64 // end is 0 if its process died or the run ended before
	toldAt     int64 // when its context ended because the lock was lost, or 0
	lost       bool  // at the end, it had been told
}

// grant is a call that gave a process a lock for a TTL from then on.
type grant struct {
	call, ret int64
	taken     bool // the lock was taken, not extended
	lost      bool // an extension that found that the lock was lost
}

// holder is a process that uses the lock of a key.
type holder struct{ actor, key string }

// lockHistory has the locks in the journals.
type lockHistory struct {
	sections map[string][]*section // by key
	grants   map[holder][]grant
	current  map[holder]*section
	asked    map[string]int64 // time of the last claim of a message, by key
}

// addLock adds a record about locks.
func (h *lockHistory) addLock(actor string, x record) {
	if h.sections == nil {
		h.sections, h.grants = map[string][]*section{}, map[holder][]grant{}
		h.current, h.asked = map[holder]*section{}, map[string]int64{}
	}
	if x.kind == lockCall {
		of := holder{actor, x.field(2)}
		switch op, outcome := x.field(1), x.field(4); {
		case op == freeLock:
		case outcome == outcomeOK:
			h.grants[of] = append(h.grants[of], grant{call: x.number(0), ret: x.at, taken: op == takeLock})
		case outcome == outcomeLost:
			h.grants[of] = append(h.grants[of], grant{call: x.number(0), ret: x.at, lost: true})
		}
		return
	}
	of := holder{actor, x.field(0)}
	s := h.current[of]
	if x.kind == beginLocked {
		s = &section{actor: actor, key: x.field(0), id: x.id, attempt: x.number(1), begin: x.at}
		h.current[of] = s
		h.sections[s.key] = append(h.sections[s.key], s)
	}
	switch {
	case s == nil || s.id != x.id || s.attempt != x.number(1): // told after its end
	case x.kind == lockLost:
		s.toldAt = x.at
	case x.kind == endLocked:
		s.end, s.lost = x.at, x.field(2) == outcomeLost
		if s.lost && s.toldAt == 0 {
			s.toldAt = x.at
		}
	}
}

// heldUntil returns until when a process had a lock for certain, as it knew at a time.
func (h *lockHistory) heldUntil(of holder, before int64) (until int64) {
	for _, g := range h.grants[of] {
		if !g.lost && g.call < before {
			until = max(until, g.call+lockTTL.Microseconds())
		}
	}
	return until
}

const (
	// lockSlack is how much earlier than after a TTL a lock may expire: Redis counts whole milliseconds, from the begin
	// of a script.
	lockSlack = int64(5 * time.Millisecond / time.Microsecond)
	// toldWithin is how soon a handler learns that its lock has expired, once its process runs.
	toldWithin = int64(1500 * time.Millisecond / time.Microsecond)
	// freedWithin is how soon after the death of a holder the key's next handler runs. It is generous, because a
	// message may be snoozed, or fail and wait.
	freedWithin = int64(30 * time.Second / time.Microsecond)
)

// checkLocks checks the sections of all keys.
func (ck *checker) checkLocks(result *Result) {
	for key, all := range ck.locks.sections {
		slices.SortFunc(all, func(a, b *section) int { return cmp.Compare(a.begin, b.begin) })
		for i, s := range all {
			result.LocksHeld++
			end := ck.endOf(s)
			for _, next := range all[i+1:] {
				if next.begin >= end {
					break
				}
				ck.checkBeside(s, next, result)
			}
			ck.checkExpired(s, end, result)
			ck.checkTold(s, result)
			if killed := ck.killed[s.actor]; s.end == 0 && killed != 0 {
				ck.checkFreed(key, all[i+1:], killed, result)
			}
		}
	}
}

// endOf returns when a section ended, at the latest when its process died.
func (ck *checker) endOf(s *section) int64 {
	if s.end != 0 {
		return s.end
	}
	if killed := ck.killed[s.actor]; killed != 0 {
		return killed
	}
	return ck.ends + 1
}

// checkBeside checks a section during which the next one of its key began. That is permitted when its lock had expired.
func (ck *checker) checkBeside(s, next *section, result *Result) {
	if until := ck.locks.heldUntil(holder{s.actor, s.key}, next.begin); next.begin < until-lockSlack &&
		!ck.stoppedBeforeBegin(next) {
		result.violate("two-in-lock", next.id, "%s handles it under %s while %s handles %s, whose lock lasts for "+
			"%d µs more", next.actor, s.key, s.actor, s.id, until-next.begin)
		return
	}
	result.LocksBeside++
}

// stoppedBeforeBegin reports whether a process did not run between the answer that gave it a lock and its handler's
// begin. It could not notice in time that the lock had expired.
func (ck *checker) stoppedBeforeBegin(s *section) bool {
	granted := int64(0)
	for _, g := range ck.locks.grants[holder{s.actor, s.key}] {
		if !g.lost && g.ret <= s.begin {
			granted = max(granted, g.ret)
		}
	}
	return ck.starvedIn(s.actor, granted, s.begin)
}

// checkExpired checks that a handler with an expired lock was told so as soon as its process ran.
func (ck *checker) checkExpired(s *section, end int64, result *Result) {
	until := ck.locks.heldUntil(holder{s.actor, s.key}, end)
	limit := until + toldWithin
	windows := slices.Clone(ck.starved[s.actor])
	slices.SortFunc(windows, func(a, b window) int { return cmp.Compare(a.from, b.from) })
	for _, w := range windows {
		if w.from <= limit && w.to > until {
			limit = max(limit, w.to+toldWithin)
		}
	}
	if end > limit && (s.toldAt == 0 || s.toldAt > limit) {
		result.violate("untold", s.id, "the lock %s of %s expired at %d; its handler ran until %d and was told at %d "+
			"(0: never)", s.key, s.actor, until, end, s.toldAt)
	}
}

// checkTold checks that a handler that was told that its lock is lost had lost it.
func (ck *checker) checkTold(s *section, result *Result) {
	if s.toldAt == 0 {
		return
	}
	result.LocksLost++
	of := holder{s.actor, s.key}
	refused := slices.ContainsFunc(ck.locks.grants[of], func(g grant) bool {
		return g.lost && g.call >= s.begin && g.ret <= s.toldAt
	})
	// A process does not know of an extension that was not answered before the lock would have expired.
	known := int64(0)
	for _, g := range ck.locks.grants[of] {
		if !g.lost && g.ret < s.toldAt && (g.taken || g.ret < known-lockSlack) {
			known = g.call + lockTTL.Microseconds()
		}
	}
	// The middleware counts from a little before the call.
	if !refused && s.toldAt < known-starvedFrom.Microseconds() {
		result.violate("false-loss", s.id, "%s was told that it lost %s, which it had for %d µs more",
			s.actor, s.key, known-s.toldAt)
	}
}

// checkFreed checks that the key of a holder that was killed goes on, if there are messages of it.
func (ck *checker) checkFreed(key string, later []*section, killed int64, result *Result) {
	next := ck.locks.asked[key]
	for _, s := range later {
		if s.begin > killed {
			next = s.begin
			result.LockFreed.add(next - killed)
			break
		}
	}
	if next-killed > freedWithin {
		result.violate("no-progress", "-", "the holder of %s was killed, and %d ms later no handler of the key had run",
			key, (next-killed)/1000)
	}
}

// checkLocked checks that the handler of each attempt that was acked had the lock from begin to end.
func (ck *checker) checkLocked(m *message, violate violator) {
	key := lockKey(m.id)
	if ck.locks.sections == nil || key == "" {
		return
	}
	for _, d := range m.deliveries {
		if ck.kinds[d.actor] != "worker" {
			continue
		}
		ck.locks.asked[key] = max(ck.locks.asked[key], d.now)
		if !slices.ContainsFunc(d.settles, func(s *settle) bool {
			return s.action == store.Ack.String() && s.known(outcomeOK)
		}) {
			continue
		}
		i := slices.IndexFunc(ck.locks.sections[key], func(s *section) bool {
			return s.actor == d.actor && s.id == m.id && s.attempt == d.attempt && s.begin >= d.call
		})
		if i < 0 {
			violate("unlocked", "%s acked attempt %d and never had the lock %s", d.actor, d.attempt, key)
		} else if ck.locks.sections[key][i].lost {
			violate("lost-acked", "%s acked attempt %d, which had been told that it lost the lock %s",
				d.actor, d.attempt, key)
		}
	}
}
