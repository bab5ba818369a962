package diskstore

import (
	"encoding/binary"
	"slices"
	"sort"
)

// cells count the scheduled and ready messages of a queue by due time, so that a Histogram or Stats reads a few entries
// at the edges of what it counts instead of every one. A cell begins as one millisecond. When there are many,
// neighbours are merged into wider ones of about the same count, and a wide one that becomes crowded is split by
// reading it. So the number of cells is bounded, and so is the number of entries in each.
//
// Changes are collected and folded in by the thousand, sorted: a change costs a few nanoseconds.
//
// The cells of a queue are stored when the store is closed, under kindCells, and that key is removed with the next
// change of the queue. After a crash they are not known until the first Histogram or Stats has them counted.
type cells struct {
	known    bool
	all      []cell   // in order, apart; never changed in place, so that a view may have them
	changes  []int64  // since then: twice the millisecond, and 1 for a removal
	crowded  bool     // some of all are to be split
	stored   bool     // there is a kindCells key
	counting *recount // nil when there is none
}

// cell counts the messages due within some milliseconds.
type cell struct {
	from  int64
	width uint32 // from its first to its last millisecond
	n     uint32
}

func (c cell) last() int64 { return c.from + int64(c.width) }

// span is a range of milliseconds, with both ends.
type span struct{ first, last int64 }

const (
	minCells = 256
	maxCells = 1 << 17 // 16 bytes each
	// messagesPerCell is about how many messages are worth one cell.
	messagesPerCell = 16
	// crowd is the number of messages that a wide cell holds at most. Reading them takes a tenth of a millisecond.
	crowd = 512
	// maxSplits is how many cells are split at a time.
	maxSplits = 16

	minChanges = 64
	maxChanges = 8192

	// worthStoring is how many messages take longer to count than their cells to store and to load.
	worthStoring = 10_000
)

// cellLimit returns how many cells n messages may have.
func cellLimit(n int64) int { return int(min(max(n/messagesPerCell, minCells), maxCells)) }

// mergedCount returns the count up to which neighbours are merged. It leaves about two thirds of the limit.
func mergedCount(n int64) int64 { return 3 * n / int64(cellLimit(n)) }

// crowdOf returns the number of messages that a wide cell of n messages in all may hold.
func crowdOf(n int64) int64 { return max(crowd, 4*mergedCount(n)) }

// note notes that a message was added, or removed, and reports whether it is time to fold the changes.
func (c *cells) note(at int64, removed bool) (full bool) {
	if !c.known && c.counting == nil {
		return false
	}
	change := min(max(at, 0), lastTime) << 1
	if removed {
		change |= 1
	}
	c.changes = append(c.changes, change)
	return c.known && len(c.changes) == min(max(minChanges, len(c.all)/messagesPerCell), maxChanges)
}

// fold applies the changes; n is the number of messages.
func (c *cells) fold(n int64) {
	if !c.known || len(c.changes) == 0 {
		return
	}
	var ok bool
	if c.all, ok = fold(c.all, c.changes); !ok {
		c.forget()
		return
	}
	c.changes = c.changes[:0]
	if len(c.all) > cellLimit(n) {
		c.all = coarsen(c.all, mergedCount(n))
	}
	most := crowdOf(n)
	c.crowded = slices.ContainsFunc(c.all, func(x cell) bool { return x.isCrowded(most) })
}

func (c cell) isCrowded(most int64) bool { return c.width > 0 && int64(c.n) > most }

// forget is for cells that contradict the index.
func (c *cells) forget() { *c = cells{stored: c.stored} }

// fold returns cells with changes, which it sorts. It reports false when a count would be negative.
func fold(all []cell, changes []int64) (merged []cell, ok bool) {
	slices.Sort(changes)
	merged = make([]cell, 0, len(all)+min(len(changes), maxChanges))
	top := func() *cell { return &merged[len(merged)-1] }
	// push appends a cell in place of one that became empty.
	push := func(x cell) {
		if len(merged) > 0 && top().n == 0 {
			merged = merged[:len(merged)-1]
		}
		merged = append(merged, x)
	}
	for i := 0; i < len(changes); {
		at, n := changes[i]>>1, int64(0)
		for ; i < len(changes) && changes[i]>>1 == at; i++ {
			n += 1 - 2*(changes[i]&1)
		}
		for len(all) > 0 && all[0].from <= at {
			push(all[0])
			all = all[1:]
		}
		if n == 0 {
			continue
		}
		if len(merged) == 0 || top().last() < at {
			push(cell{from: at})
		}
		if n += int64(top().n); n < 0 {
			return nil, false
		}
		top().n = uint32(n)
	}
	if len(merged) > 0 && top().n == 0 {
		merged = merged[:len(merged)-1]
	}
	return append(merged, all...), true
}

// coarsen merges neighbours as long as they have at most a count together.
func coarsen(all []cell, most int64) []cell {
	merged := make([]cell, 0, len(all))
	for _, x := range all {
		merged = appendCell(merged, x, most)
	}
	return slices.Clip(slices.Clone(merged))
}

// appendCell appends a cell, or merges it into the last one.
func appendCell(all []cell, x cell, most int64) []cell {
	if len(all) > 0 {
		y := &all[len(all)-1]
		width := x.last() - y.from
		if int64(x.n)+int64(y.n) <= most && width <= 1<<32-1 {
			y.width, y.n = uint32(width), x.n+y.n
			return all
		}
	}
	return append(all, x)
}

// cellBuilder makes cells of messages in order of time.
type cellBuilder struct {
	all  []cell
	most int64 // that a wide cell holds
	at   cell  // the last millisecond
	n    int64
}

func (b *cellBuilder) add(at int64) {
	if b.at.n > 0 && b.at.from != at {
		b.end()
	}
	b.at.from = at
	b.at.n++
	b.n++
}

// end returns the cells of all messages so far.
func (b *cellBuilder) end() []cell {
	if b.at.n > 0 {
		b.all = appendCell(b.all, b.at, b.most)
		b.at.n = 0
	}
	return b.all
}

// edge is a part of a cell that has to be read, because a bound is within the cell. Until then its messages are
// counted in the longest part.
type edge struct {
	span
	bucket, longest int
}

// spread adds cells to the counts of buckets, and returns the parts that have to be read to correct them. Bucket i+1 is
// from bounds[i] to before bounds[i+1]; bucket 0 and the last one are before and behind all bounds.
func spread(all []cell, bounds, counts []int64) (edges []edge) {
	all = all[sort.Search(len(all), func(i int) bool { return all[i].last() >= bounds[0] }):]
	bucket := 0
	for _, x := range all {
		for bucket < len(bounds) && x.from >= bounds[bucket] {
			bucket++
		}
		if bucket == len(bounds) {
			break
		}
		parts := edges[len(edges):]
		longest := edge{bucket: bucket}
		for first, i := x.from, bucket; first <= x.last(); i++ {
			p := edge{span{first, x.last()}, i, 0}
			if i < len(bounds) {
				p.last = min(p.last, bounds[i]-1)
			}
			if first == x.from || p.last-p.first > longest.last-longest.first {
				longest = p
			}
			parts = append(parts, p)
			first = p.last + 1
		}
		counts[longest.bucket] += int64(x.n)
		for _, p := range parts {
			if p.bucket != longest.bucket {
				p.longest = longest.bucket
				edges = append(edges, p)
			}
		}
	}
	return edges
}

// move counts a message of the edge where it belongs.
func (e *edge) move(counts []int64) {
	counts[e.longest]--
	counts[e.bucket]++
}

// cellCheck compares cells with messages in order of time.
type cellCheck struct {
	all   []cell
	n     uint32 // messages of the first one so far
	wrong bool
}

func (c *cellCheck) add(at int64) {
	for len(c.all) > 0 && c.all[0].last() < at {
		c.next()
	}
	if len(c.all) == 0 || at < c.all[0].from {
		c.wrong = true
		return
	}
	c.n++
}

func (c *cellCheck) next() {
	c.wrong = c.wrong || c.n != c.all[0].n
	c.all, c.n = c.all[1:], 0
}

// end reports whether the cells have all messages and no others.
func (c *cellCheck) end() bool {
	for len(c.all) > 0 {
		c.next()
	}
	return !c.wrong
}

// appendCells writes the distance to the cell before, the width and the count of each.
func appendCells(b []byte, all []cell) []byte {
	end := int64(0)
	for _, x := range all {
		b = binary.AppendUvarint(b, uint64(x.from-end))
		b = binary.AppendUvarint(b, uint64(x.width))
		b = binary.AppendUvarint(b, uint64(x.n))
		end = x.last()
	}
	return b
}

// parseCells reads the cells of n messages.
func parseCells(b []byte, n int64) (all []cell, err error) {
	bad := corrupt("%d bytes of counts by due time are not of this format, or not of %d messages", len(b), n)
	end := int64(0)
	for len(b) > 0 {
		var numbers [3]uint64
		for i, most := range []uint64{lastTime, 1<<32 - 1, 1<<32 - 1} {
			number, length := binary.Uvarint(b)
			if length <= 0 || number > most {
				return nil, bad
			}
			numbers[i], b = number, b[length:]
		}
		x := cell{end + int64(numbers[0]), uint32(numbers[1]), uint32(numbers[2])}
		if x.last() > lastTime || x.n == 0 || len(all) > 0 && x.from == end {
			return nil, bad
		}
		all, end = append(all, x), x.last()
		n -= int64(x.n)
	}
	if n != 0 {
		return nil, bad
	}
	return all, nil
}
