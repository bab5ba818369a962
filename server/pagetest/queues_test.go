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
)

// queueNames is an expression with the names of the queues in the rows of the table that are drawn.
const queueNames = "[...document.querySelectorAll('.queuerows td.col-queue')].map(e => e.textContent).join(' ')"

// trouble makes queues that differ in every column: busy has the most messages, late is overdue, broken has dead
// messages and is paused.
func (s *site) trouble() {
	s.Helper()
	s.fill("busy", 30)
	s.fill("late", 1)
	for range 3 {
		s.send("late", "x")
	}
	s.bury("broken", "order %d: shop.example returns 503", 4)
	for _, err := range []error{
		s.client.Queue("broken").Pause(s.Context()),
		s.client.Queue("late").SetFlow(s.Context(), later.Flow{Concurrency: 5}),
		s.client.Queue("busy").SetShards(s.Context(), 2),
	} {
		if err != nil && !errors.Is(err, later.ErrUnsupported) {
			s.Fatal(err)
		}
	}
}

func TestQueuesSortByAnyColumn(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.trouble()
	b := s.open("/")
	b.see(".queues li")
	b.press("gq")
	b.awaitURL("view=queues")
	b.see("h1", "Queues")
	b.await(queueNames + " === 'late broken busy'") // overdue first
	for _, step := range []struct{ column, sort, direction, want string }{
		{"Scheduled", "-scheduled", "descending", "busy late broken"},
		{"Scheduled", "scheduled", "ascending", "broken late busy"},
		{"Dead", "-dead", "descending", "broken busy late"},
		{"Queue", "queue", "ascending", "broken busy late"},
		{"Queue", "-queue", "descending", "late busy broken"},
	} {
		b.click(".queuerows th button", step.column)
		b.awaitURL("sort=" + step.sort)
		b.await(queueNames + " === " + quote(step.want))
		if got := b.attribute("aria-sort", ".queuerows th", step.column); got != step.direction {
			t.Errorf("the column %s is sorted %q, want %q", step.column, got, step.direction)
		}
	}
	b.see(".queuerows .badge", "paused")
	b.see(".queuerows .badge", "limits")
	b.see(".queuerows .badge", "2 shards")
	b.write("Bro", "#queue-name")
	b.await(queueNames + " === 'broken'")
	b.awaitURL("name=Bro")
	b.write("nothing like it", "#queue-name")
	b.see(".empty", "No queue has this in its name")
	b.visit("/?view=queues&sort=-scheduled") // a link
	b.await(queueNames + " === 'busy late broken'")
	b.checkLooks("queues")
	b.size(1280, 800, 1)
	b.press("jj" + kb.Enter)
	b.awaitURL("view=queue&queue=late")
	b.visit("/?view=queues")
	b.click(".queuerows td.col-dead a", "4")
	b.awaitURL("queue=broken&state=dead")
}

func TestQueuesSortByKeyboard(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.trouble()
	b := s.open("/?view=queues")
	b.see(".queuerows td")
	await[bool](b, "focusing a head", element(".queuerows th button", "Dead")+"e.focus(); return true")
	b.press(kb.Enter)
	b.awaitURL("sort=-dead")
	b.await("document.activeElement.textContent.includes('Dead')") // it keeps the keyboard
	b.await(queueNames + " === 'broken busy late'")
	b.press(" ")
	b.awaitURL("sort=dead")
}

func TestQueuesAreDrawnInSightOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	for i := range 1000 {
		s.send(fmt.Sprintf("queue-%03d", i), "x", later.In(time.Duration(i+1)*time.Hour))
	}
	b := s.open("/?view=queues&sort=queue")
	b.see("header .faint", "1,000 queues")
	b.see(".queuerows td.col-queue", "queue-000")
	const drawn = "document.querySelectorAll('.queuerows tbody tr:not(.space)').length"
	if n := evaluate[int](b, drawn); n > 60 {
		t.Errorf("%d rows are drawn", n)
	}
	b.await("document.querySelector('.queuerows table').ariaRowCount === '1000' ||" +
		"document.querySelector('.queuerows table').getAttribute('aria-rowcount') === '1000'")
	evaluate[bool](b, "document.querySelector('.queuerows').scrollTop = 1e9, true")
	b.see(".queuerows td.col-queue", "queue-999")
	took := evaluate[float64](b, `new Promise(done => {
  const box = document.querySelector('.queuerows'), times = [];
  let last = performance.now(), i = 0;
  const step = () => {
    const t = performance.now(); times.push(t - last); last = t;
    box.scrollTop = (i++ * 977) % box.scrollHeight;
    if (i < 60) requestAnimationFrame(step);
    else done(times.sort((a, b) => a - b)[Math.floor(times.length * 0.5)]);
  };
  requestAnimationFrame(step);
})`)
	t.Logf("median frame while scrolling 1,000 queues: %.1f ms", took)
	b.write("77", "#queue-name")
	b.see("header .faint", "19 of 1,000 queues")
}

func TestQueueHasAPageWithItsActivity(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	handled := make(chan struct{}, 10)
	stop := s.work(later.WorkerConfig{Name: "sender", Backoff: later.ConstantBackoff(time.Hour)}, "mail",
		func(_ context.Context, m *later.Message) error {
			defer func() { handled <- struct{}{} }()
			if strings.Contains(string(m.Payload), "bad") {
				return errors.New("no such address")
			}
			return nil
		})
	defer stop()
	for range 4 {
		s.send("mail", "good")
	}
	s.send("mail", "bad")
	for range 5 {
		<-handled
	}
	s.bury("mail-dead", "order %d", 1)
	if err := s.client.Topic("orders").Subscribe(t.Context(), "mail"); err != nil {
		t.Fatal(err)
	}
	b := s.open("/?view=queues")
	b.click(".queuerows td.col-queue a", "mail")
	b.see("h1", "mail")
	b.see(".activity .legend li", "out 4")
	b.see(".activity .legend li", "in 5")
	b.see(".activity .legend li", "failed 1")
	await[bool](b, "focusing the chart",
		element(".activity .plot", "Last hour, in parts of 5 minutes")+"e.focus(); return true")
	b.press(kb.End)
	b.see(".activity .tip", "5 in, 4 out, 1 failed")
	b.see(".activity [aria-live]", "5 in, 4 out, 1 failed")
	b.click(".activity summary", "Table")
	b.await("document.querySelectorAll('.activity tbody tr').length === 13")
	b.see(".queuepage li", "sender")
	b.see(".queuepage li", "orders")
	b.see("#around-title, .queuepage p", "No schedule sends to it")
	b.checkLooks("queue-page")
}

func TestQueuePageChangesItsSettings(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", roles(t))
	s.fill("orders", 2)
	s.send("orders", "x")
	b := s.login("/?view=queue&queue=orders", "operator")
	b.see("h1", "orders")
	b.click(".queuepage header button", "Pause…")
	b.click("dialog button", "Pause")
	b.see(".queuepage h1 ~ .badges", "paused")
	b.see(".problems.own", "orders is paused")
	b.click(".problems.own button", "Resume…")
	b.click("dialog button", "Resume")
	b.gone(".queuepage h1 ~ .badges .badge", "paused")
	b.click(".queuepage .facts button", "Change… how long they are kept")
	b.write("30d", "dialog input[name=age]")
	b.write("1000", "dialog input[name=count]")
	b.checkAccess()
	b.click("dialog button", "Save")
	b.see(".queuepage .facts", "kept for 30 days, at most 1,000")
	b.click(".queuepage .facts button", "Change… the limits")
	b.write("7", "dialog input[name=concurrency]")
	b.click("dialog button", "Save")
	b.see(".queuepage .facts", "0 of 7 in flight")
	stats := s.stats("orders")
	if stats.Paused || stats.DeadRetention.MaxAge != 30*24*time.Hour || stats.DeadRetention.MaxCount != 1000 ||
		stats.Flow.Concurrency != 7 {
		t.Errorf("%+v", stats)
	}
	s.fill("sharded", 3)
	b.visit("/?view=queue&queue=sharded")
	b.click(".queuepage .facts button", "Change… the shards")
	b.write("3", "dialog input[name=count]")
	b.click("dialog button.primary", "Change")
	b.see(".queuepage h1 ~ .badges", "3 shards")
	b.see(".queuepage .shards", "3 shards")

	b = s.login("/?view=queue&queue=orders", "reader")
	b.see(".queuepage .facts", "0 of 7 in flight")
	b.gone(".queuepage button", "Change…")
	b.gone(".queuepage button", "Pause…")
	b.gone(".queuepage button", "New message…")
	b.allow("404") // the queue does not exist
	b.visit("/?view=queue&queue=none")
	b.see(".empty", "This queue has no messages and no settings")
	b.see(".empty", "Nothing has happened yet")
}
