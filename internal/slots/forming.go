package slots

import (
	"slices"
	"time"
)

// A queue with a batch handler has one slot for each batch. It claims as many messages as fit into its slots, and does
// not prefetch. The last of them may be too few for a batch; then they wait for more, with their slot, while the
// fetcher claims the missing ones. The wait ends on time. Messages that a claim returns later start in a
// free slot, or is released after maxBuffer, like the messages of any claim that has outlasted its slots.

// formingBatch is a batch that waits for more messages. It holds a slot.
type formingBatch struct {
	tasks []Task
	timer *time.Timer // ends the wait
}

// missing returns the number of messages for which the forming batch waits.
func (q *Queue) missing() int { return q.BatchSize - len(q.forming.tasks) }

// deliverBatches puts tasks into batches. There are n slots for the first batches. It returns the rest of the
// slots and of the tasks. The lock is held.
func (s *Scheduler) deliverBatches(q *Queue, n int, tasks []Task) (int, []Task) {
	if q.forming != nil {
		fit := min(len(tasks), q.missing())
		q.forming.tasks = append(q.forming.tasks, tasks[:fit]...)
		tasks = tasks[fit:]
		if q.missing() == 0 {
			s.endForming(q)
		}
	}
	for len(tasks) > 0 && n+q.given > 0 {
		if n > 0 {
			n--
		} else {
			q.given--
		}
		part := tasks[:min(len(tasks), q.BatchSize)]
		tasks = tasks[len(part):]
		if len(part) < q.BatchSize && q.BatchWait > 0 {
			s.form(q, part)
		} else {
			s.startBatch(q, part)
		}
	}
	return n, tasks
}

// form lets tasks with a slot wait for more. The lock is held.
func (s *Scheduler) form(q *Queue, tasks []Task) {
	f := &formingBatch{tasks: slices.Clone(tasks)}
	f.timer = time.AfterFunc(q.BatchWait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if q.forming == f {
			s.endForming(q)
			s.update(q)
			s.distribute(nil)
			if q.endWait != nil && (s.free == 0 || q.held >= q.Concurrency) {
				q.endWait() // without a slot, leave the next message to another process
			}
		}
	})
	q.forming = f
}

// endForming starts the forming batch. The lock is held.
func (s *Scheduler) endForming(q *Queue) {
	f := q.forming
	q.forming = nil
	f.timer.Stop()
	s.startBatch(q, f.tasks)
}

// startBatch starts a batch that has a slot, unless all of its messages were lost. The lock is held.
func (s *Scheduler) startBatch(q *Queue, tasks []Task) {
	if t := q.Together(tasks); t != nil {
		s.start(t)
	} else {
		s.putBack(q, 1)
	}
}

// takeBatch returns the first task of a batch of buffered tasks, or nil.
func (q *Queue) takeBatch() Task {
	for q.buffer.len() > 0 {
		var tasks []Task
		for q.buffer.len() > 0 && len(tasks) < q.BatchSize {
			tasks = append(tasks, q.pop())
		}
		if t := q.Together(tasks); t != nil {
			return t
		}
	}
	return nil
}

// dropForming returns the tasks of a forming batch, which will not be started. The lock is held.
func (s *Scheduler) dropForming(q *Queue) []Task {
	f := q.forming
	if f == nil {
		return nil
	}
	q.forming = nil
	f.timer.Stop()
	s.putBack(q, 1)
	return f.tasks
}
