package diskstore

import (
	"github.com/tidwall/btree"

	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

// lanes is the order in which the ready messages of a Fair queue start. It is in memory only: sorted messages stay in
// the index of due messages on the disk, so listings, counts, purges and backups need not know the order. After the
// store was opened, claims sort the messages again, and all keys begin to wait. Leases and rates count for their keys
// as before, and messages have the class for which they were sorted; see urgency.go.
//
// A claim sorts the messages from the frontier on, and moves the frontier behind them. An entry that is added before
// the frontier later is kept in late, and the next claim sorts it. In a queue with an order, messages that arrive are
// sorted as they are sent; see order.go.
//
// A sorted message takes about 130 bytes of memory, or 300 if no other message has its key: 130 MB for 1,000,000
// messages of few keys.
type lanes struct {
	order    *turns.Order
	sorted   map[string]sorted // by id
	frontier entry             // entries of the due index before it are sorted, or late
	ahead    index             // the entries that are neither
	late     *btree.BTreeG[lateEntry]
	classes  classCounts            // of sorted
	states   map[string]turns.State // of keys, as they are stored

	unseen int64 // the latest place of a message that arrived and may be ahead; 0 once claims have looked for them
	seen   entry // where the next claim goes on with that
	halts  entry // dead messages before it halt keys
}

// sorted is a message that is in the lane of its key and class.
type sorted struct {
	key     string // with memory that all messages of the key share
	micros  uint16 // see rank
	class   class
	stored  bool // it has a record
	started bool // it has left its lane
}

type lateEntry struct {
	entry
	stored bool // it has a record
	rank   rank
}

func (e lateEntry) less(f lateEntry) bool { return e.entry.less(f.entry) }

func newLanes(q *queue) *lanes {
	l := &lanes{order: turns.New(q.flow.Key), sorted: map[string]sorted{}, ahead: newIndex(kindDue),
		late:   btree.NewBTreeGOptions(lateEntry.less, btree.Options{NoLocks: true}),
		states: map[string]turns.State{}}
	l.order.Track()
	l.order.RestorePassed(q.flow.Passed)
	l.ahead.n = q.due.n
	l.ahead.startAt(q.due.first, q.due.exact)
	if q.isOrdered() {
		l.lookForArrivals(q)
	}
	return l
}

// add notes an entry of the due index.
func (l *lanes) add(e lateEntry) {
	if e.entry.less(l.frontier) {
		l.late.Set(e)
	} else {
		l.ahead.add(e.entry)
	}
}

// isAhead reports whether an entry of the due index is neither sorted nor late.
func (l *lanes) isAhead(e entry) bool {
	_, isSorted := l.sorted[e.id]
	_, isLate := l.late.Get(lateEntry{entry: e})
	return !isSorted && !isLate
}

// remove notes that an entry of the due index is removed.
func (l *lanes) remove(now int64, e entry) {
	if s, ok := l.sorted[e.id]; ok {
		l.classes[s.class&urgencyBits]--
		if delete(l.sorted, e.id); !s.started {
			l.order.Remove(now, turns.Message{Key: s.key, Place: micros(e.at) + int64(s.micros), ID: e.id})
		}
	} else if _, ok := l.late.Delete(lateEntry{entry: e}); !ok {
		l.ahead.remove(e)
	}
}

// mayHaveReady reports whether a claim may find a message that is ready.
func (q *queue) mayHaveReady(now, micros int64) bool {
	l := q.lanes
	return q.due.first.at <= now || l != nil && (l.order.Sorted() > 0 || l.late.Len() > 0 || l.unseen > micros)
}

// next returns when a message is sorted or may start, in microseconds, by a first entry ahead or a bound of it.
func (l *lanes) next(ahead entry, now int64) int64 {
	if l.late.Len() > 0 || l.unseen > now {
		return now
	}
	return min(micros(ahead.at), l.order.Next(now))
}

// isUnsorted reports whether ready messages are left that do not take part in the turns.
func (t *tx) isUnsorted(q *queue) (bool, error) {
	if q.lanes.late.Len() > 0 || q.lanes.unseen > t.micros {
		return true, nil
	}
	e, err := t.firstAhead(q)
	return e.at <= t.now, err
}

// setLanes prepares the lanes of a queue for another flow, before it is set.
func (t *tx) setLanes(q *queue, to store.Flow) {
	switch hadRate := q.flow.Key.Rate.N != 0; {
	case to.Fair && q.lanes == nil:
		q.lanes = newLanes(q)
		q.lanes.order.SetLimits(t.micros, to.Key)
	case to.Fair:
		t.keepStates(q) // as long as the limits are the present ones
		q.lanes.order.SetLimits(t.micros, to.Key)
		q.lanes.halts = entry{}
		if hadRate != (to.Key.Rate.N != 0) {
			t.dropRates(q)
		}
	case q.lanes != nil:
		q.lanes = nil
		for _, kind := range []byte{kindKeyFlow, kindKeyState} {
			t.removeRange(appendKey(nil, q.number, kind), appendKey(nil, q.number, kind+1))
		}
	}
	if to.Key.Order != store.OrderNone && !q.isOrdered() {
		q.lanes.lookForArrivals(q)
	}
}

// resetLanes makes claims sort all messages of a Fair queue again, as after the store was opened. No message holds its
// key.
func (t *tx) resetLanes(q *queue) {
	was := q.lanes
	if was == nil {
		return
	}
	t.keepStates(q)
	q.lanes = newLanes(q)
	for after := ""; ; {
		page := was.order.Keys(t.micros, store.KeysRequest{Overridden: true, After: after, Limit: store.MaxKeysPage})
		for _, k := range page {
			q.lanes.order.SetOverride(t.micros, k.Key, *k.Override)
			after = k.Key
		}
		if len(page) == 0 {
			break
		}
	}
	for key, s := range was.states {
		q.lanes.restoreState(t.micros, key, turns.State{Starts: s.Starts, N: s.N, Expected: s.Expected})
		q.lanes.states[key] = s
	}
	q.leased = 0
	for _, l := range q.leases {
		q.countLease(t.micros, l)
	}
	t.keepStates(q)
}

// lanesInMemory is the part of lanes that can be compared with the disk.
type lanesInMemory struct {
	messages            int64 // sorted and to be sorted
	classes             classCounts
	keyFlows, keyStates int
	expected            int             // keys
	leased              map[string]int  // messages that count for each key of a lease
	holds               map[string]hold // by key
}

// inMemory returns nil for a queue that is not Fair.
func (l *lanes) inMemory(q *queue, now int64) *lanesInMemory {
	if l == nil {
		return nil
	}
	m := &lanesInMemory{messages: int64(len(l.sorted)) + int64(l.late.Len()) + l.ahead.n, classes: l.classes,
		keyFlows: l.order.Overrides(), keyStates: len(l.states), leased: map[string]int{}, holds: l.holds()}
	for _, s := range l.states {
		m.expected += int(boolByte(s.Expected))
	}
	for _, lease := range q.leases {
		lease.eachKey(func(key string) {
			if _, ok := m.leased[key]; !ok {
				m.leased[key] = l.order.Key(now, key).Leased
			}
		})
	}
	return m
}
