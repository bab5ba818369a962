package later

import (
	"bytes"
	"cmp"
	"context"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

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
	// ErrorPattern is what the function ErrorPattern returns for the last error; see Queue.DeadErrors.
	ErrorPattern string
	// Headers are headers that the message has, with these values.
	Headers map[string]string
	// MinAttempts and MaxAttempts limit the number of failed attempts. 0 for MaxAttempts is no limit.
	MinAttempts, MaxAttempts int
	// JSON compares a value in a payload that is JSON.
	JSON *JSONCondition
}

// JSONCondition compares a value in a payload that is JSON. Payloads that are not JSON, and those without the value,
// match only the operator !=.
type JSONCondition struct {
	// Path names the value as in github.com/tidwall/gjson, such as order.items.0.price.
	Path string
	// Op is =, !=, <, <=, > or >=, or ~ for a text that contains another.
	Op string
	// Value is a number if it is one, or else text. true and false compare with those.
	Value string
}

// comparison is a path, an operator and a value.
var comparison = regexp.MustCompile(`^\s*([^\s!=<>~].*?)\s*(!=|<=|>=|=|<|>|~)\s*(.*?)\s*$`)

// ParseJSONCondition returns the condition that text states with a path, an operator and a value, such as
// order.total >= 100 or name ~ Ann. It returns ErrInvalid for any other text.
func ParseJSONCondition(text string) (*JSONCondition, error) {
	parts := comparison.FindStringSubmatch(text)
	if parts == nil {
		return nil, store.Invalid("condition is %.100q: give a comparison such as order.total >= 100", text)
	}
	return &JSONCondition{Path: parts[1], Op: parts[2], Value: parts[3]}, nil
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
	case compareJSON[c.Op] == nil:
		return store.Invalid("filter's JSON operator is %q: give =, !=, <, <=, >, >= or ~", c.Op)
	}
	return nil
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
	"!=": func(order int, _ bool) bool { return order != 0 },
	"<":  func(order int, _ bool) bool { return order < 0 },
	"<=": func(order int, _ bool) bool { return order <= 0 },
	">":  func(order int, _ bool) bool { return order > 0 },
	">=": func(order int, _ bool) bool { return order >= 0 },
	"~":  func(_ int, contains bool) bool { return contains },
}

func (c *JSONCondition) matches(payload []byte) bool {
	if !gjson.ValidBytes(payload) {
		return c.Op == "!="
	}
	got := gjson.GetBytes(payload, c.Path)
	if !got.Exists() {
		return c.Op == "!="
	}
	text := got.String()
	order := cmp.Compare(text, c.Value)
	if want := gjson.Parse(c.Value); got.Type == gjson.Number && want.Type == gjson.Number && gjson.Valid(c.Value) {
		order = cmp.Compare(got.Num, want.Num)
	}
	return compareJSON[c.Op](order, strings.Contains(text, c.Value))
}

// SearchOptions limit a Search.
type SearchOptions struct {
	// Limit is how many messages end a page, 1 to store.MaxBatch. One that was looked at together with the last ones is
	// in the page, too, so that a page can have up to store.MaxBatch - 1 more. Default: 100.
	Limit int
	// Look is how many messages to look at before the page ends, however few matched. Default: 10,000.
	Look int
	// Cursor is SearchPage.Next of the page before. Default: the first page.
	Cursor string
}

// SearchPage is one page of a Search.
type SearchPage struct {
	Messages []*Info
	Looked   int    // how many messages were looked at for this page
	Next     string // Cursor of the next page; "" when all were looked at
}

// Search returns a page of the messages that match a filter, in the order of List. It looks at a bounded number of
// messages, so a page may be empty although a later one is not: go on with Next. What List guarantees for messages that
// change meanwhile holds for Search.
func (q *Queue) Search(ctx context.Context, f Filter, o SearchOptions) (SearchPage, error) {
	if err := f.Check(); err != nil {
		return SearchPage{}, err
	}
	o.Limit, o.Look = cmp.Or(o.Limit, 100), cmp.Or(o.Look, defaultSearchLook)
	if o.Limit < 1 || o.Limit > store.MaxBatch || o.Look < 1 {
		return SearchPage{}, store.Invalid("search has the limit %d and looks at %d messages: give 1 to %d, and 1 or more",
			o.Limit, o.Look, store.MaxBatch)
	}
	found := SearchPage{Next: o.Cursor}
	for {
		part := min(store.MaxBatch, o.Look-found.Looked)
		if !f.looks() {
			part = min(part, o.Limit-len(found.Messages))
		}
		page, err := q.List(ctx, f.listOptions(found.Next, part))
		if err != nil {
			return SearchPage{}, err
		}
		found.Looked += len(page.Messages)
		for _, info := range page.Messages {
			if f.Matches(info) {
				found.Messages = append(found.Messages, info)
			}
		}
		found.Next = page.Next
		if found.Next == "" || len(found.Messages) >= o.Limit || found.Looked >= o.Look {
			return found, nil
		}
	}
}

// looks reports whether Matches can refuse a message.
func (f *Filter) looks() bool {
	return f.ID != "" || f.Payload != "" || f.Error != "" || f.ErrorPattern != "" || len(f.Headers) > 0 ||
		f.MinAttempts > 0 || f.MaxAttempts > 0 || f.JSON != nil
}
