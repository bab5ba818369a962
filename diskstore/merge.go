package diskstore

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"errors"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// source gives changes by key, and of one key the newest first.
type source interface {
	// next moves to the next change; false at the end. What cannot be read is passed over.
	next() bool
	change() *change
}

// before is the order of changes. Of several with the same number, which are in the tables before and after a
// compaction, the first is the one that has the others in it.
func (c *change) before(d *change) int {
	return cmp.Or(bytes.Compare(c.key, d.key), -cmp.Compare(c.seq, d.seq),
		cmp.Compare(boolByte(d.writes()), boolByte(c.writes())), -cmp.Compare(len(c.value), len(d.value)))
}

// writes tells whether a change gives its key a value, whatever it had before.
func (c *change) writes() bool {
	return c.kind == pebble.InternalKeyKindSet || c.kind == pebble.InternalKeyKindSetWithDelete
}

// tableSource goes over a table, one block at a time.
type tableSource struct {
	t     *tableFile
	block int
	all   []change
	last  []byte // the last key that was read
	open  int    // the first of t.lost that is not closed by a key yet
	now   change
}

func newTableSource(t *tableFile) *tableSource { return &tableSource{t: t, open: len(t.lost)} }

func (s *tableSource) change() *change { return &s.now }

func (s *tableSource) next() bool {
	for len(s.all) == 0 {
		if s.block == len(s.t.data) {
			return false
		}
		e := s.t.data[s.block]
		s.block++
		all, _, err := s.t.read(e)
		switch {
		case err != nil:
			s.t.lost = append(s.t.lost, lostPart{extent: e, what: "a block", after: s.last})
		case len(all) > 0 && bytes.Compare(all[0].key, s.last) >= 0: // else it only looks like a block
			s.all = all
			for ; s.open < len(s.t.lost); s.open++ {
				s.t.lost[s.open].before = all[0].key
			}
		}
	}
	s.now, s.all = s.all[0], s.all[1:]
	s.last = s.now.key
	return true
}

// listSource goes over changes in memory: those of the logs.
type listSource struct {
	all []change
	now change
}

func (s *listSource) change() *change { return &s.now }

func (s *listSource) next() bool {
	if len(s.all) == 0 {
		return false
	}
	s.now, s.all = s.all[0], s.all[1:]
	return true
}

// logChanges reads all that can be read of a log, behind damage too.
func logChanges(fs vfs.FS, dir, name string, number uint64) (changes []change, spans []span, lost []lostPart, err error) {
	f, err := fs.Open(fs.PathJoin(dir, name), vfs.SequentialReadsOption)
	if err != nil {
		return nil, nil, nil, err
	}
	defer f.Close()
	r := recordReader{chunkReader: newChunkReader(f, number, true)}
	end := int64(0)
	for {
		record, err := r.record()
		if errors.Is(err, io.EOF) {
			return changes, spans, lost, nil
		}
		if err != nil {
			return nil, nil, nil, err
		}
		if record.behind {
			lost = append(lost, lostPart{extent: extent{end, record.at}, what: "records"})
		}
		end = record.end
		more, deleted, err := batchChanges(slices.Clone(record.data))
		changes, spans = append(changes, more...), append(spans, deleted...)
		if err != nil {
			lost = append(lost, lostPart{extent: extent{record.at, record.end}, what: "a part of a record"})
		}
	}
}

// batchChanges reads the changes of a batch.
func batchChanges(b []byte) (changes []change, spans []span, err error) {
	h, ok := batchrepr.ReadHeader(b)
	if !ok {
		return nil, nil, corrupt("a record is no batch")
	}
	seq := uint64(h.SeqNum)
	r := batchrepr.Read(b)
	for {
		kind, key, value, ok, err := r.Next()
		if err != nil || !ok {
			return changes, spans, err
		}
		switch kind {
		case pebble.InternalKeyKindLogData:
			continue // which has no sequence number
		case pebble.InternalKeyKindRangeDelete:
			spans = append(spans, span{key, value, seq})
		default:
			changes = append(changes, change{key, value, seq, kind})
		}
		seq++
	}
}

// merge gives what is left of the changes of several sources, by key: the value of each key that has one. It holds
// one block of each table in memory.
type merge struct {
	sources sourceHeap
	spans   []span // that begin behind the key, in order
	active  []span // that the key may be in
}

func newMerge(sources []source, spans []span) *merge {
	m := &merge{spans: slices.Clone(spans)}
	slices.SortFunc(m.spans, func(a, b span) int { return bytes.Compare(a.from, b.from) })
	for _, s := range sources {
		if s.next() {
			m.sources = append(m.sources, s)
		}
	}
	heap.Init(&m.sources)
	return m
}

// each calls f for every key that has a value.
func (m *merge) each(ctx context.Context, f func(key, value []byte) error) error {
	for n := 0; len(m.sources) > 0; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		key := m.sources[0].change().key
		value, living := m.value(key)
		if !living {
			continue
		}
		if err := f(key, value); err != nil {
			return err
		}
	}
	return nil
}

// value takes all changes of a key, and gives what they make of it.
func (m *merge) value(key []byte) (value []byte, living bool) {
	deleted := m.deleted(key)
	var operands [][]byte // newest first
	last := ^uint64(0)
	for done := false; len(m.sources) > 0 && bytes.Equal(m.sources[0].change().key, key); m.advance() {
		c := m.sources[0].change()
		if done || c.seq < deleted || c.seq == last {
			continue
		}
		last = c.seq
		switch {
		case c.writes():
			operands, living, done = append(operands, c.value), true, true
		case c.kind == pebble.InternalKeyKindMerge:
			operands, living = append(operands, c.value), true
		default:
			done = true
		}
	}
	slices.Reverse(operands)
	return bytes.Join(operands, nil), living
}

// deleted gives the sequence number below which changes of a key are undone.
func (m *merge) deleted(key []byte) (seq uint64) {
	for len(m.spans) > 0 && bytes.Compare(m.spans[0].from, key) <= 0 {
		m.active = append(m.active, m.spans[0])
		m.spans = m.spans[1:]
	}
	m.active = slices.DeleteFunc(m.active, func(s span) bool { return bytes.Compare(s.to, key) <= 0 })
	for _, s := range m.active {
		seq = max(seq, s.seq)
	}
	return seq
}

// advance moves the first source on.
func (m *merge) advance() {
	if m.sources[0].next() {
		heap.Fix(&m.sources, 0)
		return
	}
	heap.Pop(&m.sources)
}

type sourceHeap []source

func (h sourceHeap) Len() int           { return len(h) }
func (h sourceHeap) Less(i, j int) bool { return h[i].change().before(h[j].change()) < 0 }
func (h sourceHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *sourceHeap) Push(x any)        { *h = append(*h, x.(source)) }
func (h *sourceHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
