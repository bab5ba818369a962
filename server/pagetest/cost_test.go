package pagetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp/kb"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// awaitOverviews waits until so many overviews have arrived.
func (b *tab) awaitOverviews(n int) {
	b.t.Helper()
	evaluate[bool](b, module("live.js")+fmt.Sprintf(`.then(({ live }) => new Promise(found => {
  let n = 0, last = live.received;
  const timer = setInterval(() => {
    if (live.received === last) return;
    last = live.received;
    if (++n < %d) return;
    clearInterval(timer);
    found(true);
  }, 20);
}))`, n))
}

// setVisible has the page believe that it is seen, or that it is not.
func (b *tab) setVisible(state string) {
	b.t.Helper()
	evaluate[bool](b, fmt.Sprintf(`(Object.defineProperty(document, 'visibilityState', {value: '%s', configurable: true}),
  document.dispatchEvent(new Event('visibilitychange')))`, state))
}

// A page of an idle store keeps one connection, and asks for nothing.
func TestIdlePageAsksForNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 3)
	s.fill("mail", 3)
	b := s.open("/")
	b.see(".rows td.id", "m-02")
	b.awaitOverviews(2)
	before := s.requests.Load()
	b.awaitOverviews(3)
	if n := s.requests.Load() - before; n != 0 {
		t.Errorf("it sent %d requests while nothing happened", n)
	}
	if n := s.streams.Load(); n != 1 {
		t.Errorf("it has %d streams, want 1", n)
	}
	s.send("orders", "{}", later.WithID("new"), later.In(time.Minute))
	b.see(".rows td.id", "new")
}

// Six tabs in sight leave two of the six connections of a browser for requests, and all of them show new messages.
func TestSixTabsDoNotBlockEachOther(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 3)
	tabs := []*tab{s.open("/?queue=orders")}
	for range 5 {
		tabs = append(tabs, tabs[0].beside("/?queue=orders"))
	}
	for _, b := range tabs {
		b.see(".rows td.id", "m-02")
		b.see(".live", "live")
	}
	s.awaitStreams(4)
	s.send("orders", "{}", later.WithID("new"), later.In(time.Minute))
	for _, b := range tabs {
		b.see(".rows td.id", "new")
	}
	tabs[0].setVisible("hidden")
	for _, b := range tabs[1:] {
		b.awaitOverviews(1)
	}
	s.awaitStreams(4)
	tabs[1].setVisible("hidden")
	tabs[2].setVisible("hidden")
	s.awaitStreams(3)
	tabs[0].setVisible("visible")
	s.awaitStreams(4)
}

// A tab that was opened in the background connects when it is seen.
func TestTabInTheBackgroundDoesNotConnect(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 3)
	b := s.open(blank)
	b.call(cdpCall(page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: "Object.defineProperty(document, 'visibilityState', {value: 'hidden', configurable: true})"}))
	b.visit("/")
	b.see(".live.off", "not live")
	if n := s.streams.Load(); n != 0 {
		t.Errorf("it has %d streams", n)
	}
	b.setVisible("visible")
	b.see(".rows td.id", "m-02")
	s.awaitStreams(1)
	b.setVisible("hidden")
	s.awaitStreams(0)
	b.setVisible("visible")
	s.awaitStreams(1)
}

// A login that ends while a dialog is open does not lose the text of the dialog.
func TestDialogKeepsItsTextDuringALogin(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", roles(t))
	s.fill("orders", 3)
	b := s.open("/?queue=orders&message=m-01&mq=orders")
	b.allow("401")
	login := func() {
		b.write("operator", "input[name=token]")
		b.click("button.primary", "Log in")
	}
	login()
	b.click(".panel button", "Edit…")
	b.write(`{"order": 99}`, "dialog textarea[name=payload]")
	b.call(cdpCall(network.ClearBrowserCookies, cdp.Empty{}))
	b.click("dialog button", "Save")
	b.see("dialog h1", "Log in")
	b.checkAccess()
	b.press(kb.Escape)
	b.press(kb.Escape)
	login()
	b.await(`document.querySelector('dialog textarea[name=payload]').value.includes('99')`)
	b.await("document.activeElement.closest('dialog')")
	b.click("dialog button", "Save")
	b.see(".panel", "99")
}

// A page that is loaded while the store is down says so, and shows the data as soon as the store answers.
func TestFreshPageWaitsForTheStore(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := newSite(t, redis.URL(), "", "")
	s.fill("orders", 3)
	redis.Kill()
	b := s.open(blank)
	b.allow("50[0-9]|ERR_")
	b.visit("/")
	b.see("main", "Waits for the store")
	b.see(".banner", "cannot be read")
	if n := evaluate[int](b, "document.querySelectorAll('[role=alert]').length"); n != 1 {
		t.Errorf("%d alerts, want the banner only", n)
	}
	b.checkAccess()
	redis.Restart(t)
	b.see(".rows td.id", "m-02")
	b.gone(".banner")
}

// BenchmarkIdlePage looks for a minute at the front page of a shop with 30 queues in Redis, in which 50 messages a
// second are sent and handled, and reports the cost: requests and bytes of replies, compressed as they are sent.
func BenchmarkIdlePage(b *testing.B) {
	needBrowser(b)
	for _, rate := range []int{0, 50} {
		b.Run(fmt.Sprintf("%d-messages-a-second", rate), func(b *testing.B) {
			s := newSite(b, redistest.Start(b).URL(), "", "")
			name := func(i int) string { return fmt.Sprintf("queue-%02d", i%30) }
			for i := range 3000 {
				s.send(name(i), fmt.Sprintf(`{"order":%d,"customer":"c-%d"}`, i, i*7919%1000),
					later.In(time.Minute+time.Duration(i)*time.Minute))
			}
			ctx, stop := context.WithCancel(b.Context())
			var all sync.WaitGroup
			defer all.Wait()
			defer stop()
			if rate > 0 {
				all.Go(func() { s.sendAndHandle(ctx, name, rate) })
			}
			tab := s.open("/")
			tab.see(".rows td.id")
			first := s.bytes.Load()
			for b.Loop() {
				requests, bytes := s.requests.Load(), s.bytes.Load()
				<-time.After(time.Minute)
				b.ReportMetric(float64(s.requests.Load()-requests), "requests/min")
				b.ReportMetric(float64(s.bytes.Load()-bytes)/1e3, "KB/min")
			}
			b.ReportMetric(float64(first)/1e3, "first-KB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// sendAndHandle sends messages that are due within 30 s, and handles them, until ctx ends.
func (s *site) sendAndHandle(ctx context.Context, name func(int) string, rate int) {
	worker := later.NewWorker(s.client, later.WorkerConfig{})
	for i := range 30 {
		worker.Handle(name(i), func(context.Context, *later.Message) error { return nil })
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { _ = worker.Run(ctx) })
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
			_, _ = s.client.Queue(name(i*17)).Send(ctx, fmt.Appendf(nil, `{"order":%d}`, i),
				later.In(time.Duration(i%30)*time.Second))
		case <-ctx.Done():
			return
		}
	}
}

// A list shows changes that leave all counts as they are.
func TestListShowsEditedAndRescheduledMessages(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 3)
	b := s.open("/")
	b.await(`[...document.querySelectorAll('.rows td.id')].at(-1)?.textContent.includes('m-02')`)
	b.awaitOverviews(3)
	if err := s.client.Queue("orders").Reschedule(t.Context(), "m-01", later.In(100*time.Hour)); err != nil {
		t.Fatal(err)
	}
	b.await(`[...document.querySelectorAll('.rows td.id')].at(-1)?.textContent.includes('m-01')`)
}

// A list that could not be read is read again once the store answers, although nothing has changed.
func TestListIsReadAgainWhenTheStoreAnswers(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := newSite(t, redis.URL(), "", "")
	s.fill("orders", 3)
	b := s.open("/")
	b.see(".rows td.id", "m-02")
	b.allow("50[0-9]|ERR_")
	redis.Kill()
	b.see(".banner", "cannot be read")
	b.press(".")
	b.see(".list > p", "As of")
	redis.Restart(t)
	b.gone(".banner")
	b.gone(".list > p", "As of")
	b.gone(".list > .failure")
	b.see(".rows td.id", "m-02")
}

// The events view says that it has missed events while its tab was not seen.
func TestEventsViewSaysWhatItMissed(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	b := s.open("/?view=events")
	b.see("main .live", "live")
	b.setVisible("hidden")
	b.see("main .live.off", "not connected")
	b.setVisible("visible")
	b.see("main .live", "live")
	b.see(".events", "while not connected")
}
