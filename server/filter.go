package server

import (
	"slices"
	"strings"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// Filter selects messages of a queue, in a body or as parameters of a request.
type Filter struct {
	State        string            `json:"state,omitempty" query:"state" enum:"scheduled,ready,leased,dead" doc:"Required in a body, unless group is given. Default of a list: scheduled, unless group is given"`
	Group        string            `json:"group,omitempty" query:"group" maxLength:"128" doc:"Only messages of this group, in any state"`
	DueAfter     time.Time         `json:"due_after,omitzero" query:"due_after" doc:"Only those due at this time or later; dead ones by time of death"`
	DueBefore    time.Time         `json:"due_before,omitzero" query:"due_before" doc:"Only those due before this time; dead ones by time of death"`
	ID           string            `json:"id,omitempty" query:"id" maxLength:"128" doc:"Only those with this in their ids"`
	Payload      string            `json:"payload,omitempty" query:"payload" maxLength:"1024" doc:"Only those with this in their payloads"`
	Error        string            `json:"error,omitempty" query:"error" maxLength:"1024" doc:"Only those with this in the error of a failed attempt"`
	ErrorPattern string            `json:"error_pattern,omitempty" query:"error_pattern" maxLength:"2048" doc:"Only those with last errors of this pattern, as in the list of dead errors"`
	Headers      map[string]string `json:"headers,omitempty" maxProperties:"16" doc:"Only those with these headers"`
	MinAttempts  int               `json:"min_attempts,omitempty" query:"min_attempts" minimum:"0" doc:"Only those with at least so many failed attempts"`
	MaxAttempts  int               `json:"max_attempts,omitempty" query:"max_attempts" minimum:"0" doc:"Only those with at most so many failed attempts"`
	JSON         string            `json:"json,omitempty" query:"json" maxLength:"2100" doc:"Only those with this value in a JSON payload: order.total >= 100, name ~ Ann; the operators are =, !=, <, <=, >, >= and ~ for contains" example:"order.total >= 100"`
}

// filter returns the filter for the client.
func (f *Filter) filter() (out later.Filter, err error) {
	out = later.Filter{
		State: later.State(f.State), Group: f.Group, From: f.DueAfter, To: f.DueBefore, ID: f.ID, Payload: f.Payload,
		Error: f.Error, ErrorPattern: f.ErrorPattern, Headers: f.Headers, MinAttempts: f.MinAttempts,
		MaxAttempts: f.MaxAttempts,
	}
	if f.JSON != "" {
		if out.JSON, err = later.ParseJSONCondition(f.JSON); err != nil {
			return out, field("json", err)
		}
	}
	return out, out.Check()
}

// FilterQuery is a Filter as parameters of a request.
type FilterQuery struct {
	Filter
	Header []string `query:"header,explode" maxItems:"16" doc:"Only those with this header, as name=value; can be repeated"`
}

// filter returns the filter for the client.
func (q *FilterQuery) filter() (later.Filter, error) {
	f := q.Filter
	if f.State == "" && f.Group == "" {
		f.State = string(later.StateScheduled)
	}
	for _, header := range q.Header {
		name, value, ok := strings.Cut(header, "=")
		if !ok {
			return later.Filter{}, field("query.header", store.Invalid("is %.100q: give name=value", header))
		}
		if _, twice := f.Headers[name]; twice {
			return later.Filter{}, field("query.header", store.Invalid("sets %.100q twice: give each name once", name))
		}
		if f.Headers == nil {
			f.Headers = map[string]string{}
		}
		f.Headers[name] = value
	}
	return f.filter()
}

// Page is a page of a list: every list is one.
type Page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty" doc:"The cursor of the next page; the last page has none"`
}

// PageQuery selects a page of a list.
type PageQuery struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"How many items the page has at most"`
	Cursor string `query:"cursor" maxLength:"1024" doc:"The next of the page before. Default: the first page"`
}

// pageOf returns a page of items as a function shows them.
func pageOf[T, R any](all []T, show func(T) R) Page[R] {
	p := Page[R]{Items: make([]R, len(all))}
	for i, one := range all {
		p.Items[i] = show(one)
	}
	return p
}

// names returns the names of the page among all names: those that begin with a prefix and that see reports true for. It
// also returns the cursor of the next page.
func (q *PageQuery) names(all []string, prefix string, see func(name string) bool) (names []string, next string) {
	names = slices.DeleteFunc(all, func(name string) bool {
		return !strings.HasPrefix(name, prefix) || name <= q.Cursor || !see(name)
	})
	slices.Sort(names)
	if len(names) > q.Limit {
		names = names[:q.Limit]
		next = names[q.Limit-1]
	}
	return names, next
}
