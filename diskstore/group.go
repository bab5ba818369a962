package diskstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

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
	if group == 0 {
		return
	}
	e := entry{group, id}
	t.set(appendTimeKey(t.key[:0], q.number, kindGroup, e), nil)
	q.groups.add(e)
	t.touch(q)
}

// leaveGroup takes a message out of its group, if it has one.
func (t *tx) leaveGroup(q *queue, id string, group int64) {
	if group == 0 {
		return
	}
	e := entry{group, id}
	t.remove(appendTimeKey(t.key[:0], q.number, kindGroup, e))
	q.groups.remove(e)
	t.touch(q)
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
	found, err := read(ctx, s, name, prepare, func(v *view) (store.Page, error) {
		v.groups = groups
		err := v.each(groups, from, number, func(e entry, _ []byte) (bool, error) {
			text, _, _, err := v.envelope(v.number, e.id)
			if err != nil {
				return false, err
			}
			info := store.Info{Message: store.Message{ID: e.id}, Raw: []byte(text)} // for its size
			if req.IDsOnly {
				var m store.Message
				if envelope.Decode(text, &m) != nil || m.Group != req.Group {
					return true, nil
				}
				info.Raw = nil
			}
			return p.add(&info, e.cursor()), nil
		})
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
