package redisstore

import (
	"context"
	"strconv"
	"time"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// Restore implements store.Store. It makes several calls if the messages take longer than one call may.
func (s *Store) Restore(ctx context.Context, queue string, msgs []store.Info) ([]store.SendResult, error) {
	results := make([]store.SendResult, len(msgs))
	indexes := make([]int, 0, len(msgs)) // index in msgs of each message that is sent
	seen := newSeenIDs(len(msgs), func(i int) string { return msgs[i].ID })
	for i := range msgs {
		if results[i].Duplicate = seen.add(msgs[i].ID); !results[i].Duplicate {
			indexes = append(indexes, i)
		}
	}
	for from := 0; from < len(indexes); {
		part := indexes[from:]
		n := fitting(len(part), func(i int) int { return restoreWork(&msgs[part[i]]) })
		if err := s.restore(partFrom(ctx, from), queue, msgs, part[:n], results); err != nil {
			return nil, err
		}
		from += n
	}
	return results, nil
}

// restoreWork returns how much of maxSendWork a message takes.
func restoreWork(m *store.Info) int {
	work := envelopeWork + sendWork(&m.Message, store.Due{At: m.Due}) + workOfBytes(len(m.Raw)+len(m.LastError))
	for i := range m.Failures {
		work += workOfBytes(len(m.Failures[i].Error))
	}
	return work
}

// restore adds the messages at indexes in one call, and sets their results.
func (s *Store) restore(
	ctx context.Context, queue string, msgs []store.Info, indexes []int, results []store.SendResult,
) error {
	c := s.newCall("restore", queue, 5+7*len(indexes))
	defer s.sessions.release(s.stampRequest(ctx, c))
	create := len(c.args)
	c.add("0", nil, nil)
	maxBytes, inspect := 0, false
	for _, p := range indexes {
		m := &msgs[p]
		body := envelope.AppendInfo(make([]byte, 0, envelope.InfoSize(m)), m)
		maxBytes = max(maxBytes, len(body)+prefixSize)
		inspect = inspect || len(body) == 0 || envelope.Unusual(body[0])
		c.add(&m.ID, body, millis(m.Due), millis(m.DiedAt), m.Attempts, m.Delivered, restOf(m))
	}
	c.args[create+1], c.args[create+2] = maxBytes, inspect
	reply, err := s.runRegistered(ctx, queue, c, create)
	if err != nil {
		return err
	}
	for _, position := range reply.([]any) {
		results[indexes[position.(int64)-1]].Duplicate = true
	}
	return nil
}

// millis formats a time in milliseconds; "" for the zero time.
func millis(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(store.UnixMillis(t), 10)
}

// restOf returns the rest of a message's record, see lua/_record.lua.
func restOf(m *store.Info) string {
	due := ""
	if m.State == store.StateDead {
		due = millis(m.Due)
	} else if m.LastError == "" && len(m.Failures) == 0 {
		return ""
	}
	return due + "\t" + string(m.DeadReason) + "\t" + string(envelope.AppendFailures(nil, m.Failures)) +
		"\t" + m.LastError
}

// Remove implements store.Store. It reads the messages and compares them. The script then removes only messages that
// are still as they were read, so nothing that changes in between is removed. A call has about maxRemoveBytes of
// messages.
func (s *Store) Remove(ctx context.Context, queue string, msgs []store.Info) ([]bool, error) {
	removed := make([]bool, len(msgs))
	ids := make([]string, len(msgs))
	for i := range msgs {
		ids[i] = msgs[i].ID
	}
	stored, err := s.readFields(ctx, queue, ids)
	if err != nil {
		return nil, err
	}
	var part removal
	seen := newSeenIDs(len(ids), func(i int) string { return ids[i] })
	for i, f := range stored {
		in := readInfo(ids[i], f.fields, f.now)
		if in == nil || in.State == store.StateLeased || !in.Same(&msgs[i]) || seen.add(ids[i]) {
			continue
		}
		if part.bytes > maxRemoveBytes || len(part.indexes) == maxByID {
			if err := s.remove(ctx, queue, &part, removed); err != nil {
				return nil, err
			}
			part = removal{}
		}
		part.add(i, ids[i], f.fields)
	}
	return removed, s.remove(ctx, queue, &part, removed)
}

const maxRemoveBytes = store.MaxBatchBytes / 8

// removal has the arguments of a call for messages at some indexes.
type removal struct {
	indexes []int
	args    []any
	bytes   int
}

func (r *removal) add(index int, id string, fields []any) {
	r.indexes = append(r.indexes, index)
	r.args = append(r.args, id)
	for _, field := range fields {
		text, _ := field.(string)
		r.args = append(r.args, text)
		r.bytes += len(text)
	}
}

// remove makes one call, and sets which of the messages it removed.
func (s *Store) remove(ctx context.Context, queue string, r *removal, removed []bool) error {
	if len(r.indexes) == 0 {
		return nil
	}
	reply, err := s.request(partFrom(ctx, r.indexes[0]), "remove", queue, r.args...)
	if err != nil {
		return err
	}
	for _, i := range r.indexes {
		removed[i] = true
	}
	for _, position := range reply.([]any) {
		removed[r.indexes[position.(int64)-1]] = false
	}
	return nil
}
