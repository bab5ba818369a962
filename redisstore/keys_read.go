package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/internal/gcra"
	"github.com/laterq/later/store"
)

// behindLanes follows a key in a text behind all entries of its lanes; see lua/_lane_entries.lua.
const behindLanes = "\x03"

// Keys implements store.Store. It takes several calls only if many keys have no messages any more, none of a page, or
// if messages hold keys. Then each page reads all of HOLDERS or, of halted keys, all of HALTED.
func (s *Store) Keys(ctx context.Context, queue string, req store.KeysRequest) ([]store.KeyState, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	switch {
	case req.Key != "" && req.Key <= req.After:
		return nil, nil
	case req.Key != "":
		keys, err := s.readKeys(ctx, queue, "given", req.Key)
		return keys.page, err
	case req.Overridden:
		return s.listed(ctx, queue, "limits", req, func(k store.KeyState) bool { return k.Override != nil })
	case req.Halted:
		return s.listed(ctx, queue, "halted", req, func(k store.KeyState) bool { return k.Halted })
	}
	at := "-"
	if req.After != "" {
		at = "[" + req.After + behindLanes
	}
	var page []store.KeyState
	for {
		keys, err := s.readKeys(ctx, queue, "waiting", at, req.Limit)
		if err != nil {
			return page, err
		}
		page = append(page, keys.page...)
		if keys.held {
			if page, err = s.addHolders(ctx, queue, req, page, keys.next); err != nil {
				return nil, err
			}
		}
		named := len(page) > 0 && page[len(page)-1].Key != "" // a page that ends without a key would be the last
		if at = keys.next; at == "" || named {
			return page, nil
		}
	}
}

// addHolders adds to a page the keys that wait with only the message that holds them, which is in no lane. next is
// where the page goes on in the lanes, or "".
func (s *Store) addHolders(
	ctx context.Context, queue string, req store.KeysRequest, page []store.KeyState, next string,
) ([]store.KeyState, error) {
	through := next // the keys up to there have been read in the lanes
	if next != "" {
		through = strings.TrimSuffix(next[1:], behindLanes)
	}
	names, err := s.firstNames(ctx, queue, "holders", req)
	names = slices.DeleteFunc(names, func(name string) bool {
		return through != "" && name > through ||
			slices.ContainsFunc(page, func(k store.KeyState) bool { return k.Key == name })
	})
	if err != nil || len(names) == 0 {
		return page, err
	}
	held, err := s.readKeys(ctx, queue, "given", anys(nil, names)...)
	if err != nil {
		return page, err
	}
	for _, k := range held.page {
		if k.Waiting > 0 {
			page = append(page, k)
		}
	}
	slices.SortFunc(page, func(a, b store.KeyState) int { return cmp.Compare(a.Key, b.Key) })
	limit := req.Limit
	if len(page) > 0 && page[0].Key == "" {
		limit++
	}
	return page[:min(limit, len(page))], nil
}

// listed returns a page of the keys with names in an index, without the ones that keep reports false for.
func (s *Store) listed(
	ctx context.Context, queue, index string, req store.KeysRequest, keep func(store.KeyState) bool,
) ([]store.KeyState, error) {
	for {
		names, err := s.firstNames(ctx, queue, index, req)
		if err != nil || len(names) == 0 {
			return nil, err
		}
		keys, err := s.readKeys(ctx, queue, "given", anys(nil, names)...)
		page := slices.DeleteFunc(keys.page, func(k store.KeyState) bool { return !keep(k) })
		if err != nil || len(page) > 0 {
			return page, err
		}
		req.After = names[len(names)-1]
	}
}

// firstNames returns the first keys of a page with names in an index. The server has them in no order, so all are read,
// many at a time.
func (s *Store) firstNames(ctx context.Context, queue, index string, req store.KeysRequest) ([]string, error) {
	var names []string
	for cursor := "0"; cursor != ""; {
		reply, err := s.keysReply(ctx, queue, index, cursor)
		if err != nil || len(reply) == 0 {
			return nil, err
		}
		for _, name := range texts(reply[3]) {
			if name > req.After {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		names = slices.Compact(names)
		names = names[:min(len(names), req.Limit)]
		cursor = reply[2].(string)
	}
	return names, nil
}

// readKeys is the result of a call of keys.lua: a page of keys, where it goes on or "", and whether messages hold keys.
type readKeys struct {
	page []store.KeyState
	next string
	held bool
}

// readKeys makes one call of keys.lua.
func (s *Store) readKeys(ctx context.Context, queue, which string, args ...any) (readKeys, error) {
	reply, err := s.keysReply(ctx, queue, which, args...)
	if err != nil || len(reply) == 0 {
		return readKeys{}, err
	}
	limits := reply[1].([]any)
	number := func(i int) int { return int(parseNumber(limits[i].(string))) }
	flow := store.KeyFlow{Concurrency: number(0), Rate: rateOf(number(1), number(2), number(3)), Weight: number(4),
		Order: store.Order(limits[5].(string))}
	keys := readKeys{next: reply[2].(string), held: limits[6].(string) != ""}
	for _, row := range reply[3].([]any) {
		keys.page = append(keys.page, keyState(row.([]any), flow.Normal(), time.UnixMicro(reply[0].(int64))))
	}
	return keys, nil
}

func (s *Store) keysReply(ctx context.Context, queue, which string, args ...any) ([]any, error) {
	reply, err := s.query(ctx, "keys", queue, append([]any{which}, args...)...)
	if err != nil {
		return nil, err
	}
	list, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("keys of queue %q: reply is %v: %w", queue, reply, store.ErrCorrupt)
	}
	return list, nil
}

// keyState returns the state of a key as keys.lua returns it. flow has the limits of keys without an override.
func keyState(row []any, flow store.KeyFlow, now time.Time) store.KeyState {
	k := store.KeyState{Key: row[0].(string), Waiting: row[1].(int64), Now: now}
	if due := row[2].(int64); k.Waiting > 0 {
		k.Since = time.UnixMilli(due)
	}
	if text, ok := row[4].(string); ok {
		k.Override = parseOverride(text)
	}
	if k.KeyFlow = k.Override.Of(flow); k.Key == "" {
		k.KeyFlow = store.KeyFlow{}.Normal()
	}
	text, _ := row[3].(string)
	fields := strings.Split(text+"\t\t\t\t\t", "\t")
	k.Leased = int(parseNumber(fields[0]))
	if k.Rate.N > 0 {
		starts := gcra.State{Micros: parseNumber(fields[1]), Part: parseNumber(fields[2])}
		if starts.Part > 0 && parseNumber(fields[3]) != int64(k.Rate.N) { // parts of another size
			starts = gcra.State{Micros: starts.Micros + 1}
		}
		k.Next = time.UnixMicro(starts.Next(k.Rate, now.UnixMicro()))
	}
	if holder := fields[5]; holder != "" && k.Order != store.OrderNone {
		k.Holder, k.Held, k.Halted = holder[1:], holder[0] == 'w', holder[0] == 'd'
	}
	return k
}
