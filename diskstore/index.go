package diskstore

import (
	"github.com/cockroachdb/pebble/v2"
	"github.com/tidwall/btree"
)

// index is the entries of one kind of a queue in order of time. Removed entries leave tombstones, which a scan steps
// over one by one until Pebble has compacted them away. So an index knows where nothing is: before its first entry,
// and in some gaps. Scans skip ranges known to be empty.
type index struct {
	kind byte
	n    int64 // entries
	// first is the first entry when exact is set, else a lower bound of it.
	first entry
	exact bool
	gaps  *btree.BTreeG[gap] // they do not touch; nil for none
	adds  int                // how often an entry was added
}

// gap is a part of an index without entries: from one place on and before another.
type gap struct{ from, to entry }

const (
	// worthAGap is how many steps of an iterator make a gap worth knowing, about 5 µs. A seek takes as long.
	worthAGap = 50
	maxGaps   = 2048
)

func newIndex(kind byte) index { return index{kind: kind, first: entry{at: never}, exact: true} }

func newGaps() *btree.BTreeG[gap] {
	return btree.NewBTreeGOptions(func(g, h gap) bool { return g.to.less(h.to) }, btree.Options{NoLocks: true})
}

// learn adds a gap to the known ones. When there are too many, they are forgotten.
func (x *index) learn(g gap) {
	if !g.from.less(g.to) {
		return
	}
	if x.gaps == nil || x.gaps.Len() == maxGaps {
		x.gaps = newGaps()
	}
	var joined []gap
	x.gaps.Ascend(gap{to: g.from}, func(h gap) bool {
		touches := !g.to.less(h.from)
		if touches {
			joined = append(joined, h)
		}
		return touches
	})
	for _, h := range joined {
		x.gaps.Delete(h)
		if h.from.less(g.from) {
			g.from = h.from
		}
		if g.to.less(h.to) {
			g.to = h.to
		}
	}
	x.gaps.Set(g)
}

// gapAfter returns the first gap that ends behind an entry.
func gapAfter(gaps *btree.BTreeG[gap], e entry) (g gap, ok bool) {
	if gaps != nil {
		gaps.Ascend(gap{to: e.behind()}, func(h gap) bool {
			g, ok = h, true
			return false
		})
	}
	return g, ok
}

// add adds an entry, which may be in a gap.
func (x *index) add(e entry) {
	x.n++
	x.adds++
	if g, ok := gapAfter(x.gaps, e); ok && !e.less(g.from) {
		x.gaps.Delete(g)
		x.learn(gap{g.from, e})
		x.learn(gap{e.behind(), g.to})
	}
	if e.less(x.first) {
		x.first, x.exact = e, true
	}
}

// remove removes an entry.
func (x *index) remove(e entry) {
	switch x.n--; {
	case x.n == 0:
		x.startAt(entry{at: never}, true)
	case e == x.first:
		x.exact = false
	}
}

// startAt notes where the entries begin.
func (x *index) startAt(first entry, exact bool) { x.first, x.exact = first, exact }

// forgetGaps is for an index that is being loaded.
func (x *index) forgetGaps() {
	x.gaps = nil
	x.startAt(entry{at: never}, true)
	if x.n > 0 {
		x.startAt(entry{}, false)
	}
}

// indexView is an index as it was when a snapshot was taken. A scan of the snapshot may find gaps, which hold for the
// index too if no entry was added since.
type indexView struct {
	kind  byte
	first entry
	gaps  *btree.BTreeG[gap] // nil for none
	adds  int
	found []gap // by the scans
}

// view returns the index as it is. The caller is the writer, and takes a snapshot.
func (x *index) view() *indexView {
	v := &indexView{kind: x.kind, first: x.first, adds: x.adds}
	if x.gaps != nil {
		v.gaps = x.gaps.Copy()
	}
	return v
}

// learnFrom learns the gaps that a view found. The caller is the writer.
func (x *index) learnFrom(v *indexView) {
	if x.adds != v.adds {
		return
	}
	for _, g := range v.found {
		x.learn(g)
	}
}

// scan calls f for the entries of an index from one on to the end of the millisecond last, until it returns false. It
// skips known gaps, and calls learn with new ones. A value of kindDue is 1 where a record is stored.
func (r *reader) scan(queue uint32, x *indexView, from entry, last int64, learn func(gap),
	f func(e entry, value []byte) (bool, error)) error {
	to := entry{at: min(last, lastTime-1) + 1}
	if from.less(x.first) {
		from = x.first
	}
	if !from.less(to) {
		return nil
	}
	it, err := r.iterate(appendTimeKey(nil, queue, x.kind, from), appendTimeKey(nil, queue, x.kind, to))
	if err != nil {
		return err
	}
	s := scanner{it: it, queue: queue, view: x, at: from}
	err = s.run(to, f)
	r.s.steps.Add(int64(s.steps))
	if err = r.end(it, err); err == nil {
		for _, g := range s.found {
			learn(g)
		}
	}
	return err
}

// scanner scans a part of an index with one iterator.
type scanner struct {
	it    *pebble.Iterator
	queue uint32
	view  *indexView
	at    entry // there is nothing else between the last entry and this place
	steps int   // of the iterator so far
	found []gap
	key   []byte // scratch
	limit []byte // scratch
}

func (s *scanner) run(to entry, f func(e entry, value []byte) (bool, error)) error {
	gap, known := gapAfter(s.view.gaps, s.at)
	for seek := true; ; {
		var limit []byte
		if known && !s.at.less(gap.from) {
			s.at, seek = gap.to, true
			gap, known = gapAfter(s.view.gaps, s.at)
			continue
		}
		if known {
			s.limit = appendTimeKey(s.limit[:0], s.queue, s.view.kind, gap.from)
			limit = s.limit
		}
		if !s.at.less(to) {
			return nil
		}
		var state pebble.IterValidityState
		if seek {
			s.key = appendTimeKey(s.key[:0], s.queue, s.view.kind, s.at)
			state = s.it.SeekGEWithLimit(s.key, limit)
		} else {
			state = s.it.NextWithLimit(limit)
		}
		seek = false
		switch state {
		case pebble.IterExhausted:
			if s.it.Error() == nil {
				s.cross(to)
			}
			return nil
		case pebble.IterAtLimit:
			s.cross(gap.from)
			s.at = gap.from
			continue
		}
		e, err := parseEntry(s.it.Key())
		if err != nil {
			continue // not an entry, and harmless
		}
		s.cross(e)
		s.at = e.behind()
		more, err := f(e, s.it.Value())
		if err != nil || !more {
			return err
		}
	}
}

// cross notes that there is nothing between the last entry and a place.
func (s *scanner) cross(to entry) {
	stats := s.it.Stats()
	n := stats.ForwardStepCount[pebble.InternalIterCall]
	if n-s.steps > worthAGap {
		s.found = append(s.found, gap{s.at, to})
	}
	s.steps = n
}
