package inspect

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// noErrorPattern is the pattern of the empty text.
const noErrorPattern = "no error"

// A page of groups ends when they have maxDeadErrorBytes as JSON, which the messages of the last round, up to
// deadErrorsPart of each list, may exceed by as much as all of their errors.
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

// DeadHours is the number of hours for the counts of a DeadErrors.
const DeadHours = 24

// DeadGroup is the dead messages with last errors of the same pattern.
type DeadGroup struct {
	// Pattern is the ErrorPattern of their last errors; see Filter.ErrorPattern.
	Pattern string
	Count   int
	// First and Last are when the first and the last of them died.
	First, Last time.Time
	// Queues counts them by queue, the largest count first.
	Queues []QueueCount
	// Hours counts the deaths in each hour from DeadErrorsPage.From on. The last hour has not ended yet.
	Hours [DeadHours]int
	// ExampleQueue, ExampleID, Error and Reason are from the message that died last.
	ExampleQueue, ExampleID string
	Error                   string
	Reason                  store.DeadReason
}

// QueueCount is a number of messages of a queue.
type QueueCount struct {
	Queue string
	Count int
}

// DeadErrorsOptions limit DeadErrors.
type DeadErrorsOptions struct {
	// Queues are the only queues to look at. Default: all but Later's internal queues.
	Queues []string
	// Visible reports whether the groups may have messages of a queue. Default: all are visible.
	Visible func(queue string) bool
	// Look is how many messages to look at, 1 or more. Default: 10,000.
	Look int
	// Cursor is DeadErrorsPage.Next of the page before. Default: the first page.
	Cursor string
}

// DeadErrorsPage is the groups of the messages that one call of DeadErrors looked at.
type DeadErrorsPage struct {
	Groups []DeadGroup // largest first; groups of the same size by pattern
	// Queues is the number of queues that are looked at, and LeftOut the number of them that cannot be read.
	Queues, LeftOut int
	// Dead is how many dead messages the queues have, and Looked how many of them were looked at for this page.
	Dead   int64
	Looked int
	// From is when the 24 hours of DeadGroup.Hours begin, by the store's clock: at a whole hour, and 23 hours before
	// the hour of the first page. It is the same in all pages.
	From time.Time
	// HoursComplete is set when all messages that died since From were looked at, for this page or pages before it.
	HoursComplete bool
	Next          string // Cursor of the next page; "" when all were looked at
}

// grouping is one DeadErrors.
type grouping struct {
	queueReader
	deadGroups
	store store.Store
	look  int
	now   time.Time // the latest clock of the queues
	page  DeadErrorsPage
}

// DeadErrors groups the dead messages of all queues by the patterns of their last errors. It looks at a bounded number
// of messages, and at fewer if their errors have many patterns: first at those that died since From, then at earlier
// ones. A pattern can be in several pages: add up the counts.
//
// A Filter with StateDead and the pattern selects exactly the messages of a group in each of its queues, for example to
// replay them. A queue that cannot be read is left out unless Queues names it. See later.Queue.Get for errors.
func DeadErrors(ctx context.Context, c *later.Client, o DeadErrorsOptions) (DeadErrorsPage, error) {
	for _, name := range o.Queues {
		if err := usable(name); err != nil {
			return DeadErrorsPage{}, err
		}
	}
	g := &grouping{store: c.Store(), look: cmp.Or(o.Look, Look)}
	if g.look < 1 {
		return DeadErrorsPage{}, store.Invalid("look is %d: must be 1 or more, or 0 for %d", o.Look, Look)
	}
	from, err := parseFindCursor(o.Cursor)
	if err == nil && o.Cursor != "" && from.Hour <= 0 {
		err = invalidCursor(o.Cursor)
	}
	if err != nil {
		return DeadErrorsPage{}, err
	}
	if g.queues, g.strict = sortedSet(slices.Clone(o.Queues), store.CheckQueue), len(o.Queues) > 0; !g.strict {
		if g.queues, err = c.Queues(ctx); err != nil {
			return DeadErrorsPage{}, err
		}
		g.queues = slices.DeleteFunc(g.queues, reserved.IsIdle)
	}
	g.queues = slices.DeleteFunc(g.queues, func(queue string) bool { return o.Visible != nil && !o.Visible(queue) })
	if err := g.run(ctx, from); err != nil {
		return DeadErrorsPage{}, err
	}
	return g.page, nil
}

// run reads lists until enough messages were looked at. It reads those with the deaths of the last hours first, so that
// the counts by hour are complete as early as possible.
func (g *grouping) run(ctx context.Context, from findCursor) error {
	waiting, err := g.lists(ctx, from.Hour)
	if err != nil {
		return err
	}
	open := slices.DeleteFunc(from.Open, func(h *head) bool { return !slices.Contains(g.queues, h.Queue) })
	last := from.Last
	if last != nil {
		waiting = slices.DeleteFunc(waiting, func(h *head) bool { return !last.beforeDead(h) })
	}
	for g.page.Looked < g.look && g.size < maxDeadErrorBytes {
		for len(open) < maxHeads && len(waiting) > 0 && (len(open) == 0 || open[0].Older == waiting[0].Older) {
			open = append(open, waiting[0])
			waiting, last = waiting[1:], &head{Queue: waiting[0].Queue, Older: waiting[0].Older}
		}
		if len(open) == 0 {
			break
		}
		if err := g.round(ctx, open); err != nil {
			return err
		}
		open = slices.DeleteFunc(open, func(h *head) bool { return h.done })
	}
	g.finish(open, waiting, last)
	return nil
}

// lists counts the dead messages of the queues, and returns the lists to read: the deaths since the hours began, and
// those before.
func (g *grouping) lists(ctx context.Context, hour int64) (all []*head, err error) {
	stats := make([]store.Stats, len(g.queues))
	err = g.each(ctx, func(ctx context.Context, i int) (err error) {
		stats[i], err = g.store.Stats(ctx, g.queues[i])
		return err
	})
	for i := range stats {
		g.page.Dead += stats[i].Dead
		if stats[i].Now.After(g.now) {
			g.now = stats[i].Now
		}
	}
	if hour > 0 {
		g.from = time.UnixMilli(hour)
	} else if !g.now.IsZero() {
		g.from = g.now.Truncate(time.Hour).Add(-(DeadHours - 1) * time.Hour)
	}
	for _, older := range []bool{false, true} {
		for i, queue := range g.queues {
			if stats[i].Dead > 0 {
				all = append(all, &head{Queue: queue, Older: older})
			}
		}
	}
	return all, err
}

// beforeDead reports whether the list of a head is read before that of another one.
func (h *head) beforeDead(o *head) bool {
	if h.Older != o.Older {
		return o.Older
	}
	return h.Queue < o.Queue
}

// round reads a page of each list.
func (g *grouping) round(ctx context.Context, open []*head) error {
	left := g.look - g.page.Looked
	reading := open[:min(len(open), left)]
	part := min(deadErrorsPart, left/len(reading))
	err := g.readHeads(ctx, reading, func(h *head) (store.Page, error) {
		req := store.ListRequest{State: store.StateDead, Cursor: h.Cursor, Limit: part, From: g.from}
		if h.Older {
			req.From, req.To = time.Time{}, g.from
		}
		return g.store.List(ctx, h.Queue, req)
	})
	for _, h := range reading {
		for i := range h.page.Messages {
			g.add(h.Queue, &h.page.Messages[i])
		}
		g.page.Looked += len(h.page.Messages)
		h.Cursor, h.done, h.page = h.page.Next, h.page.Next == "", store.Page{}
	}
	return err
}

// finish completes the page. open and waiting are the lists that are left.
func (g *grouping) finish(open, waiting []*head, last *head) {
	p := &g.page
	p.Queues, p.LeftOut, p.From, p.Groups = len(g.queues), g.leftOut(), g.from, g.sorted()
	left := slices.Concat(open, waiting)
	p.HoursComplete = !slices.ContainsFunc(left, func(h *head) bool { return !h.Older })
	if len(left) > 0 {
		p.Next = (&findCursor{Open: open, Last: last, Hour: g.from.UnixMilli()}).text()
	}
}

// deadGroups are groups of dead messages by the patterns of their last errors.
type deadGroups struct {
	from   time.Time // when the hours begin that are counted; zero counts none
	groups map[string]*deadGroup
	size   int // bytes of JSON, about
}

type deadGroup struct {
	DeadGroup
	queues map[string]int
}

// add adds a message to its group.
func (d *deadGroups) add(queue string, m *store.Info) {
	pattern := ErrorPattern(m.LastError)
	g := d.groups[pattern]
	if g == nil {
		g = &deadGroup{DeadGroup: DeadGroup{Pattern: pattern, First: m.DiedAt}, queues: map[string]int{}}
		if d.groups == nil {
			d.groups = map[string]*deadGroup{}
		}
		d.groups[pattern] = g
		d.size += 512 + wire.TextSize(pattern) + wire.TextSize(m.LastError)
	}
	if g.Count++; g.queues[queue] == 0 {
		d.size += 32 + wire.TextSize(queue)
	}
	g.queues[queue]++
	if hour := int(m.DiedAt.Sub(d.from) / time.Hour); !d.from.IsZero() && !m.DiedAt.Before(d.from) {
		g.Hours[min(hour, DeadHours-1)]++ // a clock of another server may be ahead
	}
	if m.DiedAt.Before(g.First) {
		g.First = m.DiedAt
	}
	if !m.DiedAt.Before(g.Last) {
		g.Last, g.ExampleQueue, g.ExampleID, g.Error, g.Reason = m.DiedAt, queue, m.ID, m.LastError, m.DeadReason
	}
}

// sorted returns the groups, the largest first.
func (d *deadGroups) sorted() (all []DeadGroup) {
	for _, g := range d.groups {
		for queue, n := range g.queues {
			g.Queues = append(g.Queues, QueueCount{queue, n})
		}
		slices.SortFunc(g.Queues, func(a, b QueueCount) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Queue, b.Queue))
		})
		all = append(all, g.DeadGroup)
	}
	slices.SortFunc(all, func(a, b DeadGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Pattern, b.Pattern))
	})
	return all
}
