package store

import (
	"context"
	"time"
)

// Prober is implemented by a Store that can tell faster than by a Get, List or Histogram of each queue which of many
// queues have certain messages.
type Prober interface {
	// Probe reports for each queue whether it may have a live message with one of the ids or in one of the groups. It
	// reports true where it cannot tell, such as for a queue with shards or one that is damaged. Callers pass names,
	// ids and groups that pass CheckQueue, CheckID and CheckGroup. The cost grows with their number.
	Probe(ctx context.Context, queues, ids, groups []string) ([]bool, error)
	// Earliest returns for each queue a lower bound of the due times of its scheduled and ready messages; with dead set,
	// of the times of its deaths. It leaves out times before the one in from for that queue, unless that is zero. A bound
	// equal to that time is as close as the store can tell. Another one is close to the first message if the store can
	// tell at little cost, and closer if the store is asked again from there. Names pass CheckQueue.
	Earliest(ctx context.Context, queues []string, from []time.Time, dead bool) ([]Earliest, error)
	// CountDue returns for each queue the number of its scheduled and ready messages due from a time on and before
	// another, as Histogram counts them, or -1 where only a Histogram tells. Names pass CheckQueue.
	CountDue(ctx context.Context, queues []string, from, to time.Time) ([]int64, error)
}

// Earliest is the result of Prober.Earliest for a queue.
type Earliest struct {
	Known bool      // if it is false, only a List tells, as for a queue with shards or a damaged one
	Any   bool      // if it is false, the queue has none of these messages
	Time  time.Time // all of them are at this time or later
}
