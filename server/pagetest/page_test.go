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
	b.visit("/?view=workers") // a link from another person
	b.see("h1", "Workers")
	if got := b.url(); !strings.HasPrefix(got, s.url+"/?") {
		t.Errorf("at %s, want %s/", got, s.url)
	}
}

// A component that has just been drawn is drawn again when a value outside of it changes, however soon that is.
func TestChangesRightAfterAComponentWasDrawnAreSeen(t *testing.T) {
	t.Parallel()
	b := newSite(t, "", "", "").open("/")
	b.see("main", "There are no queues")
	got := evaluate[string](b, module("html.js")+`.then(
  async ({ html, observable, render }) => {
    let value = 'before';
    const [use, tell] = observable();
    const Shown = () => { use(); return value };
    const root = document.createElement('div');
    render(html`+"`<${Shown} />`"+`, root);
    value = 'after';
    tell();
    await new Promise(requestAnimationFrame);
    return root.textContent;
  })`)
	if got != "after" {
		t.Errorf("it shows the value from %s the change", got)
	}
}
