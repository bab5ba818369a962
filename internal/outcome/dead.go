package outcome

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

const (
	// MaxDeadWaiting is the maximum number of messages that wait for OnDead.
	MaxDeadWaiting = 10_000
	// readDeadTimeout limits a read of dead messages, because the OnDead calls of other queues wait for it.
	readDeadTimeout = 5 * time.Second
)

// Dead logs the messages that became dead in a worker, and calls OnDead for them, one at a time. Its goroutine ends
// when there are no more. Beyond MaxDeadWaiting it skips messages, and logs how many.
type Dead struct {
	Store   store.Store
	Log     *slog.Logger
	Level   slog.Level // of the log messages about dead messages
	Calling context.Context
	OnDead  func(ctx context.Context, queue string, info *store.Info) // or nil
	Changed func()                                                    // called when no message waits any more

	goroutine sync.WaitGroup

	mu      sync.Mutex
	ids     map[string][]string // of dead messages, by queue
	turns   []string            // the keys of ids, in the order in which they are served
	waiting int                 // number of ids
	skipped int                 // since the last log message
	working bool
}

// Settled is called with a message that is dead because of its settlement. of is its MaxAttempts.
func (n *Dead) Settled(queue, id string, attempt, of int, err error) {
	if of == 0 {
		of = store.DefaultMaxAttempts
	}
	n.Log.Log(context.Background(), n.Level, "later: a message is dead",
		"queue", queue, "id", id, "attempt", attempt, "of", of, "error", err)
	n.add(queue, id)
}

// Found is called with the messages that a claim found expired or out of attempts.
func (n *Dead) Found(queue string, ids []string) {
	if len(ids) > 0 {
		n.Log.Log(context.Background(), n.Level, "later: messages are dead, expired or out of attempts",
			"queue", queue, "messages", len(ids), "first", ids[0])
		n.add(queue, ids...)
	}
}

func (n *Dead) add(queue string, ids ...string) {
	if n.OnDead == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	fit := min(len(ids), MaxDeadWaiting-n.waiting)
	n.skipped += len(ids) - fit
	if fit > 0 {
		if n.ids == nil {
			n.ids = map[string][]string{}
		}
		if len(n.ids[queue]) == 0 {
			n.turns = append(n.turns, queue)
		}
		n.ids[queue] = append(n.ids[queue], ids[:fit]...)
		n.waiting += fit
	}
	if !n.working {
		n.working = true
		n.goroutine.Go(n.work)
	}
}

// Busy reports whether messages wait for OnDead, or it is being called.
func (n *Dead) Busy() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.working
}

// Wait waits for the end of the goroutine.
func (n *Dead) Wait() { n.goroutine.Wait() }

func (n *Dead) work() {
	for {
		queue, ids, skipped := n.take()
		if skipped > 0 {
			n.Log.Error("later: OnDead is too slow and was not called for some messages; they are kept as dead",
				"messages", skipped, "waiting", MaxDeadWaiting)
		}
		if len(ids) == 0 {
			n.Changed()
			return
		}
		ctx, cancel := context.WithTimeout(n.Calling, readDeadTimeout)
		infos, err := n.Store.Get(ctx, queue, ids)
		cancel()
		if err != nil {
			n.Log.Error("later: OnDead is not called because the dead messages cannot be read",
				"queue", queue, "messages", len(ids), "error", err)
			continue
		}
		for _, info := range infos {
			if info != nil && info.State == store.StateDead { // otherwise it was purged or replayed since
				n.call(queue, info)
			}
		}
	}
}

// take returns ids of one queue, as many as fit into one call, or none when there are no more. The queues take turns.
// skipped is the number of messages skipped since the last take.
func (n *Dead) take() (queue string, ids []string, skipped int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	skipped, n.skipped = n.skipped, 0
	if n.waiting == 0 {
		n.working = false
		return "", nil, skipped
	}
	queue = n.turns[0]
	n.turns = n.turns[1:]
	all := n.ids[queue]
	ids = all[:min(len(all), store.MaxBatch)]
	if rest := all[len(ids):]; len(rest) > 0 {
		n.ids[queue] = rest
		n.turns = append(n.turns, queue)
	} else {
		delete(n.ids, queue)
	}
	n.waiting -= len(ids)
	return queue, ids, skipped
}

func (n *Dead) call(queue string, info *store.Info) {
	defer func() {
		if p := recover(); p != nil {
			n.Log.Error("later: OnDead panicked",
				"queue", queue, "id", info.ID, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	n.OnDead(n.Calling, queue, info)
}
