package diskstore

import (
	"iter"
	"slices"
	"sort"

	"github.com/cockroachdb/pebble/v2"
)

// index is the entries of one kind of a queue in order of time. Removed entries leave tombstones, which a scan steps
// over one by one until Pebble has compacted them away. So an index knows where nothing is: before its first entry,
// and in some gaps. Scans skip ranges known to be empty.
type index struct {
	indexView
	n     int64 // entries
	exact bool  // first is the first entry, and not only a lower bound of it
	lent  bool  // a view has the gaps, so that they are copied before they change
}

// gap is a part of an index without entries: from one place on and before another.
type gap struct {
	from, to entry
	steps    int // that knowing it saves
}

const (
	// worthAGap is how many steps of an iterator make a gap worth knowing, about 5 µs. A seek takes as long.
	worthAGap = 50
	maxGaps   = 2048
)

func newIndex(kind byte) index {
	return index{indexView: indexView{kind: kind, first: entry{at: never}}, exact: true}
}

func (g gap) holds(e entry) bool { return !e.less(g.from) && e.less(g.to) }

func (g gap) empty() bool { return !g.from.less(g.to) }

// learn adds a gap to the known ones. When there are too many, the one that saves least is forgotten.
func (x *index) learn(g gap) {
	if g.empty() {
		return
	}
	x.ownGaps()
	at := sort.Search(len(x.gaps), func(i int) bool { return !x.gaps[i].to.less(g.from) })
	end := at
	for ; end < len(x.gaps) && !g.to.less(x.gaps[end].from); end++ {
		h := x.gaps[end]
		g.steps += h.steps
		if h.from.less(g.from) {
			g.from = h.from
		}
		if g.to.less(h.to) {
			g.to = h.to
		}
	}
	x.gaps = slices.Replace(x.gaps, at, end, g)
	if len(x.gaps) > maxGaps {
		least := 0
		for i, h := range x.gaps {
			if h.steps < x.gaps[least].steps {
				least = i
			}
		}
		x.gaps = slices.Delete(x.gaps, least, least+1)
	}
}

// ownGaps copies the gaps if a view has them.
func (x *index) ownGaps() {
	if x.lent {
		x.gaps, x.lent = slices.Clone(x.gaps), false
	}
}

// split returns the two parts of a gap around an entry.
func (g gap) split(e entry) (before, behind gap) {
	return gap{g.from, e, g.steps / 2}, gap{e.behind(), g.to, g.steps / 2}
}

// add adds an entry, which may be in a gap.
func (x *index) add(e entry) {
	x.n++
	x.adds++
	at := sort.Search(len(x.gaps), func(i int) bool { return e.less(x.gaps[i].to) })
	if at < len(x.gaps) && x.gaps[at].holds(e) {
		x.ownGaps()
		before, behind := x.gaps[at].split(e)
		x.gaps = slices.Delete(x.gaps, at, at+1)
		x.learn(before)
		x.learn(behind)
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
	x.gaps, x.lent = nil, false
	x.startAt(entry{at: never}, true)
	if x.n > 0 {
		x.startAt(entry{}, false)
	}
}

// indexView is an index as it was when a snapshot was taken. A scan of the snapshot may find gaps, which hold for the
// index too if no entry was added since.
type indexView struct {
	kind  byte
	first entry // no entry is before it
	gaps  []gap // in order; they do not touch
	adds  int   // how often an entry was added
	found []gap // by the scans of a view
}

// view returns the index as it is. The caller is the writer, and takes a snapshot.
func (x *index) view() *indexView {
	x.lent = true
	v := x.indexView
	return &v
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

// scan iterates over the entries of an index from one on to the end of the millisecond last, with their values. It
// skips known gaps, and calls learn with new ones at the end. An error of reading is set in *err, unless the loop has
// set another one.
func (r *reader) scan(err *error, queue uint32, x *indexView, from entry, last int64,
	learn func(gap)) iter.Seq2[entry, []byte] {
	return func(yield func(e entry, value []byte) bool) {
		to := entry{at: min(last, lastTime-1) + 1}
		if from.less(x.first) {
			from = x.first
		}
		if !from.less(to) {
			return
		}
		it, failed := r.iterate(appendTimeKey(nil, queue, x.kind, from), appendTimeKey(nil, queue, x.kind, to))
		if failed != nil {
			*err = failed
			return
		}
		s := scanner{it: it, queue: queue, view: x, at: from}
		s.run(to, yield)
		r.s.steps.Add(int64(s.steps))
		if *err = r.end(it, *err); *err == nil {
			for _, g := range s.found {
				learn(g)
			}
		}
	}
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

func (s *scanner) run(to entry, yield func(e entry, value []byte) bool) {
	gaps := s.view.gaps
	next := sort.Search(len(gaps), func(i int) bool { return s.at.less(gaps[i].to) })
	for seek := true; ; {
		var limit []byte
		if next < len(gaps) {
			if g := gaps[next]; !s.at.less(g.from) {
				s.at, seek = g.to, true
				next++
				continue
			}
			s.limit = appendTimeKey(s.limit[:0], s.queue, s.view.kind, gaps[next].from)
			limit = s.limit
		}
		if !s.at.less(to) {
			return
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
			return
		case pebble.IterAtLimit:
			s.cross(gaps[next].from)
			s.at = gaps[next].from
			continue
		}
		e, err := parseEntry(s.it.Key())
		if err != nil {
			continue // not an entry, and harmless
		}
		s.cross(e)
		s.at = e.behind()
		if !yield(e, s.it.Value()) {
			return
		}
	}
}

// cross notes that there is nothing between the last entry and a place.
func (s *scanner) cross(to entry) {
	stats := s.it.Stats()
	n := stats.ForwardStepCount[pebble.InternalIterCall]
	if n-s.steps > worthAGap {
		s.found = append(s.found, gap{s.at, to, n - s.steps})
	}
	s.steps = n
}
