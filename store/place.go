package store

import "context"

// Placer is implemented by a Store that keeps its queues on several servers.
type Placer interface {
	// SameServer reports whether two queues are on the same server now, as far as that is known.
	SameServer(ctx context.Context, queue, other string) bool
}

// Locator is implemented by a Store that knows where its queues are.
type Locator interface {
	// ServerOf returns the address of the server that a queue is on now, "" if that is not known or there is only one.
	ServerOf(ctx context.Context, queue string) string
}
