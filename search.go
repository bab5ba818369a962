package later

import (
	"bytes"
	"cmp"
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/store"
)

const (
	defaultSearchLook = 10_000
	maxSearchText     = 1024 // bytes of each text of a Filter
	maxFilterHeaders  = 16
)

// Filter selects messages of a queue. State or Group is required; a message matches if it matches all that is set. The
// store finds State, Group, From and To by itself; for the rest, Search reads the messages and looks.
type Filter struct {
	State    State     // scheduled, ready, leased or dead; not together with Group
	Group    string    // in any state
	From, To time.Time // due in [From, To), or for dead messages died; not together with Group

	ID      string // contained in the id
	Payload string // contained in the payload
	Error   string // contained in the text of a failed attempt
	// ErrorPattern is the result of the function ErrorPattern for the last error; see Queue.DeadErrors.
	ErrorPattern string
	// Headers are headers that the message has, with these values.
	Headers map[string]string
	// MinAttempts and MaxAttempts limit the number of failed attempts. 0 for MaxAttempts is no limit.
	MinAttempts, MaxAttempts int
	// JSON compares a value in a payload that is JSON.
	JSON *JSONCondition
}

// JSONCondition compares a value in a payload that is JSON. With a wildcard in the path, one of the values must match.
// The operator != matches where = does not: also payloads that are not JSON, that are nested more than 64 deep, or that
// do not have the value.
type JSONCondition struct {
	// Path names the value by a subset of JSONPath (RFC 9535): names, indices and one wildcard, such as
	// $.order.items[0].price, or order.items[*].sku for any item. A name with other characters than letters, digits and
	// _ is in quotes: order['unit price'].
	Path string
	// Op is =, !=, <, <=, > or >=, or ~ for a text that contains another.
	Op string
	// Value is a number if it is one, or else text. true and false compare with booleans.
	Value string
}

// operators are those of a JSONCondition, a longer one before its beginning.
var operators = []string{"!=", "<=", ">=", "=", "<", ">", "~"}

// ParseJSONCondition returns the condition that text states with a path, an operator and a value, such as
// order.total >= 100 or name ~ Ann. It returns ErrInvalid for any other text, with the position of the error in the
// path.
func ParseJSONCondition(text string) (*JSONCondition, error) {
	text = strings.TrimSpace(text)
	_, rest, err := jsontext.ParsePath(text)
	if err != nil {
		return nil, err
	}
	path := strings.TrimSuffix(text, rest)
	rest = strings.TrimSpace(rest)
	for _, op := range operators {
		if value, ok := strings.CutPrefix(rest, op); ok {
			return &JSONCondition{Path: path, Op: op, Value: strings.TrimSpace(value)}, nil
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
	if _, err := f.listOptions("", 0).request(); err != nil {
		return err
	}
	for name, text := range map[string]string{"id": f.ID, "payload": f.Payload, "error": f.Error} {
		if len(text) > maxSearchText || !utf8.ValidString(text) {
			return store.Invalid("filter's %s is no UTF-8 of up to %d bytes: shorten it", name, maxSearchText)
		}
	}
	switch c := f.JSON; {
	case len(f.ErrorPattern) > store.MaxReason || !utf8.ValidString(f.ErrorPattern):
		return store.Invalid("filter's error pattern is no UTF-8 of up to %d bytes: give DeadErrors.Pattern unchanged",
			store.MaxReason)
	case len(f.Headers) > maxFilterHeaders:
		return store.Invalid("filter has %d headers: the limit is %d", len(f.Headers), maxFilterHeaders)
	case f.MinAttempts < 0 || f.MaxAttempts < 0:
		return store.Invalid("filter's attempts are %d to %d: give 0 or more", f.MinAttempts, f.MaxAttempts)
	case c == nil:
		return nil
	case c.Path == "" || len(c.Path) > maxSearchText || len(c.Value) > maxSearchText:
		return store.Invalid("filter's JSON path has %d bytes and its value %d: give a path such as order.total, "+
			"and up to %d bytes of each", len(c.Path), len(c.Value), maxSearchText)
	case compareJSON[c.Op] == nil && c.Op != "!=":
		return store.Invalid("filter's JSON operator is %q: must be =, !=, <, <=, >, >= or ~", c.Op)
	}
	_, err := f.JSON.path()
	return err
}

func (f *Filter) listOptions(cursor string, limit int) ListOptions {
	return ListOptions{State: f.State, Group: f.Group, From: f.From, To: f.To, Cursor: cursor, Limit: limit}
}

// Matches reports whether a message that is in the state or group of the filter, and in its range, matches the rest.
func (f *Filter) Matches(m *Info) bool {
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
	return f.JSON == nil || f.JSON.matches(m.Payload)
}

func hasError(m *Info, text string) bool {
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
func (c *JSONCondition) path() (jsontext.Path, error) {
	path, rest, err := jsontext.ParsePath(c.Path)
	if err == nil && rest != "" {
		err = store.Invalid("JSON path at byte %d: %q is not part of a path: leave it out, or write a name with other "+
			"characters as ['a name']", len(c.Path)-len(rest)+1, rest)
	}
	return path, err
}

func (c *JSONCondition) matches(payload []byte) (matches bool) {
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
func (c *JSONCondition) compare(value gjson.Result) (order int, contains bool) {
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
	// Bytes ends a page before a message with which the page has more bytes than this as JSON, about. A page has one
	// message at least if any matches. Default: no limit.
	Bytes int
	// Cursor is SearchPage.Next of the page before. Default: the first page.
	Cursor string
}

// SearchPage is one page of a Search.
type SearchPage struct {
	Messages []*Info
	Looked   int    // how many messages were looked at for this page
	Next     string // Cursor of the next page; "" when all were looked at
	// Truncated is set when SearchOptions.Bytes ended the page.
	Truncated bool
}

// Search returns a page of the messages that match a filter, in the order of List. It looks at a bounded number of
// messages, so a page may be empty although a later one is not: go on with Next. What List guarantees for messages that
// change between pages hold for Search.
func (q *Queue) Search(ctx context.Context, f Filter, o SearchOptions) (SearchPage, error) {
	if err := f.Check(); err != nil {
		return SearchPage{}, err
	}
	o.Limit, o.Look = cmp.Or(o.Limit, 100), cmp.Or(o.Look, defaultSearchLook)
	if o.Limit < 1 || o.Limit > store.MaxBatch || o.Look < 1 || o.Bytes < 0 {
		return SearchPage{}, store.Invalid("search has the limit %d, looks at %d messages and returns %d bytes: give 1 to %d, "+
			"1 or more, and 1 or more or 0", o.Limit, o.Look, o.Bytes, store.MaxBatch)
	}
	found, size := SearchPage{Next: o.Cursor}, 0
	for {
		part := min(store.MaxBatch, o.Look-found.Looked)
		if !f.looks() {
			part = min(part, o.Limit-len(found.Messages))
		}
		page, err := q.List(ctx, f.listOptions(found.Next, part))
		if err != nil {
			return SearchPage{}, err
		}
		if o.Bytes > 0 {
			if n := f.fitting(page.Messages, o.Bytes, &size, len(found.Messages) == 0); n < len(page.Messages) {
				found.Truncated = true
				if n == 0 {
					return found, nil
				}
				if page, err = q.List(ctx, f.listOptions(found.Next, n)); err != nil { // for the cursor after them
					return SearchPage{}, err
				}
			}
		}
		found.Looked += len(page.Messages)
		for _, info := range page.Messages {
			if f.Matches(info) {
				found.Messages = append(found.Messages, info)
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
func (f *Filter) fitting(messages []*Info, limit int, size *int, first bool) int {
	for i, m := range messages {
		if !f.Matches(m) {
			continue
		}
		if *size += m.SizeAsJSON(); *size > limit && !first {
			return i
		}
		first = false
	}
	return len(messages)
}

// looks reports whether Matches can refuse a message.
func (f *Filter) looks() bool {
	return f.ID != "" || f.Payload != "" || f.Error != "" || f.ErrorPattern != "" || len(f.Headers) > 0 ||
		f.MinAttempts > 0 || f.MaxAttempts > 0 || f.JSON != nil
}
