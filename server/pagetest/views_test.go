package pagetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/laterq/later"
	"github.com/laterq/later/recurrence"
)

func TestQueuesArePausedAndResumed(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 3)
	s.send("mail", "hello")
	b := s.open("/")
	b.see(".queues li", "orders")
	b.click(".queues button", "Pause… orders")
	b.see("dialog", "no worker receives one")
	b.click("dialog button.primary")
	b.see(".queues li .badge", "paused")
	if !s.stats("orders").Paused {
		t.Error("it is not paused")
	}
	b.click(".queues button", "Resume orders")
	b.gone(".queues .badge", "paused")
	if s.stats("orders").Paused {
		t.Error("it is paused")
	}
	b.click(".queues a.name", "mail")
	b.awaitURL("queue=mail")
	b.click(".queues .counts a", "ready")
	b.awaitURL("state=ready")
	b.await("document.querySelectorAll('.rows td.id').length === 1")
}

func TestLimitsOfAQueueAreSetAndRemoved(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 3)
	b := s.open("/")
	b.click(".queues button", "Limits… orders")
	b.write("20", "dialog input[name=concurrency]")
	b.write("10", "dialog input[name=n]")
	b.write("2", "dialog input[name=burst]")
	b.click("dialog button.primary", "Save")
	b.see(".queues li", "limited: 0 of 20 in flight · 10 per s · 2 at once")
	want := later.Flow{Concurrency: 20, Rate: later.Rate{N: 10, Per: time.Second, Burst: 2}}
	if state, err := s.client.Queue("orders").Flow(t.Context()); err != nil || state.Flow != want {
		t.Errorf("flow %+v, %v, want %+v", state.Flow, err, want)
	}
	b.click(".queues button", "Limits… orders")
	b.write("0", "dialog input[name=concurrency]")
	b.write("5", "dialog input[name=n]")
	b.write("soon", "dialog input[name=per]")
	b.click("dialog button.primary", "Save")
	b.allow("status of 400")
	b.see("dialog", "no duration")
	b.write("0", "dialog input[name=n]")
	b.click("dialog button.primary", "Save")
	b.gone(".queues", "limited")
}

func TestKeysThatWaitAreSeenAndLimited(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	for i := range 3 {
		s.send("orders", "x", later.WithID(fmt.Sprint("a", i)), later.Key("customer-1"))
	}
	s.send("orders", "x", later.Key("customer-2"))
	b := s.open("/")
	b.gone(".queues button", "Keys…")
	b.click(".queues button", "Limits… orders")
	b.write("1", "dialog input[name=key-concurrency]")
	b.choose("turn", "dialog select[name=next]")
	b.click("dialog button.primary", "Save")
	b.see(".queues li", "limited: 1 of a key in flight")
	want := later.Flow{Key: later.KeyFlow{Concurrency: 1}}.Normal()
	q := s.client.Queue("orders")
	if state, err := q.Flow(t.Context()); err != nil || state.Flow != want {
		t.Errorf("flow %+v, %v, want %+v", state.Flow, err, want)
	}
	if got, err := q.Receive(t.Context(), 1); err != nil || len(got) != 1 {
		t.Fatalf("received %d, %v", len(got), err)
	}
	b.click(".queues button", "Keys… orders")
	b.see("dialog tr", "customer-1")
	b.see("dialog tr", "1 of 1 in flight")
	b.see("dialog tr", "customer-2")
	b.click("dialog tr button", "Limits… customer-1")
	b.write("2", "dialog input[name=concurrency]")
	b.write("3", "dialog input[name=weight]")
	b.click("dialog button.primary", "Save")
	b.see(".notices", "customer-1 has limits of its own")
	b.click(".queues button", "Keys… orders")
	b.see("dialog tr", "2 in flight · weight 3 · its own")
	b.click("dialog tr button", "Limits… customer-1")
	b.write("", "dialog input[name=concurrency]")
	b.write("", "dialog input[name=weight]")
	b.click("dialog button.primary", "Save")
	b.see(".notices", "customer-1 has the limits of each key")
	b.click(".queues button", "Limits… orders")
	b.choose("due", "dialog select[name=next]")
	b.click("dialog button.primary", "Save")
	b.gone(".queues", "limited")
}

func TestShardsOfAQueueAreSeen(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 30)
	const n = 10 // so that not all of them stay in the first shard
	for range n {
		s.send("orders", "x")
	}
	s.send("mail", "x")
	q := s.client.Queue("orders")
	var held []*later.Delivery
	for len(held) < n {
		got, err := q.Receive(t.Context(), n, later.Lease(10*time.Minute)) // the change waits for them
		if err != nil {
			t.Fatalf("received %d, %v", len(held), err)
		}
		held = append(held, got...)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := q.SetShards(short, 64); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("SetShards of a queue with leased messages returned %v", err)
	}
	b := s.open("/")
	b.see(".queues li", "orders")
	b.gone(".queues", "shards")
	b.click(".queues a.name", "orders")
	b.see(".queues .shards p", "changing from 1 to 64 shards: ")
	for _, d := range held {
		if err := d.Ack(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := q.SetShards(t.Context(), 64); err != nil {
		t.Error(err)
	}
	b.gone(".queues .shards p", "changing")
	b.await("document.querySelectorAll('.queues .shards li').length === 64")
	b.click(".queues a.name", "mail")
	b.gone(".queues", "shards")
}

func TestUrgencyIsSetAndSeen(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.send("mail", "x")
	b := s.open("/")
	b.click(".queues button", "Limits… mail")
	b.choose("urgent", "dialog select[name=next]")
	b.click("dialog button.primary", "Save")
	b.see(".queues li", "limited: urgent messages first")
	want := later.Flow{Urgency: true}.Normal()
	q := s.client.Queue("mail")
	if state, err := q.Flow(t.Context()); err != nil || state.Flow != want {
		t.Errorf("flow %+v, %v, want %+v", state.Flow, err, want)
	}
	s.send("mail", "x", later.WithID("reset-1"), later.Urgent())
	b.openMessage("mail", "reset-1")
	b.see("main", "Urgency", "high")
}

func TestHaltedKeysAreSeenAndGoOn(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	for _, id := range []string{"a1", "a2", "b1", "b2"} {
		s.send("orders", "x", later.WithID(id), later.Key(id[:1]))
	}
	b := s.open("/")
	b.click(".queues button", "Limits… orders")
	b.choose("halt", "dialog select[name=order]")
	b.choose("turn", "dialog select[name=next]")
	b.click("dialog button.primary", "Save")
	b.see(".queues li", "a key in order, until a message of it is dead")
	q := s.client.Queue("orders")
	got, err := q.Receive(t.Context(), 4)
	if err != nil || len(got) != 2 {
		t.Fatalf("received %d, %v; want one of each key", len(got), err)
	}
	for _, d := range got {
		if err := d.Bury(t.Context(), errors.New("bad")); err != nil {
			t.Fatal(err)
		}
	}
	b.see(".queues li", "2 keys halted by dead messages")
	b.click(".queues button", "Keys… orders")
	b.see("dialog tr", "the dead message a1")
	b.click("dialog tr button", "Go on… a")
	b.choose("dead", "dialog select[name=first]")
	b.click("dialog button.primary", "Go on")
	b.see(".notices", "a goes on")
	b.click(".queues button", "Keys… orders")
	b.click("dialog tr button", "Go on… b")
	b.choose("next", "dialog select[name=first]")
	b.click("dialog button.primary", "Go on")
	b.see(".notices", "b goes on")
	b.gone(".queues li", "halted by dead messages")
	if got, err = q.Receive(t.Context(), 4); err != nil || len(got) != 2 || got[0].ID+got[1].ID != "a1b2" &&
		got[0].ID+got[1].ID != "b2a1" {
		t.Errorf("received %v, %v; want a1, which was replayed, and b2", got, err)
	}
}

func TestManyQueuesAreFoundByName(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	for i := range 205 {
		s.send(fmt.Sprintf("q%03d", i), "x", later.In(time.Hour))
	}
	b := s.open("/")
	b.see(".queues", "and 5 other queues")
	b.gone(".queues li", "q204")
	b.write("q20", ".queues input")
	b.see(".queues li", "q204")
	b.gone(".queues", "other queue")
}

func TestSchedulesArePreviewedStoredPausedAndRun(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	b := s.open("/?view=schedules")
	b.see("main", "There are no schedules")
	b.click("button", "New schedule…")
	b.write("report", "dialog input[name=name]")
	b.write("reports", "dialog label.field:has(input[required][maxlength='128']) input")
	b.write("not a rule", "dialog input.code")
	b.see("dialog .preview .late")
	b.complains("400.*schedule-preview")
	b.write("30 9 * * 1-5", "dialog input.code")
	b.await("document.querySelectorAll('dialog .preview li').length === 5")
	b.see("dialog .preview li", "09:30")
	b.checkAccess()
	b.click("dialog button.primary", "Store")
	b.see(".panel h2", "report")
	b.see(".calendar .day")
	b.click(".panel button", "Run now")
	b.see("dialog", "cannot be undone")
	b.click("dialog button", "Run it now")
	b.see(".notice", "report runs now")
	if got := s.stats("reports"); got.Ready+got.Scheduled != 1 {
		t.Errorf("%+v", got)
	}
	b.click(".panel button", "Pause…")
	b.write("holidays", "dialog input[name=note]")
	b.click("dialog button.primary", "Pause")
	b.see(".panel .why", "holidays")
	info, err := s.client.Schedules().Get(t.Context(), "report")
	if err != nil || !info.Paused || info.When.Cron != "30 9 * * 1-5" {
		t.Errorf("%+v, %v", info, err)
	}
	b.click(".panel button", "Resume")
	b.gone(".panel .why")
	b.allow("404.*v1/schedules/report") // it may be read again just after
	b.click(".panel button", "Delete…")
	b.click("dialog button.danger")
	b.see("main", "There are no schedules")
}

func TestSchedulesShowTheRunsThatWereSkipped(t *testing.T) {
	t.Parallel()
	skipped := make(chan struct{}, 100)
	client, err := later.Open(t.Context(), "mem://", later.WithObserver(func(e later.Event) {
		if e.Kind == later.EventRunSkipped {
			skipped <- struct{}{}
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	s := newSiteOf(t, client, "", "")
	_, err = client.Schedules().Put(t.Context(), later.Schedule{Name: "report", Queue: "reports",
		When: recurrence.Spec{Every: time.Second}, Unfinished: later.UnfinishedSkip})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	w := later.NewWorker(client, later.WorkerConfig{}) // which runs schedules and leaves the first run in its queue
	w.Handle("other", func(context.Context, *later.Message) error { return nil })
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	<-skipped
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	info, err := client.Schedules().Get(t.Context(), "report")
	if err != nil || info.SkippedRuns < 1 {
		t.Fatal(info, err)
	}
	b := s.open("/?view=schedules&schedule=report")
	b.see("thead th:nth-of-type(6)", "Skipped")
	b.see("tbody td:nth-of-type(5)", "0")
	b.see("tbody td:nth-of-type(6) .late", fmt.Sprint(info.SkippedRuns))
	b.see(".panel .facts", fmt.Sprintf("%d, the last", info.SkippedRuns))
	b.checkAccess()
}

func TestEventsAreFollowedWithAFilter(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.send("orders", "{}", later.In(time.Hour))
	b := s.open("/?view=events")
	b.see("main .live", "live")
	s.send("orders", "{}", later.WithID("first"), later.In(time.Hour))
	b.see("td.id", "first")
	b.choose("cancelled", "select")
	b.awaitURL("kind=cancelled")
	b.visit("/?view=events&kind=cancelled") // this one says when it is connected
	b.see("main .live", "live")
	s.send("orders", "{}", later.WithID("second"), later.In(time.Hour))
	if _, err := s.client.Queue("orders").Cancel(t.Context(), "second"); err != nil {
		t.Fatal(err)
	}
	b.see(".kind", "cancelled")
	b.await("document.querySelectorAll('tbody tr').length === 1")
}

func TestWorkersShowWhatTheyHoldAndAreDrained(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	release := make(chan struct{})
	worker := later.NewWorker(s.client, later.WorkerConfig{Name: "packer"})
	worker.Handle("orders", func(ctx context.Context, _ *later.Message) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	})
	worked := make(chan error, 1)
	go func() { worked <- worker.Run(t.Context()) }()
	s.send("orders", "{}", later.WithID("parcel"))
	b := s.open("/?view=workers")
	b.see("li h2", "packer")
	b.see("li td.id", "parcel")
	b.click("button", "Pause packer")
	b.see(".badge", "paused")
	b.click("button", "Resume packer")
	b.see(".badge", "running")
	b.click("button", "Drain… packer")
	b.click("dialog button.primary")
	b.gone("dialog")
	close(release)
	select {
	case err := <-worked:
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(eventTimeout):
		t.Fatal("the worker goes on")
	}
	b.see("main", "No worker is running")
}

func TestPaletteAndKeysReachEverything(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 2)
	b := s.open("/")
	b.see(".queues li", "orders")
	b.press(":")
	b.write("pause orders", "dialog input")
	b.see("dialog [aria-selected=true]", "Pause queue orders")
	b.checkAccess()
	b.press(kb.Enter)
	b.see("dialog", "Pause orders?")
	b.closeDialog()
	for keys, title := range map[string]string{"gs": "Schedules", "gt": "Topics", "ge": "Events", "gw": "Workers",
		"gc": "Changes", "gh": "Horizon"} {
		b.press(keys)
		b.see("h1", title)
	}
	b.press("?")
	b.see("dialog", "Keys")
	b.checkAccess()
	b.closeDialog()
	const links = "[...document.querySelectorAll('a')].map(a => a.getAttribute('href')).join(' ')"
	if all := evaluate[string](b, links); strings.Contains(all, "//") {
		t.Errorf("links are not relative: %s", all)
	}
}

func TestEveryViewInEveryLook(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 40)
	s.send("mail", "late", later.At(time.Now().Add(-time.Minute)))
	s.bury("webhooks", "order %d: shop.example returns 503", 3)
	s.schedule("report", "*/15 * * * *")
	if err := s.client.Topic("orders").Subscribe(t.Context(), "stock"); err != nil {
		t.Fatal(err)
	}
	if err := s.client.Queue("invoices").Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, view := range []struct{ name, path, selector string }{
		{"horizon", "/", ".rows td.id"},
		{"range", "/?from=2020-01-01T00:00:00Z", ".rows td.id"},
		{"message", "/?queue=orders&message=m-01", ".payload-view"},
		{"dead", "/?state=dead", ".rows td.id"},
		{"find", "/?find=order", "#found [role=option]"},
		{"schedules", "/?view=schedules&schedule=report", ".calendar .day"},
		{"topics", "/?view=topics&topic=orders", ".subscription"},
		{"events", "/?view=events", "h1"},
		{"workers", "/?view=workers", "h1"},
		{"changes", "/?view=changes", "h1"},
	} {
		t.Run(view.name, func(t *testing.T) {
			t.Parallel()
			b := s.with(t).open(view.path)
			b.see(view.selector)
			b.checkLooks(view.name)
		})
	}
}
