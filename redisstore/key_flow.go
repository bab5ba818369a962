package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laterq/later/internal/gcra"
	"github.com/laterq/later/store"
)

// SetKeyFlow implements store.Store.
func (s *Store) SetKeyFlow(ctx context.Context, queue, key string, o store.KeyOverride) error {
	if err := store.CheckKeyFlow(queue, key, o); err != nil {
		return err
	}
	c := s.newCall("set_key_flow", queue, 4)
	defer s.sessions.release(s.stampRequest(ctx, c))
	c.add(key, formatOverride(o))
	reply, err := s.run(ctx, queue, c)
	switch {
	case err != nil:
		return err
	case reply == any(int64(0)):
		return store.NotFair(queue)
	case reply == any(int64(replyBusy)):
		return store.TooManyKeyFlows(queue)
	}
	return nil
}

// formatOverride returns an override as the hash key_flows has it; see lua/_lanes.lua.
func formatOverride(o store.KeyOverride) string {
	if o.IsZero() {
		return ""
	}
	var fields [5]string
	if o.Concurrency != nil {
		fields[0] = strconv.Itoa(*o.Concurrency)
	}
	if o.Rate != nil {
		rate := o.Rate.Normal()
		fields[1] = strconv.Itoa(rate.N)
		fields[2] = strconv.FormatInt(rate.Per.Microseconds(), 10)
		fields[3] = strconv.Itoa(rate.Burst)
	}
	if o.Weight != nil {
		fields[4] = strconv.Itoa(*o.Weight)
	}
	return strings.Join(fields[:], "\t")
}

// parseOverride reads the output of formatOverride. It returns nil if there is no override.
func parseOverride(text string) *store.KeyOverride {
	fields := strings.Split(text, "\t")
	if len(fields) != 5 {
		return nil
	}
	o := &store.KeyOverride{Concurrency: parseLimit(fields[0]), Weight: parseLimit(fields[4])}
	if n := parseLimit(fields[1]); n != nil {
		rate := rateOf(*n, int(parseNumber(fields[2])), int(parseNumber(fields[3])))
		o.Rate = &rate
	}
	return o
}

func parseLimit(text string) *int {
	if text == "" {
		return nil
	}
	n := int(parseNumber(text))
	return &n
}

// parseNumber returns 0 for a text that is not a number.
func parseNumber(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// ResumeKey implements store.Store.
func (s *Store) ResumeKey(_ context.Context, queue, key string) error {
	if err := store.CheckResume(queue, key); err != nil {
		return err
	}
	return store.ErrUnsupported
}

// Keys implements store.Store. It takes several calls only if many keys have no messages any more, none of a page.
func (s *Store) Keys(ctx context.Context, queue string, req store.KeysRequest) ([]store.KeyState, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	switch {
	case req.Key != "" && req.Key <= req.After:
		return nil, nil
	case req.Key != "":
		keys, _, err := s.readKeys(ctx, queue, "given", req.Key)
		return keys, err
	case req.Overridden:
		return s.overridden(ctx, queue, req)
	}
	at := "-"
	if req.After != "" {
		at = "[" + req.After + "\x01" // entries of a key have a zero byte behind it
	}
	var page []store.KeyState
	for {
		keys, next, err := s.readKeys(ctx, queue, "waiting", at, req.Limit)
		page = append(page, keys...)
		named := len(page) > 0 && page[len(page)-1].Key != "" // a page that ends without a key would be the last
		if at = next; err != nil || at == "" || named {
			return page, err
		}
	}
}

// overridden returns a page of the keys with overrides. The server has them in no order.
func (s *Store) overridden(ctx context.Context, queue string, req store.KeysRequest) ([]store.KeyState, error) {
	reply, err := s.keysReply(ctx, queue, "limits")
	if err != nil || len(reply) == 0 {
		return nil, err
	}
	var names []string
	for _, name := range reply[3].([]any) {
		if name := name.(string); name > req.After {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for len(names) > 0 {
		var some []any
		for _, name := range names[:min(len(names), req.Limit)] {
			some = append(some, name)
		}
		names = names[len(some):]
		page, _, err := s.readKeys(ctx, queue, "given", some...)
		page = slices.DeleteFunc(page, func(k store.KeyState) bool { return k.Override == nil })
		if err != nil || len(page) > 0 {
			return page, err
		}
	}
	return nil, nil
}

// readKeys makes one call of keys.lua. It returns where to go on, or "".
func (s *Store) readKeys(ctx context.Context, queue, which string, args ...any) ([]store.KeyState, string, error) {
	reply, err := s.keysReply(ctx, queue, which, args...)
	if err != nil || len(reply) == 0 {
		return nil, "", err
	}
	limits := reply[1].([]any)
	number := func(i int) int { return int(parseNumber(limits[i].(string))) }
	flow := store.KeyFlow{Concurrency: number(0), Rate: rateOf(number(1), number(2), number(3)), Weight: number(4)}
	var keys []store.KeyState
	for _, row := range reply[3].([]any) {
		keys = append(keys, keyState(row.([]any), flow.Normal(), time.UnixMicro(reply[0].(int64))))
	}
	return keys, reply[2].(string), nil
}

func (s *Store) keysReply(ctx context.Context, queue, which string, args ...any) ([]any, error) {
	c := s.newCall("keys", queue, 1+len(args))
	c.add(append([]any{which}, args...)...)
	reply, err := s.run(ctx, queue, c)
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
	fields := strings.Split(text+"\t\t\t\t", "\t")
	k.Leased = int(parseNumber(fields[0]))
	if k.Rate.N > 0 {
		starts := gcra.State{Micros: parseNumber(fields[1]), Part: parseNumber(fields[2])}
		if starts.Part > 0 && parseNumber(fields[3]) != int64(k.Rate.N) { // parts of another size
			starts = gcra.State{Micros: starts.Micros + 1}
		}
		k.Next = time.UnixMicro(starts.Next(k.Rate, now.UnixMicro()))
	}
	return k
}
