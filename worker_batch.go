package later

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/laterq/later/internal/handle"
	"github.com/laterq/later/store"
)

// BatchHandlerFunc handles several messages of a queue together. It returns an error for each message, at the same
// index, or nil if all are done.
//
// Each error settles its message as the result of a HandlerFunc does: nil, Then, RetryIn, Snooze and Bury have their
// meaning, and any other error is a failed attempt of that message alone. A panic, a slice of another length, and
// errors after msgs was reordered are a failed attempt of every message.
//
// The context ends with ErrTimeout at the end of the time limit, which is the shortest among the messages;
// WorkerConfig.Timeout describes the effect on each message. Otherwise it ends when the worker no longer holds any
// message of the batch, with the cause of the last one: ErrLeaseLost, ErrCancelled or ErrShutdown. A message that is
// cancelled, or loses its lease, while others are held does not end the context: its result is ignored, and the others
// are not affected. MessageFromContext returns nil.
type BatchHandlerFunc func(ctx context.Context, msgs []*Message) []error

// BatchConfig configures a handler of batches. The zero value is valid.
type BatchConfig struct {
	// Size is the maximum number of messages in a batch, 1 to store.MaxBatch. Default: 100.
	Size int
	// Wait is how long a batch that is not full waits for more messages after its first ones have come, up to a minute.
	// Default: 0, the handler gets the messages that are due.
	Wait time.Duration
	// ByKey has the handler called with messages of one key at a time: once for each key of a batch, one call after the
	// other. Messages without a key are the messages of one key. Default: a batch may mix keys.
	ByKey bool
}

const (
	defaultBatchSize = 100
	maxBatchWait     = time.Minute
)

// HandleBatch registers a handler of the messages of a queue that gets several at a time. Call it before Run, which
// returns ErrInvalid, and delivers nothing, for a handler that is nil or a BatchConfig that is not allowed. The rules
// of Handle apply, too.
//
// A batch counts as one handler towards Concurrency, from its first message on, also while it waits for more. Messages
// are only claimed for a batch that has its place, and their leases are extended while they wait. When the worker
// drains, a batch that still waits is released. The worker's Middleware does not apply, since it is for handlers of
// single messages.
func (w *Worker) HandleBatch(queue string, h BatchHandlerFunc, cfg BatchConfig) {
	err := cfg.validate()
	if h == nil {
		err = store.Invalid("handler of queue %q is nil: give a function", queue)
	}
	if cfg.Size == 0 {
		cfg.Size = defaultBatchSize
	}
	w.register("HandleBatch", queue, queueHandler{batch: &batchHandler{h, cfg}}, err)
}

func (c BatchConfig) validate() error {
	if c.Size < 0 || c.Size > store.MaxBatch {
		return store.Invalid("Size is %d: must be 1 to %d, or 0 for %d", c.Size, store.MaxBatch, defaultBatchSize)
	}
	if c.Wait < 0 || c.Wait > maxBatchWait {
		return store.Invalid("Wait is %v: give up to %v, or 0 for no wait", c.Wait, maxBatchWait)
	}
	return nil
}

type batchHandler struct {
	handle BatchHandlerFunc
	BatchConfig
}

// call calls the handler with the messages of tasks. It returns an error for each, or one for all.
func (b *batchHandler) call(ctx context.Context, tasks []*handle.Task) (each []error, all error) {
	msgs := make([]*Message, len(tasks))
	for i, t := range tasks {
		msgs[i] = (*Message)(&t.Message)
	}
	errs := b.handle(ctx, msgs)
	same := func(t *handle.Task, m *Message) bool { return &t.Message == (*handle.Message)(m) }
	switch {
	case errs == nil:
		return nil, nil
	case len(errs) != len(tasks):
		return nil, fmt.Errorf("batch handler returned %d errors for %d messages: return one for each, or nil",
			len(errs), len(tasks))
	case !slices.EqualFunc(tasks, msgs, same):
		return nil, errors.New("batch handler reordered its slice of messages, so its errors have no order: " +
			"copy it first")
	}
	return errs, nil
}
