package diskstore

import (
	"context"
	"encoding/binary"
	"io"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/store"
)

// The scheduled and ready messages of a queue are counted by slots of their due times, so that a histogram, and the
// number of ready messages, read entries only in the slots that a bound divides. The change of a count is written as a
// Pebble merge together with the change of the message, and Pebble adds them up: counts are as durable as messages.
// Counts that came to zero are removed when their time has passed. (Pebble 2.1.7 panics if a merge removes its key.)

const (
	// slotBits makes a slot 2^14 ms long, which is 16 seconds.
	slotBits = 14
	// sweepEvery is how many slots without messages are removed at a time.
	sweepEvery = 64
)

func slotOf(at int64) int64 { return min(max(at, 0), lastTime) >> slotBits }

func appendSlotKey(b []byte, queue uint32, slot int64) []byte {
	return appendTime(appendKey(b, queue, kindCount), slot)
}

// merger adds up counts, and appends to leases.
var merger = &pebble.Merger{Name: "later", Merge: func(key, value []byte) (pebble.ValueMerger, error) {
	if _, kind, _ := splitKey(key); kind != kindCount {
		return pebble.DefaultMerger.Merge(key, value)
	}
	n := new(tally)
	return n, n.MergeNewer(value)
}}

// tally is a sum of counts.
type tally int64

// MergeNewer implements pebble.ValueMerger.
func (t *tally) MergeNewer(value []byte) error {
	n, _ := binary.Varint(value)
	*t += tally(n)
	return nil
}

// MergeOlder implements pebble.ValueMerger.
func (t *tally) MergeOlder(value []byte) error { return t.MergeNewer(value) }

// Finish implements pebble.ValueMerger.
func (t *tally) Finish(bool) ([]byte, io.Closer, error) {
	return binary.AppendVarint(nil, int64(*t)), nil, nil
}

// gatherCounts puts changed counts into the batch, and removes the counts before the first message.
func (t *tx) gatherCounts(q *queue) error {
	for slot, n := range q.counts {
		if n == 0 {
			continue
		}
		t.key, t.value = appendSlotKey(t.key[:0], q.number, slot), binary.AppendVarint(t.value[:0], n)
		if err := t.batch.Merge(t.key, t.value, nil); err != nil {
			return err
		}
	}
	clear(q.counts)
	slot := slotOf(min(q.due.first.at, t.now))
	if slot < q.swept+sweepEvery {
		return nil
	}
	q.swept = slot
	return t.batch.DeleteRange(appendSlotKey(nil, q.number, 0), appendSlotKey(nil, q.number, slot), nil)
}

// countDue counts the messages that are due from each bound to before the next, in milliseconds.
func (v *view) countDue(ctx context.Context, bounds []int64) ([]int64, error) {
	counts := make([]int64, len(bounds)-1)
	end := bounds[len(counts)]
	it, err := v.iterate(appendSlotKey(nil, v.number, slotOf(max(bounds[0], v.due.first.at))),
		appendSlotKey(nil, v.number, slotOf(end)+1))
	if err != nil {
		return nil, err
	}
	steps := 0
	for bucket, valid := 0, it.First(); valid && err == nil; valid = it.Next() {
		n, _ := binary.Varint(it.Value())
		if n == 0 {
			continue
		}
		first := readTime(it.Key()[prefixLength:]) << slotBits
		last := first | (1<<slotBits - 1)
		for bucket < len(counts)-1 && bounds[bucket+1] <= first {
			bucket++
		}
		if bounds[0] <= first && last < bounds[bucket+1] {
			counts[bucket] += n
			continue
		}
		at := bucket
		err = v.each(v.due, entry{at: max(first, bounds[0])}, min(last, end-1), func(e entry, _ []byte) (bool, error) {
			for bounds[at+1] <= e.at {
				at++
			}
			counts[at]++
			if steps++; steps%interruptEvery == 0 {
				return true, v.s.interrupted(ctx)
			}
			return true, nil
		})
	}
	return counts, v.end(it, err)
}

// Histogram implements store.Store.
func (s *Store) Histogram(ctx context.Context, name string, times []time.Time) ([]int64, error) {
	return read(ctx, s, name, nil, func(v *view) ([]int64, error) { return v.countDue(ctx, store.BoundMillis(times)) })
}

// Stats implements store.Store.
func (s *Store) Stats(ctx context.Context, name string) (store.Stats, error) {
	stats, err := call(ctx, s, name, urgent, (*tx).stats)
	if err != nil || stats.NextDue.IsZero() || stats.NextDue.After(stats.Now) {
		return stats, err
	}
	var failed error
	prepare := func(t *tx, q *queue) { stats, failed = t.stats(q) }
	return read(ctx, s, name, prepare, func(v *view) (store.Stats, error) {
		if failed != nil {
			return store.Stats{}, failed
		}
		ready, err := v.countDue(ctx, []int64{0, v.now + 1})
		stats.Ready = ready[0]
		stats.Scheduled -= stats.Ready
		return stats, err
	})
}

// stats returns the numbers of a queue, with ready messages as scheduled ones.
func (t *tx) stats(q *queue) (store.Stats, error) {
	first, err := t.earliest(q)
	if err != nil {
		return store.Stats{}, err
	}
	s := store.Stats{
		Scheduled: q.due.n,
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
