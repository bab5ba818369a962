package kind

import "strings"

// Table finds values, such as handlers, by the patterns that match a kind. The zero Table matches nothing.
type Table[V any] struct {
	exact  map[string]V // by kind; "" is none
	within map[string]V // by the text before ".*"
	every  V            // of "*"
	all    bool         // every is set
}

// Add adds the value of a pattern that CheckPattern allows.
func (t *Table[V]) Add(pattern string, value V) {
	if t.exact == nil {
		t.exact, t.within = map[string]V{}, map[string]V{}
	}
	switch before, wild := strings.CutSuffix(pattern, ".*"); {
	case pattern == "*":
		t.every, t.all = value, true
	case wild:
		t.within[before] = value
	default:
		t.exact[pattern] = value
	}
}

// Find returns the value of the most specific pattern that matches a kind, or "" for none, and whether there is one.
func (t *Table[V]) Find(kind string) (value V, found bool) {
	if value, found = t.exact[kind]; found {
		return value, true
	}
	before := kind[:min(len(kind), Max)] // no pattern is longer; a header may be
	for len(t.within) > 0 {
		dot := strings.LastIndexByte(before, '.')
		if dot < 0 {
			break
		}
		before = before[:dot]
		if value, found = t.within[before]; found {
			return value, true
		}
	}
	return t.every, t.all
}
