package turns

import (
	"cmp"
	"sort"

	"github.com/tidwall/btree"
)

// lane holds the messages of a key and class that wait, in order of Message.Place, then id. The zero lane is empty. A
// lane of one message has no tree, which saves two thirds of the memory where most keys have one.
type lane struct {
	only entry // the message of a lane without a tree; its id is "" while there is none
	tree *btree.BTreeG[entry]
}

type entry struct {
	place int64
	id    string
}

func (e entry) less(f entry) bool {
	return cmp.Or(cmp.Compare(e.place, f.place), cmp.Compare(e.id, f.id)) < 0
}

// add reports whether the message is new.
func (l *lane) add(e entry) bool {
	switch {
	case l.tree == nil && (l.only == e || l.only.id == ""):
		isNew := l.only != e
		l.only = e
		return isNew
	case l.tree == nil:
		l.tree = btree.NewBTreeGOptions(entry.less, btree.Options{NoLocks: true})
		l.tree.Set(l.only)
		l.only = entry{}
	}
	_, replaced := l.tree.Set(e)
	return !replaced
}

func (l *lane) remove(e entry) bool {
	if l.tree == nil {
		removed := l.only == e
		if removed {
			l.only = entry{}
		}
		return removed
	}
	_, removed := l.tree.Delete(e)
	if l.tree.Len() == 0 {
		l.tree = nil
	}
	return removed
}

func (l *lane) has(e entry) bool {
	if l.tree == nil {
		return l.only == e
	}
	_, ok := l.tree.Get(e)
	return ok
}

func (l *lane) len() int {
	switch {
	case l.tree != nil:
		return l.tree.Len()
	case l.only.id != "":
		return 1
	}
	return 0
}

// first returns the first message of a lane that is not empty.
func (l *lane) first() entry {
	if l.tree == nil {
		return l.only
	}
	e, _ := l.tree.Min()
	return e
}

// scores holds keys in order of their scores, then names.
type scores struct {
	tree *btree.BTreeG[*seat]
}

func newScores() *scores {
	return &scores{btree.NewBTreeGOptions((*seat).less, btree.Options{NoLocks: true})}
}

func (s *scores) len() int { return s.tree.Len() }

func (s *scores) first() (*key, bool) {
	if first, ok := s.tree.Min(); ok {
		return first.key, true
	}
	return nil, false
}

func (s *scores) each(visit func(*key) bool) {
	s.tree.Scan(func(s *seat) bool { return visit(s.key) })
}

// below returns the number of keys with a lower score.
func (s *scores) below(score float64) int {
	return sort.Search(s.tree.Len(), func(i int) bool {
		at, _ := s.tree.GetAt(i)
		return at.score >= score
	})
}
