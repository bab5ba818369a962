package redisstore

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// maxCollapsed and collapseBytes bound the messages of one call that may replace others, and their bytes together with
// the bytes of the others, because the script copies all of them.
const (
	maxCollapsed  = 32
	collapseBytes = 1 << 20
)

// SendKnown implements store.SubQueues.
func (s *Store) SendKnown(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	return s.sendOneByOne(ctx, queue, msgs, true)
}

// sendOneByOne sends messages that may change live ones, or repeat earlier sends; with known it adds none. It makes one
// call for some of them each, with different ids and keys. If a later call fails, the results of the earlier ones
// stand, and the remaining messages get its error.
func (s *Store) sendOneByOne(
	ctx context.Context, queue string, msgs []store.Outgoing, known bool,
) ([]store.SendResult, error) {
	results := make([]store.SendResult, len(msgs))
	err := inParts(ctx, len(msgs), func(ctx context.Context, from int) (int, error) {
		rest := msgs[from:]
		some, err := s.collapseSome(ctx, queue, rest[:collapsedTogether(rest)], known)
		return copy(results[from:], some), err
	}, func(i int, err error) { results[i].Err = err })
	if err != nil {
		return nil, err
	}
	return results, nil
}

// collapsedTogether returns how many of the first messages one call can take: their ids and keys differ.
func collapsedTogether(msgs []store.Outgoing) int {
	seen, keys, bytes := make(seenIDs, maxCollapsed), seenIDs{}, 0
	for i := range msgs {
		bytes += msgs[i].Size()
		if i == maxCollapsed || seen.add(msgs[i].ID) || bytes > collapseBytes && i > 0 {
			return i
		}
		if once := msgs[i].Once; once != nil && keys.add(once.Key) {
			return i
		}
	}
	return len(msgs)
}

// collapseSome makes one call. It returns the results of the first messages, as many as the script has sent.
func (s *Store) collapseSome(
	ctx context.Context, queue string, msgs []store.Outgoing, known bool,
) ([]store.SendResult, error) {
	expected, err := s.expected(ctx, queue, msgs)
	if err != nil {
		return nil, err
	}
	c := s.newCall("collapse", queue, 9+9*len(msgs))
	once := slices.ContainsFunc(msgs, func(m store.Outgoing) bool { return m.Once != nil })
	if once {
		s.addOnceKeys(c, queue)
	}
	defer s.sessions.release(s.stampRequest(ctx, c))
	create := len(c.args)
	durable := msgs[0].Durable
	if durable.Asked() {
		c.confirm(durable)
	}
	c.add("0")
	longest := len(c.args)
	c.add(0, false, durable.Asked(), known)
	maxBytes, inspect := 0, false
	for i := range msgs {
		m := msgs[i].Message
		if msgs[i].OnDuplicate.Collapses() {
			m.SentAt = time.UnixMilli(0) // which the script replaces
		}
		text := envelope.Append(nil, &m)
		maxBytes = max(maxBytes, len(text)+prefixSize)
		inspect = inspect || envelope.Unusual(text[0])
		idTime := ""
		if t, ok := store.IDTime(m.ID); ok {
			idTime = strconv.FormatInt(t.UnixMilli(), 10)
		}
		c.add(m.ID, text, idTime, string(appendDue(nil, msgs[i].Due)), liveDue(&msgs[i].OnDuplicate),
			liveModes[msgs[i].OnDuplicate.Mode], expected[msgs[i].ID])
		c.addOnce(msgs[i].Once)
	}
	c.args[longest], c.args[longest+1] = maxBytes, inspect
	c.needUrgency(queue, create, len(msgs), func(i int) store.Urgency { return msgs[i].AsksUrgency() })
	var reply any
	if known {
		reply, err = s.run(ctx, queue, c)
	} else {
		reply, err = s.runSend(ctx, queue, c, create, false)
	}
	if err != nil {
		return nil, err
	}
	if reply == any(int64(replyUnregistered)) { // so no message is known
		results := make([]store.SendResult, len(msgs))
		for i := range results {
			results[i].Err = store.ErrNotFound
		}
		return results, nil
	}
	var firsts []any
	if list, ok := reply.([]any); ok {
		reply, firsts = list[0], list[1:]
	}
	letters := reply.(string)
	if letters == "" { // executed before a later request of the session, so that no caller waits for the results
		return make([]store.SendResult, len(msgs)), nil
	}
	results := make([]store.SendResult, len(letters))
	for i, letter := range []byte(letters) {
		switch letter {
		case 'r':
			results[i].Replaced = true
		case 'f':
			results[i].Follows = true
		case 'g':
			results[i].Follows, results[i].Replaced = true, true
		case 'x':
			results[i].Duplicate = true
		case 'l':
			results[i].Err = store.ErrLeased
		case 'd':
			results[i].Err = store.ErrDead
		case 'c':
			results[i].Err = store.ErrConflict
		case 'n':
			results[i].Err = store.ErrNotFound
		case 'o':
			results[i].Duplicate = true
		case 'k':
			results[i].Err = store.ErrConflict
		}
		if once {
			results[i].First = parseFirst(firsts[i].(string))
		}
		if durable.Asked() && results[i].Err == nil {
			results[i].Err = c.confirmed.err
		}
	}
	return results, nil
}

// liveModes are the modes of the script for a live message.
var liveModes = [...]string{store.DuplicateKeep: "keep", store.DuplicateReplace: "replace",
	store.DuplicateDebounce: "replace", store.DuplicateFollow: "follow"}

// changed differs from every stored message.
const changed = "changed"

// expected returns, for the script, the stored form of the messages that must be unchanged, by id. It reads them and
// compares them; the script then compares them with this reading.
func (s *Store) expected(ctx context.Context, queue string, msgs []store.Outgoing) (map[string]string, error) {
	var ids []string
	known := map[string]*store.Info{}
	for i := range msgs {
		if u := msgs[i].OnDuplicate.Unchanged; u != nil {
			ids = append(ids, msgs[i].ID)
			known[msgs[i].ID] = u
		}
	}
	stored, err := s.readFields(ctx, queue, ids)
	if err != nil {
		return nil, err
	}
	expected := make(map[string]string, len(ids))
	for i, f := range stored {
		in := readInfo(ids[i], f.fields, f.now)
		if in == nil || in.State == store.StateLeased || !in.Same(known[ids[i]]) {
			expected[ids[i]] = changed
			continue
		}
		value, _ := f.fields[0].(string)
		due, _ := f.fields[1].(string)
		record, _ := f.fields[3].(string)
		expected[ids[i]] = due + "\x00" + record + "\x00" + value
	}
	return expected, nil
}

// liveDue returns the change of the due time of a live message, for the script.
func liveDue(o *store.OnDuplicate) string {
	switch {
	case o.Mode == store.DuplicateDebounce:
		return strconv.FormatInt(store.Millis(o.MaxWait), 10)
	case o.KeepDue:
		return "keep"
	}
	return ""
}
