package inspect

import (
	"cmp"
	"context"
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
	return atOnce(ctx, readers, len(r.queues), func(i int) {
		if err := r.unlessBroken(r.queues[i], func() error { return do(ctx, i) }); err != nil {
			cancel(err)
		}
	})
}

// atOnce calls do for the numbers below n, up to most of them at a time, until ctx ends. It returns why that did.
func atOnce(ctx context.Context, most, n int, do func(i int)) error {
	var all sync.WaitGroup
	var next atomic.Int64
	for range min(most, n) {
		all.Go(func() {
			for i := int(next.Add(1) - 1); i < n && ctx.Err() == nil; i = int(next.Add(1) - 1) {
				do(i)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// readHeads reads the next page of each list at the same time, and returns an error of one of them.
func (r *queueReader) readHeads(ctx context.Context, heads []*head, read func(*head) (store.Page, error)) error {
	errs := make([]error, len(heads))
	ended := atOnce(ctx, len(heads), len(heads), func(i int) {
		errs[i] = r.unlessBroken(heads[i].Queue, func() (err error) {
			heads[i].page, err = read(heads[i])
			return err
		})
	})
	return cmp.Or(append(errs, ended)...)
}

// unlessBroken calls do unless the queue is damaged, and notes that it is.
func (r *queueReader) unlessBroken(queue string, do func() error) error {
	if _, broken := r.broken.Load(queue); broken {
		return nil
	}
	err := do()
	if !r.strict && isDamage(err) {
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
