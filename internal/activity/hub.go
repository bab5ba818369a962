package activity

import (
	"context"
	"slices"
	"sync"

	"github.com/laterq/later/store"
)

// Hub passes events to the watchers in this process, for engines inside the process. The zero value is ready to use.
type Hub struct {
	mu      sync.Mutex
	byQueue map[string][]*hubWatcher // store.AllQueues has the watchers of all queues
}

// Publish passes events to the watchers of a queue and returns how many there are. It does not wait for them.
func (h *Hub) Publish(queue string, events []byte, number int) int {
	h.mu.Lock()
	watchers := [2][]*hubWatcher{h.byQueue[queue], h.byQueue[store.AllQueues]}
	h.mu.Unlock()
	n := len(watchers[0]) + len(watchers[1])
	if number > 0 && n > 0 {
		events = slices.Clone(events)
		for _, some := range watchers {
			for _, w := range some {
				w.Put(queue, events, number)
			}
		}
	}
	return n
}

// Watch returns a Watcher of queues, which ends when closed is closed.
func (h *Hub) Watch(queues []string, closed <-chan struct{}) store.Watcher {
	w := &hubWatcher{Buffer: NewBuffer(closed), hub: h, closed: closed, queues: map[string]bool{}}
	w.add(queues)
	return w
}

type hubWatcher struct {
	*Buffer
	hub    *Hub
	closed <-chan struct{} // of the store

	// Guarded by hub.mu.
	queues map[string]bool
	over   bool
}

// Add implements store.Watcher.
func (w *hubWatcher) Add(ctx context.Context, queues ...string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if isClosed(w.closed) || !w.add(queues) {
		return store.ErrClosed
	}
	return nil
}

// add reports whether the watcher is open.
func (w *hubWatcher) add(queues []string) bool {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if w.over {
		return false
	}
	if w.hub.byQueue == nil {
		w.hub.byQueue = map[string][]*hubWatcher{}
	}
	for _, queue := range queues {
		if !w.queues[queue] && !w.queues[store.AllQueues] {
			w.queues[queue] = true
			// Publish reads these slices without the lock, so they are never changed in place.
			w.hub.byQueue[queue] = append(slices.Clip(w.hub.byQueue[queue]), w)
		}
	}
	return true
}

// Close implements store.Watcher.
func (w *hubWatcher) Close() error {
	w.hub.mu.Lock()
	w.over = true
	for queue := range w.queues {
		others := slices.DeleteFunc(slices.Clone(w.hub.byQueue[queue]), func(o *hubWatcher) bool { return o == w })
		if w.hub.byQueue[queue] = others; len(others) == 0 {
			delete(w.hub.byQueue, queue)
		}
	}
	clear(w.queues)
	w.hub.mu.Unlock()
	w.Buffer.Close()
	return nil
}
