package store

import "context"

// Prober is implemented by a Store that can tell faster than by a Get or List of each queue which of many queues have
// certain messages.
type Prober interface {
	// Probe reports for each queue whether it may have a live message with one of the ids or in one of the groups. It
	// reports true where it cannot tell, such as for a queue with shards or one that is damaged. Callers pass names,
	// ids and groups that pass CheckQueue, CheckID and CheckGroup. The cost grows with their number.
	Probe(ctx context.Context, queues, ids, groups []string) ([]bool, error)
}
