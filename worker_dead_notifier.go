package later

import (
	"context"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/laterq/later/store"
)

// deadNotifier calls OnDead for messages that became dead, one at a time. Its goroutine ends when there are
// no more.
type deadNotifier struct {
	run       *run
	goroutine sync.WaitGroup

	mu      sync.Mutex
	dead    []deadMessage
	working bool
}

type deadMessage struct {
	qw *queueWorker
	id string
}

func (n *deadNotifier) add(qw *queueWorker, ids ...string) {
	if n.run.cfg.OnDead == nil || len(ids) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range ids {
		n.dead = append(n.dead, deadMessage{qw, id})
	}
	if !n.working {
		n.working = true
		n.goroutine.Go(n.work)
	}
}

func (n *deadNotifier) busy() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.working
}

func (n *deadNotifier) work() {
	for {
		qw, ids := n.take()
		if qw == nil {
			n.run.signalChange()
			return
		}
		ctx, cancel := context.WithTimeout(n.run.calling, callTimeout)
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

// take returns ids of one queue, as many as fit into one call, and a nil queueWorker when there are none.
func (n *deadNotifier) take() (qw *queueWorker, ids []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.dead) == 0 {
		n.working = false
		return nil, nil
	}
	qw = n.dead[0].qw
	for len(ids) < min(len(n.dead), store.MaxBatch) && n.dead[len(ids)].qw == qw {
		ids = append(ids, n.dead[len(ids)].id)
	}
	n.dead = slices.Delete(n.dead, 0, len(ids))
	return qw, ids
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
