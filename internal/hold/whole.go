package hold

import (
	"context"
	"time"

	"github.com/laterq/later/store"
)

// Whole is a lease whose messages are worked on together. It is kept until Release is called.
type Whole struct {
	Lease
	Context context.Context // ends with ErrLeaseLost when the lease is lost
	keeper  *Keeper
	cancel  context.CancelCauseFunc
}

// Whole starts to extend a lease that was requested at asked. The context of the Whole derives from ctx.
func (k *Keeper) Whole(ctx context.Context, q *Queue, id string, asked time.Time) *Whole {
	w := &Whole{Lease: Lease{ID: id, Queue: q}, keeper: k}
	w.Context, w.cancel = context.WithCancelCause(ctx)
	w.Holder = w
	k.Keep(&w.Lease, 1, asked)
	return w
}

// Valid reports whether the lease cannot have expired.
func (w *Whole) Valid() bool { return time.Now().Before(w.keeper.End(&w.Lease)) }

// Release ends the holding.
func (w *Whole) Release() {
	w.cancel(nil)
	w.keeper.Close(&w.Lease)
}

// Lost implements Holder.
func (w *Whole) Lost() { w.cancel(store.ErrLeaseLost) }

// Cancelled implements Holder. Whoever works on all messages does so also for one that was cancelled.
func (w *Whole) Cancelled([]store.Receipt) {}
