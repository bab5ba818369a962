package server

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/inspect"
	"github.com/laterq/later/store"
)

// Filter selects messages of a queue, in a body or as parameters of a request.
type Filter struct {
	Query        string            `json:"q,omitempty" query:"q" maxLength:"4096" doc:"Only those that a text finds: words in id, group, key or payload, and conditions such as error:timeout, header:kind=mail and order.total>=100; see docs/page.md" example:"refund error:timeout"`
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

// filter returns the filter for the client, if the sender of the request may search by it.
func (f *Filter) filter(ctx context.Context) (out inspect.Filter, err error) {
	if out, err = f.parse(); err == nil {
		err = cmp.Or(out.Check(), maySearch(ctx, &out))
	}
	return out, err
}

// parse returns the filter for the client, which is not checked.
func (f *Filter) parse() (out inspect.Filter, err error) {
	if out, err = inspect.ParseFilter(f.Query); err != nil {
		return out, field("q", err)
	}
	out.State, out.From, out.To = later.State(f.State), f.DueAfter, f.DueBefore
	twice := ""
	set(&out.Group, f.Group, "group", &twice)
	set(&out.ID, f.ID, "id", &twice)
	set(&out.Payload, f.Payload, "payload", &twice)
	set(&out.Error, f.Error, "error", &twice)
	set(&out.ErrorPattern, f.ErrorPattern, "error_pattern", &twice)
	set(&out.MinAttempts, f.MinAttempts, "min_attempts", &twice)
	set(&out.MaxAttempts, f.MaxAttempts, "max_attempts", &twice)
	if len(f.Headers) > 0 && len(out.Headers) > 0 {
		twice = "headers"
	} else if len(f.Headers) > 0 {
		out.Headers = f.Headers
	}
	if f.JSON != "" {
		condition, err := inspect.ParseCondition(f.JSON)
		if err != nil {
			return out, field("json", err)
		}
		set(&out.JSON, condition, "json", &twice)
	}
	if twice != "" {
		return out, field("q", store.Invalid("has a condition that %s has, too: give it once", twice))
	}
	return out, nil
}

// set sets a condition to a value, unless that is zero. It notes its name if it is set already.
func set[T comparable](condition *T, value T, name string, twice *string) {
	var zero T
	switch {
	case value == zero:
	case *condition != zero:
		*twice = name
	default:
		*condition = value
	}
}

// FilterQuery is a Filter as parameters of a request.
type FilterQuery struct {
	Filter
	Header []string `query:"header,explode" maxItems:"16" doc:"Only those with this header, as name=value; can be repeated"`
}

// filter is Filter.filter.
func (q *FilterQuery) filter(ctx context.Context) (inspect.Filter, error) {
	f := q.Filter
	for _, header := range q.Header {
		name, value, ok := strings.Cut(header, "=")
		if !ok {
			return inspect.Filter{}, field("query.header", store.Invalid("is %.100q: give name=value", header))
		}
		if _, twice := f.Headers[name]; twice {
			return inspect.Filter{}, field("query.header", store.Invalid("sets %.100q twice: give each name once", name))
		}
		if f.Headers == nil {
			f.Headers = map[string]string{}
		}
		f.Headers[name] = value
	}
	out, err := f.parse()
	if err != nil {
		return out, err
	}
	if out.State == "" && out.Group == "" {
		out.State = later.StateScheduled
	}
	err = cmp.Or(out.Check(), maySearch(ctx, &out))
	return out, err
}

// Page is a page of a list: every list is one.
type Page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty" doc:"The cursor of the next page; the last page has none"`
}

// PageQuery selects a page of a list.
type PageQuery struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"How many items the page has at most"`
	Cursor string `query:"cursor" maxLength:"16384" doc:"The next of the page before. Default: the first page"`
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
