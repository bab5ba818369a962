package pagetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"

	"github.com/laterq/later"
)

// markPaints has a page mark when it has painted its frame and its chart: after the next frame of the browser.
const markPaints = `
const parts = {frame: '.top .views', chart: '.plot .bar'};
new MutationObserver(() => {
  for (const [name, selector] of Object.entries(parts)) {
    if (!document.querySelector(selector)) continue;
    delete parts[name];
    const painted = new MessageChannel();
    painted.port1.onmessage = () => performance.mark(name);
    requestAnimationFrame(() => painted.port2.postMessage(0));
  }
}).observe(document, {subtree: true, childList: true})`

// paints returns when the page has painted what, in milliseconds since the browser was asked for it.
const paints = `
  const at = name => performance.getEntriesByName(name)[0].startTime;
  return {first: at('first-contentful-paint'), frame: at('frame'), chart: at('chart')}`

// BenchmarkFirstPaint loads the page in browsers that have just started, with nothing in their caches.
func BenchmarkFirstPaint(b *testing.B) {
	needBrowser(b)
	s := newSite(b, "", "", "")
	for queue := range 10 {
		batch := make([]later.Outgoing, 1000)
		for i := range batch {
			batch[i] = later.Outgoing{Payload: []byte(`{"order":1}`), When: later.In(time.Duration(i) * time.Minute)}
		}
		if _, err := s.client.Queue(fmt.Sprintf("orders-%d", queue)).SendBatch(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	all := map[string][]float64{}
	for b.Loop() {
		for name, ms := range s.loadCold() {
			all[name] = append(all[name], ms)
		}
	}
	for name, ms := range all {
		slices.Sort(ms)
		b.ReportMetric(ms[len(ms)/2], name+"-median-ms")
		b.ReportMetric(ms[len(ms)-1], name+"-worst-ms")
	}
	b.ReportMetric(0, "ns/op") // which is mostly the start of browsers
}

// loadCold loads the page in a browser of its own, and returns when it painted what, and how long the thread that does
// so computed, in milliseconds.
func (s *site) loadCold() (painted map[string]float64) {
	s.Helper()
	browser, closeBrowser, err := launchBrowser()
	if err != nil {
		s.Fatal(err)
	}
	defer func() {
		if err := closeBrowser(); err != nil {
			s.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(browser, eventTimeout)
	defer cancel()
	computing := performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks}
	marking := page.AddScriptToEvaluateOnNewDocumentParams{Source: markPaints}
	if err := chromedp.Do(ctx, cdpCall(performance.Enable, computing),
		cdpCall(page.AddScriptToEvaluateOnNewDocument, marking), chromedp.EmulateViewport(1280, 800),
		chromedp.Navigate(s.url+"/")); err != nil {
		s.Fatal(err)
	}
	painted, err = chromedp.Run(ctx, chromedp.Evaluate[map[string]float64](fmt.Sprintf(waiting, paints),
		chromedp.EvalAwaitPromise))
	if err != nil {
		s.Fatal(err)
	}
	if err := chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		all, err := cdp.Call(ctx, t, performance.GetMetrics, cdp.Empty{})
		for _, m := range all.Metrics {
			if m.Name == "TaskDuration" {
				painted["computing"] = m.Value * 1000
			}
		}
		return err
	})); err != nil {
		s.Fatal(err)
	}
	return painted
}
