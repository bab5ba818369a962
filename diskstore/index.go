package diskstore

import (
	"slices"
	"sort"

	"github.com/cockroachdb/pebble/v2"
)

// The indexes by time: messages that are due, and dead ones. What is removed from them leaves tombstones, which a scan
// walks over one by one until Pebble has compacted them away, and the writer does nothing else meanwhile. So where there
// is known to be nothing, scans do not go.

// gap is a part of an index without entries: from one place on and before another.
type gap struct{ from, to entry }

const (
	// worthAGap is how many steps of an iterator make a gap worth knowing, about 100 µs.
	worthAGap = 1000
	maxGaps   = 8
)

func (g gap) holds(e entry) bool { return !e.less(g.from) && e.less(g.to) }

func (g gap) empty() bool { return !g.from.less(g.to) }

// learn adds a gap to those that are known.
func (q *queue) learn(g gap) {
	if g.empty() {
		return
	}
	gaps := make([]gap, 0, maxGaps+1)
	for _, h := range q.gaps {
		if h.to.less(g.from) || g.to.less(h.from) {
			gaps = append(gaps, h)
			continue
		}
		if h.from.less(g.from) {
			g.from = h.from
		}
		if g.to.less(h.to) {
			g.to = h.to
		}
	}
	at := sort.Search(len(gaps), func(i int) bool { return g.from.less(gaps[i].from) })
	gaps = slices.Insert(gaps, at, g)
	if len(gaps) > maxGaps {
		gaps = gaps[1:]
	}
	q.gaps = gaps
}

// fill cuts the gap in which there is something now. Of its two parts the longer one stays known.
func (q *queue) fill(e entry) {
	for i, g := range q.gaps {
		if !g.holds(e) {
			continue
		}
		before, behind := gap{g.from, e}, gap{e.behind(), g.to}
		if e.at-g.from.at > g.to.at-e.at {
			behind = before
		}
		if q.gaps[i] = behind; behind.empty() {
			q.gaps = slices.Delete(q.gaps, i, i+1)
		}
		return
	}
}

var withRecord = []byte{1}

// addDue puts a message among the scheduled and ready ones.
func (t *tx) addDue(q *queue, id string, r *record) {
	e := entry{r.due, id}
	var value []byte
	if r.stored {
		value = withRecord
	}
	t.set(appendTimeKey(t.key[:0], q.number, kindDue, e), value)
	q.due++
	if e.at <= q.mark {
		q.ready++
	}
	if e.at <= t.now {
		q.roused = true
	}
	q.counting.add(e.at, 1)
	q.fill(e)
	if e.less(q.first) {
		q.first, q.exact = e, true
		q.head = e.at
	}
	t.touch(q)
}

func (t *tx) removeDue(q *queue, e entry) {
	t.remove(appendTimeKey(t.key[:0], q.number, kindDue, e))
	q.due--
	if e.at <= q.mark {
		q.ready--
	}
	q.counting.add(e.at, -1)
	switch {
	case q.due == 0:
		q.startAt(entry{at: never}, true)
	case e == q.first:
		q.exact = false
	}
	t.touch(q)
}

// startAt notes where the due messages begin.
func (q *queue) startAt(first entry, exact bool) {
	q.first, q.exact, q.head = first, exact, first.at
}

// emptied notes that all due messages in a gap were removed.
func (q *queue) emptied(g gap) {
	if g.holds(q.first) && q.due > 0 {
		q.startAt(g.to, false)
	}
	q.learn(g)
}

// addDead puts a message among the dead ones.
func (t *tx) addDead(q *queue, e entry) {
	t.set(appendTimeKey(t.key[:0], q.number, kindDead, e), nil)
	q.dead++
	if e.less(q.firstDead) {
		q.firstDead = e
	}
	t.touch(q)
}

func (t *tx) removeDead(q *queue, e entry) {
	t.remove(appendTimeKey(t.key[:0], q.number, kindDead, e))
	q.dead--
	t.touch(q)
}

// each calls f for the entries of a kind from one on to the end of the millisecond last, until it returns false. The
// value is 1 where a record is stored.
func (t *tx) each(q *queue, kind byte, from entry, last int64, f func(e entry, value []byte) (bool, error)) error {
	to := entry{at: min(last, lastTime-1) + 1}
	switch kind {
	case kindDead:
		if from.less(q.firstDead) {
			from = q.firstDead
		}
	case kindDue:
		if from.less(q.first) {
			from = q.first
		}
		for _, g := range q.gaps {
			if !from.less(g.to) || !g.from.less(to) {
				continue
			}
			more, err := t.eachIn(q, kind, gap{from, g.from}, f)
			if !more || err != nil {
				return err
			}
			from = g.to
		}
	}
	_, err := t.eachIn(q, kind, gap{from, to}, f)
	return err
}

// eachIn is each for one part of an index. It tells whether f wants more.
func (t *tx) eachIn(q *queue, kind byte, part gap, f func(e entry, value []byte) (bool, error)) (more bool, err error) {
	if part.empty() {
		return true, nil
	}
	it, err := t.s.db.NewIter(&pebble.IterOptions{
		LowerBound: appendTimeKey(nil, q.number, kind, part.from),
		UpperBound: appendTimeKey(nil, q.number, kind, part.to),
	})
	if err != nil {
		return false, t.s.unreadable(err)
	}
	more = true
	var crossed []gap
	at, before := part.from, 0
	cross := func(to entry) {
		stats := it.Stats()
		if n := stats.ForwardStepCount[pebble.InternalIterCall]; n-before > worthAGap {
			crossed, before = append(crossed, gap{at, to}), n
		} else {
			before = n
		}
	}
	err = walk(it, func(e entry, value []byte) (_ bool, err error) {
		cross(e)
		at = e.behind()
		more, err = f(e, value)
		return more, err
	})
	if more && err == nil && it.Error() == nil {
		cross(part.to)
	}
	t.s.steps += before
	if closed := it.Close(); err == nil && closed != nil {
		err = t.s.unreadable(closed)
	}
	if kind == kindDue && err == nil {
		for _, g := range crossed {
			q.learn(g)
		}
	}
	return more, err
}

func walk(it *pebble.Iterator, f func(e entry, value []byte) (bool, error)) error {
	for valid := it.First(); valid; valid = it.Next() {
		e, err := parseEntry(it.Key())
		if err != nil {
			continue // no entry, and in nobody's way; a repair removes it
		}
		more, err := f(e, it.Value())
		if err != nil || !more {
			return err
		}
	}
	return nil
}
