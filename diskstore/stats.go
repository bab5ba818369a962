package diskstore

import (
	"context"

	"github.com/laterq/later/store"
)

// How many messages are ready is known up to a millisecond, the queue's mark. Stats counts the messages that fell due
// since, and moves the mark, so each is counted once. The writer counts a few by itself, and more by cells (cells.go).

// countAtOnce is how many messages the writer counts, in about 20 µs.
const countAtOnce = 64

// interruptEvery is after how many keys a long read looks whether it should stop.
const interruptEvery = 10_000

// Stats implements store.Store. It reads few keys, unless the queue was not counted since a crash: then it waits until
// all its messages are counted, while other calls go on.
func (s *Store) Stats(ctx context.Context, name string) (store.Stats, error) {
	for {
		var counting *recount
		stats, err := call(ctx, s, name, urgent, func(t *tx, q *queue) (_ store.Stats, err error) {
			if counting, err = t.countReady(q); counting != nil || err != nil {
				return store.Stats{}, err
			}
			return t.stats(q)
		})
		if err == nil && counting != nil {
			err = s.awaitCount(ctx, counting)
		}
		if err != nil || counting == nil {
			return stats, err
		}
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

// countReady brings ready up to now, or returns the count that has to end before.
func (t *tx) countReady(q *queue) (*recount, error) {
	if q.mark == t.now {
		return nil, nil
	}
	if q.mark < t.now && q.due.first.at > t.now {
		q.mark = t.now
		return nil, nil
	}
	if err := t.flush(); err != nil {
		return nil, err
	}
	n := int64(0)
	first, last := min(q.mark, t.now)+1, max(q.mark, t.now)
	err := t.each(q, &q.due, entry{at: first}, last, func(entry, []byte) (bool, error) {
		n++
		return n <= countAtOnce, nil
	})
	if err == nil && n > countAtOnce {
		if q.cells.fold(q.due.n); !q.cells.known {
			return t.startCount(q), nil
		}
		n, err = t.countDue(q, first, last)
	}
	if err != nil {
		return nil, err
	}
	if t.now < q.mark {
		n = -n
	}
	q.ready += n
	q.mark = t.now
	return nil, nil
}
