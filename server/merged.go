package server

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/inspect"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/server/access"
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
)

func registerMerged(s *Server) {
	route(s, access.Look, on("GET /v1/messages", "messages", "listAllMessages", "List messages of several queues",
		fails(http.StatusNotFound), s.fewReads,
		says("In order of due time, dead ones in order of death, those of the same time by queue. Leased ones, those of "+
			"a group, and with conditions on what is in a message: queue by queue. Such a list can be long without a "+
			"match, and one of two states can then lack a message that falls due while it is read. Counts of queues may be "+
			"known from up to 2 s ago, so that a message that was sent since then can be missing. At most 1,000 queues "+
			"are read, the first ones by name; internal ones are left out unless they are named. Otherwise as the list of "+
			"a queue.")),
		s.listMerged)
}

type mergedInput struct {
	FilterQuery
	States  []string `query:"states,explode" maxItems:"2" doc:"Two states in one list, ready and scheduled; in place of state"`
	Queues  []string `query:"queue,explode" maxItems:"200" doc:"Only these queues. Default: all but internal ones"`
	Limit   int      `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"How many items the page has at most"`
	Cursor  string   `query:"cursor" maxLength:"16384" doc:"The next of the page before, with the same parameters. Default: the first page"`
	Look    int      `query:"look" minimum:"1" maximum:"100000" default:"10000" doc:"How many messages to look at, however few match"`
	Preview int      `query:"preview" minimum:"1" maximum:"1048576" doc:"Cut payloads as the list of a queue does. Default: the whole payloads"`
}

func (s *Server) listMerged(ctx context.Context, in *mergedInput) (*output[MessagePage], error) {
	m, err := s.newMerge(ctx, in)
	if err != nil {
		return nil, err
	}
	page, err := m.page(ctx, in)
	return outputOf(page), err
}

// page returns the page that a request asks for.
func (m *merge) page(ctx context.Context, in *mergedInput) (MessagePage, error) {
	out := MessagePage{Page: Page[Message]{Items: []Message{}}}
	size := 0
	for len(out.Items) < in.Limit && size < maxPageBytes {
		info, err := m.take(ctx)
		if err != nil {
			return out, err
		}
		if info == nil {
			break
		}
		shown := shownMessage(ctx, info)
		if in.Preview > 0 {
			shown.cut(in.Preview)
		}
		size += shown.SizeAsJSON()
		out.Items = append(out.Items, shown)
	}
	out.Looked, out.Next = m.looked, m.end()
	out.Truncated = out.Next != "" && size >= maxPageBytes
	return out, nil
}

// states returns the states of the list, none for a group.
func (in *mergedInput) states() ([]later.State, error) {
	f := &in.FilterQuery.Filter
	switch {
	case len(in.States) == 0 && f.State != "":
		return []later.State{later.State(f.State)}, nil
	case len(in.States) == 0:
		return nil, nil
	case f.State != "":
		return nil, field("query.states", store.Invalid("is given with state: give one of them"))
	}
	states := make([]later.State, len(in.States))
	for i, name := range in.States {
		states[i] = later.State(name)
	}
	slices.Sort(states)
	if !slices.Equal(states, []later.State{later.StateReady, later.StateScheduled}) {
		return nil, field("query.states", store.Invalid("is %.100q: give ready and scheduled, or one state as state",
			strings.Join(in.States, ",")))
	}
	return states, nil
}

// merge lists the messages of several sources in one order.
type merge struct {
	client  *later.Client
	filter  later.Filter
	queues  bool // queue by queue, and not in order of time
	several bool // of more than one queue, of which damaged ones are left out
	sources []*mergeSource
	limit   int // messages of one page of a source
	bytes   int // of one page of a source
	look    int // messages to look at, queue by queue
	looked  int
	last    *mergeSource // where the list goes on
	time    time.Time    // of the message taken last
	soon    time.Time    // messages due later are not ready while the list is read; zero if that is not known
}

// mergeSource is the messages of a queue in one state, or those of a group in a queue.
type mergeSource struct {
	queue  string
	state  later.State
	from   time.Time // earlier messages are not read
	bound  time.Time // messages that are not read yet are not earlier
	after  place     // of the message taken last, also by an earlier request: the ones up to it are left out
	read   []*later.Info
	at     int    // the next of read
	cursor string // with which read was read
	next   string // the cursor of the page after it
	done   bool   // there is none
	again  bool   // the last page has to be read again, since messages have fallen due
}

// place is the place of a message in the list of a source. Stores list messages of the same time by id, and those of a
// group by id only, without a time. The place of a leased message says nothing about others.
type place struct {
	at time.Time
	id string
}

func (p place) compare(o place) int { return cmp.Or(p.at.Compare(o.at), cmp.Compare(p.id, o.id)) }

// placeOf returns the place of a message of the source.
func (s *mergeSource) placeOf(info *later.Info) place {
	if s.state == later.StateNone {
		return place{id: info.ID}
	}
	return place{listTime(info), info.ID}
}

// mergeCursor is the cursor of a merged list as JSON: the source of the last message, and how that goes on. Other
// sources go on at the time of the message.
type mergeCursor struct {
	Queue  string      `json:"q"`
	State  later.State `json:"s,omitempty"`
	Time   int64       `json:"t,omitempty"` // of the last message, in ms since 1970
	ID     string      `json:"i,omitempty"` // of the last message: the ones up to it are left out of the page at Cursor
	From   int64       `json:"f,omitempty"` // the from of the source, in ms since 1970
	Cursor string      `json:"c,omitempty"`
	Done   bool        `json:"d,omitempty"` // queue by queue, the source has no more
}

// newMerge returns the list that a request asks for, at its cursor.
func (s *Server) newMerge(ctx context.Context, in *mergedInput) (*merge, error) {
	states, err := in.states()
	if err != nil {
		return nil, err
	}
	if len(states) == 2 {
		in.FilterQuery.Filter.State = string(states[0]) // for the checks
	}
	filter, err := in.filter()
	if err != nil {
		return nil, err
	}
	if err := maySearch(ctx, &filter); err != nil {
		return nil, err
	}
	if err := checkQueues(ctx, in.Queues); err != nil {
		return nil, err
	}
	if len(states) < 2 {
		states = []later.State{filter.State}
	}
	m := &merge{client: s.client, filter: filter, look: in.Look,
		queues: filter.Group != "" || filter.State == later.StateLeased || (*inspect.Filter)(&filter).LooksInside()}
	queues := sortedSet(in.Queues)
	if len(queues) == 1 {
		if err := s.queueExists(ctx, queues[0]); err != nil {
			return nil, err
		}
	}
	if len(queues) == 0 {
		if queues, err = s.mergedQueues(ctx); err != nil {
			return nil, err
		}
	}
	m.several = len(queues) > 1
	for _, queue := range queues {
		for _, state := range states {
			m.sources = append(m.sources, &mergeSource{queue: queue, state: state, from: filter.From, bound: filter.From})
		}
	}
	if err := m.resume(in.Cursor); err != nil {
		return nil, field("query.cursor", err)
	}
	if len(m.sources) > 2 {
		if err := m.narrow(ctx, s.problems.knowsSinceChange); err != nil {
			return nil, err
		}
	}
	m.limit, m.bytes = in.Limit, maxPageBytes
	if len(m.sources) > 1 {
		m.limit, m.bytes = min(max(2, 4*in.Limit/len(m.sources)), mergedPage, in.Limit), mergedBytes
	}
	return m, nil
}

// mergedQueues returns the queues that the sender of a request may see, the first ones by name.
func (s *Server) mergedQueues(ctx context.Context) ([]string, error) {
	all, err := s.client.Queues(ctx)
	if err != nil {
		return nil, err
	}
	see := visible(ctx)
	queues := slices.DeleteFunc(all, func(name string) bool { return reserved.IsIdle(name) || !see(name) })
	slices.Sort(queues)
	return queues[:min(len(queues), maxOverviewQueues)], nil
}

// resume goes to a cursor, "" for the beginning.
func (m *merge) resume(cursor string) error {
	if cursor == "" {
		return nil
	}
	var c mergeCursor
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || json.Unmarshal(text, &c) != nil || store.CheckQueue(c.Queue) != nil {
		return store.Invalid("is %.40q: give the next of the page before", cursor)
	}
	last := &mergeSource{queue: c.Queue, state: c.State}
	after := place{id: c.ID}
	if c.Time != 0 {
		after.at = time.UnixMilli(c.Time)
	}
	m.sources = slices.DeleteFunc(m.sources, func(source *mergeSource) bool {
		order := source.compare(last)
		switch {
		case order == 0:
			source.next, source.after, source.bound, source.done = c.Cursor, after, after.at, false
			if from := time.UnixMilli(c.From); c.From != 0 && from.After(source.from) {
				source.from = from
			}
		case m.queues:
		case source.queue == c.Queue: // messages in the other state may have been in this one
			source.goOn(after.at, false)
			source.after = after
		default:
			source.goOn(after.at, order < 0)
		}
		return m.queues && (order == 0 && c.Done || order < 0)
	})
	return nil
}

// goOn has the source begin at a time, or right after it. Times of a store are whole milliseconds.
func (s *mergeSource) goOn(at time.Time, after bool) {
	if after {
		at = at.Add(time.Millisecond)
	}
	if at.After(s.from) {
		s.from = at
	}
	if at.After(s.bound) {
		s.bound = at
	}
}

// compare orders sources of the same time.
func (s *mergeSource) compare(o *mergeSource) int {
	return cmp.Or(cmp.Compare(s.queue, o.queue), cmp.Compare(s.state, o.state))
}

// head returns the next message of the source, or nil if none is read.
func (s *mergeSource) head() *later.Info {
	if s.at == len(s.read) {
		return nil
	}
	return s.read[s.at]
}

// listTime returns the time of a message in lists of its state.
func listTime(info *later.Info) time.Time {
	if info.State == later.StateDead {
		return info.DiedAt
	}
	return info.Due
}

// before reports whether messages of the source from a time on come before those of another one from its time on.
func (m *merge) before(s *mergeSource, at time.Time, o *mergeSource, other time.Time) bool {
	if m.queues {
		at, other = time.Time{}, time.Time{}
	}
	return cmp.Or(at.Compare(other), s.compare(o)) < 0
}

// take returns the next message, or nil if there is none, or enough were looked at.
func (m *merge) take(ctx context.Context) (*later.Info, error) {
	for {
		var first *mergeSource
		for _, s := range m.sources {
			if info := s.head(); info != nil && (first == nil ||
				m.before(s, listTime(info), first, listTime(first.head()))) {
				first = s
			}
		}
		unread := m.unread(first)
		switch {
		case len(unread) > 0 && m.queues && m.looked >= m.look:
			return nil, nil
		case len(unread) > 0:
			if err := m.read(ctx, unread); err != nil {
				return nil, err
			}
			continue
		case first == nil:
			return nil, nil
		}
		info := first.head()
		first.at++
		first.after = first.placeOf(info)
		if other := m.sibling(first); first.state == later.StateScheduled && other != nil &&
			first.after.compare(other.after) <= 0 {
			continue // it was listed as a ready one
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

// unread returns sources to read because they may have messages before the first one that is read, if there is one.
func (m *merge) unread(first *mergeSource) []*mergeSource {
	var some []*mergeSource
	for _, s := range m.sources {
		if s.head() == nil && (!s.done || s.again) && (first == nil || m.before(s, s.bound, first, listTime(first.head()))) {
			some = append(some, s)
		}
	}
	slices.SortFunc(some, func(a, b *mergeSource) int {
		if m.before(a, a.bound, b, b.bound) {
			return -1
		}
		return 1
	})
	if m.queues {
		return some[:min(len(some), 1)]
	}
	return some[:min(len(some), overviewReaders)]
}

// read reads the next page of some sources. It skips damaged queues in a list of several.
func (m *merge) read(ctx context.Context, some []*mergeSource) error {
	pages, errs := make([]later.SearchPage, len(some)), make([]error, len(some))
	atOnce(len(some), func(i int) bool {
		s := some[i]
		filter, look := m.filter, store.MaxBatch
		filter.State = s.state
		if m.queues {
			look = m.look - m.looked
		} else {
			filter.From = s.from // a cursor belongs to it
		}
		pages[i], errs[i] = m.client.Queue(s.queue).Search(ctx, filter,
			later.SearchOptions{Limit: m.limit, Look: look, Cursor: s.begin(), Bytes: m.bytes})
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
		if m.queues {
			m.last = s
			continue
		}
		m.leave(s)
		if ready := m.sibling(s); s.state == later.StateScheduled && ready != nil && ready.done {
			ready.again = m.soon.IsZero() || !s.bound.After(m.soon)
		}
	}
	m.release()
	return nil
}

// begin returns the cursor of the page to read next.
func (s *mergeSource) begin() string {
	if s.done {
		return s.cursor
	}
	return s.next
}

// skip skips the messages that were taken already.
func (s *mergeSource) skip() {
	if s.state == later.StateLeased {
		s.at = slices.IndexFunc(s.read, func(info *later.Info) bool { return info.ID == s.after.id }) + 1
		return
	}
	for s.at < len(s.read) && s.placeOf(s.read[s.at]).compare(s.after) <= 0 {
		s.at++
	}
}

// leave leaves out the messages of a source that the list has passed. They were sent after their queue was counted.
func (m *merge) leave(s *mergeSource) {
	for s.head() != nil && m.last != nil && m.before(s, listTime(s.head()), m.last, m.time) && m.last.queue != s.queue {
		s.after = s.placeOf(s.read[s.at])
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
	slices.SortFunc(ahead, func(a, b *mergeSource) int {
		if m.before(a, listTime(a.head()), b, listTime(b.head())) {
			return -1
		}
		return 1
	})
	for i := len(ahead) - 1; i > 0 && size > mergedMemory; i-- {
		s := ahead[i]
		size -= sizes[s]
		s.bound, s.next, s.done = listTime(s.head()), s.cursor, false
		s.read, s.at = nil, 0
	}
}

// end returns the cursor of the rest, or "" if there is none.
func (m *merge) end() string {
	if m.last == nil || !slices.ContainsFunc(m.sources, func(s *mergeSource) bool {
		return !s.done || s.again || s.head() != nil
	}) {
		return ""
	}
	s := m.last
	c := mergeCursor{Queue: s.queue, State: s.state, ID: s.after.id, Cursor: s.next, Done: s.done && s.head() == nil}
	if s.done || s.head() != nil { // the rest of the page, and messages that come to it, are read again
		c.Cursor = s.cursor
	}
	if !s.after.at.IsZero() {
		c.Time = s.after.at.UnixMilli()
	}
	if !m.queues && s.from.After(m.filter.From) {
		c.From = s.from.UnixMilli()
	}
	text, _ := json.Marshal(c) // texts and numbers can always be encoded
	return base64.RawURLEncoding.EncodeToString(text)
}
