package later

import (
	"context"
	"runtime/debug"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

const (
	// maxDeadWaiting is the maximum number of messages that wait for OnDead.
	maxDeadWaiting = 10_000
	// readDeadTimeout limits a read of dead messages, because the OnDead calls of other queues wait for it.
	readDeadTimeout = 5 * time.Second
)

// deadNotifier calls OnDead for messages that became dead, one at a time. Its goroutine ends when there are
// no more. Beyond maxDeadWaiting it skips messages, and logs how many.
type deadNotifier struct {
	run       *run
	goroutine sync.WaitGroup

	mu      sync.Mutex
	ids     map[*queueWorker][]string // of dead messages, by queue
	turns   []*queueWorker            // the keys of ids, in the order in which they are served
	waiting int                       // number of ids
	skipped int                       // since the last log message
	working bool
}

func (n *deadNotifier) add(qw *queueWorker, ids ...string) {
	if n.run.cfg.OnDead == nil || len(ids) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	fit := min(len(ids), maxDeadWaiting-n.waiting)
	n.skipped += len(ids) - fit
	if fit > 0 {
		n.push(qw, ids[:fit])
	}
	if !n.working {
		n.working = true
		n.goroutine.Go(n.work)
	}
}

// push adds ids of a queue. The lock is held.
func (n *deadNotifier) push(qw *queueWorker, ids []string) {
	if n.ids == nil {
		n.ids = map[*queueWorker][]string{}
	}
	if len(n.ids[qw]) == 0 {
		n.turns = append(n.turns, qw)
	}
	n.ids[qw] = append(n.ids[qw], ids...)
	n.waiting += len(ids)
}

func (n *deadNotifier) busy() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.working
}

func (n *deadNotifier) work() {
	for {
		qw, ids, skipped := n.take()
		if skipped > 0 {
			n.run.log.Error("later: OnDead is too slow and was not called for some messages; they are kept as dead",
				"messages", skipped, "waiting", maxDeadWaiting)
		}
		if qw == nil {
			n.run.signalChange()
			return
		}
		ctx, cancel := context.WithTimeout(n.run.calling, readDeadTimeout)
		infos, err := n.run.client.store.Get(ctx, qw.queue.name, ids)
		cancel()
		if err != nil {
			n.run.log.Error("later: OnDead is not called because the dead messages cannot be read",
				"queue", qw.queue.name, "messages", len(ids), "error", err)
			continue
		}
		for _, info := range infos {
			if info != nil && info.State == StateDead { // otherwise it was purged or replayed since
				n.call(newInfo(qw.queue.name, *info))
			}
		}
	}
}

// take returns ids of one queue, as many as fit into one call, and a nil queueWorker when there are none. The
// queues take turns. skipped is the number of messages skipped since the last take.
func (n *deadNotifier) take() (qw *queueWorker, ids []string, skipped int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	skipped, n.skipped = n.skipped, 0
	if n.waiting == 0 {
		n.working = false
		return nil, nil, skipped
	}
	qw = n.turns[0]
	n.turns = n.turns[1:]
	all := n.ids[qw]
	ids = all[:min(len(all), store.MaxBatch)]
	if rest := all[len(ids):]; len(rest) > 0 {
		n.ids[qw] = rest
		n.turns = append(n.turns, qw)
	} else {
		delete(n.ids, qw)
	}
	n.waiting -= len(ids)
	return qw, ids, skipped
}

func (n *deadNotifier) call(info *Info) {
	defer func() {
		if p := recover(); p != nil {
			n.run.log.Error("later: OnDead panicked",
				"queue", info.Queue, "id", info.ID, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	n.run.cfg.OnDead(n.run.calling, info)
}
