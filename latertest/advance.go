package latertest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

// maxResults is how many results one instant may have, because a handler that snoozes for no time runs for ever.
// A test sets a lower limit.
var maxResults = 100_000

// Advance moves the clock forward by d, rounded up to a millisecond. On the way it stops at each due time of a queue
// that has a handler, of a topic that such a queue is subscribed to, and of a schedule, and goes on when everything
// that is due was handled. Schedules run as soon as there is any handler, of Handle or of a worker that is not paused.
// Advance returns the results of the handlers since the previous Advance, in order; handlers of a worker may have run
// before this one.
//
// Messages of queues without a handler, of paused queues and of paused workers become ready and stay so. Messages that
// a worker claimed before are handled before the clock moves. If a handler waits for the test, use MoveClock: Advance
// waits for handlers, and fails the test when nothing has happened for a minute (in a bubble, a day of its time).
func (h *Harness) Advance(d time.Duration) []Result {
	h.tb.Helper()
	if d < 0 {
		h.tb.Fatalf("latertest: Advance by %v: time does not go back", d)
		return nil
	}
	if !h.moving.TryLock() {
		h.tb.Fatalf("latertest: Advance is called while it runs, for example by a handler: call it in the test only")
		return nil
	}
	defer h.moving.Unlock()
	var all []Result
	for target := h.Now().Add(d); ; {
		if !h.handleDue() {
			return append(all, h.takeResults()...)
		}
		all = append(all, h.takeResults()...)
		now := h.Now()
		if !now.Before(target) {
			return all
		}
		step := target.Sub(now)
		if next := h.nextDue(); !next.IsZero() && next.Before(target) {
			step = next.Sub(now) // below zero if it fell due just now
		}
		if step > 0 && !h.move(step) {
			return all
		}
	}
}

// Run handles everything that is due, without moving the clock. It is Advance(0).
func (h *Harness) Run() []Result {
	h.tb.Helper()
	return h.Advance(0)
}

// MoveClock moves the clock forward by d and does not wait for handlers, so that a test can let time pass while a
// handler runs. Workers begin due messages, and the next Advance waits for them.
func (h *Harness) MoveClock(d time.Duration) {
	h.tb.Helper()
	if d < 0 {
		h.tb.Fatalf("latertest: MoveClock by %v: time does not go back", d)
		return
	}
	h.move(d)
}

func (h *Harness) move(d time.Duration) bool {
	h.tb.Helper()
	if err := h.clock.move(time.Duration(store.Millis(d)) * time.Millisecond); err != nil {
		h.fatal("move the clock", err)
		return false
	}
	return true
}

func (h *Harness) takeResults() []Result {
	h.mu.Lock()
	defer h.mu.Unlock()
	results := h.results
	h.results = nil
	return results
}

// handleDue runs inline handlers and waits for workers until nothing is due. It reports false when the test has failed.
func (h *Harness) handleDue() bool {
	h.tb.Helper()
	for {
		if !h.startSchedules() {
			return false
		}
		select { // only later changes are news
		case <-h.happened:
		default:
		}
		before := h.seen()
		if !h.handleInline() || h.tooMany() {
			return false
		}
		waiting, ok := h.readyForWorkers()
		switch {
		case !ok:
			return false
		case len(waiting) > 0:
			if !h.awaitEvent(waiting) {
				return false
			}
			continue
		}
		for _, w := range h.workers {
			if !h.awaitIdle(w) {
				return false
			}
		}
		// The first queue may have changed since it was looked at: a handler of one worker sends a message to another's
		// queue.
		if h.seen() == before {
			return true
		}
	}
}

// tooMany fails the test if handlers go round in circles.
func (h *Harness) tooMany() bool {
	h.tb.Helper()
	h.mu.Lock()
	n := len(h.results)
	h.mu.Unlock()
	if n > maxResults {
		h.tb.Fatalf("latertest: more than %d messages were handled at %s: does a handler snooze, retry or "+
			"send without a delay?", maxResults, stamp(h.Now()))
	}
	return n > maxResults
}

// readyForWorkers returns the queues of workers that have ready messages.
func (h *Harness) readyForWorkers() (queues []string, ok bool) {
	h.tb.Helper()
	handled, ok := h.workerQueues()
	for _, name := range handled {
		s, err := h.client.Queue(name).Stats(background)
		if err != nil {
			h.fatal("read queue "+name, err)
			return nil, false
		}
		if s.Ready > 0 && !s.Paused {
			queues = append(queues, name)
		}
	}
	return queues, ok
}

// nextDue returns the earliest due time in the queues that have a handler, or the zero time.
func (h *Harness) nextDue() (next time.Time) {
	h.tb.Helper()
	queues, _ := h.workerQueues()
	for name := range h.inline {
		queues = append(queues, name)
	}
	for _, name := range queues {
		s, err := h.client.Queue(name).Stats(background)
		if err != nil {
			h.fatal("read queue "+name, err)
			return next
		}
		if !s.Paused && !s.NextDue.IsZero() && (next.IsZero() || s.NextDue.Before(next)) {
			next = s.NextDue
		}
	}
	return next
}

// startSchedules starts a worker that sends the runs of schedules for inline handlers, once there is a schedule. It
// reports false when the test has failed.
func (h *Harness) startSchedules() bool {
	h.tb.Helper()
	if h.scheduling || len(h.inline) == 0 {
		return true
	}
	s, err := h.client.Queue(reserved.Schedules).Stats(background)
	if err != nil {
		h.fatal("read the schedules", err)
		return false
	}
	if s.Exists {
		h.scheduling = true
		h.run(h.client.Schedules().Worker())
	}
	return true
}

// workerQueues returns the queues that running workers claim from: their own, the queues of the topics that these are
// subscribed to, and the schedules.
func (h *Harness) workerQueues() (queues []string, ok bool) {
	h.tb.Helper()
	for _, w := range h.workers {
		if w.running() && !w.Paused() {
			queues = append(queues, w.Queues()...)
			queues = append(queues, reserved.Schedules)
		}
	}
	slices.Sort(queues)
	queues = slices.Compact(queues)
	topics, err := h.client.Topics(background)
	if err != nil {
		h.fatal("read topics", err)
		return nil, false
	}
	for found := true; found; {
		found = false
		for _, name := range topics {
			topic := h.client.Topic(name)
			if slices.Contains(queues, topic.Queue().Name()) {
				continue
			}
			subscribed, err := topic.Subscriptions(background)
			if err != nil {
				h.fatal("read topic "+name, err)
				return nil, false
			}
			handled := func(s later.Subscription) bool { return slices.Contains(queues, s.Queue) }
			if slices.ContainsFunc(subscribed, handled) {
				queues, found = append(queues, topic.Queue().Name()), true
			}
		}
	}
	return queues, true
}

// awaitEvent waits until something happens, such as a claim or the end of a worker, because messages are ready.
func (h *Harness) awaitEvent(waiting []string) bool {
	h.tb.Helper()
	limit := time.NewTimer(h.clock.patience)
	defer limit.Stop()
	select {
	case <-h.happened:
		return true
	case <-limit.C:
		h.tb.Fatalf("latertest: nothing has happened for %v, and messages are ready in %s. All handlers are "+
			"busy, or the worker is stuck. If a handler waits for the test, move the time with MoveClock.\n%s",
			h.clock.patience, strings.Join(waiting, ", "), h.describe(waiting))
		return false
	}
}

// awaitIdle waits until a worker holds no message.
func (h *Harness) awaitIdle(w *runningWorker) bool {
	h.tb.Helper()
	for {
		before := h.seen()
		ctx, cancel := context.WithTimeout(background, h.clock.patience)
		err := w.WaitIdle(ctx)
		cancel()
		if err == nil {
			return true
		}
		if h.seen() == before {
			h.tb.Fatalf("latertest: handlers have been running for %v. If one waits for the test, move the time with "+
				"MoveClock.\n%s", h.clock.patience, h.describe(w.Queues()))
			return false
		}
	}
}

// describe lists the messages of queues for a failure.
func (h *Harness) describe(queues []string) string {
	var text strings.Builder
	for _, name := range queues {
		found, err := read(h.client.Queue(name), store.StateReady, store.StateLeased)
		if err != nil {
			return err.Error()
		}
		found.write(&text, nil)
	}
	return text.String()
}
