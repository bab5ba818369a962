package store

import "time"

// Limits of a Flow.
const (
	MaxConcurrency = 1_000_000            // largest limit of messages in flight
	MaxRate        = 1_000_000            // largest Rate.N and Rate.Burst
	MinInterval    = time.Microsecond     // shortest average time between two starts of a Rate
	MaxPeriod      = 366 * 24 * time.Hour // longest Rate.Per
)

// Flow limits how fast messages of a queue may start. A message starts when it is claimed or forwarded. The zero Flow
// is a plain queue.
//
// Every process obeys a change of a Flow from its next call on. Messages that were leased before the queue had a Flow
// do not count.
type Flow struct {
	// Concurrency is how many messages may be leased at once, by all workers of the queue: 1 to MaxConcurrency, or 0
	// for no limit. A message that is cancelled or purged while it is leased counts until its holder has learned of it
	// from Extend or a refused Settle, or its lease has ended. Forwards hold no message and obey only the rate.
	Concurrency int
	// Rate limits how many messages may start in a span of time. The zero Rate is no limit.
	Rate Rate
}

// Rate is a limit of starts: in any span of time t at most Burst + N·t/Per messages start, repeated attempts included.
// A message that is released has started nevertheless. The time is the engine's clock, in microseconds.
//
// It is the generic cell rate algorithm (GCRA, ITU-T I.371): the queue keeps the time of the next start as if all starts
// were spaced evenly, and a start is allowed from Burst-1 intervals before it. A time that is further ahead than Burst
// intervals counts as Burst intervals, so that a clock that is set back does not stall the queue.
type Rate struct {
	N     int           // 1 to MaxRate; 0 in the zero Rate
	Per   time.Duration // MinInterval·N to MaxPeriod, in whole microseconds
	Burst int           // how many may start at once, 1 to MaxRate; 0 means 1
}

// FlowState is a Flow with the state that its limits have now.
type FlowState struct {
	Flow
	// Leased is how many messages count against Concurrency.
	Leased int
	// Next is when the rate allows the next start. It is in the past or now if a message may start at once, and zero
	// without a rate.
	Next time.Time
	// Now is the engine's clock.
	Now time.Time
}
