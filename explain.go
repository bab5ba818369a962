package later

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

// Why is the reason why a message has not been handled yet.
type Why string

// The reasons of an Explanation.
const (
	WhyScheduled Why = "scheduled" // it is not due yet
	WhyPaused    Why = "paused"    // it is due, and its queue is paused
	WhyNoWorker  Why = "no_worker" // it is due, and no worker of its queue is live
	WhyWaiting   Why = "waiting"   // it is due, and no worker has claimed it yet
	WhyLeased    Why = "leased"    // a worker holds it
	WhyFollows   Why = "follows"   // it follows a message that a worker holds; see Follow
	WhyDead      Why = "dead"      // it was set aside
	// Workers give it back, since they do not know its kind or cannot decode its payload. It waits for its next delivery,
	// or for a worker of another version; see GiveBack.
	WhyGivenBack Why = "given_back"
)

// Explanation is why a message has not been handled yet. All times are of the store's clock.
type Explanation struct {
	Queue, ID string
	Reason    Why
	Due       time.Time // when it falls due, or last fell due
	Attempts  int       // failed attempts
	Paused    bool      // its queue is paused
	// Before is how many scheduled and ready messages of the queue are due earlier, for WhyWaiting.
	Before int64
	// Workers is the number of live workers that may claim the message, and Running that of the ones that are neither
	// paused nor draining. Programs that use Receive are not among them, but those of
	// ReceiveFor are.
	Workers, Running int
	// Worker is the name of the worker that holds the message, or the one that it follows, and HeldSince when its
	// handler was called. They are from the workers' last heartbeats, and "" and zero if none has reported it.
	Worker    string
	HeldSince time.Time
	// GivenBackAt is when it was first given back, and Error why, for WhyGivenBack. Worker is then the last one that did.
	GivenBackAt time.Time
	Error       string
	// LeaseDeadline is when the lease ends unless it is extended, for WhyLeased and WhyFollows.
	LeaseDeadline time.Time
	DeadReason    DeadReason // for WhyDead
	DiedAt        time.Time
	// Now is the store's clock.
	Now time.Time
}

// Explain returns why a message has not been handled yet. It reads the message, its queue and the live workers one
// after the other. It returns ErrNotFound when no live message has the id.
func (q *Queue) Explain(ctx context.Context, id string) (Explanation, error) {
	info, err := q.Get(ctx, id)
	if err != nil {
		return Explanation{}, err
	}
	stats, err := q.Stats(ctx)
	if err != nil {
		return Explanation{}, err
	}
	workers, err := q.client.Workers(ctx)
	if err != nil {
		return Explanation{}, err
	}
	e := Explanation{Queue: q.name, ID: id, Due: info.Due, Attempts: info.Attempts, Paused: stats.Paused,
		LeaseDeadline: info.LeaseDeadline, DeadReason: info.DeadReason, DiedAt: info.DiedAt, Now: stats.Now}
	for _, w := range workers {
		e.addWorker(&w)
	}
	e.Reason = e.why(info)
	if e.Reason == WhyGivenBack {
		f := &info.Failures[0]
		e.GivenBackAt, e.Worker, e.Error = f.Time, f.Worker, f.Error
	}
	if e.Reason == WhyWaiting && e.Due.After(time.UnixMilli(1)) {
		counts, err := q.Histogram(ctx, time.UnixMilli(1), e.Due, 1)
		if err != nil {
			return Explanation{}, err
		}
		e.Before = counts[0]
	}
	return e, nil
}

// addWorker counts a worker that may claim the message, and looks whether it holds it.
func (e *Explanation) addWorker(w *WorkerInfo) {
	// Workers distribute topics and run schedules without naming them, and name only some of very many queues.
	may := slices.Contains(w.Queues, e.Queue) || len(w.Queues) < w.QueueCount || e.Queue == reserved.Schedules ||
		strings.HasPrefix(e.Queue, reserved.Topic)
	if may {
		e.Workers++
		if w.State == WorkerRunning {
			e.Running++
		}
	}
	for _, h := range w.Held {
		if h.Queue == e.Queue && h.ID == e.ID {
			e.Worker, e.HeldSince = w.Name, h.Since
		}
	}
}

func (e *Explanation) why(info *Info) Why {
	_, givenBack := store.GivenBack(info.Failures)
	switch {
	case info.State == StateDead:
		return WhyDead
	case info.Follows:
		return WhyFollows
	case info.State == StateLeased:
		return WhyLeased
	case givenBack && info.State == StateScheduled:
		return WhyGivenBack
	case info.State == StateScheduled:
		return WhyScheduled
	case e.Paused:
		return WhyPaused
	case e.Workers == 0:
		return WhyNoWorker
	case givenBack:
		return WhyGivenBack
	}
	return WhyWaiting
}

var deadTexts = map[DeadReason]string{
	DeadFailed:       "its last attempt failed",
	DeadLeaseExpired: "the worker of its last attempt died or stalled",
	DeadBuried:       "its handler buried it",
	DeadExpired:      "it was not delivered before its expiry",
	DeadUnreadable:   "its stored bytes are no message of this version, or no worker could decode its payload",
}

// Text returns the reason as one sentence, without a capital or a full stop, such as "due tomorrow at 09:00". Times of
// day are those of a location.
func (e Explanation) Text(in *time.Location) string {
	switch e.Reason {
	case WhyScheduled:
		text := "due " + relativeTime(e.Due, e.Now, in)
		if e.Attempts > 0 {
			text += ", after " + plural(int64(e.Attempts), "failed attempt")
		}
		if e.Paused {
			text += ", and its queue is paused"
		}
		return text
	case WhyGivenBack:
		text := "workers have given it back for another version for " + shortDuration(e.Now.Sub(e.GivenBackAt))
		if e.Error != "" {
			text += ": " + e.Error
		}
		if e.Paused {
			text += "; its queue is paused"
		}
		return text
	case WhyPaused:
		return "its queue is paused"
	case WhyNoWorker:
		return "no worker is running for queue " + e.Queue
	case WhyLeased:
		if e.Worker == "" {
			return "it is held under a lease that ends " + relativeTime(e.LeaseDeadline, e.Now, in) + " unless it is extended"
		}
		return fmt.Sprintf("worker %s has held it for %s", e.Worker, shortDuration(e.Now.Sub(e.HeldSince)))
	case WhyFollows:
		if e.Worker == "" {
			return "it follows a message that is held"
		}
		return fmt.Sprintf("it follows a message that worker %s has held for %s", e.Worker,
			shortDuration(e.Now.Sub(e.HeldSince)))
	case WhyDead:
		return "died " + relativeTime(e.DiedAt, e.Now, in) + ": " + deadTexts[e.DeadReason]
	}
	switch {
	case e.Running == 0:
		return "all workers of queue " + e.Queue + " are paused or draining"
	case e.Before == 1:
		return "1 message is before it"
	case e.Before > 1:
		return fmt.Sprintf("%d messages are before it", e.Before)
	}
	return "it is due, and no worker has claimed it yet"
}

func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// relativeTime returns when t is as seen from now, such as "in 12 s", "today at 15:40" or "on 24 December at 09:00".
func relativeTime(t, now time.Time, in *time.Location) string {
	switch d := t.Sub(now); {
	case d >= 0 && d < time.Minute:
		return "in " + shortDuration(d)
	case d < 0 && d > -time.Minute:
		return shortDuration(-d) + " ago"
	}
	t, now = t.In(in), now.In(in)
	at := " at " + t.Format("15:04")
	if t.Second() != 0 {
		at = " at " + t.Format("15:04:05")
	}
	switch days := dayNumber(t) - dayNumber(now); {
	case days == 0:
		return "today" + at
	case days == 1:
		return "tomorrow" + at
	case days == -1:
		return "yesterday" + at
	case days > 1 && days < 7:
		return "on " + t.Format("Monday") + at
	case t.Year() == now.Year():
		return "on " + t.Format("2 January") + at
	}
	return "on " + t.Format("2 January 2006") + at
}

// dayNumber returns the number of a time's local day.
func dayNumber(t time.Time) int64 {
	y, m, d := t.Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / (24 * 60 * 60)
}

// shortDuration returns a duration in its two largest units, such as "12 s" or "2 h 5 min".
func shortDuration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(d, 0).Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return twoUnits(d, time.Minute, "min", time.Second, "s")
	case d < 24*time.Hour:
		return twoUnits(d, time.Hour, "h", time.Minute, "min")
	}
	return twoUnits(d, 24*time.Hour, "d", time.Hour, "h")
}

func twoUnits(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d %s", d/large, largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, smallName)
	}
	return text
}
