package later

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// turns orders the queues that can use a slot. Each free slot goes to the highest Priority that has such a queue, and
// there to the queue whose turn is next, so that queues of one priority start messages in proportion to their weights
// and none starves (stride scheduling). Its cost depends on the queues that can use a slot, not on those that are idle.
//
// A higher priority also keeps slots from lower ones for the moment in which its fetcher fetches messages that it knows
// of; see queueWorker.fetchesKnown. Nothing else is withheld: while a claim looks whether there are messages at all,
// and while fetchAhead fetches the last ones, slots go to lower priorities. A priority that has been kept waiting for
// the starvation limit gets a slot.
type turns struct {
	levels []*turnLevel  // by priority, the highest first
	limit  time.Duration // see WorkerConfig.StarvationLimit
}

// turnLevel has the queues of one priority.
type turnLevel struct {
	priority int
	waiting  turnHeap
	now      int64     // the turn of the last slot
	since    time.Time // when it last got a slot or began to wait; only kept if there are several levels
	// backlogs are the queues with a backlog, if there are several levels.
	backlogs map[*queueWorker]struct{}
}

// turn is a queue's place among those that can use a slot.
type turn struct {
	level *turnLevel
	at    int64 // when its turn is
	index int   // in turnHeap, plus one; 0 when the queue cannot use a slot
}

// turnLength is the distance between two turns of a queue of weight 1.
const turnLength = 1 << 20

// newTurns assigns queues to the levels of their priorities.
func newTurns(queueWorkers []*queueWorker, limit time.Duration) turns {
	levels := map[int]*turnLevel{}
	t := turns{limit: limit}
	for _, qw := range queueWorkers {
		l := levels[qw.priority]
		if l == nil {
			l = &turnLevel{priority: qw.priority, backlogs: map[*queueWorker]struct{}{}}
			levels[qw.priority] = l
			t.levels = append(t.levels, l)
		}
		qw.turn.level = l
	}
	slices.SortFunc(t.levels, func(a, b *turnLevel) int { return cmp.Compare(b.priority, a.priority) })
	return t
}

// prioritized reports whether queues have different priorities.
func (t *turns) prioritized() bool { return len(t.levels) > 1 }

// update adds a queue, or removes it, when its need for a slot has changed.
func (t *turns) update(qw *queueWorker, canUse bool) {
	l := qw.turn.level
	switch queued := qw.turn.index > 0; {
	case canUse && !queued:
		if t.prioritized() && len(l.waiting) == 0 {
			l.since = time.Now()
		}
		// A queue that was idle has not saved up turns. It starts in the middle of its interval, so that a light
		// queue does not overtake heavy ones.
		qw.turn.at = max(qw.turn.at, l.now+turnLength/int64(2*qw.weight))
		heap.Push(&l.waiting, qw)
	case !canUse && queued:
		heap.Remove(&l.waiting, qw.turn.index-1)
	}
	if t.prioritized() {
		if qw.backlog {
			l.backlogs[qw] = struct{}{}
		} else {
			delete(l.backlogs, qw)
		}
	}
}

// first returns the queue whose turn is next, or nil when no queue can use a slot.
func (t *turns) first() *queueWorker {
	switch len(t.levels) {
	case 0:
		return nil
	case 1:
		return t.levels[0].first()
	}
	return t.firstByPriority()
}

func (t *turns) firstByPriority() *queueWorker {
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

func (l *turnLevel) first() *queueWorker {
	if len(l.waiting) == 0 {
		return nil
	}
	return l.waiting[0]
}

// fetchesKnown reports whether a queue of the level fetches messages that it knows of.
func (l *turnLevel) fetchesKnown() bool {
	for qw := range l.backlogs {
		if qw.fetchesKnown() {
			return true
		}
	}
	return false
}

// taken moves a queue that is the first of its level behind its next turn, because it got a slot.
func (t *turns) taken(qw *queueWorker) {
	l := qw.turn.level
	l.now = qw.turn.at
	qw.turn.at += turnLength / int64(qw.weight)
	heap.Fix(&l.waiting, 0)
	if t.prioritized() {
		l.since = time.Now()
	}
}

// turnHeap implements heap.Interface.
type turnHeap []*queueWorker

func (h turnHeap) Len() int           { return len(h) }
func (h turnHeap) Less(i, j int) bool { return h[i].turn.at < h[j].turn.at }

func (h turnHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].turn.index, h[j].turn.index = i+1, j+1
}

func (h *turnHeap) Push(x any) {
	qw := x.(*queueWorker)
	*h = append(*h, qw)
	qw.turn.index = len(*h)
}

func (h *turnHeap) Pop() any {
	last := len(*h) - 1
	qw := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	qw.turn.index = 0
	return qw
}
