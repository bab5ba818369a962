package diskstore

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// What looks at messages without changing them: get, list, stats. The caller has flushed.

func (t *tx) info(q *queue, id string) (*store.Info, error) {
	p, ok, err := t.place(q, id)
	if !ok || err != nil {
		return nil, err
	}
	return t.tell(q, id, &p)
}

// listed is info for a message in an index, which says what its record no longer does.
func (t *tx) listed(q *queue, e entry, kind byte) (*store.Info, error) {
	p, ok, err := t.place(q, e.id)
	if isFormatError(err) {
		p, ok, err = place{record: record{due: e.at, lastError: store.UnreadableText}}, true, nil
		if kind == kindDead {
			p.record.deadReason, p.record.diedAt = store.DeadUnreadable, e.at
		}
	}
	if !ok || err != nil {
		return nil, err
	}
	return t.tell(q, e.id, &p)
}

// tell gives what is known of a message; nil when there is none.
func (t *tx) tell(q *queue, id string, p *place) (*store.Info, error) {
	text, whole, ok, err := t.envelope(q, id)
	if !ok || err != nil {
		return nil, err
	}
	info := &store.Info{
		Message:    store.Message{ID: id},
		State:      t.state(p),
		Due:        store.Time(p.record.due),
		Attempts:   p.record.attempts,
		Delivered:  p.record.delivered,
		LastError:  p.record.lastError,
		DeadReason: p.record.deadReason,
		DiedAt:     store.Time(p.record.diedAt),
	}
	if !whole || envelope.Decode(text, &info.Message) != nil {
		info.Message, info.Raw = store.Message{ID: id}, []byte(text)
	}
	if p.held != nil {
		info.LeaseDeadline = store.Time(p.held.lease.deadline)
	}
	return info, nil
}

// infos is info of ids from the first on, until they have store.MaxBatchBytes.
func (t *tx) infos(q *queue, ids []string) (infos []*store.Info, err error) {
	size := 0
	for _, id := range ids {
		info, err := t.info(q, id)
		if err != nil {
			return nil, err
		}
		if infos = append(infos, info); info != nil {
			size += info.Size()
		}
		if size >= store.MaxBatchBytes {
			break
		}
	}
	return infos, nil
}

// page gathers one page of a listing.
type page struct {
	store.Page
	limit int
	size  int
	end   string // cursor behind the last message
}

// add puts a message on the page; false when it has no room and belongs to the next one.
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

// list gives a page of the due or the dead messages: the entries from both the cursor and req.From on.
func (t *tx) list(q *queue, req store.ListRequest, from entry) (store.Page, error) {
	first, last := bounds(req)
	if begin := (entry{at: first}); from.less(begin) {
		from = begin
	}
	kind := byte(kindDue)
	switch req.State {
	case store.StateScheduled:
		if begin := (entry{at: t.now + 1}); from.less(begin) {
			from = begin
		}
	case store.StateReady:
		last = min(last, t.now)
	case store.StateDead:
		kind = kindDead
	}
	p := page{limit: req.Limit}
	err := t.each(q, kind, from, last, func(e entry, _ []byte) (bool, error) {
		info, err := t.listed(q, e, kind)
		if info == nil || err != nil { // an entry without message is the next claim's or repair's to remove
			return err == nil, err
		}
		return p.add(info, e.cursor()), nil
	})
	return p.Page, err
}

// bounds are the milliseconds of the first and last message that a listing gives.
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

// listLeased gives a page of the leased messages, by lease id and then by id: an order that lasts while leases
// are extended.
func (t *tx) listLeased(q *queue, req store.ListRequest) (store.Page, error) {
	lease, after, err := parseLeaseCursor(req.Cursor)
	if err != nil {
		return store.Page{}, err
	}
	first, last := bounds(req)
	p := page{limit: req.Limit}
	for _, id := range slices.Sorted(maps.Keys(q.leases)) {
		if id < lease {
			continue
		}
		members := slices.DeleteFunc(slices.Clone(q.leases[id].members), func(m *member) bool {
			return m == nil || m.record.due < first || m.record.due > last || id == lease && m.id <= after
		})
		slices.SortFunc(members, func(a, b *member) int { return cmp.Compare(a.id, b.id) })
		for _, m := range members {
			info, err := t.info(q, m.id)
			if err != nil {
				return store.Page{}, err
			}
			if info != nil && !p.add(info, leaseCursor(id, m.id)) {
				return p.Page, nil
			}
		}
	}
	return p.Page, nil
}

// leaseCursor is the text of a place in a listing of leased messages: behind an id of a lease.
func leaseCursor(lease, id string) string { return lease + ":" + strconv.Quote(id) }

func parseLeaseCursor(text string) (lease, id string, err error) {
	if text == "" {
		return "", "", nil
	}
	lease, quoted, ok := strings.Cut(text, ":")
	id, err = strconv.Unquote(quoted)
	if !ok || err != nil {
		return "", "", store.Invalid("cursor %q is none of this store's: give the one of the page before, or none", text)
	}
	return lease, id, nil
}

// names gives the names of queues behind one, in order: one more than a page has room for.
func (t *tx) names(after string) (names []string, err error) {
	it, err := t.s.db.NewIter(&pebble.IterOptions{
		LowerBound: append(appendIDKey(nil, 0, kindName, after), 0), UpperBound: appendKey(nil, 0, kindName+1),
	})
	if err != nil {
		return nil, t.s.unreadable(err)
	}
	for valid := it.First(); valid && len(names) <= store.MaxBatch; valid = it.Next() {
		names = append(names, string(it.Key()[prefixLength:]))
	}
	if err := it.Close(); err != nil {
		return nil, t.s.unreadable(err)
	}
	return names, nil
}
