package slots

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// turns orders the queues that can use a slot. Each free slot goes to the highest Priority that has such a queue, and
// there to the queue whose turn is next, so that queues of one priority start messages in proportion to their weights
// and none starves (stride scheduling). Its cost depends on the queues that can use a slot, not on idle ones.
//
// A higher priority also keeps slots from lower ones for the moment in which its fetcher fetches messages that it knows
// of; see Queue.fetchesKnown. Nothing else is withheld: while a claim looks whether there are messages at all,
// and while fetchAhead fetches the last ones, slots go to lower priorities. A priority that has been kept waiting for
// the starvation limit gets a slot.
type turns struct {
	levels []*turnLevel  // by priority, the highest first
	limit  time.Duration // see New
}

// turnLevel has the queues of one priority.
type turnLevel struct {
	priority int
	waiting  turnHeap
	now      int64     // the turn of the last slot
	since    time.Time // when it last got a slot or began to wait; only kept if there are several levels
	// backlogs are the queues with a backlog, if there are several levels.
	backlogs map[*Queue]struct{}
}

// turn is a queue's place among the queues that can use a slot.
type turn struct {
	level *turnLevel
	at    int64 // when its turn is
	index int   // in turnHeap, plus one; 0 when the queue cannot use a slot
}

// turnLength is the distance between two turns of a queue of weight 1.
const turnLength = 1 << 20

// newTurns assigns queues to the levels of their priorities.
func newTurns(queues []*Queue, limit time.Duration) turns {
	levels := map[int]*turnLevel{}
	t := turns{limit: limit}
	for _, q := range queues {
		l := levels[q.Priority]
		if l == nil {
			l = &turnLevel{priority: q.Priority, backlogs: map[*Queue]struct{}{}}
			levels[q.Priority] = l
			t.levels = append(t.levels, l)
		}
		q.turn.level = l
	}
	slices.SortFunc(t.levels, func(a, b *turnLevel) int { return cmp.Compare(b.priority, a.priority) })
	return t
}

// prioritized reports whether queues have different priorities.
func (t *turns) prioritized() bool { return len(t.levels) > 1 }

// update adds a queue, or removes it, when its need for a slot has changed.
func (t *turns) update(q *Queue, canUse bool) {
	l := q.turn.level
	switch queued := q.turn.index > 0; {
	case canUse && !queued:
		if t.prioritized() && len(l.waiting) == 0 {
			l.since = time.Now()
		}
		// A queue that was idle has not saved up turns. It starts in the middle of its interval, so that a light
		// queue does not overtake heavy ones.
		q.turn.at = max(q.turn.at, l.now+turnLength/int64(2*q.Weight))
		heap.Push(&l.waiting, q)
	case !canUse && queued:
		heap.Remove(&l.waiting, q.turn.index-1)
	}
	if t.prioritized() {
		if q.backlog {
			l.backlogs[q] = struct{}{}
		} else {
			delete(l.backlogs, q)
		}
	}
}

// first returns the queue whose turn is next, or nil when no queue can use a slot.
func (t *turns) first() *Queue {
	switch len(t.levels) {
	case 0:
		return nil
	case 1:
		return t.levels[0].first()
	}
	return t.firstByPriority()
}

func (t *turns) firstByPriority() *Queue {
	var first, starving *turnLevel
	kept := false // slots are kept for messages that are being fetched
	for _, l := range t.levels {
		switch {
		case len(l.waiting) == 0:
			kept = kept || first == nil && l.fetchesKnown()
		case first == nil && !kept:
			first = l
		case t.limit >= 0 && time.Since(l.since) >= t.limit && (starving == nil || l.since.Before(starving.since)):
			starving = l
		}
	}
	switch {
	case starving != nil:
		return starving.first()
	case first != nil:
		return first.first()
	}
	return nil
}

func (l *turnLevel) first() *Queue {
	if len(l.waiting) == 0 {
		return nil
	}
	return l.waiting[0]
}

// fetchesKnown reports whether a queue of the level fetches messages that it knows of.
func (l *turnLevel) fetchesKnown() bool {
	for q := range l.backlogs {
		if q.fetchesKnown() {
			return true
		}
	}
	return false
}

// taken moves a queue that is the first of its level behind its next turn, because it got a slot.
func (t *turns) taken(q *Queue) {
	l := q.turn.level
	l.now = q.turn.at
	q.turn.at += turnLength / int64(q.Weight)
	heap.Fix(&l.waiting, 0)
	if t.prioritized() {
		l.since = time.Now()
	}
}

// turnHeap implements heap.Interface.
type turnHeap []*Queue

func (h turnHeap) Len() int           { return len(h) }
func (h turnHeap) Less(i, j int) bool { return h[i].turn.at < h[j].turn.at }

func (h turnHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].turn.index, h[j].turn.index = i+1, j+1
}

func (h *turnHeap) Push(x any) {
	q := x.(*Queue)
	*h = append(*h, q)
	q.turn.index = len(*h)
}

func (h *turnHeap) Pop() any {
	last := len(*h) - 1
	q := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	q.turn.index = 0
	return q
}
