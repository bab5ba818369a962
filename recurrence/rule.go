package recurrence

import (
	"hash/fnv"
	"io"
	"iter"
	"time"
)

// Rule has the times of a compiled Spec. It does not change and is safe for concurrent use.
type Rule struct {
	source     source
	loc        *time.Location
	start, end int64 // milliseconds since 1970; end is exclusive
	exclude    []span
	jitter     int64 // milliseconds
	seed       uint64
	maxRuns    int
}

// Occurrence is one time of a Rule. Both fields are whole milliseconds, in the rule's zone.
type Occurrence struct {
	Nominal time.Time // the time of the rule; identifies the run
	Due     time.Time // Nominal and the jitter: not before Nominal, and before the Nominal that follows
}

// Next returns the first occurrence with a Nominal later than after, or false if there is none. It knows nothing about
// runs: MaxRuns is the business of Finished.
func (r *Rule) Next(after time.Time) (Occurrence, bool) {
	nominal, ok := r.next(milliOf(after))
	if !ok {
		return Occurrence{}, false
	}
	return Occurrence{r.time(nominal), r.time(nominal + r.delay(nominal))}, true
}

// After returns the occurrences with a Nominal later than after, in order. There may be millions of them.
func (r *Rule) After(after time.Time) iter.Seq[Occurrence] {
	return func(yield func(Occurrence) bool) {
		for {
			next, ok := r.Next(after)
			if !ok || !yield(next) {
				return
			}
			after = next.Nominal
		}
	}
}

// Finished reports whether a schedule that ran that many times has reached MaxRuns.
func (r *Rule) Finished(runs int) bool { return r.maxRuns > 0 && runs >= r.maxRuns }

// Location returns the zone of the rule.
func (r *Rule) Location() *time.Location { return r.loc }

// next returns the first nominal time later than after. Each turn of the loop passes an exclusion.
func (r *Rule) next(after int64) (int64, bool) {
	after = max(after, r.start-1)
	for {
		nominal, ok := r.source.next(after)
		if !ok || nominal >= r.end {
			return 0, false
		}
		excluded, ok := findSpan(r.exclude, nominal)
		if !ok {
			return nominal, true
		}
		after = excluded.to - 1
	}
}

// delay returns the jitter of a nominal time: evenly distributed up to Jitter, or to the following time if that is
// earlier, so that runs keep their order.
func (r *Rule) delay(nominal int64) int64 {
	if r.jitter == 0 {
		return 0
	}
	limit := r.jitter
	if following, ok := r.next(nominal); ok {
		limit = min(limit, following-nominal-1)
	}
	return int64(mix(r.seed^mix(uint64(nominal))) % uint64(limit+1))
}

func (r *Rule) time(ms int64) time.Time { return time.UnixMilli(ms).In(r.loc) }

// milliOf returns the milliseconds of a time since 1970, within the bounds of all times.
func milliOf(t time.Time) int64 {
	if t.Year() > lastYear {
		return latest
	}
	return max(t.UnixMilli(), earliest-1)
}

// hashName is the 64-bit FNV-1a hash. It must never change, since jitter derives from it.
func hashName(name string) uint64 {
	hash := fnv.New64a()
	io.WriteString(hash, name)
	return hash.Sum64()
}

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
