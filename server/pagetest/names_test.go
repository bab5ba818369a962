package pagetest

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/laterq/later"
)

// TestNamesOfOthersAreShownAsTheyAre has names, an id and an error that would turn the direction of the text around
// them, or are HTML.
func TestNamesOfOthersAreShownAsTheyAre(t *testing.T) {
	t.Parallel()
	const name = "\u202egnp.exe <img src=x>"
	s := newSite(t, "", "", "")
	s.send(name, "x", later.WithID(name), later.In(time.Hour), later.Group(name), later.Key(name),
		later.Header(name, name))
	s.bury(name, name+" %d", 2)
	s.bury("mail", name+" %d", 1)
	s.schedule(name, "*/15 * * * *")
	if err := s.client.Topic(name).Subscribe(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if err := s.client.Queue(name).Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.work(later.WorkerConfig{Name: name}, name, func(context.Context, *later.Message) error { return nil })()
	q := url.QueryEscape(name)
	b := s.open("/?queue=" + q)
	b.click(".queues button", "Resume")
	b.see(".notice", "is resumed")
	for _, path := range []string{"", "queue=" + q, "queue=" + q + "&message=" + q, "state=dead", "state=dead&group=error",
		"find=gnp", "view=queues", "view=queue&queue=" + q, "view=schedules&schedule=" + q, "view=topics&topic=" + q,
		"view=events", "view=workers", "view=changes"} {
		b.visit("/?" + path)
		if path != "view=events" {
			b.see("main", `\u202egnp.exe <img src=x>`)
		}
		b.await("!document.querySelector('[aria-busy=true]')")
		const text = `(document.title + document.body.innerText)`
		if text := evaluate[string](b, text+`.match(/.{0,40}\u202e.{0,40}/)?.[0] ?? ''`); text != "" {
			t.Errorf("/?%s shows %q", path, text)
		}
		if evaluate[bool](b, "!!document.querySelector('main img')") {
			t.Errorf("/?%s has an image", path)
		}
		b.check()
	}
	b.visit("/?queue=" + q + "&message=" + q)
	for _, action := range []string{"Run now…", "Reschedule…", "Cancel…", "Edit…", "Duplicate…"} {
		b.click(".panel button", action)
		b.see("dialog h2", `\u202egnp.exe`)
		if action == "Edit…" || action == "Duplicate…" {
			b.check()
		}
		b.closeDialog()
	}
	if got := s.stats(name); got.Scheduled != 1 || got.Dead != 2 {
		t.Errorf("%+v", got)
	}
}
