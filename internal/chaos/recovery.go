package chaos

import (
	"slices"
	"sort"
	"strings"
)

// measureRedelivery notes how long a message of a consumer that died or was stopped waited for another.
func (f *facts) measureRedelivery(d, next *delivery, result *Result) {
	at, ok := f.killed[d.actor]
	if !ok {
		at, ok = f.stopped[d.actor]
	}
	if ok && d.ret <= at && next.now > at && f.slack == 0 {
		result.AfterDeath.add(next.now - at)
	}
}

// measure finds stalls, and how soon deliveries went on after servers came back.
func (f *facts) measure(result *Result) {
	slices.SortFunc(f.marks, func(a, b record) int { return int(a.at - b.at) })
	from, to := int64(0), int64(0)
	if len(f.claims) > 0 {
		from, to = f.claims[0], f.claims[len(f.claims)-1]
	}
	for i, m := range f.marks {
		switch m.field(0) {
		case "calm":
			to = m.at
		case "serves":
			result.AfterRestart.addIf(f.nextClaim(m.at))
		case "promoted":
			result.AfterPromotion.addIf(f.nextClaim(m.at))
			// from the death on, so the promotion itself is a part of it
			if i > 0 {
				result.AfterPrimaryDeath.addIf(f.nextClaim(m.at) + m.at - f.marks[i-1].at)
			}
		}
	}
	last := from
	for _, at := range f.claims {
		if at > to {
			break
		}
		result.Stall.add(at - last)
		last = at
	}
	f.measureUsage(result)
}

// nextClaim tells how long after a time the next claim gave messages; below zero when there was none.
func (f *facts) nextClaim(at int64) int64 {
	i := sort.Search(len(f.claims), func(i int) bool { return f.claims[i] >= at })
	if i == len(f.claims) {
		return -1 << 40
	}
	return f.claims[i] - at
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
