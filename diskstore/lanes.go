package diskstore

import (
	"github.com/tidwall/btree"

	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

// lanes is the order in which the ready messages of a Fair queue start. It is in memory only: sorted messages stay in
// the index of due messages on the disk, so listings, counts, purges and backups need not know the order. After the
// store was opened, claims sort the messages again, and all keys begin to wait. Leases and rates count for their keys
// as before.
//
// A claim sorts the messages from the frontier on, and moves the frontier behind them. An entry that is added before
// the frontier later is kept in late, and the next claim sorts it.
//
// A sorted message takes about 130 bytes of memory, or 300 if no other message has its key: 130 MB for 1,000,000
// messages of few keys.
type lanes struct {
	order    *turns.Order
	sorted   map[string]sorted // by id
	frontier entry             // entries of the due index before it are sorted, or late
	ahead    index             // the other entries
	late     *btree.BTreeG[lateEntry]
	// rates is the states of the rates of keys as they are stored.
	rates map[string]rateState
}

// sorted is a message that is in the lane of its key.
type sorted struct {
	key    string // with memory that all messages of the key share
	stored bool   // it has a record
}

type lateEntry struct {
	entry
	stored bool // it has a record
}

func (e lateEntry) less(f lateEntry) bool { return e.entry.less(f.entry) }

func newLanes(q *queue) *lanes {
	l := &lanes{order: turns.New(q.flow.Key), sorted: map[string]sorted{}, ahead: newIndex(kindDue),
		late:  btree.NewBTreeGOptions(lateEntry.less, btree.Options{NoLocks: true}),
		rates: map[string]rateState{}}
	l.order.Track()
	l.ahead.n = q.due.n
	l.ahead.startAt(q.due.first, q.due.exact)
	return l
}

// add notes an entry of the due index.
func (l *lanes) add(e entry, stored bool) {
	if e.less(l.frontier) {
		l.late.Set(lateEntry{e, stored})
	} else {
		l.ahead.add(e)
	}
}

// remove notes that an entry of the due index is removed.
func (l *lanes) remove(now int64, e entry) {
	if !e.less(l.frontier) {
		l.ahead.remove(e)
		return
	}
	if _, ok := l.late.Delete(lateEntry{entry: e}); ok {
		return
	}
	if s, ok := l.sorted[e.id]; ok { // else it has started
		delete(l.sorted, e.id)
		l.order.Remove(now, s.message(e))
	}
}

func (s sorted) message(e entry) turns.Message {
	return turns.Message{Key: s.key, Order: e.at * 1000, ID: e.id}
}

// next returns when a message is sorted or may start, in microseconds, by a first entry ahead or a bound of it.
func (l *lanes) next(ahead entry, now int64) int64 {
	if l.late.Len() > 0 {
		return now
	}
	return min(micros(ahead.at), l.order.Next(now))
}

// isUnsorted reports whether ready messages are left that do not take part in the turns.
func (t *tx) isUnsorted(q *queue) (bool, error) {
	if q.lanes.late.Len() > 0 {
		return true, nil
	}
	e, err := t.first(q, &q.lanes.ahead)
	return e.at <= t.now, err
}

// setLanes prepares the lanes of a queue for another flow, before it is set.
func (t *tx) setLanes(q *queue, to store.Flow) {
	switch hadRate := q.flow.Key.Rate.N != 0; {
	case to.Fair && q.lanes == nil:
		q.lanes = newLanes(q)
		q.lanes.order.SetLimits(t.micros, to.Key)
	case to.Fair:
		t.keepRates(q) // as long as the limits are the present ones
		q.lanes.order.SetLimits(t.micros, to.Key)
		if hadRate != (to.Key.Rate.N != 0) {
			t.dropRates(q)
		}
	case q.lanes != nil:
		q.lanes = nil
		for _, kind := range []byte{kindKeyFlow, kindKeyRate} {
			t.removeRange(appendKey(nil, q.number, kind), appendKey(nil, q.number, kind+1))
		}
	}
}

// resetLanes makes claims sort all messages of a Fair queue again, as after the store was opened.
func (t *tx) resetLanes(q *queue) {
	was := q.lanes
	if was == nil {
		return
	}
	t.keepRates(q)
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
	for key, s := range was.rates {
		q.lanes.restoreRate(t.micros, key, s)
	}
	q.flow.leased = 0
	for _, l := range q.leases {
		q.countLease(t.micros, l)
	}
	t.keepRates(q)
}

// lanesInMemory is the part of lanes that can be compared with the disk.
type lanesInMemory struct {
	messages           int64 // sorted and to be sorted
	keyFlows, keyRates int
	leased             map[string]int // messages that count for each key of a lease
}

// inMemory returns nil for a queue that is not Fair.
func (l *lanes) inMemory(q *queue, now int64) *lanesInMemory {
	if l == nil {
		return nil
	}
	m := &lanesInMemory{messages: int64(len(l.sorted)) + int64(l.late.Len()) + l.ahead.n,
		keyFlows: l.order.Overrides(), keyRates: len(l.rates), leased: map[string]int{}}
	for _, lease := range q.leases {
		lease.eachKey(func(key string) {
			if _, ok := m.leased[key]; !ok {
				m.leased[key] = l.order.Key(now, key).Leased
			}
		})
	}
	return m
}
