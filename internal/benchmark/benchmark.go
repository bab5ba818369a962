// Package benchmark measures delay queues. Its workloads are run by `later bench` on a user's store, and by the module
// bench on Later and its peers, so both measure the same. A workload uses a queue only through the interface Queue. It
// counts how often each message was delivered, and how long before or after its due time. later.go adapts Later's
// queues; measure.go and redis.go measure the costs of a workload.
//
// The package imports Later's public API, the store contract, redisstore and go-redis, and no peer.
package benchmark

import (
	"context"
	"time"
)

// Queue is a queue to be measured. All methods except Work are called concurrently.
type Queue interface {
	// Send sends a message with the given due time, or due at once if it is zero, and returns its id. The payload may
	// be reused afterwards.
	Send(ctx context.Context, payload []byte, due time.Time) (id string, err error)
	// Work handles messages with the given concurrency until ctx is done. It returns when all messages it claimed are
	// settled. The error is nil unless Work failed.
	Work(ctx context.Context, handlers int, handle func(payload []byte)) error
	// Left returns the number of messages in the queue, in any state.
	Left(ctx context.Context) (int, error)
}

// BatchQueue is a Queue that can send several messages in one call.
type BatchQueue interface {
	Queue
	SendBatch(ctx context.Context, msgs []Outgoing) error
}

// Outgoing is one message of a batch.
type Outgoing struct {
	Payload []byte
	Due     time.Time
}

const (
	// MaxFillBatch is the batch size of Fill and the largest of Send.
	MaxFillBatch = 1000
	// fillers and fillSenders are the numbers of goroutines of Fill, for a queue with batches and for one without.
	fillers, fillSenders = 4, 256
)
