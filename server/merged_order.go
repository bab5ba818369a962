package server

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/inspect"
	"github.com/laterq/later/store"
)

const (
	// mergedPage is how many messages of one of many queues are read at a time, and mergedBytes how many bytes of them,
	// unless a single message has more.
	mergedPage  = 25
	mergedBytes = 1 << 20
	// mergedMemory is how many bytes of messages a list keeps that it has read ahead, before the next parts are added.
	mergedMemory = 64 << 20
	// mergedSoon is how long before its due time a message may be ready already, as far as a list knows.
	mergedSoon = 10 * time.Second
	// mergedSkew is how far the clocks of the servers of a Cluster differ, as far as a list knows.
	mergedSkew = 100 * time.Millisecond
)

// merge lists the messages of several sources in one order. It takes the earliest message of all pages that are read,
// as soon as no source without a page can have an earlier one. Sources that can are read first, several at a time.
//
// Messages fall due while the list is read: a scheduled message may be in the source of the ready ones a moment later.
// So the source of the ready messages of a queue is read again after that of the scheduled ones, and a message that was
// listed in one state is left out in the other one.
type merge struct {
	client  *later.Client
	filter  inspect.Filter
	byQueue bool // in order of the queues, and not of time: one source is read at a time
	several bool // of more than one queue: damaged queues are left out
	sources []*mergeSource
	limit   int // messages of one page of a source
	bytes   int // of one page of a source
	look    int // messages to look at if the list is by queue
	looked  int
	last    *mergeSource // where the list goes on
	time    time.Time    // of the message taken last
	prober  store.Prober // nil if the store is none, or the list is by queue
	now     time.Time    // messages due until then are ready, all by the clock of the store; zero without a prober
	soon    time.Time    // messages due later are not ready while the list is read; zero without a prober
}

// compare orders sources by their next messages.
func (m *merge) compare(s, o *mergeSource) int {
	if m.byQueue {
		return s.compare(o)
	}
	return cmp.Or(s.earliest().Compare(o.earliest()), s.compare(o))
}

// first returns the source with the first message that is read, or nil if none is.
func (m *merge) first() (first *mergeSource) {
	for _, s := range m.sources {
		if s.head() != nil && (first == nil || m.compare(s, first) < 0) {
			first = s
		}
	}
	return first
}

// take returns the next message, or nil if there is none, or enough were looked at.
func (m *merge) take(ctx context.Context) (*later.Info, error) {
	for {
		first := m.first()
		unread := m.unread(first)
		switch {
		case len(unread) > 0 && m.byQueue && m.looked >= m.look:
			return nil, nil
		case len(unread) > 0:
			probed, err := m.probeAgain(ctx, unread)
			if err == nil && !probed {
				err = m.read(ctx, unread[:min(len(unread), overviewReaders)])
			}
			if err != nil {
				return nil, err
			}
			continue
		case first == nil:
			return nil, nil
		}
		info := first.head()
		first.at++
		first.after = first.placeOf(info)
		if first.head() == nil && !m.byQueue {
			first.bound = listTime(info)
		}
		if other := m.sibling(first); other != nil && first.after.compare(other.after) <= 0 {
			continue // it was listed in the other state
		}
		m.last, m.time = first, listTime(info)
		return info, nil
	}
}

// sibling returns the source with the messages of the same queue in the other state, or nil if there is none.
func (m *merge) sibling(s *mergeSource) *mergeSource {
	i := slices.Index(m.sources, s)
	for _, j := range []int{i - 1, i + 1} {
		if j >= 0 && j < len(m.sources) && m.sources[j].queue == s.queue {
			return m.sources[j]
		}
	}
	return nil
}

// unread returns the sources that may have messages before the first one that is read. If none is read, it returns some
// to begin with.
func (m *merge) unread(first *mergeSource) []*mergeSource {
	var some []*mergeSource
	for _, s := range m.sources {
		if s.head() == nil && (!s.done || s.again) && (first == nil || m.compare(s, first) < 0) {
			some = append(some, s)
		}
	}
	slices.SortFunc(some, m.compare)
	switch {
	case m.byQueue:
		return some[:min(len(some), 1)]
	case first == nil:
		return some[:min(len(some), overviewReaders)]
	}
	return some
}

// read reads the next page of some sources. It skips damaged queues in a list of several.
func (m *merge) read(ctx context.Context, some []*mergeSource) error {
	pages, errs := make([]inspect.SearchPage, len(some)), make([]error, len(some))
	atOnce(len(some), func(i int) bool {
		s := some[i]
		filter, look := m.filter, store.MaxBatch
		filter.State = s.state
		if m.byQueue {
			look = m.look - m.looked
		} else {
			filter.From = s.from // a cursor belongs to it
		}
		pages[i], errs[i] = inspect.Search(ctx, m.client, s.queue, filter,
			inspect.SearchOptions{Limit: m.limit, Look: look, Cursor: s.begin(), Bytes: m.bytes})
		return errs[i] == nil || isDamage(errs[i])
	})
	for i, s := range some {
		if err := errs[i]; err != nil && (!isDamage(err) || !m.several) {
			return err
		}
		page := &pages[i]
		m.looked += page.Looked
		s.cursor, s.next, s.done, s.again = s.begin(), page.Next, page.Next == "", false
		s.read, s.at = page.Messages, 0
		s.skip()
		if m.byQueue {
			m.last = s
			continue
		}
		m.leave(s)
	}
	for _, s := range some { // the ready ones may have been read at the same time
		if ready := m.sibling(s); !m.byQueue && s.state == later.StateScheduled && ready != nil && ready.done {
			ready.again = m.soon.IsZero() || !s.bound.After(m.soon)
		}
	}
	m.release()
	return nil
}

// leave leaves out the messages of a source that the list has passed. They were sent after their queue was counted.
func (m *merge) leave(s *mergeSource) {
	for m.last != nil && m.last.queue != s.queue && s.head() != nil &&
		cmp.Or(s.earliest().Compare(m.time), s.compare(m.last)) < 0 {
		s.after = s.placeOf(s.head())
		s.at++
	}
}

// release forgets the last messages that were read ahead if they take too much memory. They are read again when it is
// their turn.
func (m *merge) release() {
	var ahead []*mergeSource
	sizes, size := map[*mergeSource]int{}, 0
	for _, s := range m.sources {
		if s.head() == nil {
			continue
		}
		ahead = append(ahead, s)
		for _, info := range s.read[s.at:] {
			sizes[s] += Message{Info: info}.SizeAsJSON()
		}
		size += sizes[s]
	}
	slices.SortFunc(ahead, m.compare)
	for i := len(ahead) - 1; i > 0 && size > mergedMemory; i-- {
		s := ahead[i]
		size -= sizes[s]
		s.bound, s.next, s.done = s.earliest(), s.cursor, false
		s.read, s.at = nil, 0
	}
}
