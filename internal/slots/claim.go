package slots

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
//   - A queue whose last claim failed is suspect. It claims one message at a time without holding a slot,
//     until a claim succeeds.
//   - While the claims of some queues outlast the patience, there is less of it for the others, whose messages
//     may be on the same server. So many queues together withhold a slot hardly longer than one.
const (
	// minPatience and maxPatience limit how long a claim in flight holds its slots. Between them it is four
	// times as long as claims usually take, so that a slow but working network costs nothing.
	minPatience = 100 * time.Millisecond
	maxPatience = 400 * time.Millisecond
	// leastPatience is the patience left when many claims are overdue. Each of them takes seven eighths.
	leastPatience = 100 * time.Microsecond
)

// Reservation is the slots and the room in the buffer that a claim in flight holds.
type Reservation struct {
	Max     int  // messages to claim, 1 to store.MaxBatch
	Ahead   bool // it was returned by ReserveAhead
	Buffer  int  // messages of Max that would wait in the buffer
	slots   int  // for the first of them; 0 once the scheduler has taken them back
	room    int  // in the buffer, or in the batch that is forming
	begun   time.Time
	overdue bool
}

// claimWatch watches the claims of fetchers that are in flight. It is guarded by Scheduler.mu.
type claimWatch struct {
	inFlight map[*Queue]struct{} // claims that are not overdue
	overdue  int                 // number of claims that are
	usual    time.Duration       // moving average of the time that claims take
	timer    *time.Timer         // calls takeBack; nil before the first claim
	timerSet bool
}

func (w *claimWatch) patience() time.Duration {
	usually := min(max(4*w.usual, minPatience), maxPatience)
	return max(usually>>(3*min(w.overdue, 10)), leastPatience)
}

// Reserve blocks until the queue may claim, and reserves slots for the first messages and room in the buffer
// for more. When ctx has ended, it reserves nothing and returns nil.
func (s *Scheduler) Reserve(ctx context.Context, q *Queue) *Reservation {
	for {
		s.mu.Lock()
		if ctx.Err() != nil {
			s.relinquish(q)
			s.mu.Unlock()
			return nil
		}
		if r := s.tryReserve(q); r != nil {
			s.mu.Unlock()
			return r
		}
		q.fetcher.asleep = true
		if s.turns.prioritized() {
			s.distribute(nil) // it may have kept slots from lower priorities
		}
		s.mu.Unlock()
		select {
		case <-q.fetcher.signal:
		case <-ctx.Done():
		}
	}
}

// tryReserve is reserve without blocking. It returns nil when the queue must wait. The lock is held.
func (s *Scheduler) tryReserve(q *Queue) *Reservation {
	q.want = 0
	room := 0
	if !s.paused && q.settling.Load() < maxSettling {
		if q.buffer.len() == 0 && q.forming == nil {
			q.want = s.wanted(q)
		}
		s.update(q)
		s.distribute(nil)
		room = q.room()
	}
	n := q.given
	if n+room > 0 {
		q.given, q.fetcher.asleep = 0, false
		if !q.backlog {
			q.want = 0
		} // otherwise it keeps taking its turns during the claim
	}
	s.update(q)
	switch {
	case n+room == 0:
		return nil
	case q.suspect: // it has waited for its turn, and leaves the slot to others
		s.putBack(q, n)
		n, room = 0, 1
		defer s.distribute(nil)
	}
	slotted := n * q.BatchSize
	room = min(room, store.MaxBatch-slotted)
	q.claim = Reservation{Max: slotted + room, slots: n, room: room, begun: time.Now()}
	if q.forming == nil { // also for a suspect queue
		q.claim.Buffer = room
	}
	q.coming += room
	s.watch(q)
	s.wakeIfLow(q) // there may be room for another claim
	return &q.claim
}

// wanted returns the number of slots that a claim can use. The lock is held.
func (s *Scheduler) wanted(q *Queue) int {
	n := store.MaxBatch / q.BatchSize
	switch {
	case q.suspect:
		n = 1
	case !q.backlog && len(s.queues) > 1:
		// It may find a single message. Leave slots for the claims of many other queues.
		n = min(n, (s.free+q.given)/8+1)
	}
	return max(0, n-q.given)
}

// ReserveAhead blocks until the queue may make a second claim: one is in flight, the last one left messages
// behind, and there is room for many. It returns nil when ctx has ended or no messages are left behind; the
// caller then ends.
func (s *Scheduler) ReserveAhead(ctx context.Context, q *Queue) *Reservation {
	for {
		s.mu.Lock()
		switch {
		case ctx.Err() != nil || !q.backlog:
			q.fetchingAhead = false
			s.mu.Unlock()
			return nil
		case q.mayFetchAhead():
			n := min(q.room(), store.MaxBatch)
			q.coming += n
			s.mu.Unlock()
			return &Reservation{Max: n, Ahead: true, Buffer: n, room: n}
		}
		q.ahead.asleep = true
		s.mu.Unlock()
		select {
		case <-q.ahead.signal:
		case <-ctx.Done():
		}
	}
}

// wakeIfLow wakes the fetchers when the buffer is low enough to claim again. The lock is held.
func (s *Scheduler) wakeIfLow(q *Queue) {
	if q.fetcher.asleep && (q.buffer.len() == 0 || q.room() > 0) {
		q.fetcher.wake()
	}
	switch {
	case !q.mayFetchAhead():
	case q.fetchingAhead:
		q.ahead.wake()
	case !s.stopped:
		if q.ahead.signal == nil {
			q.ahead = newWaitSlot()
		}
		q.fetchingAhead = true
		q.FetchAhead()
	}
}

// watch begins to watch the claim of a queue's fetcher. The lock is held.
func (s *Scheduler) watch(q *Queue) {
	w := &s.claims
	w.inFlight[q] = struct{}{}
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
func (s *Scheduler) takeBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &s.claims
	w.timerSet = false
	if s.stopped {
		return
	}
	now, patience := time.Now(), w.patience()
	var oldest time.Time
	for q := range w.inFlight {
		if now.Before(q.claim.begun.Add(patience)) {
			if oldest.IsZero() || q.claim.begun.Before(oldest) {
				oldest = q.claim.begun
			}
			continue
		}
		delete(w.inFlight, q)
		w.overdue++
		q.claim.overdue = true
		s.putBack(q, q.claim.slots)
		q.claim.slots = 0
		s.relinquish(q)
	}
	if !oldest.IsZero() {
		w.timer.Reset(oldest.Add(w.patience()).Sub(now))
		w.timerSet = true
	}
}

// returned ends the reservation of a claim, except for its slots. The lock is held.
func (s *Scheduler) returned(q *Queue, r *Reservation, ok bool) {
	q.coming -= r.room
	q.suspect = !ok
	if r.Ahead {
		return // not watched
	}
	w := &s.claims
	w.usual += (min(time.Since(r.begun), maxPatience) - w.usual) / 8
	if r.overdue {
		w.overdue--
	} else {
		delete(w.inFlight, q)
	}
}

// Fail ends the Reservation of a claim that failed.
func (s *Scheduler) Fail(q *Queue, r *Reservation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returned(q, r, false)
	s.putBack(q, r.slots)
	s.relinquish(q)
}

// Deliver uses the Reservation of a claim: it starts its first tasks and buffers the rest. short means that
// the claim found fewer messages than it asked for. If the queue has a flow, nothing is prefetched. When ctx has ended,
// Deliver returns the tasks instead.
func (s *Scheduler) Deliver(
	ctx context.Context, q *Queue, r *Reservation, tasks []Task, short bool, claim *store.Claim,
) (unwanted []Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.limited, q.unsorted = claim.Limited, claim.Unsorted
	s.returned(q, r, true)
	if ctx.Err() != nil { // otherwise stop, which comes later, finds what is buffered here
		s.putBack(q, r.slots)
		s.relinquish(q)
		return tasks
	}
	n := r.slots
	if q.Together != nil {
		n, tasks = s.deliverBatches(q, n, tasks)
	}
	for len(tasks) > 0 && n+q.given > 0 {
		t := tasks[0]
		tasks = tasks[1:]
		switch {
		case !t.Begin():
		case n > 0:
			n--
			s.start(t)
		default:
			q.given--
			s.start(t)
		}
	}
	q.buffer.push(tasks)
	s.putBack(q, n)
	if short {
		s.relinquish(q)
		return nil
	}
	// The fetcher may have found the queue empty since a second claim was made; then that one does not count.
	q.backlog = q.backlog || !r.Ahead
	s.update(q)
	s.distribute(nil)
	return nil
}

// relinquish returns the fetcher's unused slots and clears its requests. The lock is held.
func (s *Scheduler) relinquish(q *Queue) {
	q.want, q.backlog = 0, false
	s.putBack(q, q.given)
	q.given = 0
	q.ahead.wake() // fetchAhead ends
	s.update(q)
	s.distribute(nil)
	q.shrinkBuffer()
}
