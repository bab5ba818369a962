package pagetest

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/laterq/later"
)

// plot is the chart of the horizon.
const plot = ".horizon .plot"

// newHorizon returns a site with messages that are due in three bands, and a tab with its page. There are three bars: a
// minute with five messages, and parts of the day and of the month with one message each.
func newHorizon(t *testing.T) (*site, *tab) {
	s := newSite(t, "", "", "")
	half := time.Now().Add(30 * time.Minute).Truncate(time.Minute)
	for i := range 5 {
		s.send("orders", fmt.Sprintf(`{"order":%d}`, i), later.WithID(fmt.Sprintf("hour-%d", i)),
			later.At(half.Add(time.Duration(i)*time.Second)))
	}
	s.send("orders", "{}", later.WithID("day-0"), later.In(12*time.Hour))
	s.send("mail", "hello", later.WithID("month-0"), later.In(15*24*time.Hour))
	b := s.open("/")
	b.see(plot)
	b.await("document.querySelectorAll('svg .bar').length === 3")
	return s, b
}

// barAt returns where the nth bar is, as a part of the width of the chart.
func (b *tab) barAt(n int) float64 {
	b.t.Helper()
	return await[float64](b, "looking for a bar", fmt.Sprintf(`
  const plot = document.querySelector('.horizon .plot').getBoundingClientRect();
  const r = document.querySelectorAll('svg .bar')[%d].getBoundingClientRect();
  return (r.x + r.width/2 - plot.x) / plot.width`, n))
}

// heights returns the heights of the bars.
func (b *tab) heights() []float64 {
	b.t.Helper()
	return evaluate[[]float64](b, "[...document.querySelectorAll('svg .bar')].map(e => Number(e.getAttribute('height')))")
}

func TestHorizonShowsCountAndTimeOfABar(t *testing.T) {
	t.Parallel()
	_, b := newHorizon(t)
	b.await("document.querySelector('.figures').textContent.includes('7')")
	b.hover(b.barAt(0), 0.4, plot)
	b.see(".tip", "5 messages")
	b.see(".tip", " – ")
	b.click("summary", "Table")
	b.see(".numbers table")
	b.click(".numbers table a", "5")
	b.see("strong", "5 messages in the range")
}

func TestHorizonGivesEachBandAScaleOfItsOwn(t *testing.T) {
	t.Parallel()
	s, b := newHorizon(t)
	for _, text := range []string{"up to 5 per minute", "up to 1 per 30 min", "up to 1 per 12 h", "none"} {
		b.see("svg .label", text)
	}
	b.see("svg .head", "5.1/h") // the mean of the hour, in the unit of all bands
	b.see("svg .head", "1.0/day")
	for i, h := range b.heights() {
		if h != 120 {
			t.Errorf("the highest bar of band %d is %g pixels high", i, h)
		}
	}
	s.send("orders", "{}", later.In(50*time.Minute))
	b.await("document.querySelectorAll('svg .bar').length === 4")
	if h := b.heights(); h[1] != 24 {
		t.Errorf("one message beside five is %g pixels high, want a fifth of 120", h[1])
	}
	b.click(".tools a", "√ heights")
	b.awaitURL("scale=sqrt")
	b.await("document.querySelectorAll('svg .bar')[1].getAttribute('height') > 50")
	if h := b.heights(); math.Abs(h[1]-120/math.Sqrt(5)) > 0.01 {
		t.Errorf("by square root it is %g pixels high", h[1])
	}
}

func TestHorizonHasClockTimesAndNow(t *testing.T) {
	t.Parallel()
	s := newGallery(t)
	b := s.with(t).openGallery("/")
	b.awaitComplete(".plot svg .bar")
	for _, text := range []string{"now", "12:00:30", "12:15", "12:30", "18:00", "Jan 16", "Jan 21"} {
		b.see("svg text", text)
	}
	if n := evaluate[int](b, "document.querySelectorAll('svg .now').length"); n != 1 {
		t.Errorf("%d lines for now", n)
	}
	b.see("svg .end", "overdue")
	if got := evaluate[string](b, "document.querySelector('svg .end .figure').textContent"); got != "1" {
		t.Errorf("%s messages are overdue, want 1", got)
	}
	if h := b.heights(); h[0] != 16 {
		t.Errorf("the block of overdue messages is %g pixels high", h[0])
	}
	b.see(".legend", "run of a schedule")
}

// The journey: what falls due tonight?
func TestHorizonShowsWhatFallsDueTonight(t *testing.T) {
	t.Parallel()
	s := newGallery(t)
	b := s.with(t).openGallery("/")
	for _, l := range looks {
		b.as(l)
		b.awaitComplete(".plot svg .bar")
		b.click(".ranges a", "tonight")
		b.awaitURL("from=2030-01-15T18:00:00.000Z&to=2030-01-16T06:00:00.000Z")
		b.see(".range strong", "15 messages in the range")
		b.see(".range", "due from 18:00 before Jan 16 06:00")
		b.see(".due li", "orders 13")
		b.see(".rows td.id", "order-") // on a phone not all of them are drawn at once
		b.check()
		b.screenshot("tonight-" + l.name)
		b.click(".ranges a", "all")
		b.gone(".range")
	}
	b.as(looks[0])
	b.click(".ranges a", "tonight")
	b.await("document.querySelectorAll('.rows tbody tr td.id').length === 15")
	b.see("svg .head", "18:00 – Jan 16 06:00")
	b.see("svg .label", "per 5 min")
	b.see("svg text", "Jan 16")
	b.gone("svg .now")
	b.click(".due a", "mail")
	b.awaitURL("queue=mail")
	b.await("document.querySelectorAll('.rows tbody tr td.id').length === 2")
	b.see(".range strong", "2 messages in the range")
	b.gone(".due")
	b.click("button", "Later")
	b.awaitURL("from=2030-01-16T06:00:00.000Z")
	b.click(".ranges a", "all")
	b.gone(".range")
	b.awaitURL("queue=mail")
	for _, p := range [][2]string{{"tomorrow", "2030-01-17T00:00"}, {"this week", "2030-01-21T00:00"},
		{"next hour", "2030-01-15T13:00"}} {
		b.click(".ranges a", p[0])
		b.awaitURL("to=" + p[1])
	}
	b.see("svg .now")
}

func TestHorizonListsTheQueuesOfABar(t *testing.T) {
	t.Parallel()
	s, b := newHorizon(t)
	for i := range 12 {
		s.send(fmt.Sprintf("queue-%02d", i), "{}", later.At(time.Now().Add(30*time.Minute).Truncate(time.Minute)))
	}
	b.see("svg .label", "up to 17 per minute")
	at := b.barAt(0)
	b.drag(at, at, plot)
	b.see(".range strong", "17 messages in the range")
	b.see(".due li", "orders 5")
	if strings.Contains(b.url(), "z0=") {
		t.Error("a single bar changes the axis")
	}
	b.click(".due button", "and 5 other queues with 5")
	b.see(".due li", "queue-11 1")
	b.click(".due a", "queue-07")
	b.await("document.querySelectorAll('.rows tbody tr td.id').length === 1")
}

func TestHorizonRangeIsWhatTheListShows(t *testing.T) {
	t.Parallel()
	s, b := newHorizon(t)
	b.drag(b.barAt(0)-0.02, b.barAt(1)+0.02, plot)
	b.see("strong", "6 messages in the range")
	b.see(".rows td.id", "day-0")
	b.await("document.querySelectorAll('.rows tbody tr td.id').length === 6")
	b.gone(".rows td.id", "month-0")
	b.awaitURL("z0=") // the axis is linear
	b.await("document.querySelectorAll('svg .head').length === 1")
	link := b.url()
	b.press(kb.Escape)
	b.see(".rows td.id", "month-0")
	b.gone(".range")
	b.await("document.querySelectorAll('svg .head').length === 4")
	b.visit(link[len(s.url):]) // state is in the URL
	b.see("strong", "6 messages in the range")
}

func TestHorizonZoomsByButtonsAndKeys(t *testing.T) {
	t.Parallel()
	_, b := newHorizon(t)
	b.click("button", "Zoom in")
	b.awaitURL("z0=")
	b.await("document.querySelectorAll('svg .head').length === 1")
	b.await("document.querySelectorAll('svg .tick').length > 0")
	b.click("button", "Zoom out")
	b.see("svg .head", " – ")
	b.click(".ranges a", "all")
	b.see("svg .head", "next hour")

	evaluate[bool](b, "document.querySelector('.plot').focus(), true")
	b.press(kb.End)
	b.see(".tip", "due after")
	b.press("+")
	b.awaitURL("z0=")
	b.press("-")
	b.await("!location.search.includes('z0')") // a month is the whole again
}

func TestHorizonIsUsedByKeys(t *testing.T) {
	t.Parallel()
	_, b := newHorizon(t)
	evaluate[bool](b, "document.querySelector('.plot').focus(), true")
	b.press(kb.Home)
	b.see(".tip", "due before")
	b.await("document.querySelector('.horizon [aria-live]').textContent.includes('0 messages, due before')")
	for range 10 {
		b.press(kb.ArrowRight, chromedp.ModifierShift)
	}
	b.press(kb.Home)
	for range 5 {
		b.press(kb.PageDown, chromedp.ModifierShift)
	}
	b.press(kb.Enter)
	b.awaitURL("to=")
	b.see(".range", "Selected: due")
	b.press(kb.Escape)
	b.gone(".range")
	b.press(kb.End)
	b.press(kb.Enter)
	b.see(".range strong", "0 messages in the range")
}

func TestHorizonIsLiveAndMarksRuns(t *testing.T) {
	t.Parallel()
	s, b := newHorizon(t)
	b.see(".live", "live")
	b.gone(".legend", "run of a schedule")
	s.send("mail", "late", later.At(time.Now().Add(-time.Hour)))
	b.see("svg .end .figure.late", "1")
	b.see(".figures", "longest overdue")
	s.schedule("report", "*/10 * * * *")
	b.await("document.querySelectorAll('svg .mark').length > 0")
	b.see(".legend", "run of a schedule")
}

// Bars glide towards now; with reduced motion each overview is drawn where it is, once a second.
func TestHorizonMovesTowardsNow(t *testing.T) {
	t.Parallel()
	s, b := newHorizon(t)
	s.send("mail", "soon", later.WithID("soon"), later.In(55*time.Second))
	b.await("document.querySelectorAll('svg .bar.soon').length === 1")
	const at = "Number(document.querySelector('svg .bar.soon').getAttribute('x'))"
	before := evaluate[float64](b, at)
	b.await(fmt.Sprintf("%s <= %g", at, before-6))
	const glides = "getComputedStyle(document.querySelector('svg .bar.soon')).transitionDuration"
	if got := evaluate[string](b, glides); !strings.HasPrefix(got, "0.5s") {
		t.Errorf("bars move in %s", got)
	}
	b.media("prefers-reduced-motion", "reduce")
	b.await(glides + " === '0s'")
}

func TestRangesHavePartsOfARoundLength(t *testing.T) {
	t.Parallel()
	b := newSite(t, "", "", "").open("/")
	b.see("main", "There are no queues")
	got := evaluate[string](b, module("axis.js")+`.then(({ wholeParts }) =>
  [['T12:00:00', 'T13:00:00'], ['T12:34:56', 'T12:35:10'], ['T00:00:00', 'T12:00:01'], ['T12:00:00', 'T12:00:02']].map(
    ([from, to]) => {
      const r = wholeParts(Date.parse('2030-01-15' + from + 'Z'), Date.parse('2030-01-15' + to + 'Z'));
      return [r.from, r.to].map(at => new Date(at).toISOString().slice(11, 19)).join('–') + '/' + r.parts;
    }).join(' '))`)
	const want = "12:00:00–13:00:00/120 12:34:56–12:35:10/14 00:00:00–12:05:00/145 12:00:00–12:00:02/2"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Berlin sets its clock forward in the night before Sunday, 31 March 2030.
func TestPresetsAreOnTheLocalClock(t *testing.T) {
	t.Parallel()
	b := newSite(t, "", "", "").open("/")
	b.zone("Europe/Berlin")
	b.visit("/")
	b.see("main", "There are no queues")
	got := evaluate[string](b, module("ranges.js")+`.then(
  ({ presets, presetOf }) => ['2030-03-30T11:00:30Z', '2030-03-30T20:00:30Z', '2030-03-31T00:30:30Z'].map(at => {
    const all = presets(Date.parse(at)), after = Date.parse(at) + 600e3;
    const text = p => p.name + ' ' + [p.from, p.to].map(t => t.slice(8, 16)).join('–');
    return all.map(text).join(', ') + ': ' + all.map(p => presetOf(p, after) ?? 'none').join(', ');
  }).join('\n'))`)
	const want = `next hour 30T11:00–30T12:00, tonight 30T17:00–31T04:00, tomorrow 30T23:00–31T22:00, ` +
		`this week 30T11:00–31T22:00: next hour, tonight, tomorrow, this week
next hour 30T20:00–30T21:00, tonight 30T20:00–31T04:00, tomorrow 30T23:00–31T22:00, ` +
		`this week 30T20:00–31T22:00: next hour, tonight, tomorrow, this week
next hour 31T00:30–31T01:30, tonight 31T00:30–31T04:00, tomorrow 31T22:00–01T22:00, ` +
		`this week 31T00:30–31T22:00: next hour, tonight, tomorrow, this week`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
