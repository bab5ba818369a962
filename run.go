package later

import "context"

// Run takes messages and handles them until ctx ends, then drains: it stops claiming, gives back what has not
// begun, lets handlers finish within ShutdownTimeout, then ends their contexts with ErrShutdown and gives
// their messages back at once, uncounted. It returns when all is settled: nil, or an error when handlers
// ignored the end of their context (they are left running) or when the client was closed meanwhile
// (ErrClosed). A configuration that is not allowed is ErrInvalid. Run may be called once.
func (w *Worker) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Pause stops claiming; messages that this worker has are still handled. See Queue.Pause for all processes.
func (w *Worker) Pause() {}

// Resume goes on claiming.
func (w *Worker) Resume() {}

// MessageFromContext gives the message whose handler has this context, or one derived from it; nil elsewhere.
func MessageFromContext(ctx context.Context) *Message { return nil }
