package pagetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/laterq/later"
)

// shiftClick clicks on an element with the shift key held.
func (b *tab) shiftClick(selector string, text ...string) {
	b.t.Helper()
	at := b.place(0.5, 0.5, selector, text...)
	b.call(chromedp.MouseClickXY(at[0], at[1], chromedp.ButtonModifiers(chromedp.ModifierShift)))
}

func TestSelectedMessagesAreShiftedAndMovedBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 25)
	due := s.due("orders", "m-03")
	b := s.open("/?queue=orders")
	b.see(".rows td.id", "m-10")
	const top = "document.querySelector('.rows').getBoundingClientRect().top"
	before := evaluate[float64](b, top)
	b.click(".pick label", "Select m-02")
	b.see(".selected", "1 selected")
	if y := evaluate[float64](b, top); y != before {
		t.Errorf("the list has moved from %g to %g", before, y)
	}
	b.shiftClick(".pick label", "Select m-06")
	b.see(".selected", "5 selected")
	b.click(".pick label", "Select m-04")
	b.see(".selected", "4 selected")
	b.await("!document.querySelector('.panel')") // a click on a box opens no message
	// It stays on the messages while the list changes.
	s.send("orders", "x", later.WithID("earlier"), later.In(time.Minute))
	b.press(".")
	b.see(".rows td.id", "earlier")
	b.await("[...document.querySelectorAll('.picked td.id')].map(e => e.textContent).join() === 'm-02,m-03,m-05,m-06'")
	b.checkLooks("selection")
	b.size(1280, 800, 1)
	b.click(".selected button", "Shift…")
	b.see("dialog h2", "Change 4 selected messages")
	b.write("2h", "dialog input[name=by]")
	if err := s.client.Queue("orders").RunNow(t.Context(), "m-05"); err != nil { // it is scheduled no more
		t.Fatal(err)
	}
	b.click("dialog button", "See what matches")
	b.see("dialog strong", "3 messages")
	b.see("dialog .late", "1 selected message")
	b.checkAccess()
	b.click("dialog .buttons button", "Shift 3 messages")
	b.see("dialog strong", "3 messages changed")
	b.gone(".selected")
	for id, want := range map[string]time.Duration{"m-02": 2 * time.Hour, "m-03": 2 * time.Hour, "m-04": 0, "m-07": 0} {
		if moved := s.due("orders", id).Sub(due); moved < want-time.Minute || moved > want+time.Minute {
			t.Errorf("%s moved by about %v, want %v", id, moved, want)
		}
	}
	b.click("dialog button", "Undo")
	b.see(".notice", "3 messages are as before")
	s.wantDue("orders", "m-03", due)
}

// A bulk change takes 1,000 ids at most, so a larger selection is several of them.
func TestSelectionHasMoreThanOneChangeTakes(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	const n = 1100
	batch := make([]later.Outgoing, n)
	for i := range batch {
		batch[i] = later.Outgoing{ID: fmt.Sprintf("m-%04d", i), When: later.In(time.Duration(i+1) * time.Minute)}
	}
	for part := range slices.Chunk(batch, 500) {
		if _, err := s.client.Queue("orders").SendBatch(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	b := s.open("/?queue=orders")
	b.click(".pick label", "Select m-0000")
	b.see(".selected", "1 selected")
	last := 0
	for _, to := range []int{90, 400, 700, 1000, n - 1} {
		for last < to { // rows are read as they come into sight
			last = min(to, last+60)
			await[bool](b, fmt.Sprintf("scrolling to row %d", last), fmt.Sprintf(`
  document.querySelector('.rows').scrollTop = %d;
  return [...document.querySelectorAll('.rows td.id')].some(e => e.textContent === 'm-%04d')`, 34*(last-3), last))
		}
		b.shiftClick(".pick label", fmt.Sprintf("Select m-%04d", to))
		b.await(fmt.Sprintf("document.querySelector('.selected strong').textContent.replace(/\\D/g, '') === '%d'", to+1))
	}
	evaluate[bool](b, "document.querySelector('.rows').scrollTop = 0, true")
	b.shiftClick(".pick label", "Select m-0000")
	b.see(".notice.bad", "The range is too long")
	b.click(".selected button", "Cancel…")
	b.click("dialog button", "See what matches")
	b.click("dialog .buttons button", "Cancel 1,100 messages")
	b.see("dialog strong", "1,100 messages changed")
	if left := s.stats("orders").Scheduled; left != 0 {
		t.Errorf("%d messages are left", left)
	}
}

func TestSelectionByKeyboard(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 9)
	b := s.open("/?queue=orders")
	b.see(".rows td.id", "m-08")
	b.press("jj ")
	b.see(".selected", "1 selected")
	b.await("document.querySelector('.picked td.id').textContent === 'm-01'")
	b.press("jjj")
	b.press(" ", chromedp.ModifierShift)
	b.see(".selected", "4 selected")
	b.press(kb.Escape)
	b.gone(".selected")
	b.press(" ")
	b.see(".selected", "1 selected")
	b.click(".selected button", "Cancel…")
	b.click("dialog button", "See what matches")
	b.see("dialog tbody td", "m-04")
	b.click("dialog button.danger", "Cancel 1 message")
	b.see("dialog strong", "1 message changed")
	b.closeDialog()
	b.gone(".rows td.id", "m-04")
	if left := s.stats("orders").Scheduled; left != 8 {
		t.Errorf("%d messages are left", left)
	}
}

func TestSelectionOfSeveralQueuesAndDeadMessages(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", roles(t))
	s.bury("a", "error %d", 2)
	s.bury("b", "error %d", 2)
	b := s.login("/?state=dead", "operator")
	b.await("document.querySelectorAll('.rows .pick input').length === 4")
	b.click(".rows tbody tr:first-child .pick label")
	b.shiftClick(".rows tbody tr:nth-child(3) .pick label")
	b.see(".selected", "3 selected")
	b.gone(".selected button", "Shift…") // they are dead
	b.click(".selected button", "Replay…")
	b.click("dialog button", "tomorrow 9:00")
	b.click("dialog button", "See what matches")
	b.click("dialog .buttons button", "Replay 3 messages")
	b.see("dialog strong", "3 messages changed")
	if a, c := s.stats("a"), s.stats("b"); a.Dead+c.Dead != 1 || a.Scheduled+c.Scheduled != 3 {
		t.Errorf("a %+v, b %+v", a, c)
	}
	b = s.login("/?state=dead", "reader")
	b.see(".rows td.payload", "error")
	b.gone(".rows .pick")
}

// The journey of issue 34: the message of order 42 is moved to tomorrow 9:00 in six actions.
func TestMessageIsMovedToTomorrowInSixActions(t *testing.T) {
	journey(t, func(t *testing.T, l look) {
		s := newSite(t, "", "", "")
		for i := range 60 {
			s.send("reminders", fmt.Sprintf(`{"order":%d}`, i), later.WithID(fmt.Sprintf("order-%d", i)), later.In(48*time.Hour))
		}
		b := s.openAs(l, "/")
		b.see(".queues li")
		b.zone("Europe/Berlin")
		b.visit("/")
		b.see(".rows td.id")
		b.press("/")                              // 1
		b.write("order-42", "#find")              // 2
		b.press(kb.Enter)                         // 3
		b.click(".panel button", "Reschedule…")   // 4
		b.click("dialog button", "tomorrow 9:00") // 5
		b.check()
		b.click("dialog button.primary", "Reschedule") // 6
		b.see(".notice", "order-42 is due")
		b.check()
		berlin, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		day := time.Now().In(berlin).AddDate(0, 0, 1)
		want := time.Date(day.Year(), day.Month(), day.Day(), 9, 0, 0, 0, berlin)
		s.wantDue("reminders", "order-42", want)
	})
}

// TestUsualTimesAreOfTheCalendar looks at times around changes to and from summer time, and at ends of days and weeks.
func TestUsualTimesAreOfTheCalendar(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	b := s.open("/")
	b.see("main", "There are no queues")
	b.zone("Europe/Berlin")
	b.visit("/")
	b.see("main", "There are no queues")
	const script = `.then(({ usualTimes }) => usualTimes(Date.parse(%s))
  .map(t => t.name + ' ' + (t.in ?? new Date(t.at).toISOString())).join('; '))`
	for now, want := range map[string]string{
		"2027-03-27T12:00:00+01:00": "in 1 h 1h; tonight 20:00 2027-03-27T19:00:00.000Z; " + // a day of 23 hours follows
			"tomorrow 9:00 2027-03-28T07:00:00.000Z; Monday 9:00 2027-03-29T07:00:00.000Z",
		"2027-10-30T21:00:00+02:00": "in 1 h 1h; tomorrow 9:00 2027-10-31T08:00:00.000Z; " + // and one of 25
			"Monday 9:00 2027-11-01T08:00:00.000Z",
		"2027-10-31T02:30:00+01:00": "in 1 h 1h; tonight 20:00 2027-10-31T19:00:00.000Z; " + // the hour is there twice
			"tomorrow 9:00 2027-11-01T08:00:00.000Z",
		"2027-06-07T08:00:00+02:00": "in 1 h 1h; tonight 20:00 2027-06-07T18:00:00.000Z; " + // a Monday
			"tomorrow 9:00 2027-06-08T07:00:00.000Z; Monday 9:00 2027-06-14T07:00:00.000Z",
		"2027-12-31T23:59:59+01:00": "in 1 h 1h; tomorrow 9:00 2028-01-01T08:00:00.000Z; " +
			"Monday 9:00 2028-01-03T08:00:00.000Z",
	} {
		if got := evaluate[string](b, module("when.js")+fmt.Sprintf(script, quote(now))); got != want {
			t.Errorf("at %s:\n%s\nwant\n%s", now, got, want)
		}
	}
}
