package redisstore

import (
	"context"
	"strconv"
	"unsafe"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// A call of send.lua or restore.lua takes at most about maxSendWork µs: envelopeWork and the message's bytes by
// workOfBytes, and farWork if the message is packed.
const (
	maxSendWork  = 3500
	envelopeWork = 4
	farWork      = 10
)

// workOfBytes returns how many µs of a script's work some bytes take that it reads or writes, about.
func workOfBytes(n int) int { return n >> 9 }

// sendWork returns how much of maxSendWork a message takes. It does not depend on the clock, because a repeated call
// must make the same calls: so each message with a point in time counts as packed.
func sendWork(m *store.Message, due store.Due) int {
	work := envelopeWork + workOfBytes(m.Size())
	if due.Delay > packAfter || !due.At.IsZero() {
		work += farWork
	}
	return work
}

// fitting returns how many of n messages fit into one call, at least one.
func fitting(n int, work func(i int) int) int {
	sum := 0
	for i := range n {
		if sum += work(i); sum > maxSendWork && i > 0 {
			return i
		}
	}
	return n
}

// Send implements store.Store. It makes several calls if the messages take longer than one call may. If a later one
// fails, the results of the earlier ones stand, and the remaining messages get its error.
func (s *Store) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	if len(msgs) > 0 && msgs[0].OneByOne() {
		return s.sendOneByOne(ctx, queue, msgs, false)
	}
	results := make([]store.SendResult, len(msgs))
	indexes := make([]int, 0, len(msgs)) // index in msgs of each message that is sent
	seen := newSeenIDs(len(msgs), func(i int) string { return msgs[i].ID })
	for i := range msgs {
		if results[i].Duplicate = seen.add(msgs[i].ID); !results[i].Duplicate {
			indexes = append(indexes, i)
		}
	}
	err := inParts(ctx, len(indexes), func(ctx context.Context, from int) (int, error) {
		part := indexes[from:]
		n := fitting(len(part), func(i int) int { return sendWork(&msgs[part[i]].Message, msgs[part[i]].Due) })
		return n, s.send(ctx, queue, msgs, part[:n], results)
	}, func(i int, err error) { results[indexes[i]].Err = err })
	if err != nil {
		return nil, err
	}
	if len(indexes) < len(msgs) {
		copyErrors(msgs, results)
	}
	return results, nil
}

// copyErrors gives messages with the id of an earlier one its error.
func copyErrors(msgs []store.Outgoing, results []store.SendResult) {
	first := make(map[string]int, len(msgs))
	for i := range msgs {
		k, repeated := first[msgs[i].ID]
		if !repeated {
			first[msgs[i].ID] = i
		} else if results[i].Err = results[k].Err; store.SendError(results[k:k+1]) != nil {
			results[i].Duplicate = false
		}
	}
}

// send sends the messages at indexes in one call, and sets their results.
func (s *Store) send(
	ctx context.Context, queue string, msgs []store.Outgoing, indexes []int, results []store.SendResult,
) error {
	size := 0
	for _, p := range indexes {
		size += envelope.Size(&msgs[p].Message) + 20
	}
	// One buffer holds all due times and envelopes, and one slice the strings that point into it, so that messages
	// cause no allocations of their own. The buffer never grows, so the strings stay valid.
	buf := make([]byte, 0, size)
	textFrom := func(from int) string { return unsafe.String(unsafe.SliceData(buf[from:]), len(buf)-from) }
	texts := make([]string, 0, 2*len(indexes)) // due times and envelopes
	first := &msgs[indexes[0]]
	durable, condition := first.Durable, first.If
	c := s.newCall("send", queue, 10+3*len(indexes))
	s.addConditionKey(c, queue, condition)
	defer s.sessions.release(s.stampRequest(ctx, c))
	create := len(c.args)
	c.add("0")
	maxBytes, inspect := 0, false
	for _, p := range indexes {
		m := &msgs[p]
		from := len(buf)
		buf = appendDue(buf, m.Due)
		texts = append(texts, textFrom(from))
		from = len(buf)
		buf = envelope.Append(buf, &m.Message)
		maxBytes = max(maxBytes, len(buf)-from+prefixSize)
		inspect = inspect || envelope.Unusual(buf[from])
		texts = append(texts, textFrom(from))
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
	c.needUrgency(queue, create, len(indexes), func(i int) store.Urgency { return msgs[indexes[i]].AsksUrgency() })
	if len(indexes) == 1 && !durable.Asked() && !inspect && first.Group == "" && condition == nil && c.urgency == "" {
		s.addCommon(c, queue, sendOne, &texts[0], &first.ID, &texts[1])
	}
	if condition != nil {
		c.addCondition(condition)
	}
	reply, err := s.runSend(ctx, queue, c, create, condition != nil)
	if err != nil {
		return err
	}
	if isConflict(reply) {
		for _, p := range indexes {
			results[p].Err = store.ErrConflict
		}
		return nil
	}
	if one, ok := reply.(int64); ok { // of send_one.lua
		results[indexes[0]].Duplicate = one == 1
		if one == 2 {
			s.pack(ctx, queue)
		}
		return nil
	}
	for _, position := range reply.([]any) {
		results[indexes[position.(int64)-1]].Duplicate = true
	}
	if durable.Asked() {
		for _, p := range indexes {
			results[p].Err = c.confirmed.err
		}
	}
	return nil
}

// pack packs messages that are due far ahead and were sent one by one. If it fails, a later send does it.
func (s *Store) pack(ctx context.Context, queue string) {
	c := s.newCall("pack", queue, 0)
	if _, err := s.execute(ctx, c.script, c.arguments()); err != nil {
		s.log.DebugContext(ctx, "packing messages failed", "queue", queue, "error", err)
	}
}

// seenIDs detects repeated ids. It is nil if there can be none.
type seenIDs map[string]struct{}

// newSeenIDs returns nil if the ids increase, as the ids that Later generates for a batch do.
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

func appendDue(b []byte, due store.Due) []byte {
	if due.At.IsZero() {
		return strconv.AppendInt(append(b, '+'), store.Millis(due.Delay), 10)
	}
	return strconv.AppendInt(b, store.UnixMillis(due.At), 10)
}
