package store

import "context"

// PromptSender is implemented by stores that can end a send as soon as its context ends, wherever the call is. So a
// client can make the call on the goroutine of its caller, which is cheaper than to hand it to another one.
type PromptSender interface {
	// SendPromptly is Store.Send, but returns as soon as ctx ends, with its cause. It is then unknown whether the
	// messages were sent, and msgs must not be changed any more; payloads and headers may be.
	SendPromptly(ctx context.Context, queue string, msgs []Outgoing) ([]SendResult, error)
}
