package store

import "context"

// Placer is implemented by a Store that keeps its queues on several servers.
type Placer interface {
	// SameServer reports whether two queues are on the same server now, as far as that is known.
	SameServer(ctx context.Context, queue, other string) bool
}
