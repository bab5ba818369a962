package latertest

import (
	"context"
	"slices"
	"sync"

	"github.com/laterq/later"
)

// runningWorker is a worker that Start runs.
type runningWorker struct {
	*later.Worker
	stop  func()
	ended chan struct{} // closed when Run has returned
	err   error         // of Run; set before ended is closed
}

// running reports whether Run has not returned.
func (w *runningWorker) running() bool {
	select {
	case <-w.ended:
		return false
	default:
		return true
	}
}

// handles reports whether the worker handles or forwards a queue.
func (w *runningWorker) handles(queue string) bool {
	return w.running() && slices.Contains(w.Queues(), queue)
}

// Start runs a worker on the client of h until stop is called or the test ends, and returns when it is ready to work.
// Its handlers run in their own goroutines, as in production, and Advance waits for them. They get messages that are
// due without an Advance, too.
//
// Advance does not know workers that run by other means, nor the queues of workers on another client. So have the
// program make its worker in one function and run it in another.
//
// stop returns when the worker has drained. An error of Worker.Run fails the test.
func (h *Harness) Start(worker *later.Worker) (stop func()) {
	h.tb.Helper()
	for _, queue := range worker.Queues() {
		if h.inline[queue] != nil {
			h.tb.Fatalf("latertest: queue %q of the worker has a handler of Handle: give each queue one handler", queue)
			return func() {}
		}
	}
	w := h.run(worker)
	if !worker.Paused() {
		select {
		case <-worker.Claimed():
		case <-w.ended:
			w.stop()
		}
	}
	return w.stop
}

// run runs a worker until its stop is called or the test ends.
func (h *Harness) run(worker *later.Worker) *runningWorker {
	ctx, cancel := context.WithCancel(background)
	w := &runningWorker{Worker: worker, ended: make(chan struct{})}
	go func() {
		defer h.signal()
		defer close(w.ended)
		w.err = worker.Run(ctx)
	}()
	w.stop = sync.OnceFunc(func() {
		h.tb.Helper()
		cancel()
		<-w.ended
		if w.err != nil {
			h.tb.Errorf("latertest: worker: %v", w.err)
		}
	})
	h.workers = append(h.workers, w)
	return w
}
