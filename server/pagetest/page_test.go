package pagetest

import (
	"strings"
	"testing"
)

func TestPageWithoutQueuesSaysHowToBegin(t *testing.T) {
	t.Parallel()
	b := newSite(t, "", "", "").open("/")
	b.see("main", "There are no queues yet")
	b.checkLooks("empty")
}

func TestPageWorksUnderAPrefixWithoutItsSlash(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "/tools/later", "")
	s.send("mail", "hello")
	b := s.open("")
	b.see("h1", "Horizon")
	b.click("nav.views a", "Schedules")
	b.see("h1", "Schedules")
	b.visit("/?view=workers") // a link that somebody shared
	b.see("h1", "Workers")
	if got := b.url(); !strings.HasPrefix(got, s.url+"/?") {
		t.Errorf("at %s, want %s/", got, s.url)
	}
}
