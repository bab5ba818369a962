package pagetest

import (
	"testing"

	"github.com/laterq/later"
)

func TestDeadLettersWithOneErrorAreReplayedInAllQueues(t *testing.T) {
	journey(t, func(t *testing.T, l look) {
		s := newSite(t, "", "", "")
		s.bury("webhooks", "order %d: shop.example returns 503", 3)
		s.bury("mail", "order %d: shop.example returns 503", 2)
		s.bury("mail", "no such address: %d", 4)
		b := s.openAs(l, "/?state=dead&group=error")
		b.see(".listhead", "2 kinds of errors in 9 dead messages")
		b.see(".problems li", "died in the last hour") // which moves what is below
		s.bury("sms", "\u202egnp.exe %d is refused", 1)
		b.click("button", "Refresh")
		b.await("document.querySelectorAll('.errors li').length === 3")
		b.see(".listhead", "3 kinds of errors in 10 dead messages")
		b.see(".errors li:first-child strong", "5")
		b.see(".errors li:first-child p", "webhooks 3, mail 2 · first")
		b.await(`document.querySelector('.errors .trend').ariaLabel.startsWith('5 deaths in the last 24 h, most ')`)
		b.see(".errors li", "5 in 24 h")
		b.await(`!document.querySelector('.errors').textContent.includes('\u202e')`) // it is shown as text
		const asked = "performance.getEntriesByType('resource').filter((e) => e.name.includes('dead-errors')).length"
		if n := evaluate[int](b, asked); n != 2 {
			t.Errorf("%d requests for the groups, want one for each look", n)
		}
		b.check()
		b.screenshot("dead-errors-queues-" + l.name)

		b.click(".segmented button", "latest")
		b.see(".errors li:first-child", "is refused")
		b.click(".segmented button", "most")
		b.click(".errors li:first-child button", "Replay…")
		b.check()
		b.click("dialog button", "See what matches")
		b.confirm("5", "Replay")
		b.check()
		b.click("dialog button", "Close")
		b.await("document.querySelectorAll('.errors li').length === 2")
		for queue, want := range map[string]later.Stats{"webhooks": {Ready: 3}, "mail": {Ready: 2, Dead: 4},
			"sms": {Dead: 1}} {
			if got := s.stats(queue); got.Ready != want.Ready || got.Dead != want.Dead {
				t.Errorf("%s: %+v", queue, got)
			}
		}
		b.click(".errors li:first-child button", "Cancel…")
		b.click("dialog button", "See what matches")
		b.confirm("4", "Cancel")
		b.click("dialog button", "Close")
		b.await("document.querySelectorAll('.errors li').length === 1")
		if got := s.stats("mail"); got.Dead != 0 || got.Ready != 2 {
			t.Errorf("%+v", got)
		}
		b.click(".errors a", "is refused")
		b.await("document.querySelectorAll('.rows td.id').length === 1")
	})
}

func TestDeadErrorsOfOneQueueAreOfThatQueue(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", roles(t))
	s.bury("webhooks", "503 of %d", 3)
	s.bury("mail", "503 of %d", 2)
	b := s.login("/?state=dead&group=error&queue=mail", "reader")
	b.see(".listhead", "1 kind of errors in 2 dead messages")
	b.see(".errors li:first-child strong", "2")
	b.gone(".errors button", "Replay…")
}
