package redisstore

import (
	"context"

	"github.com/laterq/later/store"
)

// onlyID returns a message for a listing of ids.
func onlyID(id string) store.Info { return store.Info{Message: store.Message{ID: id}} }

// listGroup lists a page of a group: ids of the index, and of their messages as many as fit in a reply.
func (s *Store) listGroup(ctx context.Context, queue string, req store.ListRequest) (store.Page, error) {
	_, after, err := parseCursor(req.Cursor)
	if err != nil {
		return store.Page{}, err
	}
	reply, err := s.query(ctx, "group", queue, req.Group, req.Limit, after, req.IDsOnly)
	if err != nil {
		return store.Page{}, err
	}
	r := reply.([]any)
	ids := texts(r[1])
	if req.IDsOnly {
		page := store.Page{}
		for _, id := range ids {
			page.Messages = append(page.Messages, onlyID(id))
		}
		if r[0].(int64) == 0 {
			page.Next = formatCursor("0", r[2].(string))
		}
		return page, nil
	}
	some, err := s.readBatch(ctx, queue, ids)
	if err != nil {
		return store.Page{}, err
	}
	page := store.Page{Messages: make([]store.Info, 0, len(some))}
	leased := map[messageEpoch]*store.Info{}
	infos, epochs := readInfos(ids, some)
	for i, in := range infos {
		// A message that has gone in between may have been followed by another one, and two groups can have one number.
		if in == nil || in.Group != req.Group {
			continue
		}
		page.Messages = append(page.Messages, *in)
		if in.State == store.StateLeased {
			leased[messageEpoch{in.ID, epochs[i]}] = &page.Messages[len(page.Messages)-1]
		}
	}
	if len(some) < len(ids) || r[0].(int64) == 0 {
		page.Next = formatCursor("0", ids[len(some)-1])
	}
	return page, s.findLeases(ctx, queue, leased)
}
