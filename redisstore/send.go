package redisstore

import (
	"context"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// Send implements store.Store.
func (s *Store) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	if len(msgs) > 0 && msgs[0].OneByOne() {
		return s.sendOneByOne(ctx, queue, msgs)
	}
	results := make([]store.SendResult, len(msgs))
	if len(msgs) == 0 {
		return results, nil
	}
	size := 0
	for i := range msgs {
		size += envelope.Size(&msgs[i].Message) + 20
	}
	// One buffer holds all due times and envelopes, and one slice the strings that point into it, so that messages
	// cause no allocations of their own. The buffer never grows, so the strings stay valid.
	buf := make([]byte, 0, size)
	textFrom := func(from int) string { return unsafe.String(unsafe.SliceData(buf[from:]), len(buf)-from) }
	texts := make([]string, 0, 2*len(msgs)) // due times and envelopes
	indexes := make([]int, 0, len(msgs))    // index in msgs of each message that is sent
	seen := newSeenIDs(len(msgs), func(i int) string { return msgs[i].ID })
	durable := msgs[0].Durable
	condition := msgs[0].If
	c := s.newCall("send", queue, 10+3*len(msgs))
	if len(msgs) == 1 && !durable.Asked() && !isFar(msgs[0].Due) && msgs[0].Group == "" && condition == nil {
		c.common = s.scripts["send_one"]
	}
	s.addConditionKey(c, queue, condition)
	defer s.sessions.release(s.stampRequest(ctx, c))
	create := len(c.args)
	c.add("0")
	maxBytes, inspect := 0, false
	for i := range msgs {
		m := &msgs[i]
		if seen.add(m.ID) {
			results[i].Duplicate = true
			continue
		}
		from := len(buf)
		buf = appendDue(buf, m.Due)
		texts = append(texts, textFrom(from))
		from = len(buf)
		buf = envelope.Append(buf, &m.Message)
		maxBytes = max(maxBytes, len(buf)-from+prefixSize)
		inspect = inspect || envelope.Unusual(buf[from])
		texts = append(texts, textFrom(from))
		indexes = append(indexes, i)
	}
	if durable.Asked() {
		c.confirm(durable)
	}
	c.add(maxBytes, inspect, durable.Asked(), len(indexes))
	for i := range indexes {
		c.add(&texts[2*i])
	}
	for i, p := range indexes {
		c.add(&msgs[p].ID, &texts[2*i+1])
	}
	for i, p := range indexes {
		if msgs[p].Group != "" {
			c.add(i + 1)
		}
	}
	run := s.runRegistered
	if condition != nil {
		c.addCondition(condition)
		run = s.runCreating // a refused call must not list the queue
	}
	reply, err := run(ctx, queue, c, create)
	if err != nil {
		return nil, err
	}
	if isConflict(reply) {
		return slices.Repeat([]store.SendResult{{Err: store.ErrConflict}}, len(msgs)), nil
	}
	for _, position := range reply.([]any) {
		results[indexes[position.(int64)-1]].Duplicate = true
	}
	if durable.Asked() {
		for i := range results {
			results[i].Err = c.confirmed.err
		}
	}
	return results, nil
}

// seenIDs detects repeated ids. It is nil if there can be none.
type seenIDs map[string]struct{}

// newSeenIDs returns nil if the ids increase, as those that Later generates for a batch do.
func newSeenIDs(n int, id func(i int) string) seenIDs {
	for i := 1; i < n; i++ {
		if id(i) <= id(i-1) {
			return make(seenIDs, n)
		}
	}
	return nil
}

func (s seenIDs) add(id string) bool {
	if s == nil {
		return false
	}
	n := len(s)
	s[id] = struct{}{}
	return len(s) == n
}

// isFar reports whether a message is due so late that it is packed, by this machine's clock.
func isFar(due store.Due) bool {
	if due.At.IsZero() {
		return due.Delay > packAfter
	}
	return time.Until(due.At) > packAfter
}

func appendDue(b []byte, due store.Due) []byte {
	if due.At.IsZero() {
		return strconv.AppendInt(append(b, '+'), store.Millis(due.Delay), 10)
	}
	return strconv.AppendInt(b, store.UnixMillis(due.At), 10)
}
