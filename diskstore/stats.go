package diskstore

import (
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/store"
)

// How many messages are ready is known up to a millisecond, the queue's mark. Stats counts those that fell due since,
// and moves the mark, so each is counted once. A few are counted on the spot; what is more, such as a night's, is
// counted in a snapshot while other calls go on, and the writer notes what changes among them meanwhile.

// countAtOnce is how many messages are counted on the spot, in about a millisecond.
const countAtOnce = 1000

// recount is a count in a snapshot that is under way. One is at it, others wait for it.
type recount struct {
	mark, next int64 // of the queue: before, and when it is done
	from, to   int64 // what is counted falls due in [from, to)
	added      int64 // came into that since the snapshot, less what has left it; belongs to the writer
	ended      chan struct{}
}

// add notes that n messages of a due time were added; c may be nil.
func (c *recount) add(at, n int64) {
	if c != nil && c.from <= at && at < c.to {
		c.added += n
	}
}

// ready is how a number of messages in the recount changes that of the ready ones.
func (c *recount) ready(n int64) int64 {
	if c.next < c.mark { // the clock went back
		return -n
	}
	return n
}

// Stats implements store.Store. Its cost is that of reading one key for each message that fell due since it was
// last called, and no message twice; other calls go on meanwhile.
func (s *Store) Stats(ctx context.Context, name string) (store.Stats, error) {
	if err := s.enter(ctx); err != nil {
		return store.Stats{}, err
	}
	defer s.calls.Done()
	for {
		stats, others, err := s.countOnce(ctx, name)
		if others == nil || err != nil {
			return stats, err
		}
		select {
		case <-others:
		case <-ctx.Done():
		case <-s.closed:
		case <-s.failed:
		}
		if err := s.interrupted(ctx); err != nil {
			return store.Stats{}, err
		}
	}
}

// countOnce gives a queue's stats, or a channel that is closed when another has counted what is to be counted.
func (s *Store) countOnce(ctx context.Context, name string) (_ store.Stats, others <-chan struct{}, err error) {
	var own *recount
	var snapshot *pebble.Snapshot
	var number uint32
	var first int64
	stats, err := call(ctx, s, name, func(t *tx, q *queue) (store.Stats, error) {
		done, err := t.countReady(q)
		if err != nil {
			return store.Stats{}, err
		}
		if !done {
			if c := q.counting; c != nil && !c.over() {
				others = c.ended
				return store.Stats{}, nil
			}
			if err := t.flush(); err != nil {
				return store.Stats{}, err
			}
			snapshot, number, first, own = s.db.NewSnapshot(), q.number, q.first.at, t.begin(q)
		}
		return t.stats(q)
	})
	if err != nil && s.isStuck() {
		return store.Stats{}, nil, err // the writer may be in it for ever
	}
	if own != nil {
		defer close(own.ended)
	}
	if err != nil {
		return store.Stats{}, nil, s.drop(snapshot, err)
	}
	if own == nil {
		return stats, others, nil
	}
	n := int64(0)
	if err := s.count(ctx, snapshot, number, max(own.from, first), own.to, func(entry) { n++ }); err != nil {
		return store.Stats{}, nil, err
	}
	stats.Ready += own.ready(n)
	stats.Scheduled -= own.ready(n)
	// What was counted is right whether it can be kept or not.
	s.do(ctx, func(*tx) {
		if q := s.queues[name]; q != nil && q.counting == own {
			q.counted(n)
		}
	})
	return stats, nil, nil
}

// begin begins a recount up to now. The caller has flushed.
func (t *tx) begin(q *queue) *recount {
	q.counting = &recount{
		mark: q.mark, next: t.now,
		from: min(q.mark, t.now) + 1, to: max(q.mark, t.now) + 1,
		ended: make(chan struct{}),
	}
	return q.counting
}

// counted ends the recount with what the snapshot had.
func (q *queue) counted(n int64) {
	c := q.counting
	q.counting = nil
	if q.mark == c.mark {
		q.ready += c.ready(n + c.added)
		q.mark = c.next
	}
}

// over tells whether who counted has ended, or given up.
func (c *recount) over() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

func (t *tx) stats(q *queue) (store.Stats, error) {
	first, err := t.earliest(q)
	if err != nil {
		return store.Stats{}, err
	}
	s := store.Stats{
		Scheduled: q.due - q.ready,
		Ready:     q.ready,
		Leased:    int64(len(q.held)),
		Dead:      q.dead,
		Paused:    q.paused,
		Exists:    q.number != 0,
		Now:       store.Time(t.now),
	}
	if first.at != never {
		s.NextDue = store.Time(first.at)
	}
	return s, nil
}

// countReady brings ready up to now, unless there is much to count.
func (t *tx) countReady(q *queue) (done bool, err error) {
	if q.mark == t.now {
		return true, nil
	}
	if q.mark < t.now && q.first.at > t.now {
		q.mark = t.now
		return true, nil
	}
	if err := t.flush(); err != nil {
		return false, err
	}
	n := int64(0)
	from := entry{at: min(q.mark, t.now) + 1}
	err = t.each(q, kindDue, from, max(q.mark, t.now), func(entry, []byte) (bool, error) {
		n++
		return n <= countAtOnce, nil
	})
	if n > countAtOnce || err != nil {
		return false, err
	}
	if t.now < q.mark {
		n = -n
	}
	q.ready += n
	q.mark = t.now
	return true, nil
}
