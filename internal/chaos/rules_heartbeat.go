//go:build unix

package chaos

import (
	"cmp"
	"slices"
)

// checkHeartbeats checks that a worker extended the lease of each message that it held, before nine tenths of the lease
// were over, again and again. Processes that were killed, stopped or starved of CPU during the hold are excused, and so
// is everything after an extension that failed or was refused, or that was answered when the worker knew that the lease
// had ended.
func (ck *checker) checkHeartbeats(m *message, violate violator) {
	if ck.lease == 0 || ck.slack > 0 {
		return
	}
	for _, d := range m.deliveries {
		if ck.kinds[d.actor] != "worker" || !ck.ended[d.actor] {
			continue
		}
		held := int64(0) // until when the worker had the message
		if len(d.settles) > 0 {
			held = d.settles[0].at
		} else if t := m.lossOf(d); t != nil {
			held = t.at
		}
		beats := slices.Clone(ck.extends[d.lease])
		slices.SortFunc(beats, func(a, b extension) int { return cmp.Compare(a.call, b.call) })
		since, limit := d.ret, ck.lease*900
		end := d.call + ck.lease*1000 // of the lease, as the worker knows
		gone := func(e extension) bool { return e.deadline == 0 || e.ret > end }
		for i, e := range beats {
			if e.call-since > limit || gone(e) {
				beats = beats[:i+1]
				break
			}
			since, end = max(since, e.ret), e.call+ck.lease*1000 // a worker waits for one extension before the next
		}
		if n := len(beats); n > 0 && gone(beats[n-1]) && beats[n-1].call-since <= limit {
			continue
		}
		if held-since > limit && !ck.starvedIn(d.actor, since, since+limit) {
			violate("heartbeat", "%s held attempt %d for %d ms after it had last extended its lease of %d ms, %d "+
				"times in all", d.actor, d.attempt, (held-since)/1000, ck.lease, len(beats))
		}
	}
}

// starvedIn reports whether a process did not run for a while in a time.
func (ck *checker) starvedIn(actor string, from, to int64) bool {
	return slices.ContainsFunc(ck.starved[actor], func(w window) bool { return w.from <= to && w.to >= from })
}
