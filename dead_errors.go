package later

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

// A page of groups ends when they have maxDeadErrorBytes as JSON, which the last deadErrorsPart messages may exceed by as
// much as all of their errors.
const (
	maxDeadErrorBytes = 2 << 20
	deadErrorsPart    = store.MaxBatch / 2
)

// variable matches the parts that differ between errors of one kind.
var variable = regexp.MustCompile(
	`\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|\b0[xX][0-9a-fA-F]+|\b[0-9a-fA-F]{8,}\b|[0-9]+`)

// ErrorPattern returns the text of an error with # in place of each number, UUID and hexadecimal number of 8 digits or
// more. So errors that differ in these only have the same pattern. That of the empty text is "no error".
func ErrorPattern(text string) string {
	if text == "" {
		return noErrorPattern
	}
	return variable.ReplaceAllString(text, "#")
}

// DeadErrors are dead messages whose last errors have the same pattern.
type DeadErrors struct {
	// Pattern is the ErrorPattern of their last errors; see Filter.ErrorPattern.
	Pattern string
	Count   int
	// First and Last are when the first and the last of them died.
	First, Last time.Time
	// ExampleID, Error and Reason are from the message that died last.
	ExampleID string
	Error     string
	Reason    DeadReason
}

// DeadErrorsOptions limit Queue.DeadErrors.
type DeadErrorsOptions struct {
	// Look is how many messages to look at, 1 or more. Default: 10,000.
	Look int
	// Cursor is DeadErrorsPage.Next of the page before. Default: the first page.
	Cursor string
}

// DeadErrorsPage is the groups of the messages that one call of Queue.DeadErrors looked at.
type DeadErrorsPage struct {
	Groups []DeadErrors // largest first, and those of the same size by pattern
	Looked int          // how many messages were looked at
	Next   string       // Cursor of the next page; "" when all were looked at
}

// DeadErrors groups the dead messages of the queue by the patterns of their last errors. It looks at a bounded number
// of messages, and at fewer if their errors have many patterns, in the order of their death. A pattern can be in several pages: add up the counts.
//
// A Filter with StateDead and the pattern selects exactly the messages of a group, for example to replay them.
func (q *Queue) DeadErrors(ctx context.Context, o DeadErrorsOptions) (DeadErrorsPage, error) {
	o.Look = cmp.Or(o.Look, defaultSearchLook)
	if o.Look < 1 {
		return DeadErrorsPage{}, store.Invalid("look is %d: give 1 or more, or 0 for %d", o.Look, defaultSearchLook)
	}
	page, size := DeadErrorsPage{Next: o.Cursor}, 0
	groups := map[string]*DeadErrors{}
	for {
		list := ListOptions{State: StateDead, Cursor: page.Next, Limit: min(deadErrorsPart, o.Look-page.Looked)}
		part, err := q.List(ctx, list)
		if err != nil {
			return DeadErrorsPage{}, err
		}
		for _, m := range part.Messages {
			size += addDeadError(groups, m)
		}
		page.Looked, page.Next = page.Looked+len(part.Messages), part.Next
		if page.Next == "" || page.Looked >= o.Look || size >= maxDeadErrorBytes {
			break
		}
	}
	for _, group := range groups {
		page.Groups = append(page.Groups, *group)
	}
	slices.SortFunc(page.Groups, func(a, b DeadErrors) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Pattern, b.Pattern))
	})
	return page, nil
}

// addDeadError adds a message to its group, and returns how many bytes of JSON a new group takes.
func addDeadError(groups map[string]*DeadErrors, m *Info) (size int) {
	pattern := ErrorPattern(m.LastError)
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
