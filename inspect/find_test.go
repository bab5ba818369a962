package inspect

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

// finding is the results of a Find as text, by stage, and its last progress.
type finding struct {
	id, name, content []string
	progress          *Progress
	reports           int
}

func findAll(t *testing.T, c *later.Client, o FindOptions) (f finding) {
	t.Helper()
	for found, err := range Find(t.Context(), c, o) {
		switch {
		case err != nil:
			t.Fatalf("%+v: %v", o, err)
		case found.Name != nil:
			f.name = append(f.name, found.Name.Kind+" "+found.Name.Name+" in "+found.Name.Queue)
		case found.Progress != nil:
			f.progress = found.Progress
			f.reports++
		case found.Stage == ByID:
			f.id = append(f.id, found.Message.Queue+"/"+found.Message.ID)
		default:
			f.content = append(f.content, found.Message.Queue+"/"+found.Message.ID)
		}
	}
	slices.Sort(f.content)
	return f
}

func TestFindLooksForIDsThenNamesThenContent(t *testing.T) {
	onEachStore(t, func(t *testing.T, c *later.Client) {
		fillToFind(t, c)
		for _, want := range []struct{ text, id, name, content string }{
			{"order 42", "", "group order-42 in mail", "mail/reminder orders/cancel-order-42 orders/x"},
			{"order-42", "", "group order-42 in mail", "mail/reminder orders/cancel-order-42"},
			{"ORDER 42", "", "", "mail/reminder orders/cancel-order-42 orders/x"},
			{"cancel-order-42", "orders/cancel-order-42", "", ""},
			{"cancel order 42", "orders/cancel-order-42", "", ""},
			{"orders", "", "queue orders in orders; topic orders-made in topic:orders-made; " +
				"schedule check-orders in mail", ""},
			{"trip-7", "", "series trip-7 in mail", "mail/trip-7/-1h0m0s"},
			{"id:order-42", "", "", "orders/cancel-order-42"},
			{`"order 42"`, "", "", "orders/x"},
			{"part 7", "sharded/part 7", "", ""},
			{"parts-7", "", "group parts-7 in sharded", "sharded/part 7"},
			{"order.total>=100", "", "", "orders/y"},
			{"error:timeout", "", "", "orders/dead"},
			{"attempts>=1 id:d", "", "", "orders/dead"},
			{"group:order-42", "", "group order-42 in mail", "mail/reminder"},
			{"group:order-42 nothing", "", "group order-42 in mail", ""},
			{"ann's key", "", "", ""},
			{"ann", "", "", "mail/keyed"},
			{"news 1", "", "", "topic:orders-made/news"},
			{"BJÖRN", "", "", "orders/y"},
		} {
			f := findAll(t, c, FindOptions{Text: want.text})
			got := [3]string{strings.Join(f.id, " "), strings.Join(f.name, "; "), strings.Join(f.content, " ")}
			if got != [3]string{want.id, want.name, want.content} {
				t.Errorf("%s: %q, want %q", want.text, got, want)
			}
			if p := f.progress; !p.Done || p.Next != "" || p.Stage != ByContent || f.reports < 4 ||
				p.Conditions == "" || p.Messages.Total() == 0 {
				t.Errorf("%s: %d reports, the last one %+v", want.text, f.reports, p)
			}
		}
	})
}

func fillToFind(t *testing.T, c *later.Client) {
	t.Helper()
	orders, mail, in := c.Queue("orders"), c.Queue("mail"), later.In(time.Hour)
	mustSend(t, orders, "{}", later.WithID("dead"))
	if err := mustReceive(t, orders, 1)[0].Bury(t.Context(), errors.New("timeout of 3 s")); err != nil {
		t.Fatal(err)
	}
	if err := c.Queue("sharded").SetShards(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	mustSend(t, c.Queue("sharded"), "{}", later.WithID("part 7"), later.Group("parts-7"), in)
	mustSend(t, orders, "{}", later.WithID("cancel-order-42"), in)
	mustSend(t, orders, `order 42`, later.WithID("x"))
	mustSend(t, orders, `{"order": {"total": 120, "by": "Björn"}}`, later.WithID("y"), in)
	mustSend(t, mail, "{}", later.WithID("reminder"), later.Group("order-42"), in)
	mustSend(t, mail, "{}", later.WithID("keyed"), later.Key("ann"), in)
	_, err := mail.SendSeries(t.Context(), []byte("{}"), later.Series{Until: time.Now().Add(3 * time.Hour),
		Offsets: []time.Duration{-time.Hour}}, later.WithID("trip-7"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Topic("orders-made").Publish(t.Context(), []byte("NEWS 1"), later.WithID("news"), in); err != nil {
		t.Fatal(err)
	}
	_, err = c.Schedules().Put(t.Context(), later.Schedule{Name: "check-orders", Queue: "mail",
		When: recurrence.Spec{Every: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFindGoesOnWhereItEnded(t *testing.T) {
	c := newClientOn(t, memstore.New())
	want := map[string]bool{}
	for _, queue := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		for i := range 60 {
			id := fmt.Sprintf("%02d", i)
			in := later.In(0)
			if i%2 == 0 {
				in = later.In(time.Hour)
			}
			mustSend(t, c.Queue(queue), "all", later.WithID(id), in)
			want[queue+"/"+id] = true
		}
	}
	for _, o := range []FindOptions{{Look: 1}, {Look: 7}, {Look: 100}, {Limit: 1}, {Limit: 7, Look: 13}, {Limit: 250}} {
		found, looked, calls := map[string]bool{}, int64(0), 0
		for o.Text = "ALL"; ; calls++ {
			f := findAll(t, c, o)
			for _, id := range f.content {
				if found[id] {
					t.Fatalf("%+v: %s is found twice", o, id)
				}
				found[id] = true
			}
			if n := f.progress.Looked.Total(); o.Look > 0 && n > int64(o.Look) {
				t.Errorf("%+v: looked at %d", o, n)
			} else if looked += n; o.Limit > 0 && len(f.content) > o.Limit {
				t.Errorf("%+v: found %d", o, len(f.content))
			}
			if o.Cursor != "" && len(f.name) > 0 {
				t.Errorf("%+v: %s", o, f.name)
			}
			if o.Cursor = f.progress.Next; f.progress.Done {
				break
			}
		}
		if !reflect.DeepEqual(found, want) || looked != int64(len(want)) {
			t.Errorf("%+v: found %d, looked at %d in %d calls", o, len(found), looked, calls)
		}
	}
}

func TestFindShowsOnlyVisibleQueues(t *testing.T) {
	c := newClientOn(t, memstore.New())
	fillToFind(t, c)
	visible := func(queue string) bool { return queue == "mail" }
	for text, want := range map[string]string{
		"order 42": "group order-42 in mail/mail/reminder", "orders": "/", "cancel-order-42": "/",
		"check": "/", // schedules: is not visible
	} {
		f := findAll(t, c, FindOptions{Text: text, Visible: visible})
		if got := strings.Join(f.name, " ") + "/" + strings.Join(f.content, " "); got != want || len(f.id) > 0 ||
			f.progress.Queues != 1 || f.progress.Messages.Total() != 3 {
			t.Errorf("%s: %q %+v", text, got, f.progress)
		}
	}
	for _, queue := range []string{"orders", "mail"} { // a schedule is visible with its queue
		f := findAll(t, c, FindOptions{Text: "check", Visible: func(q string) bool {
			return q == queue || q == reserved.Schedules
		}})
		if (len(f.name) > 0) != (queue == "mail") {
			t.Errorf("of queue %s: %q", queue, f.name)
		}
	}
	f := findAll(t, c, FindOptions{Text: "a", Queue: "orders", Limit: 1}) // its cursor must not open other queues
	all := findAll(t, c, FindOptions{Text: "{}", Limit: 1})
	f = findAll(t, c, FindOptions{Text: "{}", Visible: visible, Cursor: all.progress.Next})
	for _, id := range f.content {
		if !strings.HasPrefix(id, "mail/") {
			t.Errorf("%s is not visible", id)
		}
	}
	if f = findAll(t, c, FindOptions{Text: "order 42", NamesOnly: true}); strings.Join(f.content, " ") !=
		"mail/reminder orders/cancel-order-42" || strings.Contains(f.progress.Conditions, "payload") {
		t.Errorf("%q, %s", f.content, f.progress.Conditions)
	}
	if f = findAll(t, c, FindOptions{Text: "order 42", Queue: "orders"}); strings.Join(f.content, " ") !=
		"orders/cancel-order-42 orders/x" || f.progress.Queues != 1 {
		t.Errorf("%q", f.content)
	}
}

func TestFindFindsWorkers(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		w := later.NewWorker(c, later.WorkerConfig{Name: "mailer-1"})
		w.Handle("mail", func(context.Context, *later.Message) error { return nil })
		stop := start(t, w)
		defer stop()
		time.Sleep(time.Second)
		f := findAll(t, c, FindOptions{Text: "MAILER"})
		if strings.Join(f.name, " ") != "worker mailer-1 in " {
			t.Errorf("%q", f.name)
		}
		for queue, want := range map[string]int{"mail": 1, "other": 0} {
			f := findAll(t, c, FindOptions{Text: "MAILER", Visible: func(q string) bool { return q == queue }})
			if len(f.name) != want {
				t.Errorf("with only queue %s: %q", queue, f.name)
			}
		}
	})
}

// tornStore is a store with a queue that lists no messages, because they are damaged.
type tornStore struct{ store.Store }

func (s tornStore) List(ctx context.Context, queue string, req store.ListRequest) (store.Page, error) {
	if queue == "bad" {
		return store.Page{}, store.Errorf(store.ErrCorrupt, "a message cannot be read")
	}
	return s.Store.List(ctx, queue, req)
}

func TestFindLeavesOutDamagedQueues(t *testing.T) {
	c := newClientOn(t, tornStore{memstore.New()})
	for _, queue := range []string{"bad", "good"} {
		mustSend(t, c.Queue(queue), "hit", later.WithID(queue), later.In(time.Hour))
	}
	f := findAll(t, c, FindOptions{Text: "hit"})
	if p := f.progress; strings.Join(f.content, " ") != "good/good" || p.LeftOut != 1 || p.Queues != 2 || !p.Done {
		t.Errorf("%q, %+v", f.content, p)
	}
}

func TestFindRefusesBadOptions(t *testing.T) {
	c := newClientOn(t, memstore.New())
	for want, o := range map[string]FindOptions{
		"text is empty": {Text: " "}, "limit -1": {Text: "a", Limit: -1}, "looks at -1": {Text: "a", Look: -1},
		"cursor": {Text: "a", Cursor: "x"}, "queue": {Text: "a", Queue: strings.Repeat("q", 200)},
		"attempts counts": {Text: "attempts>=0"}, "at most": {},
	} {
		if want == "at most" {
			o.Text, want = strings.Repeat("a", 5000), "up to 4096 bytes"
		}
		n := 0
		for found, err := range Find(t.Context(), c, o) {
			if n++; found != nil || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %+v, %v", o, found, err)
			}
		}
		if n != 1 {
			t.Errorf("%+v: %d results", o, n)
		}
	}
	c.Close()
	for _, err := range Find(t.Context(), c, FindOptions{Text: "a"}) {
		wantError(t, err, later.ErrClosed)
	}
}

func TestFindLosesNoMessageWhenOthersLeave(t *testing.T) {
	for _, leaves := range []string{"m0", "m1", "m2"} {
		c := newClientOn(t, memstore.New())
		q := c.Queue("q")
		at := time.Now().Add(time.Hour)
		for i, p := range []string{"no", "no", "hit", "hit", "hit"} {
			mustSend(t, q, p, later.WithID(fmt.Sprint("m", i)), later.At(at.Add(time.Duration(i)*time.Minute)))
		}
		next := ""
		for found, err := range Find(t.Context(), c, FindOptions{Text: "hit", Limit: 1}) {
			wantNoError(t, err)
			if found.Message != nil { // before the cursor is known
				_, err := q.Cancel(t.Context(), leaves)
				wantNoError(t, err)
			}
			if found.Progress != nil {
				next = found.Progress.Next
			}
		}
		if f := findAll(t, c, FindOptions{Text: "hit", Cursor: next}); !slices.Equal(f.content, []string{"q/m3", "q/m4"}) {
			t.Errorf("without %s: %v", leaves, f.content)
		}
	}
}

func TestFindByIDMeetsTheOtherConditions(t *testing.T) {
	c := newClientOn(t, memstore.New())
	mustSend(t, c.Queue("q"), "", later.WithID("order-17"), later.Group("g"), later.In(time.Hour))
	for text, want := range map[string]int{"id:order-17": 1, "id:order-17 group:g": 1, "id:order-17 group:other": 0,
		"id:order-17 attempts>=3": 0, "id:order-17 x": 0} {
		if f := findAll(t, c, FindOptions{Text: text}); len(f.id) != want || len(f.content) > 0 {
			t.Errorf("%s: %v, %v", text, f.id, f.content)
		}
	}
}

func TestFindCountsNamesThatItLeavesOut(t *testing.T) {
	c := newClientOn(t, memstore.New())
	for i := range 80 {
		mustSend(t, c.Queue(fmt.Sprintf("mail-%02d", i)), "", later.In(time.Hour))
	}
	for i := range 1003 {
		_, err := c.Schedules().Put(t.Context(), later.Schedule{Name: fmt.Sprintf("report-%04d", i), Queue: "mail-00",
			When: recurrence.Spec{Every: time.Hour}})
		wantNoError(t, err)
	}
	for text, want := range map[string][2]int{"mail": {50, 30 + 3}, "report": {50, 950 + 3}, "report-0999": {1, 3}} {
		if f := findAll(t, c, FindOptions{Text: text}); len(f.name) != want[0] || f.progress.NamesLeftOut != want[1] {
			t.Errorf("%s: %d names, %d left out", text, len(f.name), f.progress.NamesLeftOut)
		}
	}
}

func TestFindFindsIDsThatLookLikeConditions(t *testing.T) {
	c := newClientOn(t, memstore.New())
	ids := []string{"error:17", "order=5", "attempts=0", "header:x"}
	for _, id := range ids {
		mustSend(t, c.Queue("q"), "", later.WithID(id), later.In(time.Hour))
	}
	for i, id := range ids {
		found := ""
		for f, err := range Find(t.Context(), c, FindOptions{Text: id}) {
			if err != nil && (i < 2 || !errors.Is(err, later.ErrInvalid) || !strings.Contains(err.Error(), "in quotes")) {
				t.Errorf("%s: %v", id, err)
			} else if err == nil && f.Message != nil {
				found += f.Message.ID
			}
		}
		if found != id {
			t.Errorf("%s: found %q", id, found)
		}
	}
}

func TestFindCanBeLeft(t *testing.T) {
	c := newClientOn(t, memstore.New())
	mustSend(t, c.Queue("q"), "a")
	for range Find(t.Context(), c, FindOptions{Text: "a"}) {
		c.Close() // does not wait for the loop
		break
	}
}

func TestParseFilterReadsConditions(t *testing.T) {
	for text, want := range map[string]Filter{
		"":                         {},
		"refund  42":               {Words: []string{"refund", "42"}},
		`"out of stock" x`:         {Words: []string{"out of stock", "x"}},
		`"a \"b\" \\" "open end`:   {Words: []string{`a "b" \`, "open end"}},
		`"id:x"`:                   {Words: []string{"id:x"}},
		"id:order-17":              {ID: "order-17"},
		`id:"a b" error:timeout`:   {ID: "a b", Error: "timeout"},
		"payload:x group:g":        {Payload: "x", Group: "g"},
		`pattern:"HTTP #"`:         {ErrorPattern: "HTTP #"},
		"header:kind=mail":         {Headers: map[string]string{"kind": "mail"}},
		`header:a="b c" header:b=`: {Headers: map[string]string{"a": "b c", "b": ""}},
		"attempts>=3":              {MinAttempts: 3},
		"attempts>3 attempts<5":    {MinAttempts: 4, MaxAttempts: 4},
		"attempts=2":               {MinAttempts: 2, MaxAttempts: 2},
		"attempts <= 2":            {MaxAttempts: 2},
		"attempts=x":               {JSON: &Condition{Path: "attempts", Op: "=", Value: "x"}},
		"order.total>=100":         {JSON: &Condition{Path: "order.total", Op: ">=", Value: "100"}},
		`name ~ "Ann B"`:           {JSON: &Condition{Path: "name", Op: "~", Value: "Ann B"}},
		"a[*].sku!=x y":            {JSON: &Condition{Path: "a[*].sku", Op: "!=", Value: "x"}, Words: []string{"y"}},
		"http://x?a=b":             {Words: []string{"http://x?a=b"}},
		"abc== other:x id:":        {Words: []string{"abc==", "other:x", "id:"}},
		"order-42":                 {Words: []string{"order-42"}},
	} {
		if got, err := ParseFilter(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"attempts<1": "attempts>=1", "attempts!=3": "attempts>=1", "id:a id:b": "id: twice",
		"a=1 b=2": "compares a and b", "header:kind": "header:name=value", "header:a=1 header:a=2": "twice",
		strings.Repeat("w ", 17): "17 words: the limit is 16", strings.Repeat("w", 1025): "1 to 1024 bytes",
		strings.Repeat("w", 4097): "4096 bytes, but has 4097", "\xff": "UTF-8",
	} {
		if _, err := ParseFilter(text); err == nil || !strings.Contains(err.Error(), want) ||
			!errors.Is(err, store.ErrInvalid) {
			t.Errorf("%.30s: %v", text, err)
		}
	}
}

// TestWordsAreFoundInLinearTime has a payload and words that a comparison at each position would take minutes for.
func TestWordsAreFoundInLinearTime(t *testing.T) {
	payload := []byte(strings.Repeat("A", store.MaxPayload))
	f := Filter{}
	for range 16 {
		f.Words = append(f.Words, strings.Repeat("a", 1000))
	}
	f.Words[15] += "b"
	begin := time.Now()
	if f.Matches(&later.Info{Payload: payload}) || time.Since(begin) > 10*time.Second {
		t.Errorf("a wrong match, or %v", time.Since(begin))
	}
	if f.Words[15] = "aaa"; !f.Matches(&later.Info{Payload: payload}) {
		t.Error("no match")
	}
	for _, text := range []string{"", "xyz", "xAbCz", "ABC"} { // also with the copy that long texts need
		for _, more := range []int{0, 1 << 20} {
			long := text + strings.Repeat(" ", more)
			if got, want := (&Filter{Words: []string{"aBc"}}).Matches(&later.Info{Payload: []byte(long)}),
				strings.Contains(strings.ToLower(text), "abc"); got != want {
				t.Errorf("%q with %d spaces: %v", text, more, got)
			}
		}
	}
}

// FuzzFilter checks that a text is a filter, with which any message can be compared, or an error of the caller.
func FuzzFilter(f *testing.F) {
	for _, text := range []string{
		`a "b c" id:x`, "header:a=b attempts>=1 x.y ~ 3", `"\`, `header:"a b"=c`, "id:\"", "a = b = c",
	} {
		f.Add(text, "order-42", []byte(`{"a":1}`))
	}
	f.Fuzz(func(t *testing.T, text, id string, payload []byte) {
		filter, err := ParseFilter(text)
		if err != nil {
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		filter.Matches(&later.Info{ID: id, Payload: payload})
	})
}
