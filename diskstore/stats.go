package diskstore

import (
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/store"
)

// How many messages are ready is known up to a millisecond, the queue's mark. Stats counts those that fell due since,
// and moves the mark, so each is counted once. A few are counted by the writer, and more by cells (cells.go). When
// those are not known, what fell due is counted in a snapshot while other calls go on, and the writer notes what
// changes among them meanwhile.

// countAtOnce is how many messages the writer counts, in about 20 µs.
const countAtOnce = 64

// recount is a count in a snapshot that is under way. One call counts, others wait for it.
type recount struct {
	mark, next int64 // of the queue: before, and when it is done
	from, to   int64 // what is counted falls due in [from, to)
	added      int64 // came into that since the snapshot, less what left it; belongs to the writer
	ended      chan struct{}
}

// add notes that n messages of a due time were added; c may be nil.
func (c *recount) add(at, n int64) {
	if c != nil && c.from <= at && at < c.to {
		c.added += n
	}
}

// ready returns how a number of messages in the recount changes that of the ready ones.
func (c *recount) ready(n int64) int64 {
	if c.next < c.mark { // the clock went back
		return -n
	}
	return n
}

// over reports whether the count has ended, or was given up.
func (c *recount) over() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// Stats implements store.Store. It reads few keys, unless the queue was not counted since a crash: then it reads one
// for each message that fell due since it was last called, and no message twice, while other calls go on.
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

// countOnce returns a queue's stats, or a channel that is closed when another call has counted.
func (s *Store) countOnce(ctx context.Context, name string) (_ store.Stats, others <-chan struct{}, err error) {
	var own *recount
	var snapshot *pebble.Snapshot
	var number uint32
	var first int64
	stats, err := call(ctx, s, name, urgent, func(t *tx, q *queue) (store.Stats, error) {
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
			snapshot, number, first, own = s.db.NewSnapshot(), q.number, q.due.first.at, t.beginRecount(q)
		}
		return t.stats(q)
	})
	if err != nil && s.isStuck() {
		return store.Stats{}, nil, err // the writer may be in it for ever
	}
	if own == nil {
		return stats, others, err
	}
	defer close(own.ended)
	if err != nil {
		return store.Stats{}, nil, s.closeSnapshot(snapshot, err)
	}
	n := int64(0)
	if err := s.count(ctx, snapshot, number, max(own.from, first), own.to, func(entry) { n++ }); err != nil {
		return store.Stats{}, nil, err
	}
	stats.Ready += own.ready(n)
	stats.Scheduled -= own.ready(n)
	// What was counted is right whether it can be kept or not.
	s.do(ctx, name, urgent, func(*tx) {
		if q := s.queues[name]; q != nil && q.counting == own {
			q.endRecount(n)
		}
	})
	return stats, nil, nil
}

// beginRecount begins a count up to now. The caller has flushed.
func (t *tx) beginRecount(q *queue) *recount {
	q.counting = &recount{
		mark: q.mark, next: t.now,
		from: min(q.mark, t.now) + 1, to: max(q.mark, t.now) + 1,
		ended: make(chan struct{}),
	}
	return q.counting
}

// endRecount ends a count with what the snapshot had.
func (q *queue) endRecount(n int64) {
	c := q.counting
	q.counting = nil
	if q.mark == c.mark {
		q.ready += c.ready(n + c.added)
		q.mark = c.next
	}
}

func (t *tx) stats(q *queue) (store.Stats, error) {
	first, err := t.earliest(q)
	if err != nil {
		return store.Stats{}, err
	}
	s := store.Stats{
		Scheduled: q.due.n - q.ready,
		Ready:     q.ready,
		Leased:    int64(len(q.held)),
		Dead:      q.dead.n,
		Paused:    q.paused,
		Exists:    q.number != 0,
		Now:       store.Time(t.now),

		DeadRetention: q.retention,
		Dropped:       q.dropped,
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
	if q.mark < t.now && q.due.first.at > t.now {
		q.mark = t.now
		return true, nil
	}
	if err := t.flush(); err != nil {
		return false, err
	}
	n := int64(0)
	from := entry{at: min(q.mark, t.now) + 1}
	err = t.each(q, &q.due, from, max(q.mark, t.now), func(entry, []byte) (bool, error) {
		n++
		return n <= countAtOnce, nil
	})
	if err != nil {
		return false, err
	}
	if n > countAtOnce {
		var known bool
		if n, known, err = t.countDue(q, from.at, max(q.mark, t.now)); err != nil || !known {
			return false, err
		}
	}
	if t.now < q.mark {
		n = -n
	}
	q.ready += n
	q.mark = t.now
	return true, nil
}

// interruptEvery is after how many keys a long read looks whether it should stop.
const interruptEvery = 10_000

// count calls f for the messages of a queue that fall due in [from, to), and closes the snapshot.
func (s *Store) count(ctx context.Context, snapshot *pebble.Snapshot, number uint32, from, to int64,
	f func(entry)) error {
	return s.guarded(func() error {
		r := &reader{s: s, src: snapshot}
		it, err := r.iterate(appendTimeKey(nil, number, kindDue, entry{at: from}),
			appendTimeKey(nil, number, kindDue, entry{at: to}))
		if err != nil {
			return s.closeSnapshot(snapshot, err)
		}
		n := 0
		err = walk(it, func(e entry, _ []byte) (bool, error) {
			f(e)
			if n++; n%interruptEvery == 0 {
				return true, s.interrupted(ctx)
			}
			return true, nil
		})
		return s.closeSnapshot(snapshot, r.end(it, err))
	})
}
