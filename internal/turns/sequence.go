package turns

import "github.com/laterq/later/store"

// Sequence is the last of the numbers of a queue that only grow: places of messages that are sent without a delay, and
// fences. Each is the time in microseconds, or one more than the number before if the clock has not moved on.
type Sequence int64

// Next returns the next number.
func (s *Sequence) Next(now int64) int64 {
	*s = max(Sequence(now), *s+1)
	return int64(*s)
}

// Raise has all following numbers be larger than last.
func (s *Sequence) Raise(last int64) { *s = max(*s, Sequence(last)) }

// Fence gives the messages of a claim that have a key the next number as their Fence.
func (s *Sequence) Fence(now int64, claimed []store.Claimed) {
	if len(claimed) == 0 {
		return
	}
	fence := s.Next(now)
	for i := range claimed {
		if claimed[i].Key != "" {
			claimed[i].Fence = fence
		}
	}
}
