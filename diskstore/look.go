package diskstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, name string, ids []string) ([]*store.Info, error) {
	held := map[string]place{}
	prepare := func(_ *tx, q *queue) {
		for _, id := range ids {
			if m := q.held[id]; m != nil {
				// A copy, since the writer goes on.
				copied := &member{id: id, lease: &lease{id: m.lease.id, deadline: m.lease.deadline}, follows: m.follows}
				held[id] = place{record: m.record, held: copied}
			}
		}
	}
	return read(ctx, s, name, prepare, func(v *view) ([]*store.Info, error) {
		infos := make([]*store.Info, len(ids))
		for i, id := range ids {
			p, ok := held[id]
			if !ok {
				var err error
				if p.record, ok, err = v.find(v.number, id); err != nil {
					return nil, namingMessage(name, id, err)
				}
			}
			if ok {
				var err error
				if infos[i], err = v.info(v.number, id, &p, v.now); err != nil {
					return nil, err
				}
			}
			if err := s.interrupted(ctx); err != nil {
				return nil, err
			}
		}
		return infos, nil
	})
}

// info describes a message at a place. It returns nil when the message does not exist.
func (r *reader) info(queue uint32, id string, p *place, now int64) (*store.Info, error) {
	text, whole, ok, err := r.envelope(queue, id)
	if !ok || err != nil {
		return nil, err
	}
	info := &store.Info{
		Message:    store.Message{ID: id},
		State:      p.state(now),
		Due:        store.Time(p.record.due),
		Attempts:   p.record.attempts,
		Delivered:  p.record.delivered,
		LastError:  p.record.lastError,
		Failures:   envelope.ParseFailures(p.record.failures),
		DeadReason: p.record.deadReason,
		DiedAt:     store.Time(p.record.diedAt),
	}
	if !whole || envelope.Decode(text, &info.Message) != nil {
		info.Message, info.Raw = store.Message{ID: id}, []byte(text)
	}
	if p.held != nil {
		info.LeaseDeadline, info.Follows = store.Time(p.held.lease.deadline), p.held.follows
	}
	return info, nil
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, name string, req store.ListRequest) (store.Page, error) {
	if err := req.Check(); err != nil {
		return store.Page{}, err
	}
	if req.State == store.StateLeased {
		lease, id, err := parseLeaseCursor(req.Cursor)
		if err != nil {
			return store.Page{}, err
		}
		return read(ctx, s, name, nil, func(v *view) (store.Page, error) { return v.listLeased(req, lease, id) })
	}
	from, err := parseCursor(req.Cursor)
	if err != nil {
		return store.Page{}, err
	}
	if req.Group != "" {
		return s.listGroup(ctx, name, req, from)
	}
	return read(ctx, s, name, nil, func(v *view) (store.Page, error) { return v.list(req, from) })
}

// page collects one page of a listing.
type page struct {
	store.Page
	limit int
	size  int
	end   string // cursor behind the last message
}

// add puts a message on the page. It returns false when the page is full and the message belongs to the next page.
func (p *page) add(info *store.Info, cursor string) bool {
	p.size += info.Size()
	if n := len(p.Messages); n == p.limit || n > 0 && p.size > store.MaxBatchBytes {
		p.Next = p.end
		return false
	}
	p.Messages = append(p.Messages, *info)
	p.end = cursor
	return true
}

// list returns a page of the due or the dead messages: the entries from both the cursor and req.From on.
func (v *view) list(req store.ListRequest, from entry) (_ store.Page, err error) {
	first, last := bounds(req)
	x := v.due
	switch req.State {
	case store.StateScheduled:
		first = max(first, v.now+1)
	case store.StateReady:
		last = min(last, v.now)
	case store.StateDead:
		x = v.dead
	}
	if begin := (entry{at: first}); from.less(begin) {
		from = begin
	}
	p := page{limit: req.Limit}
	for e := range v.each(&err, x, from, last) {
		var info *store.Info
		if info, err = v.listed(e, x.kind, req.IDsOnly); err != nil {
			break
		}
		if info != nil && !p.add(info, e.cursor()) { // the next claim removes an entry without message
			break
		}
	}
	return p.Page, err
}

// onlyID returns a message for a listing of ids.
func onlyID(id string) *store.Info { return &store.Info{Message: store.Message{ID: id}} }

// listed returns the message of an entry. The entry stands in for a record that cannot be read.
func (v *view) listed(e entry, kind byte, idOnly bool) (*store.Info, error) {
	var p place
	var ok bool
	var err error
	p.record, ok, err = v.find(v.number, e.id)
	if isFormatError(err) {
		p.record, ok, err = record{due: e.at, lastError: store.UnreadableText}, true, nil
		if kind == kindDead {
			p.record.deadReason, p.record.diedAt = store.DeadUnreadable, e.at
		}
	}
	if !ok || err != nil {
		return nil, err
	}
	if idOnly {
		return onlyID(e.id), nil
	}
	return v.info(v.number, e.id, &p, v.now)
}

// bounds returns the milliseconds of the first and last message that a listing returns.
func bounds(req store.ListRequest) (first, last int64) {
	last = lastTime
	if !req.From.IsZero() {
		first = store.UnixMillis(req.From)
	}
	if !req.To.IsZero() {
		last = store.UnixMillis(req.To) - 1
	}
	return first, last
}

// listLeased returns a page of the leased messages, by lease id and then by id: an order that lasts while leases are
// extended. The page begins behind an id of a lease.
func (v *view) listLeased(req store.ListRequest, after, afterID string) (_ store.Page, err error) {
	first, last := bounds(req)
	p := page{limit: req.Limit}
	for id, value := range v.keys(&err, v.number, kindLease, after) {
		var l *lease
		if l, err = parseLease(id, value); err != nil {
			break
		}
		members := slices.DeleteFunc(l.members, func(m *member) bool {
			return m == nil || m.record.due < first || m.record.due > last || id == after && m.id <= afterID
		})
		slices.SortFunc(members, func(a, b *member) int { return cmp.Compare(a.id, b.id) })
		if err = v.addMembers(&p, members, req.IDsOnly); err != nil || p.Next != "" {
			break
		}
	}
	return p.Page, err
}

// addMembers puts leased messages on a page, until it is full.
func (v *view) addMembers(p *page, members []*member, idsOnly bool) error {
	for _, m := range members {
		if idsOnly {
			if !p.add(onlyID(m.id), leaseCursor(m.lease.id, m.id)) {
				return nil
			}
			continue
		}
		held := place{record: m.record, held: m}
		if m.record.stored {
			rec, err := v.record(v.number, m.id, m.record.due)
			if err != nil {
				return namingMessage(v.queue, m.id, err)
			}
			held.record = rec
		}
		info, err := v.info(v.number, m.id, &held, v.now)
		if err != nil {
			return err
		}
		if info != nil && !p.add(info, leaseCursor(m.lease.id, m.id)) {
			return nil
		}
	}
	return nil
}

// leaseCursor returns the text of a place in a listing of leased messages: behind an id of a lease.
func leaseCursor(lease, id string) string { return lease + ":" + strconv.Quote(id) }

func parseLeaseCursor(text string) (lease, id string, err error) {
	if text == "" {
		return "", "", nil
	}
	lease, quoted, ok := strings.Cut(text, ":")
	id, err = strconv.Unquote(quoted)
	if !ok || err != nil {
		return "", "", badCursor(text)
	}
	return lease, id, nil
}

// Queues implements store.Store.
func (s *Store) Queues(ctx context.Context, cursor string) (names []string, next string, err error) {
	names, err = read(ctx, s, "", nil, func(v *view) (names []string, err error) {
		for _, kind := range []byte{kindName, kindSign} {
			most := len(names) + store.MaxBatch
			for name := range v.keys(&err, 0, kind, cursor+"\x00") {
				if !store.IsSubQueue(name) {
					names = append(names, name)
				}
				if len(names) > most {
					break
				}
			}
			if err != nil {
				return nil, err
			}
		}
		slices.Sort(names)
		return slices.Compact(names), nil
	})
	if len(names) > store.MaxBatch {
		names = names[:store.MaxBatch]
		next = names[store.MaxBatch-1]
	}
	return names, next, err
}

// The index of groups has an entry for each message in a group: the number of the group in place of a time, and the id.
// So it is an index like the others, and a group is a range of it. Two names hardly ever have the same number; a
// listing compares the names.

// groupNumber returns 47 bits of a hash of a group's name, from 1 on; 0 stands for no group.
func groupNumber(group string) int64 {
	if group == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(group))
	return int64(binary.BigEndian.Uint64(sum[:])>>(64-47)) + 1
}

// groupIn returns the number of the group in an envelope.
func groupIn(text string) int64 {
	if !envelope.HasGroup(text) {
		return 0
	}
	var m store.Message
	if envelope.Decode(text, &m) != nil {
		return 0
	}
	return groupNumber(m.Group)
}

// groupOf returns the number of the group of a message. It reads the message if the queue has groups; the caller has
// flushed.
func (t *tx) groupOf(q *queue, id string) (int64, error) {
	if q.groups.n == 0 {
		return 0, nil
	}
	if m := q.held[id]; m != nil {
		return m.group, nil
	}
	text, whole, ok, err := t.envelope(q.number, id)
	if !ok || !whole || err != nil {
		return 0, err
	}
	return groupIn(text), nil
}

// joinGroup puts a message in its group, if it has one.
func (t *tx) joinGroup(q *queue, id string, group int64) {
	if group != 0 {
		t.addEntry(q, &q.groups, entry{group, id})
	}
}

// leaveGroup takes a message out of its group, if it has one.
func (t *tx) leaveGroup(q *queue, id string, group int64) {
	if group != 0 {
		t.removeEntry(q, &q.groups, entry{group, id})
	}
}

// listGroup returns a page of a group. It finds the ids in a view, and then gets their messages, because a view does
// not tell which lease holds a message.
func (s *Store) listGroup(ctx context.Context, name string, req store.ListRequest, from entry) (store.Page, error) {
	number := groupNumber(req.Group)
	if begin := (entry{at: number}); from.less(begin) {
		from = begin
	}
	var groups *indexView
	prepare := func(_ *tx, q *queue) { groups = q.groups.view() }
	p := page{limit: req.Limit}
	found, err := read(ctx, s, name, prepare, func(v *view) (_ store.Page, err error) {
		v.groups = groups
		for e := range v.each(&err, groups, from, number) {
			var text string
			if text, _, _, err = v.envelope(v.number, e.id); err != nil {
				break
			}
			info := store.Info{Message: store.Message{ID: e.id}, Raw: []byte(text)} // for its size
			if req.IDsOnly {
				var m store.Message
				if envelope.Decode(text, &m) != nil || m.Group != req.Group {
					continue
				}
				info.Raw = nil
			}
			if !p.add(&info, e.cursor()) {
				break
			}
		}
		return p.Page, err
	})
	if err != nil || req.IDsOnly {
		return found, err
	}
	ids := make([]string, len(found.Messages))
	for i := range ids {
		ids[i] = found.Messages[i].ID
	}
	infos, err := s.Get(ctx, name, ids)
	if err != nil {
		return store.Page{}, err
	}
	result := store.Page{Messages: make([]store.Info, 0, len(ids)), Next: found.Next}
	for _, info := range infos {
		if info != nil && info.Group == req.Group {
			result.Messages = append(result.Messages, *info)
		}
	}
	return result, nil
}
