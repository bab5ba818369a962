// Package inspect answers questions about messages: which messages of a queue match a filter, which messages and names
// of a store match a text, why a message has not been handled yet, which errors dead messages have in common, and which
// conditions of a store need a person. It only reads, and a bounded number of messages at a time.
//
//	e, err := inspect.Explain(ctx, client, "orders", "order-42")
//	fmt.Println(e.Text(time.Local)) // worker mail-1 has held it for 12 s
//
// It reads the Store of a client, so Client.Close does not wait for its calls.
//
// It is built on packages later, store, internal/fleet, internal/jsontext, internal/pauses, internal/reserved,
// internal/series, internal/shard, internal/topic and internal/wire. Start reading at Search, ParseFilter, Find,
// Explain, DeadErrors and Problems.
package inspect

import (
	"bytes"
	"cmp"
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

const (
	// Look is how many messages a Search and DeadErrors look at, unless the caller says otherwise.
	Look = 10_000

	maxText    = 1024 // bytes of each text of a Filter
	maxHeaders = 16   // of a Filter
)

// Filter selects messages of a queue. State or Group is required; a message matches if it matches all that is set. The
// store finds State, Group, From and To by itself; for the rest, Search reads the messages and looks.
type Filter struct {
	State    store.State // scheduled, ready, leased or dead; not together with Group
	Group    string      // in any state
	From, To time.Time   // due in [From, To), or for dead messages died; not together with Group

	ID      string // contained in the id
	Payload string // contained in the payload
	Error   string // contained in the text of a failed attempt
	// ErrorPattern is the result of the function ErrorPattern for the last error; see DeadErrors.
	ErrorPattern string
	// Headers are headers that the message has, with these values.
	Headers map[string]string
	// MinAttempts and MaxAttempts limit the number of failed attempts. 0 for MaxAttempts means no limit.
	MinAttempts, MaxAttempts int
	// JSON compares a value in a payload that is JSON.
	JSON *Condition
	// Words are each contained in the id, the group, the key or the payload, whatever their case. There are up to 16.
	Words []string
	// NamesOnly is set if Words are not looked for in payloads.
	NamesOnly bool
}

// Condition compares a value in a payload that is JSON. With a wildcard in the path, one of the values must match.
// The operator != matches where = does not: also payloads that are not JSON, that are nested more than 64 deep, or that
// do not have the value.
//
// Path names the value by a subset of JSONPath (RFC 9535): names, indices and one wildcard, such as
// $.order.items[0].price, or order.items[*].sku for any item. A name with other characters than letters, digits and _
// is in quotes: order['unit price'].
//
// Op is =, !=, <, <=, > or >=, or ~ for a text that contains another. Value is a number if it is one, or else text.
// true and false compare with booleans.
type Condition struct{ Path, Op, Value string }

// operators are those of a Condition, a longer one before its beginning.
var operators = []string{"!=", "<=", ">=", "=", "<", ">", "~"}

// ParseCondition returns the condition that text states with a path, an operator and a value, such as
// order.total >= 100 or name ~ Ann. It returns ErrInvalid for any other text, with the position of the error in the
// path.
func ParseCondition(text string) (*Condition, error) {
	text = strings.TrimSpace(text)
	_, rest, err := jsontext.ParsePath(text)
	if err != nil {
		return nil, err
	}
	path := strings.TrimSuffix(text, rest)
	rest = strings.TrimSpace(rest)
	for _, op := range operators {
		if value, ok := strings.CutPrefix(rest, op); ok {
			return &Condition{Path: path, Op: op, Value: strings.TrimSpace(value)}, nil
		}
	}
	if rest == "" {
		return nil, store.Invalid("condition is %.100q: give a comparison such as order.total >= 100", text)
	}
	return nil, store.Invalid("condition at byte %d: %.20q does not begin with an operator, one of %s; write a name with "+
		"other characters as ['a name']", len(text)-len(rest)+1, rest, strings.Join(operators, " "))
}

// Check returns an ErrInvalid unless the filter is allowed.
func (f *Filter) Check() error {
	list := f.request("", 1)
	if err := list.Check(); err != nil {
		return err
	}
	for name, text := range map[string]string{"id": f.ID, "payload": f.Payload, "error": f.Error} {
		if len(text) > maxText || !utf8.ValidString(text) {
			return store.Invalid("filter's %s is no UTF-8 of up to %d bytes: shorten it", name, maxText)
		}
	}
	for _, word := range f.Words {
		if word == "" || len(word) > maxText || !utf8.ValidString(word) {
			return store.Invalid("filter's word %.100q is no UTF-8 of 1 to %d bytes: shorten it, or omit it", word, maxText)
		}
	}
	switch c := f.JSON; {
	case len(f.Words) > maxWords:
		return store.Invalid("filter has %d words: the limit is %d", len(f.Words), maxWords)
	case len(f.ErrorPattern) > store.MaxReason || !utf8.ValidString(f.ErrorPattern):
		return store.Invalid("filter's error pattern is no UTF-8 of up to %d bytes: give DeadErrors.Pattern unchanged",
			store.MaxReason)
	case len(f.Headers) > maxHeaders:
		return store.Invalid("filter has %d headers: the limit is %d", len(f.Headers), maxHeaders)
	case f.MinAttempts < 0 || f.MaxAttempts < 0:
		return store.Invalid("filter's attempts are %d to %d: give 0 or more", f.MinAttempts, f.MaxAttempts)
	case c == nil:
		return nil
	case c.Path == "" || len(c.Path) > maxText || len(c.Value) > maxText:
		return store.Invalid("filter's JSON path has %d bytes and its value %d: give a path such as order.total, "+
			"and up to %d bytes of each", len(c.Path), len(c.Value), maxText)
	case compareJSON[c.Op] == nil && c.Op != "!=":
		return store.Invalid("filter's JSON operator is %q: must be =, !=, <, <=, >, >= or ~", c.Op)
	}
	_, err := f.JSON.path()
	return err
}

func (f *Filter) request(cursor string, limit int) store.ListRequest {
	return store.ListRequest{State: f.State, Group: f.Group, From: f.From, To: f.To, Cursor: cursor, Limit: limit}
}

// Matches reports whether a message that is in the state or group of the filter, and in its range, matches the rest.
func (f *Filter) Matches(m *later.Info) bool {
	return f.matches(&store.Info{
		Message:   store.Message{ID: m.ID, Payload: m.Payload, Headers: m.Headers, Group: m.Group, Key: m.Key},
		Attempts:  m.Attempts,
		LastError: m.LastError,
		Failures:  m.Failures,
	})
}

func (f *Filter) matches(m *store.Info) bool {
	if !strings.Contains(m.ID, f.ID) || !bytes.Contains(m.Payload, []byte(f.Payload)) ||
		m.Attempts < f.MinAttempts || f.MaxAttempts > 0 && m.Attempts > f.MaxAttempts {
		return false
	}
	for name, value := range f.Headers {
		if got, ok := m.Headers[name]; !ok || got != value {
			return false
		}
	}
	if f.Error != "" && !hasError(m, f.Error) || f.ErrorPattern != "" && f.ErrorPattern != ErrorPattern(m.LastError) {
		return false
	}
	return f.hasWords(m) && (f.JSON == nil || f.JSON.matches(m.Payload))
}

func hasError(m *store.Info, text string) bool {
	for _, failure := range m.Failures {
		if strings.Contains(failure.Error, text) {
			return true
		}
	}
	return strings.Contains(m.LastError, text)
}

// compareJSON has, by operator, what the comparison of a value with the condition's must be.
var compareJSON = map[string]func(order int, contains bool) bool{
	"=":  func(order int, _ bool) bool { return order == 0 },
	"<":  func(order int, _ bool) bool { return order < 0 },
	"<=": func(order int, _ bool) bool { return order <= 0 },
	">":  func(order int, _ bool) bool { return order > 0 },
	">=": func(order int, _ bool) bool { return order >= 0 },
	"~":  func(_ int, contains bool) bool { return contains },
}

// path returns the parsed path.
func (c *Condition) path() (jsontext.Path, error) {
	path, rest, err := jsontext.ParsePath(c.Path)
	if err == nil && rest != "" {
		err = store.Invalid("JSON path at byte %d: %q is not part of a path: leave it out, or write a name with other "+
			"characters as ['a name']", len(c.Path)-len(rest)+1, rest)
	}
	return path, err
}

func (c *Condition) matches(payload []byte) (matches bool) {
	path, err := c.path()
	if err != nil || jsontext.Check(payload) != nil {
		return c.Op == "!="
	}
	compare := compareJSON[strings.TrimPrefix(c.Op, "!")]
	path.Find(payload, func(value gjson.Result) bool {
		matches = compare(c.compare(value))
		return !matches
	})
	return matches != (c.Op == "!=")
}

// compare compares a value with that of the condition, as numbers if both are, and reports whether its text contains
// the condition's.
func (c *Condition) compare(value gjson.Result) (order int, contains bool) {
	text := value.String()
	order = cmp.Compare(text, c.Value)
	if want := gjson.Parse(c.Value); value.Type == gjson.Number && want.Type == gjson.Number && gjson.Valid(c.Value) {
		order = cmp.Compare(value.Num, want.Num)
	}
	return order, strings.Contains(text, c.Value)
}

// SearchOptions limit a Search.
type SearchOptions struct {
	// Limit is how many messages end a page, 1 to store.MaxBatch. One that was looked at together with the last ones is
	// in the page, too, so that a page can have up to store.MaxBatch - 1 more. Default: 100.
	Limit int
	// Look is how many messages to look at before the page ends, however few matched. Default: 10,000.
	Look int
	// Bytes ends a page before a message that would make the page longer than this as JSON, about. A page has at least
	// one message if any matches. Default: no limit.
	Bytes int
	// Cursor is SearchPage.Next of the page before. Default: the first page.
	Cursor string
}

// SearchPage is one page of a Search.
type SearchPage struct {
	Messages []*later.Info
	Looked   int    // how many messages were looked at for this page
	Next     string // Cursor of the next page; "" when all were looked at
	// Truncated is set when SearchOptions.Bytes ended the page.
	Truncated bool
}

// Search returns a page of the messages of a queue that match a filter, in the order of later.Queue.List. It looks at a
// bounded number of messages, so a page may be empty although a later one is not: go on with Next. The guarantees of
// List for messages that change between pages hold for Search.
func Search(ctx context.Context, c *later.Client, queue string, f Filter, o SearchOptions) (SearchPage, error) {
	if err := cmp.Or(usable(queue), f.Check()); err != nil {
		return SearchPage{}, err
	}
	o.Limit, o.Look = cmp.Or(o.Limit, 100), cmp.Or(o.Look, Look)
	if o.Limit < 1 || o.Limit > store.MaxBatch || o.Look < 1 || o.Bytes < 0 {
		return SearchPage{}, store.Invalid("search has the limit %d, looks at %d messages and returns %d bytes: must be 1 "+
			"to %d, 1 or more, and 1 or more or 0", o.Limit, o.Look, o.Bytes, store.MaxBatch)
	}
	found, size := SearchPage{Next: o.Cursor}, 0
	for {
		part := min(store.MaxBatch, o.Look-found.Looked)
		if !f.LooksInside() {
			part = min(part, o.Limit-len(found.Messages))
		}
		page, err := c.Store().List(ctx, queue, f.request(found.Next, part))
		if err != nil {
			return SearchPage{}, err
		}
		if o.Bytes > 0 {
			if n := f.fitting(page.Messages, o.Bytes, &size, len(found.Messages) == 0); n < len(page.Messages) {
				found.Truncated = true
				if n == 0 {
					return found, nil
				}
				if page, err = c.Store().List(ctx, queue, f.request(found.Next, n)); err != nil { // for the cursor after them
					return SearchPage{}, err
				}
			}
		}
		found.Looked += len(page.Messages)
		for i := range page.Messages {
			if f.matches(&page.Messages[i]) {
				found.Messages = append(found.Messages, later.InfoOf(queue, page.Messages[i]))
			}
		}
		found.Next = page.Next
		found.Truncated = found.Truncated && found.Next != ""
		if found.Truncated || found.Next == "" || len(found.Messages) >= o.Limit || found.Looked >= o.Look {
			return found, nil
		}
	}
}

// fitting returns how many messages there are before the first one that matches and is too much: with it the size would
// exceed a limit. The first match is never too much if first is set. It adds the others to the size.
func (f *Filter) fitting(messages []store.Info, limit int, size *int, first bool) int {
	for i := range messages {
		if !f.matches(&messages[i]) {
			continue
		}
		if *size += wire.SizeOf(&messages[i]); *size > limit && !first {
			return i
		}
		first = false
	}
	return len(messages)
}

// LooksInside reports whether Matches can refuse a message.
func (f *Filter) LooksInside() bool {
	return f.ID != "" || f.Payload != "" || f.Error != "" || f.ErrorPattern != "" || len(f.Headers) > 0 ||
		f.MinAttempts > 0 || f.MaxAttempts > 0 || f.JSON != nil || len(f.Words) > 0
}

// usable returns an ErrInvalid unless programs may read the queue.
func usable(queue string) error {
	err := store.CheckQueue(queue)
	if why := reserved.Check(queue, reserved.Open); err == nil && why != "" {
		err = store.Invalid("%s", why)
	}
	return err
}

// workersOf returns the live workers.
func workersOf(ctx context.Context, c *later.Client) (live []fleet.Info, err error) {
	all, err := c.Workers(ctx)
	for _, w := range all {
		live = append(live, fleet.Info(w))
	}
	return live, err
}
