package later

import (
	"slices"
	"time"
)

// A queue with a batch handler has one slot for each batch. It claims as many messages as fit into its slots, and does
// not prefetch. The last of them may be too few for a batch; then they wait for more, with their slot. Meanwhile the
// fetcher claims what is missing. The wait ends on time whatever those claims do: what they bring too late starts in a
// free slot, or is released after maxBuffer, like the messages of any claim that has outlasted its slots.

// formingBatch is a batch that waits for more messages. It holds a slot.
type formingBatch struct {
	tasks []*task
	timer *time.Timer // ends the wait
}

// missing returns the number of messages for which the forming batch waits.
func (qw *queueWorker) missing() int { return qw.batchSize - len(qw.forming.tasks) }

// deliverBatches puts tasks into batches, for the first of which there are n slots. It returns what is left of the
// slots and of the tasks. The lock is held.
func (s *scheduler) deliverBatches(qw *queueWorker, n int, tasks []*task) (int, []*task) {
	if qw.forming != nil {
		fit := min(len(tasks), qw.missing())
		qw.forming.tasks = append(qw.forming.tasks, tasks[:fit]...)
		tasks = tasks[fit:]
		if qw.missing() == 0 {
			s.endForming(qw)
		}
	}
	for len(tasks) > 0 && n+qw.given > 0 {
		if n > 0 {
			n--
		} else {
			qw.given--
		}
		part := tasks[:min(len(tasks), qw.batchSize)]
		tasks = tasks[len(part):]
		if len(part) < qw.batchSize && qw.batch.Wait > 0 {
			s.form(qw, part)
		} else {
			s.startBatch(qw, part)
		}
	}
	return n, tasks
}

// form lets tasks with a slot wait for more. The lock is held.
func (s *scheduler) form(qw *queueWorker, tasks []*task) {
	f := &formingBatch{tasks: slices.Clone(tasks)}
	f.timer = time.AfterFunc(qw.batch.Wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if qw.forming == f {
			s.endForming(qw)
			s.update(qw)
			s.distribute(nil)
			if qw.endWait != nil && (s.free == 0 || qw.held >= qw.limit) {
				qw.endWait() // without a slot, leave the next message to another process
			}
		}
	})
	qw.forming = f
}

// endForming starts the forming batch. The lock is held.
func (s *scheduler) endForming(qw *queueWorker) {
	f := qw.forming
	qw.forming = nil
	f.timer.Stop()
	s.startBatch(qw, f.tasks)
}

// startBatch starts a batch that has a slot, unless all of its messages were lost. The lock is held.
func (s *scheduler) startBatch(qw *queueWorker, tasks []*task) {
	if t := qw.newBatch(tasks); t != nil {
		s.start(t)
	} else {
		s.putBack(qw, 1)
	}
}

// takeBatch returns the first task of a batch of buffered tasks, or nil.
func (qw *queueWorker) takeBatch() *task {
	for qw.buffer.len() > 0 {
		var tasks []*task
		for qw.buffer.len() > 0 && len(tasks) < qw.batchSize {
			tasks = append(tasks, qw.pop())
		}
		if t := qw.newBatch(tasks); t != nil {
			return t
		}
	}
	return nil
}

// dropForming returns the tasks of a forming batch, which will not be started. The lock is held.
func (s *scheduler) dropForming(qw *queueWorker) []*task {
	f := qw.forming
	if f == nil {
		return nil
	}
	qw.forming = nil
	f.timer.Stop()
	s.putBack(qw, 1)
	return f.tasks
}
