package inspect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
)

// buryAt makes a message of a queue dead with an error, now.
func buryAt(t *testing.T, c *later.Client, queue, id, text string) {
	t.Helper()
	q := c.Queue(queue)
	if _, err := q.Send(t.Context(), nil, later.WithID(id)); err != nil {
		t.Fatal(err)
	}
	got, err := q.Receive(t.Context(), 1)
	if err != nil || len(got) != 1 {
		t.Fatal(len(got), err)
	}
	if err := got[0].Bury(t.Context(), errors.New(text)); err != nil {
		t.Fatal(err)
	}
}

// inHours describes the hours with deaths.
func inHours(g *DeadGroup) (text string) {
	for hour, n := range g.Hours {
		if n > 0 {
			text += fmt.Sprintf("%d:%d ", hour, n)
		}
	}
	return text
}

func TestDeadErrorsAreMergedOverQueues(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		start := time.Now()
		buryAt(t, c, "mail", "old", "HTTP 500")
		time.Sleep(48*time.Hour - time.Until(start.Truncate(time.Hour))%time.Hour) // past a whole hour
		begin := time.Now()
		for i := range 5 {
			buryAt(t, c, "orders", fmt.Sprint(i), fmt.Sprintf("HTTP %d", i))
			time.Sleep(time.Hour)
		}
		buryAt(t, c, "mail", "new", "HTTP 7")
		buryAt(t, c, "secret", "s", "no key")
		hidden := func(queue string) bool { return queue != "secret" }
		page, err := DeadErrors(t.Context(), c, DeadErrorsOptions{Visible: hidden})
		if err != nil || len(page.Groups) != 1 || page.Queues != 2 || page.Dead != 7 || page.Looked != 7 ||
			!page.HoursComplete || page.Next != "" || page.LeftOut != 0 {
			t.Fatalf("%+v, %v", page, err)
		}
		g := page.Groups[0]
		if g.Pattern != "HTTP #" || g.Count != 7 || g.ExampleQueue != "mail" || g.ExampleID != "new" || g.Error != "HTTP 7" ||
			!slices.Equal(g.Queues, []QueueCount{{Queue: "orders", Count: 5}, {Queue: "mail", Count: 2}}) ||
			g.First.Sub(start) >= time.Second || g.Last.Sub(begin) < 5*time.Hour {
			t.Errorf("%+v", g)
		}
		if want := time.Now().Truncate(time.Hour).Add(-23 * time.Hour); !page.From.Equal(want) ||
			inHours(&g) != "18:1 19:1 20:1 21:1 22:1 23:1 " {
			t.Errorf("from %v, want %v; %s", page.From, want, inHours(&g))
		}
	})
}

// TestDeadErrorsLookAtTheLastHoursFirst reads page by page, while an hour passes: the hours stay the same, and each
// message is counted once.
func TestDeadErrorsLookAtTheLastHoursFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		for i := range 3 {
			for queue := range 6 {
				buryAt(t, c, fmt.Sprint("q", queue), fmt.Sprint("old", i), "old 1")
			}
		}
		time.Sleep(30 * time.Hour)
		for queue := range 6 {
			buryAt(t, c, fmt.Sprint("q", queue), "new", "new 1")
		}
		counts, hours, pages, complete := map[string]int{}, 0, 0, 0
		var from time.Time
		for o := (DeadErrorsOptions{Look: 4}); ; pages++ {
			page, err := DeadErrors(t.Context(), c, o)
			if err != nil || page.Looked > 4 || page.Dead != 24 || pages > 20 {
				t.Fatalf("%+v, %v", page, err)
			}
			if from.IsZero() {
				from = page.From
			}
			if !page.From.Equal(from) {
				t.Errorf("the hours moved from %v to %v", from, page.From)
			}
			for _, g := range page.Groups {
				counts[g.Pattern] += g.Count
				for _, n := range g.Hours {
					hours += n
				}
			}
			if page.HoursComplete && complete == 0 {
				complete = pages + 1
				if counts["new #"] != 6 {
					t.Errorf("%v when the hours are complete", counts)
				}
			}
			if o.Cursor = page.Next; o.Cursor == "" {
				break
			}
			time.Sleep(time.Hour)
		}
		if counts["old #"] != 18 || counts["new #"] != 6 || hours != 6 || complete == 0 || complete > 4 {
			t.Errorf("%v, %d in the hours, complete after %d pages", counts, hours, complete)
		}
	})
}

func TestDeadErrorsRefuseWrongOptions(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		buryAt(t, c, "mail", "a", "x")
		for text, o := range map[string]DeadErrorsOptions{
			`cursor "x" is invalid`:                 {Cursor: "x"},
			`look is -1: must be 1 or more`:         {Look: -1},
			`queue name "a{" holds a brace`:         {Queues: []string{"a{"}},
			`queue "worker:" begins with "worker:"`: {Queues: []string{"worker:"}},
		} {
			if _, err := DeadErrors(t.Context(), c, o); !errors.Is(err, later.ErrInvalid) ||
				!strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v", text, err)
			}
		}
		page, err := DeadErrors(t.Context(), c, DeadErrorsOptions{Queues: []string{"none"}})
		if err != nil || page.Dead != 0 || len(page.Groups) != 0 || page.Next != "" || page.Queues != 1 {
			t.Errorf("%+v, %v", page, err)
		}
	})
}
