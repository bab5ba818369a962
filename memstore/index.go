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

// never is later than every time.
const never = math.MaxInt64

// entry is an id and its time in milliseconds since 1970. Entries are in order of time, then of id.
type entry struct {
	at int64
	id string
}

func (e entry) less(f entry) bool {
	return cmp.Or(cmp.Compare(e.at, f.at), cmp.Compare(e.id, f.id)) < 0
}

// index is a set of entries in order.
type index struct {
	tree *btree.BTreeG[entry]
}

func newIndex() index {
	return index{btree.NewBTreeGOptions(entry.less, btree.Options{NoLocks: true})}
}

func (x index) add(at int64, id string)    { x.tree.Set(entry{at, id}) }
func (x index) remove(at int64, id string) { x.tree.Delete(entry{at, id}) }
func (x index) len() int                   { return x.tree.Len() }

// first returns the first entry, or one at never if the index is empty.
func (x index) first() entry {
	if e, ok := x.tree.Min(); ok {
		return e
	}
	return entry{at: never}
}

// before returns the number of entries with an earlier time than at.
func (x index) before(at int64) int {
	return sort.Search(x.tree.Len(), func(i int) bool {
		e, _ := x.tree.GetAt(i)
		return e.at >= at
	})
}

// between returns the entries not before from with a time of at most last, in order. The index must not change during
// the iteration.
func (x index) between(from entry, last int64) iter.Seq[entry] {
	return func(yield func(entry) bool) {
		x.tree.Ascend(from, func(e entry) bool { return e.at <= last && yield(e) })
	}
}

// cursor returns the cursor of a listing that continues after e.
func (e entry) cursor() string { return strconv.FormatInt(e.at, 10) + ":" + e.id }

// parseCursor returns the first possible entry after the entry of a cursor, or the first of all if text is "".
func parseCursor(text string) (entry, error) {
	if text == "" {
		return entry{at: math.MinInt64}, nil
	}
	ms, id, ok := strings.Cut(text, ":")
	at, err := strconv.ParseInt(ms, 10, 64)
	if !ok || err != nil {
		return entry{}, store.Field("cursor", store.Invalid("cursor %q is not from this store: "+
			"give Page.Next of the previous page, or \"\" for the first", text))
	}
	return entry{at, id + "\x00"}, nil
}
