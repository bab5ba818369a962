package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestSearchFindsWhatMatches(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := c.Queue("q")
	ctx := t.Context()
	for _, m := range []struct {
		id, payload, kind string
		in                time.Duration
	}{
		{"a1", `{"total": 12, "name": "Anna", "items": [{"sku": "x"}]}`, "order", time.Hour},
		{"a2", `{"total": 9.5, "name": "Bo", "paid": true}`, "order", 2 * time.Hour},
		{"b3", `plain text`, "note", 3 * time.Hour},
		{"b4", `{"total": "100"}`, "", 4 * time.Hour},
	} {
		opts := []later.SendOption{later.WithID(m.id), later.In(m.in)}
		if m.kind != "" {
			opts = append(opts, later.Kind(m.kind))
		}
		if _, err := q.Send(ctx, []byte(m.payload), opts...); err != nil {
			t.Fatal(err)
		}
	}
	json := func(path, op, value string) Filter {
		return Filter{JSON: &Condition{Path: path, Op: op, Value: value}}
	}
	for _, test := range []struct {
		f    Filter
		want string
	}{
		{Filter{}, "a1 a2 b3 b4"},
		{Filter{ID: "a"}, "a1 a2"},
		{Filter{Payload: "text"}, "b3"},
		{Filter{Headers: map[string]string{"kind": "order"}}, "a1 a2"},
		{Filter{Headers: map[string]string{"kind": ""}}, ""},
		{Filter{MinAttempts: 1}, ""},
		{Filter{Error: "x"}, ""},
		{Filter{From: time.Now().Add(90 * time.Minute), To: time.Now().Add(210 * time.Minute)}, "a2 b3"},
		{json("total", ">", "9.6"), "a1"}, // as numbers, although "12" < "9.6"
		{json("total", "<=", "12"), "a1 a2 b4"},
		{json("total", "=", "9.50"), "a2"},
		{json("name", "~", "nn"), "a1"},
		{json("items[0].sku", "=", "x"), "a1"},
		{json("$.items[*].sku", "=", "x"), "a1"},
		{json("items[*].sku", "!=", "x"), "a2 b3 b4"},
		{json("paid", "=", "true"), "a2"},
		{json("name", "!=", "Bo"), "a1 b3 b4"},
		{json("none", "<", "1"), ""},
		{json("none", "!=", "1"), "a1 a2 b3 b4"}, // also messages without the value, and payloads that are not JSON
		{json("total", "=", "12x"), ""},          // not a number
		{json("name", "=", "0"), ""},             // a text is not a number
		{json("total", ">", "99"), ""},           // "100" is a text, and sorts before
	} {
		test.f.State = later.StateScheduled
		page, err := Search(ctx, c, q.Name(), test.f, SearchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, m := range page.Messages {
			ids = append(ids, m.ID)
		}
		if got := strings.Join(ids, " "); got != test.want || page.Next != "" {
			t.Errorf("%+v: %q, want %q", test.f, got, test.want)
		}
	}
}

func TestSearchIsBoundedAndGoesOn(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := c.Queue("q")
	ctx := t.Context()
	var want []string
	msgs := make([]later.Outgoing, 1200)
	for i := range msgs {
		msgs[i] = later.Outgoing{ID: fmt.Sprintf("%04d", i), When: later.In(time.Duration(i+1) * time.Hour)}
		if i%100 == 99 {
			msgs[i].Payload = []byte("found")
			want = append(want, msgs[i].ID)
		}
	}
	if _, err := q.SendBatch(ctx, msgs); err != nil {
		t.Fatal(err)
	}
	var got []string
	looked, pages := 0, 0
	for o := (SearchOptions{Look: 150, Limit: 5}); pages == 0 || o.Cursor != ""; pages++ {
		page, err := Search(ctx, c, q.Name(), Filter{State: later.StateScheduled, Payload: "found"}, o)
		if err != nil || page.Looked > 150 {
			t.Fatalf("%+v, %v", page, err)
		}
		for _, m := range page.Messages {
			got = append(got, m.ID)
		}
		looked += page.Looked
		o.Cursor = page.Next
	}
	if !slices.Equal(got, want) || looked != len(msgs) || pages < 8 {
		t.Errorf("found %v in %d pages, looked at %d; want %v", got, pages, looked, want)
	}
}

func TestSearchRefusesFiltersThatAreNotAllowed(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := c.Queue("q")
	for want, f := range map[string]Filter{
		"state":       {},
		"payload":     {State: later.StateDead, Payload: strings.Repeat("x", 1025)},
		"id":          {State: later.StateDead, ID: "\xff"},
		"attempts":    {State: later.StateDead, MinAttempts: -1},
		"operator":    {State: later.StateDead, JSON: &Condition{Path: "a", Op: "==", Value: "1"}},
		"path":        {State: later.StateDead, JSON: &Condition{Path: "", Op: "=", Value: "1"}},
		"group":       {State: later.StateDead, Group: "g"},
		"17 headers:": {State: later.StateDead, Headers: headersOf(17)},
	} {
		_, err := Search(t.Context(), c, q.Name(), f, SearchOptions{})
		if !errors.Is(err, later.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want ErrInvalid with %q", f, err, want)
		}
	}
}

func headersOf(n int) map[string]string {
	headers := map[string]string{}
	for i := range n {
		headers[fmt.Sprint(i)] = "x"
	}
	return headers
}

func TestSearchLosesNoMatchBeyondItsLimit(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := c.Queue("q")
	msgs := make([]later.Outgoing, 1200)
	for i := range msgs {
		msgs[i] = later.Outgoing{ID: fmt.Sprintf("%04d", i), When: later.In(time.Duration(i+1) * time.Hour),
			Payload: []byte("found")}
	}
	if _, err := q.SendBatch(t.Context(), msgs); err != nil {
		t.Fatal(err)
	}
	for _, f := range []Filter{{State: later.StateScheduled, Payload: "found"}, {State: later.StateScheduled}} {
		next, pages := 0, 0
		for o := (SearchOptions{Limit: 5}); pages == 0 || o.Cursor != ""; pages++ {
			page, err := Search(t.Context(), c, q.Name(), f, o)
			if err != nil {
				t.Fatal(err)
			}
			if f.Payload == "" && len(page.Messages) > 5 || len(page.Messages) > page.Looked {
				t.Fatalf("%d messages in a page, looked at %d", len(page.Messages), page.Looked)
			}
			for _, m := range page.Messages {
				if m.ID != msgs[next].ID {
					t.Fatalf("found %s after %d messages", m.ID, next)
				}
				next++
			}
			o.Cursor = page.Next
		}
		if next != len(msgs) {
			t.Errorf("found %d messages of %d in %d pages", next, len(msgs), pages)
		}
	}
}

func TestSearchFindsFailedAttempts(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		q := c.Queue("q")
		mustSend(t, q, "", later.WithID("a"))
		mustSend(t, q, "", later.WithID("b"))
		for _, text := range []string{"first error", "last error"} { // of a
			d := mustReceive(t, q, 1)[0]
			wantNoError(t, d.Nack(t.Context(), 0, errors.New(text)))
		}
		for want, f := range map[string]Filter{
			"a":   {Error: "first", MinAttempts: 1},
			"b":   {MaxAttempts: 1},
			"a b": {MaxAttempts: 2},
			" a":  {MinAttempts: 2},
			"":    {MinAttempts: 3},
			"a ":  {Error: "last"},
			" b":  {MaxAttempts: 1, ID: "b"},
			"b a": {}, // no limit of attempts
		} {
			f.State = later.StateReady
			page, err := Search(t.Context(), c, q.Name(), f, SearchOptions{})
			wantNoError(t, err)
			if got := len(page.Messages); got != len(strings.Fields(want)) {
				t.Errorf("%+v: found %d messages, want %q", f, got, want)
			}
		}
	})
}

// listing counts the calls of List and makes one of them fail.
type listing struct {
	*memstore.Store
	calls, fails int
}

func (s *listing) List(ctx context.Context, queue string, r store.ListRequest) (store.Page, error) {
	if s.calls++; s.calls == s.fails {
		return store.Page{}, later.ErrFull
	}
	return s.Store.List(ctx, queue, r)
}

func TestSearchByAHeaderLooksAtFullPages(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := c.Queue("q")
	msgs := make([]later.Outgoing, 20)
	for i := range msgs {
		msgs[i] = later.Outgoing{Headers: map[string]string{"kind": "a"}}
	}
	_, err := q.SendBatch(t.Context(), msgs)
	wantNoError(t, err)
	f := Filter{State: later.StateReady, Headers: map[string]string{"kind": "b"}}
	page, err := Search(t.Context(), c, q.Name(), f, SearchOptions{Limit: 1, Look: 15})
	if err != nil || page.Looked != 15 || page.Next == "" {
		t.Errorf("%+v, %v", page, err)
	}
	s := &listing{Store: memstore.New()}
	c = newClientOn(t, s)
	q = c.Queue("q")
	_, err = q.SendBatch(t.Context(), msgs)
	wantNoError(t, err)
	if _, err := Search(t.Context(), c, q.Name(), f, SearchOptions{Limit: 1}); err != nil || s.calls > 1 {
		t.Errorf("%d calls, %v", s.calls, err)
	}
}

func TestSearchThatFailsInBetweenReturnsTheError(t *testing.T) {
	s := &listing{Store: memstore.New(), fails: 2}
	c := newClientOn(t, s)
	q := c.Queue("q")
	_, err := q.SendBatch(t.Context(), make([]later.Outgoing, 600))
	wantNoError(t, err)
	page, err := Search(t.Context(), c, q.Name(), Filter{State: later.StateReady, ID: "none"}, SearchOptions{})
	wantError(t, err, later.ErrFull)
	if page.Looked != 0 || s.calls != 2 {
		t.Errorf("%+v after %d calls", page, s.calls)
	}
}

func TestSearchChecksItsLimits(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := c.Queue("q")
	for want, f := range map[string]Filter{
		"error pattern": {ErrorPattern: strings.Repeat("x", 2049)},
		"its value":     {JSON: &Condition{Path: "a", Op: "=", Value: strings.Repeat("x", 1025)}},
	} {
		f.State = later.StateDead
		if _, err := Search(t.Context(), c, q.Name(), f, SearchOptions{}); !errors.Is(err, later.ErrInvalid) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for _, o := range []SearchOptions{{Limit: -1}, {Limit: 501}, {Look: -1}} {
		_, err := Search(t.Context(), c, q.Name(), Filter{State: later.StateReady}, o)
		if !errors.Is(err, later.ErrInvalid) || !strings.Contains(err.Error(), "search has the limit") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, text := range []string{"", "total", "total ! 3", ">= 3"} {
		if c, err := ParseCondition(text); !errors.Is(err, later.ErrInvalid) {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
	want := Condition{Path: "a.b", Op: "!=", Value: "x y"}
	if c, err := ParseCondition(" a.b  !=  x y "); err != nil || *c != want {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestJSONConditionWithTextThatIsNoNumberComparesText(t *testing.T) {
	for _, value := range []string{"-", "0x", "0 0"} {
		f := Filter{JSON: &Condition{Path: "n", Op: "=", Value: value}}
		if f.Matches(&later.Info{Payload: []byte(`{"n": 0}`)}) {
			t.Errorf("%q equals 0", value)
		}
	}
}

func TestConditionsOnJSONAreParsed(t *testing.T) {
	for text, want := range map[string]Condition{
		"order.total >= 100":   {Path: "order.total", Op: ">=", Value: "100"},
		" name~Ann ":           {Path: "name", Op: "~", Value: "Ann"},
		"$['a = b'][0]!=x = y": {Path: "$['a = b'][0]", Op: "!=", Value: "x = y"},
		"a=":                   {Path: "a", Op: "="},
		"a <b":                 {Path: "a", Op: "<", Value: "b"},
	} {
		if got, err := ParseCondition(text); err != nil || *got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"total": "give a comparison", "unit-price > 1": `at byte 5: "-price > 1"`, "a.0 = 1": "at byte 3",
		"[@this,@this]|[@this] = 1": "at byte 1", "= 1": "at byte 1", "": "at byte 1",
	} {
		if _, err := ParseCondition(text); !errors.Is(err, later.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want ErrInvalid with %q", text, err, want)
		}
	}
}
