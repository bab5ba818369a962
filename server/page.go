package server

import (
	"slices"
	"strings"
)

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
