package diskstore

import (
	"slices"
	"sync"
)

// backlog is the requests that wait for the writer. Urgent requests come first: they are short, and a lease or a due
// time may depend on them. The others are taken from one queue after the other, so that a flood of large messages to
// one queue does not delay a small one to another. Requests of one queue stay in order.
type backlog struct {
	wake chan struct{} // has a token when something was added; closed by close

	mu     sync.Mutex
	urgent []*request
	queues map[string]*queueBacklog // queues with requests that are not urgent
	turns  []*queueBacklog          // the same, in the order of their turns
	parked map[string][]*request
}

// queueBacklog is the requests of one queue that are not urgent.
type queueBacklog struct {
	queue    string
	requests []*request
}

func newBacklog() *backlog {
	return &backlog{wake: make(chan struct{}, 1), queues: map[string]*queueBacklog{}, parked: map[string][]*request{}}
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
	if waiting, ok := b.parked[r.queue]; ok && !r.unparked {
		b.parked[r.queue] = append(waiting, r)
		return
	}
	if r.urgent {
		b.urgent = append(b.urgent, r)
		return
	}
	l := b.queues[r.queue]
	if l == nil {
		l = &queueBacklog{queue: r.queue}
		b.queues[r.queue] = l
		b.turns = append(b.turns, l)
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
		l := b.queues[r.queue]
		switch waiting, parked := b.parked[r.queue]; {
		case parked && !r.unparked:
			b.parked[r.queue] = slices.Insert(waiting, 0, r)
		case r.urgent:
			urgent = append(urgent, r)
		case l == nil:
			l = &queueBacklog{r.queue, []*request{r}}
			b.queues[r.queue] = l
			b.turns = slices.Insert(b.turns, 0, l)
		default:
			l.requests = slices.Insert(l.requests, 0, r)
		}
	}
	slices.Reverse(urgent)
	b.urgent = slices.Insert(b.urgent, 0, urgent...)
	b.mu.Unlock()
	b.wakeWriter()
}

// park makes the requests of a queue wait, except those that are marked as unparked, until unpark.
func (b *backlog) park(queue string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.parked[queue]; ok {
		return
	}
	waiting := []*request{}
	b.urgent = slices.DeleteFunc(b.urgent, func(r *request) bool {
		is := r.queue == queue && !r.unparked
		if is {
			waiting = append(waiting, r)
		}
		return is
	})
	if l := b.queues[queue]; l != nil {
		waiting = append(waiting, l.requests...)
		delete(b.queues, queue)
		b.turns = slices.DeleteFunc(b.turns, func(other *queueBacklog) bool { return other == l })
	}
	b.parked[queue] = waiting
}

func (b *backlog) unpark(queue string) {
	b.mu.Lock()
	waiting := b.parked[queue]
	delete(b.parked, queue)
	for _, r := range waiting {
		b.addLocked(r)
	}
	b.mu.Unlock()
	b.wakeWriter()
}
