package pagetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/laterq/later"
)

func TestCancelIsUndoneByANotice(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.send("orders", `{"total":1}`, later.WithID("a"), later.In(time.Hour), later.Header("kind", "gift"))
	due := s.due("orders", "a")
	b := s.open("/?queue=orders")
	b.see(".rows td.id", "a")
	b.press("jx")
	b.see("dialog", "Cancel a?")
	b.click("dialog button.danger")
	b.see(".notice", "a is cancelled")
	b.gone(".rows td.id", "a")
	b.click(".notice button", "Undo")
	b.see(".notice", "a is back as it was")
	b.see(".rows td.id", "a")
	s.wantDue("orders", "a", due)
}

// TestWrongBulkChangeIsUndoneInFourActions undoes a cancel of all messages that was made in another tab.
func TestWrongBulkChangeIsUndoneInFourActions(t *testing.T) {
	journey(t, func(t *testing.T, l look) {
		s := newSite(t, "", "", "")
		s.fill("orders", 30)
		b := s.openAs(l, "/?queue=orders")
		b.see(".rows td.id", "m-00")
		b.click("button", "Change all that match…")
		b.click("dialog label.choice", "Cancel")
		b.click("dialog button", "See what matches")
		b.confirm("30", "Cancel")
		b.see("dialog button", "Undo")
		b.click("dialog button", "Close")
		b.visit("/")
		b.see(".figures")
		b.press("gc") // two actions
		b.see("td", "bulk change")
		b.see("td", "until")
		b.see("td.payload", "count=30")
		b.check()
		b.click("td button", "Undo for 30 messages")
		b.see("dialog", "Undo \"bulk change\"?")
		b.check()
		b.click("dialog button.primary", "Undo for 30 messages")
		b.see(".notice", "30 messages are as before")
		if left := s.stats("orders").Scheduled; left != 30 {
			t.Errorf("%d messages are there", left)
		}
		b.see("td", "undone by")
		b.gone("td button", "Undo")
	})
}

func TestUndoOfSeveralQueuesGoesOnAfterOneWithNothingLeft(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("a", 2)
	s.fill("b", 2)
	due := s.due("b", "m-01")
	b := s.open("/")
	b.see(".rows td.id", "m-01")
	b.click("button", "Change all that match…")
	b.click("dialog label.choice", "Shift")
	b.write("2h", "dialog input[name=by]")
	b.click("dialog button", "See what matches")
	b.confirm("4", "Shift")
	if _, err := s.client.Queue("a").Purge(t.Context(), later.StateScheduled); err != nil {
		t.Fatal(err)
	}
	b.allow("409")
	b.click("dialog button", "Undo")
	b.see(".notice", "2 messages are as before")
	b.see(".notice.bad", "is no longer as the change left it")
	s.wantDue("b", "m-01", due)
}

func TestCursorStaysOnItsMessage(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	for i := range 8 {
		s.send("orders", "{}", later.WithID(fmt.Sprintf("m-%d", i)), later.In(time.Duration(i+1)*time.Hour))
	}
	q := s.client.Queue("orders")
	b := s.open("/?queue=orders")
	b.see(".rows td.id", "m-7")
	b.press("jjjj")
	b.see("tr[data-cursor]", "m-3")
	if _, err := q.CancelBatch(t.Context(), []string{"m-0", "m-1"}); err != nil {
		t.Fatal(err)
	}
	s.send("orders", "{}", later.WithID("first"), later.In(time.Minute))
	b.press(".")
	b.see(".rows td.id", "first")
	b.see("tr[data-cursor]", "m-3")
	b.await("document.activeElement.matches('tr[data-cursor]')")
	b.press("s")
	b.see("dialog", "Reschedule m-3")
	b.closeDialog()
	if _, err := q.Cancel(t.Context(), "m-3"); err != nil {
		t.Fatal(err)
	}
	b.press(".")
	b.gone(".rows td.id", "m-3")
	b.gone("tr[data-cursor]")
	b.press("rxse") // on no message
	b.gone("dialog")
	b.press("j")
	b.see("tr[data-cursor]", "m-4")
	b.press("k")
	b.see("tr[data-cursor]", "m-2")
	b.press("r")
	b.see("dialog", "Run m-2 now?")
	b.see("dialog", "It is in the queue orders")
	b.press("rr")
	b.press(kb.Enter)
	b.see(".notice", "m-2 is due now")
	if stats := s.stats("orders"); stats.Ready != 1 {
		t.Errorf("%+v", stats)
	}
}

func TestPauseIsUndoneByANotice(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.send("orders", "{}", later.In(time.Hour))
	b := s.open("/?queue=orders")
	b.click(".queues button", "Pause")
	b.click("dialog button.primary", "Pause")
	b.see(".notice", "orders is paused")
	b.see(".queues .badge", "paused")
	b.click(".notice button", "Undo")
	b.see(".notice", "orders is resumed")
	b.gone(".queues .badge", "paused")
	if s.stats("orders").Paused {
		t.Error("it is paused")
	}
}
