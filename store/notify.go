package store

import "context"

// Notifier is implemented by a Store that ends one Wait for a message, not all of them.
type Notifier interface {
	// Notify ends one Wait on the queue if a Claim may return messages. A server calls it when it has ended a Wait of a
	// caller that is gone.
	Notify(ctx context.Context, queue string) error
}
