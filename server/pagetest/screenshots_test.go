package pagetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"

	"github.com/laterq/later"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/recurrence"
)

var update = flag.Bool("update", false, "write testdata/screenshots")

// maxDifference is the part of a picture that may differ from the one that is kept. Another font for all text
// changes about a tenth, and a column that is gone more than that.
const maxDifference = 0.14

// keptViews are the views with pictures, each with the selectors of the elements that it has when it is complete.
var keptViews = []struct {
	name, path, complete string
	phone                bool
}{
	{"horizon", "/", ".plot svg .bar, .rows td.id, .figure.late", true},
	{"queues", "/?queue=orders", ".queues li.current, .rows td.id", false},
	{"messages", "/?from=2030-01-15T12:30:00Z&to=2030-01-15T20:00:00Z", ".range strong, .rows td.id", false},
	{"message", "/?queue=orders&message=order-03", ".panel .why, .panel .tree, .plot svg .bar", true},
	{"dead", "/?state=dead&group=error", ".errors li + li + li", false},
	{"schedules", "/?view=schedules&schedule=report", ".calendar .dots i, .panel .facts", false},
	{"workers", "/?view=workers", ".workers td.id", false},
}

func TestScreenshotsAreLikeThoseKept(t *testing.T) {
	t.Parallel()
	s := newGallery(t)
	for _, view := range keptViews {
		t.Run(view.name, func(t *testing.T) {
			t.Parallel()
			b := s.with(t).openGallery(view.path)
			for _, look := range looks {
				if look.name != "light" && look.name != "dark" && !(look.name == "phone" && view.phone) {
					continue
				}
				b.size(look.width, look.height, look.scale)
				b.media(look.media...)
				b.awaitComplete(view.complete)
				b.compare(view.name + "-" + look.name)
			}
		})
	}
}

// compare compares the page as it is now with the picture that is kept under a name, or keeps it with -update.
func (b *tab) compare(name string) {
	b.t.Helper()
	file, now := filepath.Join("testdata", "screenshots", name+".png"), b.picture()
	if *update {
		if err := writePicture(file, now); err != nil {
			b.t.Fatal(err)
		}
		return
	}
	if d := difference(readPicture(b.t, file), now); d > maxDifference {
		b.t.Errorf("%.0f %% of the page look different from %s: if that is right, run the test with -update", 100*d, file)
	}
}

func TestScreenshotsShowABrokenLayout(t *testing.T) {
	t.Parallel()
	s := newGallery(t)
	for name, css := range map[string]string{
		"no style sheet": "",
		"other colours":  ":root { color-scheme: dark !important }",
		"no columns":     ".columns { display: block !important }",
		"no messages":    ".messages { display: none }",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := s.with(t).openGallery(keptViews[0].path)
			b.media(looks[0].media...)
			b.awaitComplete(keptViews[0].complete)
			kept := b.picture()
			b.await(fmt.Sprintf(`(() => {
  const sheet = new CSSStyleSheet(), css = %s;
  sheet.replaceSync(css);
  document.adoptedStyleSheets = [sheet];
  if (!css) document.querySelector('link[rel=stylesheet]').disabled = true;
  return true })()`, quote(css)))
			if d := difference(kept, b.picture()); d <= maxDifference {
				t.Errorf("it differs by %.0f %%", 100*d)
			}
		})
	}
}

// openGallery opens a view with the clock, time zone and language of the pictures.
func (s *site) openGallery(path string) *tab {
	s.Helper()
	b := s.open("/")
	b.zone("UTC")
	b.call(cdpCall(emulation.SetLocaleOverride, emulation.SetLocaleOverrideParams{Locale: "en-US"}))
	b.visit("/")
	b.see(".live", galleryTime.Format("15:04")) // from here on, the page has the store's time
	b.await("history.pushState(null, '', " + quote(s.url+path) + ") ?? dispatchEvent(new Event('popstate'))")
	return b
}

// awaitComplete waits until the page has all that selectors find, and has drawn it in its size.
func (b *tab) awaitComplete(selectors string) {
	b.t.Helper()
	b.await(quote(selectors) + `.split(', ').every(s => document.querySelector(s)) &&
  !document.querySelector('[aria-busy=true]') &&
  [...document.querySelectorAll('.plot')].every(e => e.firstElementChild.clientWidth === e.clientWidth)`)
	evaluate[bool](b, "new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(() => drawn(true))))")
}

// galleryTime is the time of the gallery's store, which the page follows.
var galleryTime = time.Date(2030, 1, 15, 12, 0, 0, 0, time.UTC)

// newGallery is a site that looks the same whenever it is looked at: its clock stands still, and all that it has was
// sent two hours ago.
func newGallery(t *testing.T) *site {
	t.Helper()
	clock := memstore.NewManualClock(galleryTime.Add(-2 * time.Hour))
	store := memstore.New(memstore.WithClock(clock))
	newClient := func() *later.Client {
		client, err := later.New(store)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	s := &site{TB: t, client: newClient()}
	at := func(after time.Duration) later.When { return later.At(galleryTime.Add(after)) }
	for i := range 40 {
		payload := fmt.Sprintf(`{"order":%d,"items":["lamp",{"name":"tea","gift":true}],"total":%d.50}`, 4700+i, 20+i)
		s.send("orders", payload, later.WithID(fmt.Sprintf("order-%02d", i)), later.Header("customer", "ada"),
			at(time.Duration(i*i)*time.Minute/2+5*time.Minute))
	}
	for i := range 12 {
		s.send("mail", "Your order is on its way.", later.WithID(fmt.Sprintf("mail-%02d", i)),
			at(time.Duration(i*i*i)*time.Hour/4))
	}
	s.send("mail", "Welcome", later.WithID("welcome"), at(-time.Hour))
	s.bury("webhooks", "order %d: shop.example returns 503", 4)
	s.bury("webhooks", "card of customer %d has expired", 3)
	s.bury("mail", "no such address: %d", 2)
	if err := s.client.Queue("invoices").Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, cron := range map[string]string{"report": "0 9,17 * * 1-5", "cleanup": "30 3 * * *"} {
		_, err := s.client.Schedules().Put(t.Context(), later.Schedule{Name: name, Queue: "reports",
			When: recurrence.Spec{Cron: cron, TimeZone: "UTC"}, Payload: []byte(`{"report":1}`)})
		if err != nil {
			t.Fatal(err)
		}
	}
	s.send("parcels", "{}", later.WithID("parcel-1"))
	if err := s.client.Close(); err != nil { // which reports the messages that it sent
		t.Fatal(err)
	}
	clock.Advance(2 * time.Hour)

	s = newSiteOf(t, newClient(), "", "")
	worker, ended := later.NewWorker(s.client, later.WorkerConfig{Name: "packer"}), make(chan struct{})
	worker.Handle("parcels", func(context.Context, *later.Message) error {
		<-ended
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	worked := make(chan error, 1)
	go func() { worked <- worker.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		close(ended)
		if err := <-worked; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return s
}
