//go:build unix

package chaos

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strings"
)

// allQueues is what a mark says that is about all queues; else it is a list with commas.
const allQueues = "-"

// measureRedelivery notes how long a message of a consumer that died or was stopped waited for another. Attempts in between are
// those of consumers that died before they heard of their claim, with a lease each.
func (f *facts) measureRedelivery(d, next *delivery, result *Result) {
	at, ok := f.killed[d.actor]
	if !ok {
		stops := f.stopped[d.actor]
		i := sort.Search(len(stops), func(i int) bool { return stops[i] >= d.ret })
		if ok = i < len(stops); ok {
			at = stops[i]
		}
	}
	if ok && d.ret <= at && next.now > at && f.slack == 0 {
		unheard := max(0, next.attempt-d.attempt-1) * f.lease * 1000
		result.AfterDeath.add(next.now - at - unheard)
	}
}

// measure finds stalls, and how soon deliveries went on after servers came back.
func (f *facts) measure(result *Result) {
	slices.SortFunc(f.marks, func(a, b record) int { return cmp.Compare(a.at, b.at) })
	calm := int64(math.MaxInt64)
	for i, m := range f.marks {
		switch m.field(0) {
		case "calm":
			calm = m.at
		case "serves":
			result.AfterRestart.addIf(f.goneOn(m))
		case "promoted":
			took := f.goneOn(m)
			result.AfterPromotion.addIf(took)
			// from the death on, so the promotion itself is a part of it
			if i > 0 {
				result.AfterPrimaryDeath.addIf(took + m.at - f.marks[i-1].at)
			}
		}
	}
	f.measureStall(calm, result)
	f.measureUsage(result)
	result.Slow = result.TooSlow()
}

// measureStall finds the longest time between claims of all queues, until the load ended.
func (f *facts) measureStall(calm int64, result *Result) {
	var all []int64
	for _, of := range f.claims {
		all = append(all, of...)
	}
	slices.Sort(all)
	for i, at := range all {
		if i > 0 && at <= calm {
			result.Stall.add(at - all[i-1])
		}
	}
}

// goneOn tells how long after a mark each of its queues had given messages again; below zero when one never did.
func (f *facts) goneOn(m record) (longest int64) {
	for queue, claims := range f.claims {
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

// measureUsage notes the memory and goroutines of the consumer that lived longest.
func (f *facts) measureUsage(result *Result) {
	longest := ""
	for actor, of := range f.usage {
		if strings.HasPrefix(actor, "worker") && (longest == "" || len(of) > len(f.usage[longest])) {
			longest = actor
		}
	}
	redis := f.usage["run"]
	for _, u := range f.usage[longest] {
		x := Usage{
			Seconds:   float64(u.at-f.usage[longest][0].at) / 1e6,
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
