// Package gcra decides when messages may start under a store.Rate, in exact integers. An engine keeps a State for each
// rate. Of Later, it imports the store contract. Start reading at State.
package gcra

import (
	"math"

	"github.com/laterq/later/store"
)

// State is the time of the next start as if all starts were spaced evenly: Micros + Part/N microseconds since 1970. In
// the zero State nothing has started yet.
//
// Every time is the engine's clock in microseconds since 1970. The zero Rate allows every start and changes no State.
type State struct {
	Micros int64
	Part   int64 // 0 to N-1
}

// Next returns when the next start is allowed: now or later.
func (s State) Next(r store.Rate, now int64) int64 {
	if r.N == 0 {
		return now
	}
	return max(now, s.capped(r, now).plus(r, 1-burst(r)).ceil())
}

// May returns how many of k messages may start now.
func (s State) May(r store.Rate, now int64, k int) int {
	if r.N == 0 {
		return k
	}
	for n := range k {
		if s.Next(r, now) > now {
			return n
		}
		s.Start(r, now, 1)
	}
	return k
}

// Start counts k messages that start now, which May has allowed. Every claim calls it and keeps the State, even if k is
// 0, and so does every look of a waiter: after the clock was set back, the time may be too far ahead, and Start brings
// it nearer. If it stayed, Next would move ahead with the clock.
func (s *State) Start(r store.Rate, now int64, k int) {
	if r.N == 0 {
		return
	}
	*s = s.capped(r, now)
	if k > 0 {
		*s = s.Latest(State{Micros: now}).plus(r, int64(k))
	}
}

// Changed returns the State when a rate is changed to another one. A rate that did not exist begins with its full
// burst. Starts of the burst that were used up stay used up under a lower rate; under a higher one, the next start is
// allowed no later than before.
func (s State) Changed(from, to store.Rate, now int64) State {
	switch {
	case from.N == 0 || to.N == 0:
		return State{}
	case from.N != to.N:
		s = State{Micros: s.ceil()} // parts of another size
	}
	ahead, slower := float64(s.ceil()-now), interval(to)/interval(from)
	if ahead > 0 && slower > 1 {
		s = State{Micros: now + int64(min(math.Ceil(ahead*slower), float64(store.MaxPeriod.Microseconds())))}
	}
	return s.capped(to, now)
}

// interval returns the average time between starts in microseconds.
func interval(r store.Rate) float64 { return float64(r.Per.Microseconds()) / float64(r.N) }

// capped returns s, or Burst intervals from now if that is earlier.
func (s State) capped(r store.Rate, now int64) State {
	if most := (State{Micros: now}).plus(r, burst(r)); most.before(s) {
		return most
	}
	return s
}

func burst(r store.Rate) int64 { return int64(max(1, r.Burst)) }

// plus returns s and k intervals, or less if k is negative. store.Rate.Check keeps Burst intervals small enough.
func (s State) plus(r store.Rate, k int64) State {
	n, per := int64(r.N), r.Per.Microseconds()
	part := s.Part + k*(per%n)
	s.Micros += k * (per / n)
	s.Part = part % n
	if s.Micros += part / n; s.Part < 0 {
		s.Micros, s.Part = s.Micros-1, s.Part+n
	}
	return s
}

func (s State) before(t State) bool {
	return s.Micros < t.Micros || s.Micros == t.Micros && s.Part < t.Part
}

// Latest returns the later one of s and another state of the same rate.
func (s State) Latest(t State) State {
	if s.before(t) {
		return t
	}
	return s
}

// UsedUp returns the State of a rate that allows no further start at once: as after a full burst.
func UsedUp(r store.Rate, now int64) State { return State{Micros: now}.plus(r, burst(r)) }

// ceil returns the time in whole microseconds, rounded up.
func (s State) ceil() int64 {
	if s.Part > 0 {
		return s.Micros + 1
	}
	return s.Micros
}
