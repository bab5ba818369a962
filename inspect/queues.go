package inspect

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/laterq/later/store"
)

// readers is the number of calls that a queueReader makes to the store at the same time.
const readers = 16

// queueReader reads several queues, and leaves out damaged ones.
type queueReader struct {
	queues []string // sorted
	strict bool     // leave out none: a damaged queue is an error
	broken sync.Map // queues that cannot be read
}

// each calls do for the numbers of the queues, several at the same time, and returns the first error. A queue that is
// damaged is left out from then on.
func (r *queueReader) each(ctx context.Context, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	var next atomic.Int64
	for range min(readers, len(r.queues)) {
		all.Go(func() {
			for i := int(next.Add(1) - 1); i < len(r.queues) && ctx.Err() == nil; i = int(next.Add(1) - 1) {
				if err := r.unlessBroken(r.queues[i], func() error { return do(ctx, i) }); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// unlessBroken calls do unless the queue is damaged, and notes that it is.
func (r *queueReader) unlessBroken(queue string, do func() error) error {
	if _, broken := r.broken.Load(queue); broken {
		return nil
	}
	err := do()
	if !r.strict && (errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrUnsupported)) {
		r.broken.Store(queue, true)
		return nil
	}
	return err
}

// leftOut returns the number of damaged queues.
func (r *queueReader) leftOut() (n int) {
	r.broken.Range(func(any, any) bool {
		n++
		return true
	})
	return n
}
