//go:build unix

package chaos

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strings"
)

// allQueues marks an event that concerns all queues. Other events list their queues, separated by commas.
const allQueues = "-"

// measureRedelivery measures how long messages of a dead or stopped consumer waited for another one. Each attempt in
// between belongs to a consumer that died before it recorded its claim, and counts for one lease. If another fault
// followed, which delays all deliveries, the time counts from that one: the target is for a single fault.
func (ck *checker) measureRedelivery(d, next *delivery, result *Result) {
	at, ok := ck.killed[d.actor]
	if !ok {
		stops := ck.stopped[d.actor]
		i := sort.Search(len(stops), func(i int) bool { return stops[i] >= d.ret })
		if ok = i < len(stops); ok {
			at = stops[i]
		}
	}
	if ok && d.ret <= at && next.now > at && ck.slack == 0 {
		at = max(at, ck.disturbed(d.actor, next.now))
		unheard := max(0, next.attempt-d.attempt-1) * ck.lease * 1000
		result.AfterDeath.add(next.now - at - unheard)
	}
}

// disturbed returns when the last fault of the server, of connections or of another consumer than actor began or ended
// before a time, or 0 if there was none. Kills of consumers do not count: they delay only the messages of these
// consumers.
func (ck *checker) disturbed(actor string, before int64) (at int64) {
	for _, e := range ck.events {
		switch e.field(0) {
		case "stop", "continue":
			if e.field(1) == actor {
				continue
			}
		case "server-kill", "freeze-server", "serves", "half-open":
		default:
			continue
		}
		if e.at < before {
			at = max(at, e.at)
		}
	}
	return at
}

// measure measures stalls and how soon deliveries resumed after an outage.
func (ck *checker) measure(result *Result) {
	slices.SortFunc(ck.events, func(a, b record) int { return cmp.Compare(a.at, b.at) })
	loadEnd := int64(math.MaxInt64)
	for i, m := range ck.events {
		switch m.field(0) {
		case "load-ended":
			loadEnd = m.at
		case "serves":
			result.AfterRestart.addKnown(ck.resumedAfter(m))
		case "promoted":
			took := ck.resumedAfter(m)
			result.AfterPromotion.addKnown(took)
			// Counted from the death, so it includes the promotion itself.
			if i > 0 {
				result.AfterPrimaryDeath.addKnown(took + m.at - ck.events[i-1].at)
			}
		}
	}
	ck.measureStall(loadEnd, result)
	ck.measureUsage(result)
	result.Slow = result.TooSlow()
}

// measureStall measures the longest time between two claims on any queue until the load ended.
func (ck *checker) measureStall(loadEnd int64, result *Result) {
	var all []int64
	for _, of := range ck.claims {
		all = append(all, of...)
	}
	slices.Sort(all)
	for i, at := range all {
		if i > 0 && at <= loadEnd {
			result.Stall.add(at - all[i-1])
		}
	}
}

// resumedAfter returns how long after an event the last of its queues delivered again. It is negative if one never did.
func (ck *checker) resumedAfter(m record) (longest int64) {
	if len(ck.claims) > manyQueues {
		return -1 // most queues have nothing to deliver for seconds
	}
	for queue, claims := range ck.claims {
		if of := m.field(2); of != allQueues && !slices.Contains(strings.Split(of, ","), queue) {
			continue
		}
		i := sort.Search(len(claims), func(i int) bool { return claims[i] >= m.at })
		if i == len(claims) {
			return -1 << 40
		}
		longest = max(longest, claims[i]-m.at)
	}
	return longest
}

// measureUsage copies the memory and goroutines of the longest-lived worker to the result.
func (ck *checker) measureUsage(result *Result) {
	longest := ""
	for actor, of := range ck.usage {
		if strings.HasPrefix(actor, "worker") && (longest == "" || len(of) > len(ck.usage[longest])) {
			longest = actor
		}
	}
	redis := ck.usage["run"]
	for _, u := range ck.usage[longest] {
		x := Usage{
			Seconds:   float64(u.at-ck.usage[longest][0].at) / 1e6,
			WorkerKiB: u.number(0), Goroutines: u.number(1), HeapKiB: u.number(2),
		}
		for len(redis) > 1 && redis[1].at <= u.at {
			redis = redis[1:]
		}
		if len(redis) > 0 {
			x.RedisKiB = redis[0].number(0)
		}
		result.Usage = append(result.Usage, x)
	}
}
