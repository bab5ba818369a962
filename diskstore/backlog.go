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
	lanes  map[string]*lane // queues with requests that are not urgent
	turns  []*lane          // the same, in the order of their turns
	parked map[string][]*request
}

// lane is the requests of one queue that are not urgent.
type lane struct {
	queue    string
	requests []*request
}

func newBacklog() *backlog {
	return &backlog{wake: make(chan struct{}, 1), lanes: map[string]*lane{}, parked: map[string][]*request{}}
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
	l := b.lanes[r.queue]
	if l == nil {
		l = &lane{queue: r.queue}
		b.lanes[r.queue] = l
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
				delete(b.lanes, l.queue)
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
		l := b.lanes[r.queue]
		switch waiting, parked := b.parked[r.queue]; {
		case parked && !r.unparked:
			b.parked[r.queue] = slices.Insert(waiting, 0, r)
		case r.urgent:
			urgent = append(urgent, r)
		case l == nil:
			l = &lane{r.queue, []*request{r}}
			b.lanes[r.queue] = l
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
	if l := b.lanes[queue]; l != nil {
		waiting = append(waiting, l.requests...)
		delete(b.lanes, queue)
		b.turns = slices.DeleteFunc(b.turns, func(other *lane) bool { return other == l })
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
