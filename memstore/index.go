package memstore

import (
	"cmp"
	"iter"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/tidwall/btree"

	"github.com/laterq/later/store"
)

// never is a time that does not come.
const never = math.MaxInt64

// entry is an id with the millisecond that orders it; ties are ordered by id.
type entry struct {
	at int64
	id string
}

func (e entry) less(f entry) bool {
	return cmp.Or(cmp.Compare(e.at, f.at), cmp.Compare(e.id, f.id)) < 0
}

// index is an ordered set of entries.
type index struct {
	tree *btree.BTreeG[entry]
}

func newIndex() index {
	return index{btree.NewBTreeGOptions(entry.less, btree.Options{NoLocks: true})}
}

func (x index) add(at int64, id string)    { x.tree.Set(entry{at, id}) }
func (x index) remove(at int64, id string) { x.tree.Delete(entry{at, id}) }
func (x index) len() int                   { return x.tree.Len() }

// first gives the first entry, or one that never comes.
func (x index) first() entry {
	if e, ok := x.tree.Min(); ok {
		return e
	}
	return entry{at: never}
}

// before counts the entries ordered before the millisecond at.
func (x index) before(at int64) int {
	return sort.Search(x.tree.Len(), func(i int) bool {
		e, _ := x.tree.GetAt(i)
		return e.at >= at
	})
}

// between gives the entries from the one at from on, in order, to the end of the millisecond last. The index
// must not change meanwhile.
func (x index) between(from entry, last int64) iter.Seq[entry] {
	return func(yield func(entry) bool) {
		x.tree.Ascend(from, func(e entry) bool { return e.at <= last && yield(e) })
	}
}

// cursor is the text of a place in a listing: right behind e.
func (e entry) cursor() string { return strconv.FormatInt(e.at, 10) + ":" + e.id }

// parseCursor gives the first place behind the entry of a cursor; the first of all for no cursor.
func parseCursor(text string) (entry, error) {
	if text == "" {
		return entry{at: math.MinInt64}, nil
	}
	ms, id, ok := strings.Cut(text, ":")
	at, err := strconv.ParseInt(ms, 10, 64)
	if !ok || err != nil {
		return entry{}, store.Invalid("cursor %q is none of this store's: give the one of the page before, or none", text)
	}
	return entry{at, id + "\x00"}, nil
}
