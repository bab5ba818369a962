package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/laterq/later"
	"github.com/laterq/later/memstore"
)

// TestSearchPagesAreBoundedByBytes reads all messages in pages with a limit on their bytes as JSON.
func TestSearchPagesAreBoundedByBytes(t *testing.T) {
	for name, payload := range map[string][]byte{
		"text": bytes.Repeat([]byte("x"), 100_000), "escaped": bytes.Repeat([]byte{1}, 100_000),
		"binary": bytes.Repeat([]byte{0xff}, 100_000), "small": []byte("x"),
	} {
		t.Run(name, func(t *testing.T) {
			c := newClientOn(t, memstore.New())
			q := c.Queue("mail")
			var want, got []string
			for i := range 40 {
				want = append(want, fmt.Sprintf("%02d", i))
				if _, err := q.Send(t.Context(), payload, later.WithID(want[i]), later.Header("n", fmt.Sprint(i%2))); err != nil {
					t.Fatal(err)
				}
			}
			odd := map[string]string{"n": "1"}
			for _, filter := range []Filter{{State: later.StateReady}, {State: later.StateReady, Headers: odd}} {
				got = nil
				pages, limit := 0, 1_000_000
				for cursor := ""; ; pages++ {
					page, err := Search(t.Context(), c, q.Name(), filter, SearchOptions{Limit: 500, Bytes: limit, Cursor: cursor})
					if err != nil {
						t.Fatal(err)
					}
					text, err := json.Marshal(page.Messages)
					if err != nil || len(text) > limit {
						t.Fatalf("a page has %d bytes, %v", len(text), err)
					}
					for _, m := range page.Messages {
						got = append(got, m.ID)
					}
					if page.Truncated != (page.Next != "") {
						t.Errorf("truncated: %v, next: %q", page.Truncated, page.Next)
					}
					if cursor = page.Next; cursor == "" {
						break
					}
				}
				expected := slices.DeleteFunc(slices.Clone(want), func(id string) bool {
					return len(filter.Headers) > 0 && (id[1]-'0')%2 == 0
				})
				if !slices.Equal(got, expected) || (pages == 0) != (name == "small") {
					t.Errorf("%d pages: %v", pages+1, got)
				}
			}
			one, err := Search(t.Context(), c, q.Name(), Filter{State: later.StateReady}, SearchOptions{Bytes: 1})
			if err != nil || len(one.Messages) != 1 || !one.Truncated {
				t.Errorf("%d messages, %v", len(one.Messages), err)
			}
		})
	}
}
