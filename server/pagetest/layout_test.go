package pagetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/laterq/later"
)

// inSight is an expression that reports whether the nth element of a selector is in the window in full.
func inSight(selector string, n int) string {
	return fmt.Sprintf(`(() => {
  const r = document.querySelectorAll(%s)[%d]?.getBoundingClientRect();
  return r && r.top >= 0 && r.left >= 0 && r.bottom <= innerHeight && r.right <= innerWidth && r.height > 0
})()`, quote(selector), n)
}

func TestPhoneShowsTheListAfterATap(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 20)
	s.bury("webhooks-of-shops", "order %d: shop.example returns 503 since it is overloaded at night", 5)
	b := s.open("/")
	b.size(390, 844, 2)
	b.click(".figures a", "dead")
	b.see(".rows td.payload", "shop.example")
	for _, part := range []string{"id", "when", "queue", "payload", "tries"} {
		b.await(inSight(".rows tbody td."+part, 2))
	}
	if got := b.see(".rows td.queue"); got != "webhooks-of-shops" {
		t.Errorf("a row has the queue %q", got)
	}
	b.click(".queues a.name", "orders")
	b.click(".tabs a", "scheduled")
	b.see(".rows td.id", "m-07")
	b.await(inSight(".rows tbody td.id", 2))
	const height = "document.querySelector('.rows tbody tr').getBoundingClientRect().height"
	if row := evaluate[float64](b, height); row != 60 {
		t.Errorf("a row is %g pixels high, want 60", row)
	}
	b.checkAccess()
	b.checkWidth()
}

func TestPhoneReachesAllViews(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 2)
	b := s.open("/")
	b.size(390, 844, 2)
	b.see(".queues li")
	for i := range evaluate[int](b, "document.querySelectorAll('.views a').length") {
		b.await(inSight(".views a", i))
	}
}

func TestPhoneShowsAnEventInTwoLines(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	b := s.open("/?view=events")
	b.size(390, 844, 2)
	b.see("main .live", "live")
	s.bury("webhooks-of-shops", "order %d: shop.example returns 503 since it is overloaded at night", 1)
	b.see(".kind.bad", "buried")
	if h := evaluate[float64](b, "document.querySelector('.events tbody tr').getBoundingClientRect().height"); h > 52 {
		t.Errorf("an event is %g pixels high", h)
	}
	b.await("/^\\d\\d:\\d\\d:\\d\\d\\.\\d{3}$/.test(document.querySelector('.events td').textContent)")
	b.checkAccess()
	b.checkWidth()
}

// Ids take the room that short payloads leave, and the other way round.
func TestColumnsUseTheRoom(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	long := "cancel-order-of-customer-4711-after-two-weeks-without-payment"
	s.send("orders", `{"order":1}`, later.WithID(long), later.In(time.Hour))
	s.send("webhooks-www-mmm", "x", later.WithID("w"), later.In(time.Hour)) // wide letters
	s.send("mail", strings.Repeat("Your order is on its way. ", 10), later.WithID("m"), later.In(time.Hour))
	b := s.open("/")
	b.morning()
	b.visit("/?queue=orders")
	b.see(".rows td.id", long)
	const cut = "(e => e.scrollWidth > e.clientWidth)(document.querySelector('.rows tbody td.id'))"
	b.await("!" + cut)
	for i := range 100 {
		s.send("orders", "x", later.WithID(fmt.Sprintf("order-%03d-of-a-customer", i)), later.In(2*time.Hour))
	}
	b.visit("/?queue=orders&message=order-007-of-a-customer")
	b.see(".panel .why")
	b.see(".rows td.id", "order-003")
	b.await("!" + strings.ReplaceAll(cut, "tbody td.id", "tbody tr:nth-child(4) td.id"))
	b.visit("/?queue=mail")
	b.see(".rows td.id")
	const width = "document.querySelector('.rows tbody td.%s').clientWidth"
	b.await(fmt.Sprintf(width, "id") + " < 120")
	b.await(fmt.Sprintf(width, "payload") + " > 500")
	b.visit("/")
	b.see(".rows td.id", long)
	b.await("[...document.querySelectorAll('.rows td.queue')].every(e => e.scrollWidth <= e.clientWidth)")
	const edge = "document.querySelector('.rows %s').getBoundingClientRect().right"
	for _, what := range []string{"tries", "when", "queue"} {
		b.await(fmt.Sprintf(edge, "th."+what) + " === " + fmt.Sprintf(edge, "td."+what))
	}
	const align = "getComputedStyle(document.querySelector('.rows %s.tries')).textAlign"
	if got := evaluate[string](b, fmt.Sprintf(align, "th")+"+"+fmt.Sprintf(align, "td")); got != "rightright" {
		t.Errorf("numbers and their header are at the %s", got)
	}
}

func TestTablesAlignNumbersWithTheirHeaders(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.schedule("report", "0 9 * * 1-5")
	b := s.open("/?view=schedules")
	b.see("tbody td.number")
	b.await(`[...document.querySelectorAll('tbody td.number')].every(td =>
  td.closest('table').querySelectorAll('th')[td.cellIndex].classList.contains('number'))`)
}

func TestQueuesAreOneTabStopEach(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	for _, queue := range []string{"mail", "orders", "parcels"} {
		s.fill(queue, 3)
		s.send(queue, "now")
	}
	b := s.open("/")
	b.see(".queues li", "parcels")
	b.await(`[...document.querySelectorAll('.queues li')].every(li =>
  [...li.querySelectorAll('a, button')].filter(e => e.tabIndex === 0).length === 1)`)
	evaluate[bool](b, "document.querySelector('.queues a.name').focus(), true")
	focused := func(text string) {
		t.Helper()
		b.await("document.activeElement.textContent.includes(" + quote(text) + ")")
	}
	b.press(kb.ArrowDown)
	focused("orders")
	b.press(kb.ArrowRight)
	focused("3 scheduled")
	b.press(kb.ArrowRight + kb.ArrowRight)
	focused("Pause…")
	b.press(kb.ArrowLeft)
	focused("1 ready")
	b.press(kb.Enter)
	b.awaitURL("queue=orders&state=ready")
	b.press(kb.End)
	focused("parcels")
	b.press(kb.Home)
	focused("mail")
	b.press(kb.Tab)
	focused("orders")
}

func TestDurationsReadAsPeopleSayThem(t *testing.T) {
	t.Parallel()
	b := newSite(t, "", "", "").open("/")
	b.see("main", "There are no queues")
	got := evaluate[string](b, module("format.js")+`.then(
  ({ duration, millis }) => ['15m0s', '24h0m0s', '48h0m0s', '26h0m0s', '1h30m0s', '1m1s', '2.5s', '340ms', '300h0m0s']
    .map(text => duration(millis(text))).join(', '))`)
	const want = "15 min, 1 day, 2 days, 1 day 2 h, 1 h 30 min, 1 min 1 s, 2.5 s, 340 ms, 12 days"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
