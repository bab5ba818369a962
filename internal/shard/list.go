package shard

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

// cursor is where a listing of several shards goes on.
type cursor struct {
	// Shards has where the page of each shard begins that is not returned completely. A shard without more has no entry.
	Shards map[int]string `json:"s,omitempty"`
	// At, in µs since 1970, and ID are the place of the last message that was returned.
	At int64  `json:"t,omitempty"`
	ID string `json:"i,omitempty"`
	// Generation is of the sub-queues: after a change a listing begins with new pages, behind the last message.
	Generation string `json:"g"`
	// Moving is set if messages moved during a page: then shards without an entry are asked again.
	Moving bool `json:"m,omitempty"`
}

func (c *cursor) text() string {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // it has only texts and numbers
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// readCursor reads a cursor. One from before the queue had shards goes on in the first, with the others behind its
// place.
func readCursor(text string) (*cursor, error) {
	c := &cursor{}
	if last, rest := cutPlace(text); rest != text {
		return &cursor{Generation: "none", At: last.at, ID: last.id}, nil
	}
	bytes, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(bytes, c)
	}
	if err != nil || c.Generation == "" {
		return nil, store.Invalid("cursor %.40q is not one of a queue with several shards: start the listing again", text)
	}
	return c, nil
}

// position is a place in a listing: a time and an id.
type position struct {
	at int64
	id string
}

// start is before every message.
var start = position{at: -1 << 62}

func (p position) compare(o position) int {
	return cmp.Or(cmp.Compare(p.at, o.at), cmp.Compare(p.id, o.id))
}

// placeIn returns the place of a message in a listing. Leased messages are listed shard by shard.
func placeIn(req *store.ListRequest, m *store.Info) position {
	switch {
	case req.Group != "":
		return position{0, m.ID}
	case req.State == store.StateDead:
		return position{m.DiedAt.UnixMicro(), m.ID}
	}
	return position{m.Due.UnixMicro(), m.ID}
}

// List implements store.Store. It merges the pages of the shards. Leased messages are listed shard by shard.
func (s *Store) List(ctx context.Context, queue string, req store.ListRequest) (store.Page, error) {
	return on(ctx, s, queue, func() (store.Page, error) { return s.listPlain(ctx, queue, req) },
		func(r *route) (store.Page, error) {
			if req.State == store.StateLeased {
				return s.listLeased(ctx, r, req)
			}
			return s.listMerged(ctx, r, req)
		})
}

// onlyIDs returns messages without all but their ids.
func onlyIDs(messages []store.Info) []store.Info {
	for i := range messages {
		messages[i] = store.Info{Message: store.Message{ID: messages[i].ID}}
	}
	return messages
}

// listPlain returns a page of a queue without shards. Its cursor has the place of the last message, so that the listing
// can go on if the queue gets shards. A listing of ids, which has no places, then begins again.
func (s *Store) listPlain(ctx context.Context, queue string, req store.ListRequest) (store.Page, error) {
	_, rest := cutPlace(req.Cursor)
	var page store.Page
	var err error
	if former, wrong := readCursor(req.Cursor); wrong == nil && rest == req.Cursor { // from when it had several shards
		req.Cursor = ""
		var after shardPage
		if req.State == store.StateLeased {
			after.Page, err = s.engine.List(ctx, queue, req)
		} else {
			after, err = s.pageAfter(ctx, queue, req, "", position{former.At, former.ID})
		}
		page = after.Page
		if req.IDsOnly {
			page.Messages = onlyIDs(page.Messages)
		}
	} else {
		req.Cursor = rest
		page, err = s.engine.List(ctx, queue, req)
	}
	if n := len(page.Messages); err == nil && page.Next != "" {
		last := start
		if n > 0 && !req.IDsOnly {
			last = placeIn(&req, &page.Messages[n-1])
		}
		page.Next = fmt.Sprintf("%s%d.%d.%s%s", placeMark, last.at, len(last.id), last.id, page.Next)
	}
	return page, err
}

// placeMark begins a cursor that has the place of the last message before the engine's.
const placeMark = "at."

// cutPlace returns the place of the last message in a cursor of a queue without shards, and the engine's cursor.
func cutPlace(cursor string) (last position, rest string) {
	text, ok := strings.CutPrefix(cursor, placeMark)
	if !ok {
		return position{}, cursor
	}
	at, text, _ := strings.Cut(text, ".")
	size, text, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(at, 10, 64)
	length, err2 := strconv.Atoi(size)
	if err != nil || err2 != nil || length < 0 || length > len(text) {
		return position{}, cursor
	}
	return position{n, text[:length]}, text[length:]
}

// listLeased returns a page of one shard.
func (s *Store) listLeased(ctx context.Context, r *route, req store.ListRequest) (store.Page, error) {
	shard := 0
	if req.Cursor != "" {
		c, err := readCursor(req.Cursor)
		if err != nil {
			return store.Page{}, err
		}
		req.Cursor = ""
		for i, text := range c.Shards {
			if shard = i; c.Generation == r.Generation {
				req.Cursor = text
			}
		}
	}
	for ; shard < len(r.names); shard++ {
		page, err := s.engine.List(ctx, r.names[shard], req)
		if err != nil {
			return store.Page{}, err
		}
		next := &cursor{Generation: r.Generation}
		switch {
		case page.Next != "":
			next.Shards = map[int]string{shard: page.Next}
		case shard+1 < len(r.names):
			next.Shards = map[int]string{shard + 1: ""}
		}
		page.Next = ""
		if next.Shards != nil {
			page.Next = next.text()
		}
		if len(page.Messages) > 0 || page.Next == "" {
			return page, nil
		}
		req.Cursor = ""
		if _, more := next.Shards[shard]; more {
			req.Cursor = next.Shards[shard]
			shard--
		}
	}
	return store.Page{}, nil
}

// shardPage is a page of one shard.
type shardPage struct {
	store.Page
	from string // where it begins
}

// listMerged returns a page of messages of all shards, in order. A page of a shard that is not returned completely is
// read again for the next one. IDsOnly pages have no times, so their messages are read too.
func (s *Store) listMerged(ctx context.Context, r *route, req store.ListRequest) (store.Page, error) {
	c := &cursor{Generation: r.Generation}
	last := start
	if req.Cursor != "" {
		var err error
		if c, err = readCursor(req.Cursor); err != nil {
			return store.Page{}, err
		}
		last = position{c.At, c.ID}
		if c.Generation != r.Generation {
			c.Shards = nil
		}
	}
	again := c.Moving || r.Phase == moving
	pages, err := all(ctx, s, r, func(i int, name string) (shardPage, error) {
		from, more := c.Shards[i]
		if c.Shards != nil && !more && !again {
			return shardPage{}, nil
		}
		return s.pageAfter(ctx, name, req, from, last)
	})
	if err != nil {
		return store.Page{}, err
	}
	var merged []store.Info
	limit := position{1<<62 - 1, ""} // what follows may be incomplete
	for _, p := range pages {
		merged = append(merged, p.Messages...)
		if n := len(p.Messages); p.Next != "" && n > 0 {
			if at := placeIn(&req, &p.Messages[n-1]); at.compare(limit) < 0 {
				limit = at
			}
		}
	}
	slices.SortStableFunc(merged, func(a, b store.Info) int { return placeIn(&req, &a).compare(placeIn(&req, &b)) })
	merged = slices.CompactFunc(merged, func(a, b store.Info) bool { return a.ID == b.ID }) // it moved meanwhile
	n := 0
	for n < len(merged) && n < req.Limit && placeIn(&req, &merged[n]).compare(limit) <= 0 {
		n++
	}
	page := store.Page{Messages: merged[:n:n]}
	next := &cursor{Generation: r.Generation, Moving: again, At: last.at, ID: last.id, Shards: map[int]string{}}
	if n > 0 {
		at := placeIn(&req, &merged[n-1])
		next.At, next.ID = at.at, at.id
	}
	for i, p := range pages {
		switch k := len(p.Messages); {
		case k > 0 && placeIn(&req, &p.Messages[k-1]).compare(position{next.At, next.ID}) > 0:
			next.Shards[i] = p.from
		case p.Next != "":
			next.Shards[i] = p.Next
		}
	}
	if len(next.Shards) > 0 {
		page.Next = next.text()
	}
	if req.IDsOnly {
		page.Messages = onlyIDs(page.Messages)
	}
	return page, nil
}

// pageAfter returns the first page of a sub-queue that has messages behind a position, without the others.
func (s *Store) pageAfter(
	ctx context.Context, name string, req store.ListRequest, from string, last position,
) (shardPage, error) {
	req.IDsOnly = false
	if req.Group == "" && from == "" && last.at > 0 {
		if after := time.UnixMicro(last.at); req.From.Before(after) {
			req.From = after.Truncate(time.Millisecond)
		}
	}
	for {
		req.Cursor = from
		page, err := s.engine.List(ctx, name, req)
		if err != nil {
			return shardPage{}, err
		}
		kept := slices.DeleteFunc(page.Messages, func(m store.Info) bool { return placeIn(&req, &m).compare(last) <= 0 })
		page.Messages = kept
		if len(kept) > 0 || page.Next == "" {
			return shardPage{page, from}, nil
		}
		from = page.Next
	}
}
