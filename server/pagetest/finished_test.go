package pagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/server"
)

// newKeepingSite is newSite with a list of the finished messages of mail.
func newKeepingSite(t testing.TB, config string) *site {
	t.Helper()
	client, err := later.Open(t.Context(), "mem://")
	if err != nil {
		t.Fatal(err)
	}
	return newSiteKeeping(t, client, "", config, server.FinishedConfig{Queues: []string{"mail"}, MaxCount: 120})
}

// handle handles n messages of mail: the handler fails for payloads that say so.
func (s *site) handle(n int) {
	s.Helper()
	done := make(chan struct{}, n)
	stop := s.work(later.WorkerConfig{Name: "mailer"}, "mail", func(_ context.Context, m *later.Message) error {
		defer func() { done <- struct{}{} }()
		if string(m.Payload) == "bury" {
			return later.Bury(errors.New("no such user: \u202eann"))
		}
		return nil
	})
	defer stop()
	for range n {
		select {
		case <-done:
		case <-time.After(eventTimeout):
			s.Fatal("a message was not handled")
		}
	}
}

func TestFinishedMessagesHaveATab(t *testing.T) {
	t.Parallel()
	s := newKeepingSite(t, roles(t))
	s.send("mail", "x", later.WithID("invoice-7"))
	s.send("mail", "bury", later.WithID("invoice-8"))
	s.send("other", "x", later.WithID("o"))
	s.handle(2)
	b := s.login("/", "operator")
	b.see(".tabs", "dead")
	b.gone(".tabs a", "finished")
	b.visit("/?queue=mail")
	b.click(".tabs a", "finished")
	b.see("table.events tr", "invoice-7")
	b.see("table.events tr", "acked")
	b.see("table.events tr", "no such user: \\u202eann")
	b.see(".messages p.faint", "keeps the last 120 for 1 day")
	b.gone(".messages strong.late")
	b.checkLooks("finished")
	b.size(1280, 800, 1)

	b.choose("buried", ".filters select")
	b.gone("table.events tr", "invoice-7")
	b.see("table.events tr", "invoice-8")
	b.awaitURL("outcome=buried")
	b.choose("", ".filters select")
	b.write("none", ".filters input")
	b.see(".empty", "Nothing matches")
	b.visit("/?queue=mail&state=finished")
	for batch := range 13 { // in parts: events of a burst are dropped
		for i := range 10 {
			s.send("mail", "x", later.WithID(fmt.Sprint("more-", batch*10+i)))
		}
		s.handle(10)
		b.see("table.events tr", fmt.Sprint("more-", batch*10+9))
	}
	b.see(".messages p.faint", "120 messages since")
	b.click("button", "Earlier")
	b.await("document.querySelectorAll('table.events tbody tr').length === 20")
	b.click("button", "Latest")
	b.see("table.events tr", "more-129")
	b.click(".queues a", "other")
	b.gone(".tabs a", "finished")
	b.see(".tabs a[aria-current]", "scheduled")
}

func TestAMessageThatIsGoneSaysWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	s := newKeepingSite(t, "")
	s.send("mail", "x", later.WithID("invoice-7"))
	s.send("mail", "x", later.WithID("other-1"), later.In(time.Hour))
	s.handle(1)
	b := s.open("/?queue=mail&message=invoice-7&mq=mail")
	b.allow("404")
	b.see(".panel .why", "This message was acked")
	b.see(".panel .why", "by pagetest.test")
	b.see(".timeline li:nth-child(1)", "Sent")
	b.see(".timeline li:last-child", "Acked")
	b.checkLooks("became")
	b.size(1280, 800, 1)

	s.send("mail", "x", later.WithID("invoice-7"))
	s.handle(1)
	b.visit("/?queue=mail&message=invoice-7&mq=mail")
	const steps = "[...document.querySelectorAll('.timeline strong')].map(e => e.textContent)"
	b.await(steps + ".filter(s => s === 'Acked').length === 2")
	if got := evaluate[[]string](b, steps); !slices.Equal(got, []string{"Sent", "Fell due", "Acked", "Sent", "Fell due",
		"Acked"}) {
		t.Errorf("the steps of a message that was sent again are %q", got)
	}

	b.visit("/")
	b.write("invoice-7", "#find")
	b.see("#found [role=option]", "acked")
	b.press("\r")
	b.see(".panel .why", "This message was acked")

	b.visit("/?queue=mail&message=other-1&mq=mail")
	b.see(".timeline li.future", "Due")
	if _, err := s.client.Queue("mail").Cancel(t.Context(), "other-1"); err != nil {
		t.Fatal(err)
	}
	b.see(".panel .why", "This message was cancelled")
	b.visit("/?queue=mail&message=none&mq=mail")
	b.see(".panel", "This message does not exist any more")
}

// hold claims a message of a queue.
func (s *site) hold(queue string) *later.Delivery {
	s.Helper()
	held, err := s.client.Queue(queue).Receive(s.Context(), 1)
	if err != nil || len(held) != 1 {
		s.Fatalf("received %d messages, %v", len(held), err)
	}
	return held[0]
}

func TestTheTimelineShowsWhatTheStoreKnows(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", roles(t))
	q := s.client.Queue("mail")
	s.send("mail", "secret", later.WithID("m"), later.MaxAttempts(8), later.Timeout(time.Minute))
	for i := range 6 {
		if err := s.hold("mail").Nack(t.Context(), 0, fmt.Errorf("timeout %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	b := s.login("/?queue=mail&message=m&mq=mail", "operator")
	b.see(".timeline li:nth-child(2)", "1 earlier failed attempt – the store keeps the last 5")
	b.see(".timeline li", "Attempt 6 failed")
	b.see(".timeline pre", "timeout 5")
	b.see(".timeline li", "Fell due")
	b.see(".timeline li.future", "Dead after 2 more failed attempts")
	b.see(".panel", "The store keeps no times of snoozes")
	b.checkLooks("timeline-ready")
	b.size(1280, 800, 1)

	b.click("button", "Follow live")
	b.see("button[aria-pressed=true]", "Following live")
	if err := s.hold("mail").Snooze(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	b.see(".timeline li", "Snoozed, as this page has seen")
	b.see(".timeline li.future", "Due")
	if err := q.RunNow(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	b.see(".timeline li", "Due time changed")
	held := s.hold("mail")
	b.see(".timeline li.future", "The lease ends, unless the worker extends it")
	if err := held.Bury(t.Context(), errors.New("gave up")); err != nil {
		t.Fatal(err)
	}
	b.see(".timeline li:last-child", "Dead: buried")
	b.gone(".timeline li.future")
	if _, err := q.Replay(t.Context(), later.In(time.Hour), "m"); err != nil {
		t.Fatal(err)
	}
	b.see(".timeline li", "Replayed – the store keeps no time of that")
	b.see(".timeline li.future", "Dead after 8 failed attempts")
	b.checkLooks("timeline-replayed")

	hidden := s.login("/?queue=mail&message=m&mq=mail", "secretary")
	hidden.see(".timeline li", "failed")
	hidden.gone(".timeline pre")
}

func TestTheTimelineShowsWhenAMessageExpires(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.send("mail", "x", later.WithID("expires"), later.In(time.Hour), later.ExpireAfter(time.Hour))
	b := s.open("/?queue=mail&message=expires&mq=mail")
	b.see(".timeline li.future:nth-last-child(2)", "Dead, if it was not delivered before")
	s.send("mail", "x", later.WithID("expired"), later.ExpireAfter(time.Millisecond))
	b.visit("/?queue=mail&message=expired&mq=mail")
	b.see(".timeline li.bad", "Expired, dead at the next claim")
}
