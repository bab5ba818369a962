package latertest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// maxListed is how many messages a failure lists.
const maxListed = 20

// RequireScheduled fails the test unless exactly one scheduled or ready message of a queue matches, and returns it:
//
//	orders := lt.Client().Queue("orders")
//	latertest.RequireScheduled(t, orders, latertest.Payload("1001"), latertest.In(30*time.Minute))
//
// The failure lists the messages of the queue with the differences. The queue can be one of any store.
func RequireScheduled(tb TB, q *later.Queue, want ...Match) *later.Info {
	tb.Helper()
	return requireOne(tb, q, "scheduled", want, store.StateScheduled, store.StateReady)
}

// RequireDead fails the test unless exactly one dead message of a queue matches, and returns it. Its LastError and
// DeadReason say why it is dead. In and At match its last due time.
func RequireDead(tb TB, q *later.Queue, want ...Match) *later.Info {
	tb.Helper()
	return requireOne(tb, q, "dead", want, store.StateDead)
}

// RequireNone fails the test if a scheduled or ready message of a queue matches. Without conditions, every message
// does.
func RequireNone(tb TB, q *later.Queue, unwanted ...Match) {
	tb.Helper()
	found, err := read(q, store.StateScheduled, store.StateReady)
	if err != nil {
		tb.Fatalf("latertest: read queue %q: %v", q.Name(), err)
		return
	}
	if matching := found.matching(unwanted); len(matching) > 0 {
		var text strings.Builder
		fmt.Fprintf(&text, "latertest: queue %q has %s%s, and should have none.\n", q.Name(),
			count(len(matching), "scheduled message"), conditions(unwanted))
		found.messages = matching
		found.write(&text, nil)
		tb.Fatalf("%s", text.String())
	}
}

// Scheduled returns the scheduled and ready messages of a queue that match, in order of their due times.
func Scheduled(tb TB, q *later.Queue, want ...Match) []*later.Info {
	tb.Helper()
	found, err := read(q, store.StateScheduled, store.StateReady)
	if err != nil {
		tb.Fatalf("latertest: read queue %q: %v", q.Name(), err)
		return nil
	}
	return found.matching(want)
}

func requireOne(tb TB, q *later.Queue, kind string, want []Match, states ...later.State) *later.Info {
	tb.Helper()
	found, err := read(q, states...)
	if err != nil {
		tb.Fatalf("latertest: read queue %q: %v", q.Name(), err)
		return nil
	}
	matching := found.matching(want)
	if len(matching) == 1 {
		return matching[0]
	}
	var text strings.Builder
	if len(matching) == 0 {
		fmt.Fprintf(&text, "latertest: queue %q has no %s message%s.\n", q.Name(), kind, conditions(want))
	} else {
		fmt.Fprintf(&text, "latertest: queue %q has %s%s, and should have one: add conditions, or use Scheduled.\n",
			q.Name(), count(len(matching), kind+" message"), conditions(want))
		found.messages = matching
	}
	found.write(&text, want)
	tb.Fatalf("%s", text.String())
	return nil
}

// contents is the content of a queue.
type contents struct {
	queue    string
	now      time.Time
	messages []*later.Info
	stats    later.Stats
}

// read reads the messages of a queue in some states, by due time.
func read(q *later.Queue, states ...later.State) (contents, error) {
	stats, err := q.Stats(background)
	c := contents{queue: q.Name(), now: stats.Now, stats: stats}
	if err != nil {
		return c, err
	}
	for _, state := range states {
		for info, err := range q.All(background, later.ListOptions{State: state, Limit: store.MaxBatch}) {
			if err != nil {
				return c, err
			}
			c.messages = append(c.messages, info)
		}
	}
	slices.SortStableFunc(c.messages, func(a, b *later.Info) int {
		return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID))
	})
	return c, nil
}

// matching returns the messages that meet all conditions.
func (c *contents) matching(want []Match) (found []*later.Info) {
	for _, info := range c.messages {
		if len(c.differences(info, want)) == 0 {
			found = append(found, info)
		}
	}
	return found
}

// differences returns the subjects of the conditions that a message does not meet.
func (c *contents) differences(info *later.Info, want []Match) (fields []string) {
	for _, m := range want {
		if !m.holds(info, c.now) && !slices.Contains(fields, m.field) {
			fields = append(fields, m.field)
		}
	}
	return fields
}

// write lists the messages, with the differences from want, the smallest differences first.
func (c *contents) write(text *strings.Builder, want []Match) {
	s := c.stats
	fmt.Fprintf(text, "At %s queue %q has %d scheduled, %d ready, %d leased and %d dead messages", stamp(c.now),
		c.queue, s.Scheduled, s.Ready, s.Leased, s.Dead)
	if len(c.messages) == 0 {
		text.WriteString(".\n")
		return
	}
	text.WriteString(":\n")
	slices.SortStableFunc(c.messages, func(a, b *later.Info) int {
		return cmp.Compare(len(c.differences(a, want)), len(c.differences(b, want)))
	})
	for i, info := range c.messages {
		if i == maxListed {
			fmt.Fprintf(text, "  and %d more\n", len(c.messages)-i)
			return
		}
		fmt.Fprintf(text, "  %s", describeMessage(info, c.now))
		if different := c.differences(info, want); len(different) > 0 {
			fmt.Fprintf(text, " (different: %s)", strings.Join(different, ", "))
		}
		text.WriteString("\n")
	}
}

// describeMessage describes a message in a line.
func describeMessage(info *later.Info, now time.Time) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %q, due in %v (%s)", info.State, info.ID, info.Due.Sub(ceil(now)), stamp(info.Due))
	if kind, ok := info.Headers[later.KindHeader]; ok {
		fmt.Fprintf(&text, ", kind %q", kind)
	}
	for _, key := range slices.Sorted(maps.Keys(info.Headers)) {
		if key != later.KindHeader {
			fmt.Fprintf(&text, ", header %q: %q", key, cut(info.Headers[key]))
		}
	}
	if info.Key != "" {
		fmt.Fprintf(&text, ", key %q", info.Key)
	}
	if info.Urgency != later.UrgencyNormal {
		fmt.Fprintf(&text, ", urgency %q", info.Urgency)
	}
	fmt.Fprintf(&text, ", payload %q", cut(string(info.Payload)))
	if info.Attempts > 0 {
		fmt.Fprintf(&text, ", failed attempts %d: %q", info.Attempts, cut(info.LastError))
	}
	return text.String()
}

// conditions describes conditions in a sentence.
func conditions(want []Match) string {
	parts := make([]string, len(want))
	for i, m := range want {
		parts[i] = m.String()
	}
	if len(parts) == 0 {
		return ""
	}
	return " with " + strings.Join(parts, ", ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
