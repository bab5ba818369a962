package pagetest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laterq/later"
)

func longAgo() later.SendOption { return later.At(time.Now().Add(-12*time.Minute - 30*time.Second)) }

// A person finds why nothing is delivered without an action, and the remedy with one.
func TestPersonFindsWhyNothingIsDelivered(t *testing.T) {
	journey(t, func(t *testing.T, l look) {
		s := newSite(t, "", "", "")
		for range 3 {
			s.send("mail", "hello", longAgo())
		}
		b := s.openAs(l, "/")
		b.see(".problems li.act", "queue mail has no worker: 3 messages are due, the first for 12 min")
		if l.name != "phone" { // it lacks room for commands
			b.see(".problems button", "Copy the command later stats mail")
		}
		b.see("[role=status]", "1 problem, 1 to act on")
		b.check()
		b.click(".problems a", "has no worker")
		b.awaitURL("queue=mail&state=ready")
		b.see(".problems", "has no worker") // the strip is above every view
		b.check()
		b.press("g")
		b.press("p")
		b.await("document.activeElement.closest('.problems li a') !== null")
		b.press("g")
		b.press("w")
		b.see("h1", "Workers")
		b.see(".problems", "has no worker")

		stop := s.work(later.WorkerConfig{}, "mail", func(context.Context, *later.Message) error { return nil })
		b.gone(".problems a")
		b.see(".problems", "No problems")
		stop()
	})
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
	journey(t, func(t *testing.T, l look) {
		s := newSite(t, "", "", "")
		q := s.client.Queue("mail")
		if err := q.SetFlow(t.Context(), later.Flow{Key: later.KeyFlow{Concurrency: 1}}); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"customer-7/1", "customer-7/2", "customer-7/3"} {
			s.send("mail", "hello", longAgo(), later.WithID(id), later.Key("customer-7"))
		}
		stop := s.work(later.WorkerConfig{Concurrency: 4}, "mail", untilStopped)
		b := s.openAs(l, "/")
		b.see(".problems li.act",
			"key customer-7 of queue mail has 1 of 1 messages in flight, its limit: 2 messages are due, the first for 12 min")
		b.click(".problems button", "Keys… mail")
		b.see("dialog", "customer-7")
		b.see("dialog", "1 of 1 in flight")
		b.check()
		b.closeDialog()
		stop()
	})
}

func untilStopped(ctx context.Context, _ *later.Message) error {
	<-ctx.Done()
	return nil
}

// control sends a command to workers.
func (s *site) control(do later.WorkerCommand, names ...string) {
	s.Helper()
	if _, err := s.client.ControlWorkers(s.Context(), do, names...); err != nil {
		s.Fatal(err)
	}
}

// Paused workers are resumed with one click. A worker that refuses says why, and workers that drain lack the button,
// only a command.
func TestPausedWorkersAreResumedFromTheProblems(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	var refuses atomic.Bool
	handle := func(context.Context, *later.Message) error { return nil }
	stopBoss := s.work(later.WorkerConfig{Name: "boss", OnCommand: func(do later.WorkerCommand) error {
		if do == later.CommandResume && refuses.Load() {
			return errors.New("the printer is open")
		}
		return nil
	}}, "mail", handle)
	stopClerk := s.work(later.WorkerConfig{Name: "clerk"}, "mail", handle)
	refuses.Store(true)
	b := s.open("/?view=workers")
	b.see("li h2", "clerk")
	s.control(later.CommandPause, "boss", "clerk")
	s.send("mail", "hello", longAgo())
	b.see(".problems li.act", "all workers of queue mail are paused or draining: 1 message is due")
	b.click(".problems button", "Resume boss, clerk")
	b.see(".notice", "the printer is open")
	refuses.Store(false)
	b.click(".problems button", "Resume boss, clerk")
	b.see(".notice", "Resumed boss, clerk")
	b.see(".problems", "No problems")
	stopBoss()
	stopClerk()

	stopLast := s.work(later.WorkerConfig{Name: "last", Concurrency: 1}, "mail", untilStopped)
	s.send("mail", "first", longAgo())
	s.send("mail", "second", longAgo())
	b.see(".problems", "the handler of last is busy")
	s.control(later.CommandDrain, "last")
	b.see(".problems li.act", "all workers of queue mail are paused or draining")
	b.see(".problems button", "Copy the command later workers")
	b.gone(".problems button", "Resume")
	stopLast()
}

// A list that is old says of when it is.
func TestOldProblemsSayOfWhenTheyAre(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.send("mail", "hello", longAgo())
	b := s.open("/")
	b.see(".problems li.act", "queue mail has no worker")
	b.gone(".problems", "as of")
	// The server marks a list that is older than 70 s, and sends another one only when it differs.
	b.await(module("live.js") + `.then(({ live }) => {
		live.problems = { ...live.problems, stale: true, now: new Date(2030, 0, 2, 3, 4).toISOString() };
		return true;
	})`)
	b.see(".problems li.act", "as of")
	b.see(".problems li.act", "03:04")
	b.checkAccess()
	if h := evaluate[int](b, "document.querySelector('.problems').offsetHeight"); h != 33 {
		t.Errorf("the strip is %d pixels high", h)
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
