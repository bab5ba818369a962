package pagetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/laterq/later"
)

func longAgo() later.SendOption { return later.At(time.Now().Add(-12*time.Minute - 30*time.Second)) }

// A person finds why nothing is delivered without an action, and what helps with one.
func TestPersonFindsWhyNothingIsDelivered(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	for range 3 {
		s.send("mail", "hello", longAgo())
	}
	b := s.open("/")
	b.see(".problems li.act", "queue mail has no worker: 3 messages are due, the first for 12 min")
	b.see(".problems button", "Copy the command later stats mail")
	b.see("[role=status]", "1 problem, 1 to act on")
	b.checkAccess()
	b.click(".problems a", "has no worker")
	b.awaitURL("queue=mail&state=ready")
	b.see(".problems", "has no worker") // the strip is above every view
	b.press("g")
	b.press("p")
	b.await("document.activeElement.closest('.problems li a') !== null")
	b.press("g")
	b.press("w")
	b.see("h1", "Workers")
	b.see(".problems", "has no worker")

	ctx, stop := context.WithCancel(t.Context())
	w := later.NewWorker(s.client, later.WorkerConfig{Concurrency: 1})
	w.Handle("mail", func(context.Context, *later.Message) error { return nil })
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	b.gone(".problems a")
	b.see(".problems", "No problems")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestPausedQueueIsResumedFromTheProblems(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.send("mail", "hello", longAgo())
	if err := s.client.Queue("mail").Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := s.open("/")
	b.see(".problems li.watch", "queue mail is paused")
	b.click(".problems button", "Resume… mail")
	b.see("dialog", "Resume mail?")
	if !s.stats("mail").Paused {
		t.Error("it is resumed before the person says so")
	}
	b.click("dialog button", "Resume")
	b.see(".notice", "mail is resumed")
	b.gone(".problems", "is paused")
	if s.stats("mail").Paused {
		t.Error("it is paused")
	}
}

// A person sees which key is at its limit, and since when, with one action.
func TestPersonFindsAKeyAtItsLimit(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	q := s.client.Queue("mail")
	if err := q.SetFlow(t.Context(), later.Flow{Key: later.KeyFlow{Concurrency: 1}}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"customer-7/1", "customer-7/2", "customer-7/3"} {
		s.send("mail", "hello", longAgo(), later.WithID(id), later.Key("customer-7"))
	}
	ctx, stop := context.WithCancel(t.Context())
	w := later.NewWorker(s.client, later.WorkerConfig{Concurrency: 4})
	w.Handle("mail", func(ctx context.Context, _ *later.Message) error {
		<-ctx.Done()
		return nil
	})
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	b := s.open("/")
	b.see(".problems li.act",
		"key customer-7 of queue mail has 1 of 1 messages in flight, its limit: 2 messages are due, the first for 12 min")
	b.click(".problems button", "Keys… mail")
	b.see("dialog", "customer-7")
	b.see("dialog", "1 of 1 in flight")
	b.closeDialog()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Few problems are shown at first, texts of others do no harm, and there is room on a phone.
func TestManyProblemsTakeLittleRoom(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	for _, queue := range []string{"a", "b", "c", "d"} {
		s.send(queue, "hello", longAgo())
	}
	s.send("e", "hello")
	got, err := s.client.Queue("e").Receive(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := got[0].Bury(t.Context(), errors.New("<img src=x onerror=alert()> \u202etxt")); err != nil {
		t.Fatal(err)
	}
	b := s.open("/")
	height := func() int { return evaluate[int](b, "document.querySelector('.problems').offsetHeight") }
	b.await("document.querySelectorAll('.problems a').length === 1")
	if h := height(); h != 33 {
		t.Errorf("the strip is %d pixels high", h)
	}
	b.click(".problems button", "4 more problems")
	b.see(".problems a", `<img src=x onerror=alert()> \u202etxt`)
	b.checkAccess()
	b.size(390, 844, 2)
	b.checkWidth()
	b.media("prefers-color-scheme", "dark")
	b.checkAccess()
	b.screenshot("problems-phone-dark")
	b.size(1280, 800, 1)
	b.screenshot("problems-dark")
	b.media("prefers-color-scheme", "light")
	b.screenshot("problems")
	b.click(".problems a", "1 message of queue e died")
	b.awaitURL("queue=e&state=dead&group=error")
	b.see(".errors", "onerror")
	b.size(390, 844, 2)
	b.click(".problems button", "Show fewer")
	b.await("document.querySelectorAll('.problems a').length === 1")
	if h := height(); h != 33 {
		t.Errorf("the strip is %d pixels high on a phone", h)
	}
	b.screenshot("problems-phone")
	for _, queue := range []string{"a", "b", "c", "d", "e"} {
		if err := s.client.Queue(queue).Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b.see(".problems", "No problems")
	if h := height(); h != 33 {
		t.Errorf("the strip without problems is %d pixels high", h)
	}
}
