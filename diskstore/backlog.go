package diskstore

import (
	"slices"
	"sync"
)

// backlog is the requests that wait for the writer. Urgent requests come first: they are short, and a lease or a due
// time may depend on them. Small ones follow, and then large ones, from one queue after the other each, so that a flood
// to one queue does not delay others, and large messages do not delay small ones. At least one large request is
// executed in each group. Small requests of one queue stay in order, and so do large ones.
type backlog struct {
	wake chan struct{} // has a token when something was added; closed by close

	mu     sync.Mutex
	urgent []*request
	queues map[string]*queueBacklog // queues with small requests that are not urgent
	turns  []*queueBacklog          // the same, in the order of their turns
	large  *backlog                 // of large requests: queues and turns only
	taken  int                      // large requests that were taken last
	owed   bool                     // none of them was executed
}

// queueBacklog is the small or the large requests of one queue that are not urgent.
type queueBacklog struct {
	queue    string
	requests []*request
}

func newBacklog() *backlog {
	return &backlog{wake: make(chan struct{}, 1), queues: map[string]*queueBacklog{},
		large: &backlog{queues: map[string]*queueBacklog{}}}
}

// laneOf returns where a request that is not urgent waits.
func (b *backlog) laneOf(r *request) *backlog {
	if r.large {
		return b.large
	}
	return b
}

func (b *backlog) add(r *request) {
	b.mu.Lock()
	b.addLocked(r)
	b.mu.Unlock()
	b.wakeWriter()
}

func (b *backlog) wakeWriter() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *backlog) addLocked(r *request) {
	if r.urgent {
		b.urgent = append(b.urgent, r)
		return
	}
	lane := b.laneOf(r)
	l := lane.queues[r.queue]
	if l == nil {
		l = &queueBacklog{queue: r.queue}
		lane.queues[r.queue] = l
		lane.turns = append(lane.turns, l)
	}
	l.requests = append(l.requests, r)
}

// take moves up to limit requests to the end of group.
func (b *backlog) take(group []*request, limit int) []*request {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(limit, len(b.urgent))
	group = append(group, b.urgent[:n]...)
	b.urgent = slices.Delete(b.urgent, 0, n)
	before := len(group)
	if b.owed {
		group = b.large.takeTurns(group, min(before+1, limit))
	}
	b.taken, b.owed = len(group)-before, false
	group = b.takeTurns(group, limit)
	before = len(group)
	group = b.large.takeTurns(group, limit)
	b.taken += len(group) - before
	return group
}

// takeTurns moves requests to the end of group until that has the limit.
func (b *backlog) takeTurns(group []*request, limit int) []*request {
	for len(group) < limit && len(b.turns) > 0 {
		left := b.turns[:0]
		for i, l := range b.turns {
			if len(group) == limit {
				left = append(left, b.turns[i:]...)
				break
			}
			group = append(group, l.requests[0])
			if l.requests = l.requests[1:]; len(l.requests) > 0 {
				left = append(left, l)
			} else {
				delete(b.queues, l.queue)
			}
		}
		clear(b.turns[len(left):])
		b.turns = left
	}
	return group
}

// putBack returns requests that were taken and not begun to their places in front.
func (b *backlog) putBack(group []*request) {
	b.mu.Lock()
	var urgent []*request
	for _, r := range slices.Backward(group) {
		lane := b.laneOf(r)
		l := lane.queues[r.queue]
		if r.large {
			b.taken--
			b.owed = b.taken == 0
		}
		switch {
		case r.urgent:
			urgent = append(urgent, r)
		case l == nil:
			l = &queueBacklog{r.queue, []*request{r}}
			lane.queues[r.queue] = l
			lane.turns = slices.Insert(lane.turns, 0, l)
		default:
			l.requests = slices.Insert(l.requests, 0, r)
		}
	}
	slices.Reverse(urgent)
	b.urgent = slices.Insert(b.urgent, 0, urgent...)
	b.mu.Unlock()
	b.wakeWriter()
}
