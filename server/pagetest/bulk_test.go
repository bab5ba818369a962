package pagetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/laterq/later"
)

// fill sends messages that are due in an hour, with ids such as m-07.
func (s *site) fill(queue string, n int) {
	s.Helper()
	for i := range n {
		s.send(queue, fmt.Sprintf(`{"order":%d}`, i), later.WithID(fmt.Sprintf("m-%02d", i)), later.In(time.Hour))
	}
}

func (s *site) stats(queue string) later.Stats {
	s.Helper()
	stats, err := s.client.Queue(queue).Stats(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return stats
}

// confirm types the count of a bulk change that the dialog has looked at, and makes it.
func (b *tab) confirm(count, action string) {
	b.t.Helper()
	b.see("dialog strong", count+" message")
	b.await("document.querySelector('dialog form .buttons button:last-child').disabled")
	b.write(count, "dialog input[name=count]")
	b.click("dialog .buttons button", action+" "+count+" message")
	b.see("dialog strong", count+" message")
	b.see("dialog button", "Close")
}

func TestBulkShiftOfWhatMatchesIsConfirmedAndUndone(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 25)
	due := s.due("orders", "m-11")
	b := s.open("/?queue=orders&q=id%3Am-1") // m-10 to m-19
	b.see(".rows td.id", "m-19")
	b.click("button", "Change all that match…")
	b.click("dialog label.choice", "Shift")
	b.write("2h", "dialog input[name=by]")
	b.click("dialog button", "See what matches")
	b.await("document.querySelectorAll('dialog tbody tr').length === 10")
	if got := s.due("orders", "m-11"); !got.Equal(due) {
		t.Errorf("the dry run moved it to %v", got)
	}
	b.confirm("10", "Shift")
	for id, want := range map[string]time.Duration{"m-11": 2 * time.Hour, "m-19": 2 * time.Hour, "m-05": 0} {
		if moved := s.due("orders", id).Sub(due); moved < want-time.Minute || moved > want+time.Minute {
			t.Errorf("%s moved by about %v, want %v", id, moved, want)
		}
	}
	b.click("dialog button", "Undo")
	b.see(".notice", "10 messages are as before")
	s.wantDue("orders", "m-11", due)
	b.visit("/?view=changes")
	b.see("#changes-title, h1", "Changes")
	b.see("table", "change undone")
	b.see("table", "undone by")
}

func TestBulkCancelNeedsTheRightCount(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 12)
	s.send("mail", "stays", later.In(time.Hour))
	b := s.open("/?queue=orders")
	b.see(".rows td.id", "m-11")
	b.click("button", "Change all that match…")
	b.click("dialog label.choice", "Cancel")
	b.click("dialog button", "See what matches")
	b.see("dialog strong", "12 messages")
	if href := b.attribute("href", "dialog a.button", "Download"); href == "" {
		t.Error("what is removed cannot be downloaded first")
	}
	b.write("11", "dialog input[name=count]")
	b.await("document.querySelector('dialog button.danger').disabled")
	b.confirm("12", "Cancel")
	if left := s.stats("orders").Scheduled; left != 0 {
		t.Errorf("%d messages are left", left)
	}
	if left := s.stats("mail").Scheduled; left != 1 {
		t.Errorf("mail has %d messages", left)
	}
}

func TestBulkChangeOfNothingSaysSo(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 1)
	b := s.open("/?queue=orders&q=nothing")
	b.see(".rows", "Nothing matches")
	b.click("button", "Change all that match…")
	b.click("dialog button", "See what matches")
	b.see("dialog", "Nothing matches")
}

// bury makes messages dead, with an error.
func (s *site) bury(queue, reason string, n int) {
	s.Helper()
	for range n {
		s.send(queue, "x")
	}
	held, err := s.client.Queue(queue).Receive(s.Context(), n)
	if err != nil || len(held) != n {
		s.Fatalf("%d received: %v", len(held), err)
	}
	for i, d := range held {
		if err := d.Bury(s.Context(), fmt.Errorf(reason, i)); err != nil {
			s.Fatal(err)
		}
	}
}

func TestDeadLettersAreGroupedByErrorAndReplayed(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.bury("webhooks", "order %d: shop.example returns 503", 4)
	s.bury("webhooks", "card of customer %d has expired", 3)
	s.bury("mail", "no such address: %d", 2)
	b := s.open("/")
	b.click(".figures a", "dead")
	b.see(".rows td.payload", "returns 503")
	b.click("a", "by error")
	b.await("document.querySelectorAll('.errors li').length === 3")
	b.see(".errors li:first-child strong", "4")
	b.checkLooks("dead-errors")
	b.size(1280, 800, 1)
	b.click(".errors li:first-child button", "Replay…")
	b.click("dialog button", "See what matches")
	b.confirm("4", "Replay")
	b.click("dialog button", "Close")
	b.await("document.querySelectorAll('.errors li').length === 2")
	if stats := s.stats("webhooks"); stats.Dead != 3 || stats.Ready != 4 {
		t.Errorf("%+v", stats)
	}
	b.click(".errors a", "card of customer")
	b.await("document.querySelectorAll('.rows td.id').length === 3")
}
