package inspect

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
)

func TestErrorPatternHasNoNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "no error",
		"no such user":                     "no such user",
		"order 4711: total is 12.50":       "order #: total is #.#",
		"dial 10.0.0.7:6379: i/o timeout":  "dial #.#.#.#:#: i/o timeout",
		"nil at 0xc000123aF0":              "nil at #",
		"commit 9f86d081884c7d659a2feaa0c": "commit #",
		"id 3f2b8c1e-7d4a-4b7e-9c1d-0a1b2c3d4e5f is gone": "id # is gone",
		"decade, facade, a1, user12ab":                    "decade, facade, a#, user#ab",
		"caf\u00e9 \u0664\u0662 \U0001f600 7":             "caf\u00e9 \u0664\u0662 \U0001f600 #",
	} {
		if got := ErrorPattern(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestDeadErrorsGroupsByPattern(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		start := time.Now()
		q := c.Queue("q")
		bury := func(id, text string) {
			t.Helper()
			if _, err := q.Send(t.Context(), nil, later.WithID(id)); err != nil {
				t.Fatal(err)
			}
			got, err := q.Receive(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := got[0].Bury(t.Context(), errors.New(text)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		for i := range 7 {
			bury(fmt.Sprintf("a%d", i), fmt.Sprintf("order %d has no address", 11*i))
		}
		bury("b", "template missing")
		bury("c", "")
		describe := func(groups []DeadGroup) (text string) {
			for _, g := range groups {
				text += fmt.Sprintf("%d %s %s (%s, %s) %v-%v; ", g.Count, g.Pattern, g.ExampleID, g.Error, g.Reason,
					g.First.Sub(start), g.Last.Sub(start))
			}
			return text
		}
		page, err := DeadErrors(t.Context(), c, DeadErrorsOptions{})
		want := "7 order # has no address a6 (order 66 has no address, buried) 0s-6s; 1 no error c (, buried) 8s-8s; " +
			"1 template missing b (template missing, buried) 7s-7s; "
		if got := describe(page.Groups); got != want || page.Looked != 9 || page.Next != "" || err != nil {
			t.Errorf("looked at %d, %v\n got %s\nwant %s", page.Looked, err, got, want)
		}
		count, looked, o := map[string]int{}, 0, DeadErrorsOptions{Look: 4}
		for pages := 0; pages < 5; pages++ {
			page, err := DeadErrors(t.Context(), c, o)
			if err != nil || page.Looked > 4 {
				t.Fatal(page, err)
			}
			for _, g := range page.Groups {
				count[g.Pattern] += g.Count
			}
			looked += page.Looked
			if o.Cursor = page.Next; page.Next == "" {
				break
			}
		}
		if looked != 9 || count["order # has no address"] != 7 || count["no error"] != 1 {
			t.Errorf("%d, %v", looked, count)
		}
		for pattern, n := range map[string]int{"order # has no address": 7, "no error": 1, "order 0 has no address": 0} {
			filter := Filter{State: later.StateDead, ErrorPattern: pattern}
			found, err := Search(t.Context(), c, q.Name(), filter, SearchOptions{})
			if len(found.Messages) != n || err != nil {
				t.Errorf("%s: %d messages, %v", pattern, len(found.Messages), err)
			}
		}
		if _, err := DeadErrors(t.Context(), c, DeadErrorsOptions{Look: -1}); !errors.Is(err, later.ErrInvalid) ||
			!strings.Contains(err.Error(), "look is -1: must be 1 or more") {
			t.Error(err)
		}
	})
}
