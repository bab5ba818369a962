package store

import "time"

// ClaimRequest asks for messages.
type ClaimRequest struct {
	Max   int           // 1 to MaxBatch
	Lease time.Duration // MinLease to MaxLease
	// Uncounted is set by a holder that calls no handler. If the lease expires, its messages return as if they had been
	// released: no attempt counts.
	Uncounted bool
	// Ahead is how many of Max no handler is free for, 0 to Max. A queue with a Flow leaves them out.
	Ahead int
	// Until is the time, by the engine's clock, from which on the call claims nothing from a queue with a Flow, and
	// does no housekeeping there. Zero is no limit.
	Until time.Time
	// Buffer is memory that Claim.Messages may use, to avoid allocations in repeated claims. Its contents are
	// overwritten. It may be nil.
	Buffer []Claimed
}

// IsOver reports whether a time in milliseconds is not before Until.
func (r *ClaimRequest) IsOver(now int64) bool { return !r.Until.IsZero() && now >= r.Until.UnixMilli() }

// UncountedLease begins the id of an Uncounted lease, in engines that distinguish it by its id.
const UncountedLease = "uncounted-"

// Claim is the result of a Claim call.
type Claim struct {
	Messages []Claimed
	// Now is the engine's clock at the claim. In a queue with a Flow it is in whole microseconds, the time at which
	// the messages started; for a repeated Claim it may be the time of the repetition.
	Now time.Time
	// Deadline is when the lease ends unless it is extended. It is zero if Messages is empty.
	Deadline time.Time
	// More is set if the claim returned all that was asked for or reached a bound, and more may be ready or to be
	// done.
	More bool
	// Died lists the ids that this claim moved to dead, and Expired the ids among them that had expired.
	Died    []string
	Expired []string
	// Dropped lists the ids of the dead messages that this claim removed because of the queue's Retention.
	Dropped []string
	// Limited is set if the queue has a Flow. Its messages are claimed only for handlers that are free; see Ahead.
	Limited bool
	// Unsorted is set if ready messages of a Fair queue are left that do not take part in the turns yet. Another Claim
	// sorts more of them, also one with Ahead = Max, which claims nothing.
	Unsorted bool
}
