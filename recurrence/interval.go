package recurrence

import (
	"math"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// maxEvery is the longest interval: 100 years.
const maxEvery = 876_600 * time.Hour

// interval has the times origin + n·step for n = 0, 1, 2 and so on.
type interval struct{ origin, step int64 }

func (i *interval) next(after int64) (int64, bool) {
	if after < i.origin {
		return i.origin, true
	}
	return i.origin + ((after-i.origin)/i.step+1)*i.step, true
}

func checkEvery(d time.Duration) error {
	switch {
	case d < time.Millisecond:
		return store.Invalid("%v is below 1ms: the nearest value is 1ms", d)
	case d > maxEvery:
		return store.Invalid("%v is above %v: the nearest value is %v", d, maxEvery, maxEvery)
	case d%time.Millisecond != 0:
		return store.Invalid("%v is not in whole milliseconds: the nearest value is %v", d, d.Round(time.Millisecond))
	}
	return nil
}

func (c *compiler) every(field string, d time.Duration) (source, error) {
	if err := checkEvery(d); err != nil {
		return nil, store.Invalid("%s: %s", field, err)
	}
	origin, err := c.origin(field)
	if err != nil {
		return nil, err
	}
	return &interval{origin, d.Milliseconds()}, nil
}

// list is a source of times in order, without duplicates.
type list []int64

func (l list) next(after int64) (int64, bool) {
	i, _ := slices.BinarySearch(l, after+1)
	if i == len(l) {
		return 0, false
	}
	return l[i], true
}

func (c *compiler) times() (source, error) {
	if n := len(c.spec.Times); n > maxTimes {
		return nil, store.Invalid("times: %d times: the limit is %d", n, maxTimes)
	}
	l := make(list, len(c.spec.Times))
	for i, t := range c.spec.Times {
		l[i] = ceilMilli(t)
		if l[i] < earliest || l[i] > latest {
			return nil, store.Invalid("times: entry %d, %s, is outside of the years 1 to 9999", i+1, stamp(t))
		}
	}
	slices.Sort(l)
	return slices.Compact(l), nil
}

// series lists the times of a geometric series. The product of two float64s is the same on every machine, unlike that
// of math.Pow, and the conversion keeps compilers from fusing it with the next operation; so all processes come to the
// same milliseconds.
func (c *compiler) series() (source, error) {
	s := *c.spec.Series
	if err := s.check(); err != nil {
		return nil, err
	}
	at, err := c.origin("series")
	if err != nil {
		return nil, err
	}
	shortest, longest := float64(max(1, s.Min.Milliseconds())), float64(maxEvery.Milliseconds())
	if s.Max > 0 {
		longest = float64(s.Max.Milliseconds())
	}
	delay := float64(s.First.Milliseconds())
	l := make(list, 0, s.Count)
	for range s.Count {
		at += int64(math.Round(min(max(delay, shortest), longest)))
		if at > latest {
			return nil, store.Invalid("series: time %d is after the year 9999: lower count, factor or max", len(l)+1)
		}
		l = append(l, at)
		delay = float64(delay * s.Factor)
	}
	return l, nil
}

func (s *Series) check() error {
	for _, d := range []struct {
		name  string
		value time.Duration
		least time.Duration
	}{{"first", s.First, time.Millisecond}, {"min", s.Min, 0}, {"max", s.Max, 0}} {
		switch {
		case d.value < d.least || d.value > maxEvery:
			return store.Invalid("series.%s: %v is not between %v and %v", d.name, d.value, d.least, maxEvery)
		case d.value%time.Millisecond != 0:
			return store.Invalid("series.%s: %v is not in whole milliseconds: the nearest value is %v", d.name, d.value,
				d.value.Round(time.Millisecond))
		}
	}
	switch {
	case !(s.Factor > 0) || math.IsInf(s.Factor, 0):
		return store.Invalid("series.factor: %v is not a finite number above 0: 2 doubles each delay, 0.5 halves it",
			s.Factor)
	case s.Count < 1 || s.Count > maxTimes:
		return store.Invalid("series.count: %d is not between 1 and %d", s.Count, maxTimes)
	case s.Max > 0 && s.Min > s.Max:
		return store.Invalid("series.min: %v is above series.max, %v", s.Min, s.Max)
	}
	return nil
}
