package pagetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/laterq/later"
)

// plot is the chart of the horizon.
const plot = ".horizon .plot"

// newHorizon is a site with messages that are due in the four bands, and a tab with its page.
func newHorizon(t *testing.T) (*site, *tab) {
	s := newSite(t, "", "", "")
	for i := range 5 {
		s.send("orders", fmt.Sprintf(`{"order":%d}`, i), later.WithID(fmt.Sprintf("hour-%d", i)), later.In(30*time.Minute))
	}
	s.send("orders", "{}", later.WithID("day-0"), later.In(12*time.Hour))
	s.send("mail", "hello", later.WithID("month-0"), later.In(15*24*time.Hour))
	b := s.open("/")
	b.see(plot)
	b.await("document.querySelectorAll('svg .bar').length >= 3")
	return s, b
}

// A place in the middle of the hour, of the day and of the month: the bands overdue and later take 7 % of the width.
const (
	inHour  = 0.07 + 0.86*1.5/4
	inDay   = 0.07 + 0.86*2.5/4
	inMonth = 0.07 + 0.86*3.5/4
)

func TestHorizonShowsCountAndTimeOfABar(t *testing.T) {
	t.Parallel()
	_, b := newHorizon(t)
	b.await("document.querySelector('.summary, .figures').textContent.includes('7')")
	// The bar that five messages are in is the highest.
	high := await[float64](b, "looking for the highest bar", `
  const high = e => e.getAttribute('height');
  const all = [...document.querySelectorAll('svg .bar')].sort((a, b) => high(b) - high(a));
  const plot = document.querySelector('.horizon .plot').getBoundingClientRect();
  const r = all[0].getBoundingClientRect();
  return (r.x + r.width/2 - plot.x) / plot.width`)
	b.hover(high, 0.4, plot)
	b.see(".tip", "5 messages")
	b.click("summary", "Table")
	b.see(".numbers table")
	b.click(".numbers table a", "5")
	b.see("strong", "5 messages in the range")
}

func TestHorizonRangeIsWhatTheListShows(t *testing.T) {
	t.Parallel()
	s, b := newHorizon(t)
	b.drag(inHour-0.1, inDay+0.1, plot)
	b.see("strong", "6 messages in the range")
	b.see(".rows td.id", "day-0")
	b.await("document.querySelectorAll('.rows tbody tr td.id').length === 6")
	b.gone(".rows td.id", "month-0")
	link := b.url()
	b.press(kb.Escape)
	b.see(".rows td.id", "month-0")
	b.gone(".range")
	b.visit(link[len(s.url):]) // state is in the URL
	b.see("strong", "6 messages in the range")
}

func TestHorizonZoomsByButtonsAndKeys(t *testing.T) {
	t.Parallel()
	_, b := newHorizon(t)
	b.click("button", "Zoom in")
	b.awaitURL("z0=")
	b.see("button", "whole horizon")
	b.await("document.querySelectorAll('svg .tick').length > 0")
	b.click("button", "whole horizon")
	b.gone("button", "whole horizon")
	b.see("svg text", "1 hour")

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
}

func TestHorizonIsLiveAndMarksRuns(t *testing.T) {
	t.Parallel()
	s, b := newHorizon(t)
	b.see(".live", "live")
	before := evaluate[int](b, "document.querySelectorAll('svg .bar').length")
	s.send("mail", "late", later.At(time.Now().Add(-time.Hour)))
	b.await(fmt.Sprintf("document.querySelectorAll('svg .bar').length > %d", before))
	b.see(".figures", "longest overdue")
	s.schedule("report", "*/10 * * * *")
	b.await("document.querySelectorAll('svg .mark').length > 0")
}

func TestHorizonScalesItsBars(t *testing.T) {
	t.Parallel()
	_, b := newHorizon(t)
	lowest := "Math.min(...[...document.querySelectorAll('svg .bar')].map(e => Number(e.getAttribute('height'))))"
	root := evaluate[float64](b, lowest)
	b.click(".segmented a", "linear")
	b.awaitURL("scale=linear")
	b.await(fmt.Sprintf("%s < %g", lowest, root-5))
	b.click(".segmented a", "log")
	b.awaitURL("scale=log")
}
