package store

import "context"

// Pinger is implemented by stores that can check cheaply whether they serve calls.
type Pinger interface {
	// Ping returns nil if the store serves calls now. It does not retry. Errors: ErrUnavailable, ErrMisconfigured,
	// ErrUnauthenticated, ErrForbidden, ErrUnsupported, ErrClosed, the cause of ctx.
	Ping(ctx context.Context) error
}
