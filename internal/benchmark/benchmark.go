// Package benchmark measures delay queues. It has the workloads that `later bench` runs over a user's store and
// that the module bench runs over Later and its peers, so both measure the same thing. A workload knows nothing of
// the queue but the interface Queue, and counts every message: how often it came, and how long before or after its
// time. later.go makes a Queue of one of Later's, redis.go and process.go tell what it cost.
//
// It imports Later's public API, the contract, redisstore and go-redis, and no peer.
package benchmark

import (
	"context"
	"time"
)

// Queue is a queue to be measured. Its methods but Work are called by many goroutines.
type Queue interface {
	// Send sends a message that falls due at a time, at once for the zero time, and gives its id. The payload may
	// be reused afterwards.
	Send(ctx context.Context, payload []byte, due time.Time) (id string, err error)
	// Work handles messages, so many at a time, until ctx ends, and returns when those that it took are settled:
	// nil, unless it could not work.
	Work(ctx context.Context, handlers int, handle func(payload []byte)) error
	// Left counts the messages that are in the queue, in whatever state.
	Left(ctx context.Context) (int, error)
}

// BatchQueue is a Queue that can send many messages in one call.
type BatchQueue interface {
	Queue
	SendBatch(ctx context.Context, msgs []Outgoing) error
}

// CancelQueue is a Queue that can remove a message that waits.
type CancelQueue interface {
	Queue
	Cancel(ctx context.Context, id string) error
}

// Outgoing is a message of a batch.
type Outgoing struct {
	Payload []byte
	Due     time.Time
}

const (
	// MaxFillBatch is how many messages Fill and the batches of Send hand over at once.
	MaxFillBatch = 1000
	// fillers and fillSenders are the goroutines of Fill, for a queue that takes batches and for one that does not.
	fillers, fillSenders = 4, 256
)
