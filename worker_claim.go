package later

import (
	"context"
	"time"

	"github.com/laterq/later/store"
)

// A claim in flight holds slots, so that its messages start as soon as it returns. A claim that does not
// return, because a server is frozen or cannot be reached, must not withhold them from other queues:
//
//   - After a little patience, the scheduler takes the slots of the claim back. If the claim returns after all,
//     its messages start in free slots or wait in the buffer, from which they are released after maxBuffer.
//   - A queue whose last claim failed is suspect. It claims one message at a time and holds no slot meanwhile,
//     until a claim succeeds.
//   - While the claims of some queues outlast the patience, there is less of it for the others, whose messages
//     may be on the same server. So many queues together withhold a slot hardly longer than one.
const (
	// minPatience and maxPatience limit how long a claim in flight holds its slots. Between them it is four
	// times as long as claims usually take, so that a slow but working network costs nothing.
	minPatience = 100 * time.Millisecond
	maxPatience = 400 * time.Millisecond
	// leastPatience is what is left when many claims are overdue. Each of them takes seven eighths.
	leastPatience = 100 * time.Microsecond
)

// reservation is what a claim in flight holds.
type reservation struct {
	max     int // messages to claim, 1 to store.MaxBatch
	slots   int // for the first of them; 0 once the scheduler has taken them back
	room    int // in the buffer, or in the batch that is forming
	begun   time.Time
	overdue bool
}

// claimWatch watches the claims of fetchers that are in flight. It is guarded by scheduler.mu.
type claimWatch struct {
	inFlight map[*queueWorker]struct{} // claims that are not overdue
	overdue  int                       // number of claims that are
	usual    time.Duration             // moving average of the time that claims take
	timer    *time.Timer               // calls takeBack; nil before the first claim
	timerSet bool
}

func (w *claimWatch) patience() time.Duration {
	usually := min(max(4*w.usual, minPatience), maxPatience)
	return max(usually>>(3*min(w.overdue, 10)), leastPatience)
}

// reserve blocks until the queue may claim, and reserves slots for the first messages and room in the buffer
// for more. When ctx has ended, it reserves nothing and returns nil.
func (s *scheduler) reserve(ctx context.Context, qw *queueWorker) *reservation {
	for {
		s.mu.Lock()
		if ctx.Err() != nil {
			s.relinquish(qw)
			s.mu.Unlock()
			return nil
		}
		if r := s.tryReserve(qw); r != nil {
			s.mu.Unlock()
			return r
		}
		qw.fetcher.asleep = true
		if s.turns.prioritized() {
			s.distribute(nil) // it may have kept slots from lower priorities
		}
		s.mu.Unlock()
		select {
		case <-qw.fetcher.signal:
		case <-ctx.Done():
		}
	}
}

// tryReserve is reserve without blocking. It returns nil when the queue must wait. The lock is held.
func (s *scheduler) tryReserve(qw *queueWorker) *reservation {
	qw.want = 0
	room := 0
	if !s.paused && qw.settling.Load() < maxSettling {
		if qw.buffer.len() == 0 && qw.forming == nil {
			qw.want = s.wanted(qw)
		}
		s.update(qw)
		s.distribute(nil)
		room = qw.room()
	}
	n := qw.given
	if n+room > 0 {
		qw.given, qw.fetcher.asleep = 0, false
		if !qw.backlog {
			qw.want = 0
		} // otherwise it keeps taking its turns during the claim
	}
	s.update(qw)
	switch {
	case n+room == 0:
		return nil
	case qw.suspect: // it has waited for its turn, and leaves the slot to others
		s.putBack(qw, n)
		n, room = 0, 1
		defer s.distribute(nil)
	}
	slotted := n * qw.batchSize
	room = min(room, store.MaxBatch-slotted)
	qw.claim = reservation{max: slotted + room, slots: n, room: room, begun: time.Now()}
	qw.coming += room
	s.watch(qw)
	s.wakeIfLow(qw) // there may be room for another claim
	return &qw.claim
}

// wanted returns the number of slots that a claim can use. The lock is held.
func (s *scheduler) wanted(qw *queueWorker) int {
	n := store.MaxBatch / qw.batchSize
	switch {
	case qw.suspect:
		n = 1
	case !qw.backlog && len(s.queueWorkers) > 1:
		// It may find a single message. Leave slots for the claims of many other queues.
		n = min(n, (s.free+qw.given)/8+1)
	}
	return max(0, n-qw.given)
}

// reserveAhead blocks until the queue may make a second claim: one is in flight, the last one left messages
// behind, and there is room for many. It returns nil when ctx has ended or no messages are left behind; the
// caller then ends.
func (s *scheduler) reserveAhead(ctx context.Context, qw *queueWorker) *reservation {
	for {
		s.mu.Lock()
		switch {
		case ctx.Err() != nil || !qw.backlog:
			qw.fetchingAhead = false
			s.mu.Unlock()
			return nil
		case qw.mayFetchAhead():
			n := min(qw.room(), store.MaxBatch)
			qw.coming += n
			s.mu.Unlock()
			return &reservation{max: n, room: n}
		}
		qw.ahead.asleep = true
		s.mu.Unlock()
		select {
		case <-qw.ahead.signal:
		case <-ctx.Done():
		}
	}
}

// wakeIfLow wakes the fetchers when the buffer is low enough to claim again. The lock is held.
func (s *scheduler) wakeIfLow(qw *queueWorker) {
	if qw.fetcher.asleep && (qw.buffer.len() == 0 || qw.room() > 0) {
		qw.fetcher.wake()
	}
	switch {
	case !qw.mayFetchAhead():
	case qw.fetchingAhead:
		qw.ahead.wake()
	case !s.stopped:
		if qw.ahead.signal == nil {
			qw.ahead = newWaitSlot()
		}
		qw.fetchingAhead = true
		s.fetchAhead(qw)
	}
}

// watch begins to watch the claim of a queue's fetcher. The lock is held.
func (s *scheduler) watch(qw *queueWorker) {
	w := &s.claims
	w.inFlight[qw] = struct{}{}
	switch {
	case w.timerSet || s.stopped:
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(w.patience(), s.takeBack)
	default:
		w.timer.Reset(w.patience())
	}
	w.timerSet = true
}

// takeBack takes back the slots of claims that have outlasted the patience.
func (s *scheduler) takeBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &s.claims
	w.timerSet = false
	if s.stopped {
		return
	}
	now, patience := time.Now(), w.patience()
	var oldest time.Time
	for qw := range w.inFlight {
		if now.Before(qw.claim.begun.Add(patience)) {
			oldest = earlier(oldest, qw.claim.begun)
			continue
		}
		delete(w.inFlight, qw)
		w.overdue++
		qw.claim.overdue = true
		s.putBack(qw, qw.claim.slots)
		qw.claim.slots = 0
		s.relinquish(qw)
	}
	if !oldest.IsZero() {
		w.timer.Reset(oldest.Add(w.patience()).Sub(now))
		w.timerSet = true
	}
}

// returned ends the reservation of a claim, except for its slots. The lock is held.
func (s *scheduler) returned(qw *queueWorker, r *reservation, ok bool) {
	qw.coming -= r.room
	qw.suspect = !ok
	if r != &qw.claim {
		return // not watched
	}
	w := &s.claims
	w.usual += (min(time.Since(r.begun), maxPatience) - w.usual) / 8
	if r.overdue {
		w.overdue--
	} else {
		delete(w.inFlight, qw)
	}
}

// fail ends the reservation of a claim that failed.
func (s *scheduler) fail(qw *queueWorker, r *reservation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returned(qw, r, false)
	s.putBack(qw, r.slots)
	s.relinquish(qw)
}

// deliver uses the reservation of a claim: it starts its first tasks and buffers the rest. short means that
// the claim found fewer messages than it asked for. When ctx has ended, deliver returns the tasks instead.
func (s *scheduler) deliver(
	ctx context.Context, qw *queueWorker, r *reservation, tasks []*task, short bool,
) (unwanted []*task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returned(qw, r, true)
	if ctx.Err() != nil { // otherwise stop, which comes later, finds what is buffered here
		s.putBack(qw, r.slots)
		s.relinquish(qw)
		return tasks
	}
	n := r.slots
	if qw.batch != nil {
		n, tasks = s.deliverBatches(qw, n, tasks)
	}
	for len(tasks) > 0 && n+qw.given > 0 {
		t := tasks[0]
		tasks = tasks[1:]
		switch {
		case !t.begin():
		case n > 0:
			n--
			s.start(t)
		default:
			qw.given--
			s.start(t)
		}
	}
	qw.buffer.push(tasks)
	s.putBack(qw, n)
	if short {
		s.relinquish(qw)
		return nil
	}
	// The fetcher may have found the queue empty since a second claim was made; then that one does not count.
	qw.backlog = qw.backlog || r == &qw.claim
	s.update(qw)
	s.distribute(nil)
	return nil
}

// relinquish returns the fetcher's unused slots and clears its requests. The lock is held.
func (s *scheduler) relinquish(qw *queueWorker) {
	qw.want, qw.backlog = 0, false
	s.putBack(qw, qw.given)
	qw.given = 0
	qw.ahead.wake() // fetchAhead ends
	s.update(qw)
	s.distribute(nil)
	qw.shrinkBuffer()
}
