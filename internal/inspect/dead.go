package inspect

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// noErrorPattern is the pattern of the empty text.
const noErrorPattern = "no error"

// A page of groups ends when they have maxDeadErrorBytes as JSON, which the last deadErrorsPart messages may exceed by
// as much as all of their errors.
const (
	maxDeadErrorBytes = 2 << 20
	deadErrorsPart    = store.MaxBatch / 2
)

// variable matches the parts that differ between errors of one kind.
var variable = regexp.MustCompile(
	`\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|\b0[xX][0-9a-fA-F]+|\b[0-9a-fA-F]{8,}\b|[0-9]+`)

// Pattern returns the text of an error with # in place of the parts that differ between errors of one kind.
func Pattern(text string) string {
	if text == "" {
		return noErrorPattern
	}
	return variable.ReplaceAllString(text, "#")
}

// DeadErrors are dead messages with the same Pattern of their last errors. The root package documents the fields.
type DeadErrors struct {
	Pattern     string
	Count       int
	First, Last time.Time
	ExampleID   string
	Error       string
	Reason      store.DeadReason
}

// GroupDead groups the dead messages of a list by the patterns of their last errors, from a cursor on, and returns how
// many of them it has looked at, at most look or Look if that is 0, and the cursor for the rest.
func GroupDead(ctx context.Context, list List, look int, cursor string) (
	all []DeadErrors, looked int, next string, err error,
) {
	look = cmp.Or(look, Look)
	if look < 1 {
		return nil, 0, "", store.Invalid("look is %d: give 1 or more, or 0 for %d", look, Look)
	}
	groups, size := map[string]*DeadErrors{}, 0
	for next = cursor; ; {
		part := min(deadErrorsPart, look-looked)
		page, err := list(ctx, store.ListRequest{State: store.StateDead, Cursor: next, Limit: part})
		if err != nil {
			return nil, 0, "", err
		}
		for i := range page.Messages {
			size += addDead(groups, &page.Messages[i])
		}
		looked, next = looked+len(page.Messages), page.Next
		if next == "" || looked >= look || size >= maxDeadErrorBytes {
			break
		}
	}
	for _, group := range groups {
		all = append(all, *group)
	}
	slices.SortFunc(all, func(a, b DeadErrors) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Pattern, b.Pattern))
	})
	return all, looked, next, nil
}

// addDead adds a message to its group, and returns how many bytes of JSON a new group takes.
func addDead(groups map[string]*DeadErrors, m *store.Info) (size int) {
	pattern := Pattern(m.LastError)
	group := groups[pattern]
	if group == nil {
		group = &DeadErrors{Pattern: pattern, First: m.DiedAt}
		groups[pattern] = group
		size = 512 + textSize(pattern) + textSize(m.LastError)
	}
	group.Count++ // messages come in the order of their death
	group.Last, group.ExampleID, group.Error, group.Reason = m.DiedAt, m.ID, m.LastError, m.DeadReason
	return size
}
