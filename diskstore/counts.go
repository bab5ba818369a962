package diskstore

import (
	"context"
	"encoding/binary"
	"io"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

// The scheduled and ready messages of a queue are counted by slots of their due times, long ones and short ones within
// them. A histogram, and the number of ready messages, read short slots only within long ones that a bound divides, and
// entries only within short ones. The change of a count is written as a Pebble merge together with the change of the
// message, and Pebble adds them up: counts are as durable as messages. Counts that came to zero are removed when their
// time has passed. (Pebble 2.1.7 panics if a merge removes its key.)

// slotBits makes slots 2^20 and 2^14 ms long, which is 17 minutes and 16 seconds.
var slotBits = [...]int{20, shortBits}

const (
	shortBits = 14
	// sweepEvery is how many short slots without messages are removed at a time.
	sweepEvery = 64
)

// shortSlot returns the number of the short slot of a due time.
func shortSlot(at int64) int64 { return min(max(at, 0), lastTime) >> shortBits }

// appendSlotKey appends the key of the slot of a level that has a time.
func appendSlotKey(b []byte, queue uint32, level int, at int64) []byte {
	return appendTime(append(appendKey(b, queue, kindCount), byte(level)), min(max(at, 0), lastTime)>>slotBits[level])
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
func (t *tx) gatherCounts(q *queue) {
	changed := [len(slotBits)]map[int64]int64{{}, q.counts}
	for slot, n := range q.counts {
		changed[0][slot>>(slotBits[0]-shortBits)] += n
	}
	for level, counts := range changed {
		for slot, n := range counts {
			if n != 0 {
				t.value = binary.AppendVarint(t.value[:0], n)
				t.merge(appendSlotKey(t.key[:0], q.number, level, slot<<slotBits[level]), t.value)
			}
		}
	}
	clear(q.counts)
	before := min(q.due.first.at, t.now)
	if shortSlot(before) < q.swept+sweepEvery {
		return
	}
	q.swept = shortSlot(before)
	for level := range slotBits {
		t.removeRange(appendSlotKey(nil, q.number, level, 0), appendSlotKey(nil, q.number, level, before))
	}
}

// countDue counts the messages that are due from each bound to before the next, in milliseconds.
func (v *view) countDue(ctx context.Context, bounds []int64) (counts []int64, err error) {
	c := dueCount{view: v, ctx: ctx, bounds: bounds, counts: make([]int64, len(bounds)-1)}
	for i := range c.iterators {
		if c.iterators[i], err = v.iterate(nil, nil); err != nil {
			break
		}
	}
	from, to := max(bounds[0], v.due.first.at), bounds[len(bounds)-1]-1
	if err == nil && from <= to {
		err = c.add(0, from, to)
	}
	v.s.steps.Add(int64(c.steps))
	for _, it := range c.iterators {
		if it != nil {
			err = v.end(it, err)
		}
	}
	return c.counts, err
}

type dueCount struct {
	*view
	ctx       context.Context
	bounds    []int64
	counts    []int64
	bucket    int                                 // of the last slot or message; they come in the order of time
	iterators [len(slotBits) + 1]*pebble.Iterator // of each level of slots, and of entries: making one takes long
	steps     int
}

// seek notes that a slot or message comes that begins at a time.
func (c *dueCount) seek(at int64) {
	for c.bounds[c.bucket+1] <= at {
		c.bucket++
	}
}

// add counts the messages that are due from one time to another, by slots of a level or by themselves.
func (c *dueCount) add(level int, from, to int64) (err error) {
	it := c.iterators[level]
	entries := level == len(slotBits)
	if entries {
		it.SetBounds(appendTimeKey(nil, c.number, kindDue, entry{at: from}),
			appendTimeKey(nil, c.number, kindDue, entry{at: to + 1}))
	} else {
		it.SetBounds(appendSlotKey(nil, c.number, level, from), append(appendSlotKey(nil, c.number, level, to), 0))
	}
	for valid := it.First(); valid && err == nil; valid = it.Next() {
		if c.steps++; c.steps%interruptEvery == 0 {
			err = c.s.interrupted(c.ctx)
		}
		if entries {
			if e, bad := parseEntry(it.Key()); bad == nil { // else not an entry, and harmless
				c.seek(e.at)
				c.counts[c.bucket]++
			}
			continue
		}
		if len(it.Key()) != prefixLength+1+timeLength {
			continue
		}
		n, _ := binary.Varint(it.Value())
		first := readTime(it.Key()[prefixLength+1:]) << slotBits[level]
		last := first | (1<<slotBits[level] - 1)
		switch c.seek(max(first, c.bounds[0])); {
		case n == 0:
		case c.bounds[0] <= first && last < c.bounds[c.bucket+1]:
			c.counts[c.bucket] += n
		default:
			err = c.add(level+1, max(first, from), min(last, to))
		}
	}
	return err
}

// Histogram implements store.Store.
func (s *Store) Histogram(ctx context.Context, name string, times []time.Time) ([]int64, error) {
	return read(ctx, s, name, nil, func(v *view) ([]int64, error) { return v.countDue(ctx, store.BoundMillis(times)) })
}

// Stats implements store.Store.
func (s *Store) Stats(ctx context.Context, name string) (store.Stats, error) {
	stats, err := call(ctx, s, name, how{urgent: true}, (*tx).stats)
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
	var order *turns.Order
	if q.lanes != nil {
		order = q.lanes.order
	}
	s := store.Stats{
		Scheduled: q.due.n,
		Leased:    int64(len(q.held)),
		Dead:      q.dead.n,
		Paused:    q.paused,
		Flow:      turns.FlowState(q.flow.Flow, q.flow.State, q.leased, order, t.micros),
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
