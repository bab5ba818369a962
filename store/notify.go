package store

import "context"

// Notifier is implemented by a Store that ends one Wait for a message, not all of them.
type Notifier interface {
	// Notify ends one Wait on the queue if a Claim may return messages. It is called when a Wait has returned and its
	// caller does not claim: a server's caller has gone, or a worker has no handler free.
	Notify(ctx context.Context, queue string) error
}

// PassOn calls Notify if s is a Notifier.
func PassOn(ctx context.Context, s Store, queue string) error {
	if n, ok := s.(Notifier); ok {
		return n.Notify(ctx, queue)
	}
	return nil
}
