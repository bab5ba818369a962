package later

import (
	"fmt"
	"time"

	"github.com/laterq/later/internal/pump"
	"github.com/laterq/later/store"
)

// stuckAfter is how long a part of a worker may be late before it counts as stuck.
const stuckAfter = 10 * time.Second

// Claimed returns a channel that is closed when the worker has claimed from one of its queues for the first time, and
// so is ready to work, whether or not it found messages.
func (w *Worker) Claimed() <-chan struct{} { return w.claimed }

// hasClaimed records a claim.
func (r *run) hasClaimed() { r.claimedOnce.Do(func() { close(r.claimed) }) }

// Alive returns an error if a part of the running worker is stuck, for health checks and watchdogs: a call to the store
// has not returned 10 seconds after its time limit, or leases have not been looked after for 10 seconds. If the worker
// is locked up, Alive does not return. A store that fails is no reason to end a worker, which retries, and neither is a
// slow handler: Alive then returns nil. It returns ErrInvalid before Run.
func (w *Worker) Alive() error {
	w.mu.Lock()
	r := w.run
	w.mu.Unlock()
	if r == nil {
		return store.Invalid("worker does not run: call Run first")
	}
	r.scheduler.Handlers() // needs its lock
	now := time.Now()
	if late := r.leases.Late(now); late > stuckAfter {
		return fmt.Errorf("worker is stuck: leases were not looked after for %v", late.Round(time.Second))
	}
	for _, qw := range r.queueWorkers {
		if err := r.checkCalls(qw, &qw.watch, now); err != nil {
			return err
		}
	}
	for _, f := range r.forwarders {
		if err := r.checkCalls(f.queueWorker, &f.batch.Watch, now); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) checkCalls(qw *queueWorker, watch *pump.Watch, now time.Time) error {
	if took := watch.Longest(now.Sub(r.begun)); took > callTimeout+stuckAfter {
		return fmt.Errorf("worker is stuck: a claim of queue %q has not returned for %v", qw.queue.name,
			took.Round(time.Second))
	}
	return nil
}
