// Package inspect answers questions about messages: which messages of a queue match a filter, which messages and names
// of a store match a text, why a message has not been handled yet, and which errors dead messages have in common. It
// only reads, and a bounded number of messages at a time.
//
// It imports packages store, internal/fleet, internal/jsontext, internal/reserved, internal/schedule and
// internal/series. Start reading at Search, ParseQuery, Finder, Explain and DeadErrors.
package inspect

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
	// Look is how many messages a Search and DeadErrors look at, unless the caller says otherwise.
	Look = 10_000

	maxText    = 1024 // bytes of each text of a Filter
	maxHeaders = 16   // of a Filter
)

// List lists messages of a queue.
type List func(ctx context.Context, req store.ListRequest) (store.Page, error)

// Filter selects messages of a queue. The root package documents the fields. A message matches if it matches all that
// is set. The store finds State, Group, From and To by itself; for the rest, Search reads the messages and looks.
type Filter struct {
	State                    store.State
	Group                    string
	From, To                 time.Time
	ID, Payload, Error       string
	ErrorPattern             string
	Headers                  map[string]string
	MinAttempts, MaxAttempts int
	JSON                     *Condition
	Words                    []string
	NamesOnly                bool
}

// Condition compares a value in a payload that is JSON. The root package documents it, as JSONCondition.
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
func (f *Filter) Matches(m *store.Info) bool {
	if !strings.Contains(m.ID, f.ID) || !bytes.Contains(m.Payload, []byte(f.Payload)) ||
		m.Attempts < f.MinAttempts || f.MaxAttempts > 0 && m.Attempts > f.MaxAttempts {
		return false
	}
	for name, value := range f.Headers {
		if got, ok := m.Headers[name]; !ok || got != value {
			return false
		}
	}
	if f.Error != "" && !hasError(m, f.Error) || f.ErrorPattern != "" && f.ErrorPattern != Pattern(m.LastError) {
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

// Page is one page of a Search.
type Page struct {
	Messages  []store.Info
	Looked    int    // how many messages were looked at for this page
	Next      string // the cursor of the next page; "" when all were looked at
	Truncated bool   // the limit of bytes ended the page
}

// Options limit a Search. The root package documents the fields, as SearchOptions.
type Options struct {
	Limit, Look, Bytes int
	Cursor             string
}

// Search returns a page of the messages that match a filter, in the order of the list.
func Search(ctx context.Context, list List, f Filter, o Options) (Page, error) {
	if err := f.Check(); err != nil {
		return Page{}, err
	}
	o.Limit, o.Look = cmp.Or(o.Limit, 100), cmp.Or(o.Look, Look)
	if o.Limit < 1 || o.Limit > store.MaxBatch || o.Look < 1 || o.Bytes < 0 {
		return Page{}, store.Invalid("search has the limit %d, looks at %d messages and returns %d bytes: must be 1 to %d, "+
			"1 or more, and 1 or more or 0", o.Limit, o.Look, o.Bytes, store.MaxBatch)
	}
	found, size := Page{Next: o.Cursor}, 0
	for {
		part := min(store.MaxBatch, o.Look-found.Looked)
		if !f.LooksInside() {
			part = min(part, o.Limit-len(found.Messages))
		}
		page, err := list(ctx, f.request(found.Next, part))
		if err != nil {
			return Page{}, err
		}
		if o.Bytes > 0 {
			if n := f.fitting(page.Messages, o.Bytes, &size, len(found.Messages) == 0); n < len(page.Messages) {
				found.Truncated = true
				if n == 0 {
					return found, nil
				}
				if page, err = list(ctx, f.request(found.Next, n)); err != nil { // for the cursor after them
					return Page{}, err
				}
			}
		}
		found.Looked += len(page.Messages)
		for i := range page.Messages {
			if f.Matches(&page.Messages[i]) {
				found.Messages = append(found.Messages, page.Messages[i])
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
		if !f.Matches(&messages[i]) {
			continue
		}
		if *size += SizeAsJSON(&messages[i]); *size > limit && !first {
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

// SizeAsJSON returns how many bytes the message has as JSON, or some more.
func SizeAsJSON(i *store.Info) int {
	size := 1024 + textSize(i.ID) + textSize(i.Group) + textSize(i.LastError) + len(i.Raw)*4/3
	if utf8.Valid(i.Payload) {
		size += textSize(i.Payload)
	} else {
		size += len(i.Payload) * 4 / 3
	}
	for name, value := range i.Headers {
		size += textSize(name) + textSize(value) + len(`"":"",`)
	}
	for _, f := range i.Failures {
		size += 256 + textSize(f.Error)
	}
	return size
}

// textSize returns how many bytes a text has as JSON, or some more.
func textSize[T string | []byte](text T) (size int) {
	for i := range len(text) {
		switch b := text[i]; {
		case b < ' ', b == '<', b == '>', b == '&':
			size += len(`\u0000`)
		case b == '"', b == '\\', b == 0xe2: // of which some line separators are escaped
			size += 2
		default:
			size++
		}
	}
	return size
}
