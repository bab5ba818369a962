package store

import "context"

// Syncer is implemented by stores that can acknowledge a call before its effect is as durable as they can make it.
type Syncer interface {
	// Sync returns when everything that was acknowledged before the call is as durable as the store makes it. An
	// error means that this is not known: ErrUnavailable, ErrClosed, the cause of ctx.
	Sync(ctx context.Context) error
}
