package inspect

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/internal/shard"
	"github.com/laterq/later/store"
)

// Why is the reason why a message has not been handled yet.
type Why string

// The reasons of an Explanation.
const (
	WhyScheduled Why = "scheduled" // it is not due yet
	WhyPaused    Why = "paused"    // it is due, and its queue is paused
	WhyNoWorker  Why = "no_worker" // it is due, and no worker of its queue is live
	WhyLimited   Why = "limited"   // it is due, and a limit of its queue or key holds it back; see later.Queue.SetFlow
	WhyWaiting   Why = "waiting"   // it is due, and no worker has claimed it yet
	WhyLeased    Why = "leased"    // a worker holds it
	WhyFollows   Why = "follows"   // it follows a message that a worker holds; see later.Follow
	WhyDead      Why = "dead"      // it was set aside
	// Workers give it back, since they do not know its kind or cannot decode its payload. It waits for its next
	// delivery, or for a worker of another version; see later.GiveBack.
	WhyGivenBack Why = "given_back"
)

// Explanation is why a message has not been handled yet. All times are of the store's clock.
type Explanation struct {
	Queue, ID string
	Reason    Why
	Due       time.Time // when it falls due, or last fell due
	Attempts  int       // failed attempts
	Paused    bool      // its queue is paused
	// Before is how many scheduled and ready messages of the queue are due earlier, for WhyWaiting and WhyLimited.
	Before int64
	// Workers is the number of live workers that may claim the message, and Running the number of these that are
	// neither paused nor draining. Programs that use Client.ReceiveFor or the HTTP API count as workers; programs that use
	// Receive do not.
	Workers, Running int
	// Handlers is the number of handlers of the running workers, and Busy how many of them run, for WhyWaiting if all do.
	// Otherwise both are 0.
	Handlers, Busy int
	// Worker is the name of the worker that holds the message, or the one that it follows, or the only message in
	// flight of its key for WhyLimited, and HeldSince when its handler was called. If all Handlers are busy, Worker is
	// the only running worker, and HeldSince when the first of the handlers was called. They are from the workers' last
	// heartbeats, and "" and zero if none has reported it.
	Worker    string
	HeldSince time.Time
	// GivenBackAt is when it was first given back, and Error why, for WhyGivenBack. Worker is then the last one that
	// did.
	GivenBackAt time.Time
	Error       string
	// LeaseDeadline is when the lease ends unless it is extended, for WhyLeased and WhyFollows.
	LeaseDeadline time.Time
	DeadReason    store.DeadReason // for WhyDead
	DiedAt        time.Time
	// Flow is the limits of the queue, for WhyLimited, and for WhyWaiting if its keys take turns or it has Urgency.
	Flow store.FlowState
	// Shard is the shard of the message, from 0, and Shards the number of shards of the queue, for WhyLimited if a share
	// of the queue's limits holds the message back; Flow is then that of the shard. Otherwise both are 0, unless Moving
	// is set: messages of the queue that are due have to move to Shards shards before this one starts.
	Shard, Shards int
	Moving        bool
	// Key is the message's key with its limits, if the message waits for the key, or if it holds the key of an Order and
	// is not leased, and else nil.
	Key *store.KeyState
	// Urgency is the urgency of the message, if Flow has Urgency.
	Urgency store.Urgency
	// Now is the store's clock.
	Now time.Time
}

// Explain returns why a message of a queue has not been handled yet. It reads the message, its queue and the live
// workers one after the other. It returns ErrNotFound when no live message has the id.
func Explain(ctx context.Context, c *later.Client, queue, id string) (Explanation, error) {
	if err := cmp.Or(usable(queue), store.CheckSentID(id)); err != nil {
		return Explanation{}, err
	}
	s := c.Store()
	infos, err := s.Get(ctx, queue, []string{id})
	if err != nil {
		return Explanation{}, err
	}
	if infos[0] == nil {
		return Explanation{}, fmt.Errorf("message %q of queue %q: %w", id, queue, store.ErrNotFound)
	}
	info := infos[0]
	stats, err := s.Stats(ctx, queue)
	if err != nil {
		return Explanation{}, err
	}
	workers, err := workersOf(ctx, c)
	if err != nil {
		return Explanation{}, err
	}
	e := Explanation{Queue: queue, ID: id, Due: info.Due, Attempts: info.Attempts, Paused: stats.Paused,
		LeaseDeadline: info.LeaseDeadline, DeadReason: info.DeadReason, DiedAt: info.DiedAt, Now: stats.Now}
	loads := newLoads(workers)
	of := loads.of(queue)
	e.Workers, e.Running = of.workers, of.running
	e.heldBy(workers, func(h *fleet.Held) bool { return h.ID == id })
	e.Reason = e.why(info)
	if e.Reason == WhyGivenBack {
		f := &info.Failures[0]
		e.GivenBackAt, e.Worker, e.Error = f.Time, f.Worker, f.Error
	}
	if e.Reason == WhyWaiting && stats.Flow.Urgency {
		e.Flow, e.Urgency = stats.Flow, info.Urgency
	}
	if err := e.limit(ctx, s, stats.Flow, info.Key); err != nil {
		return Explanation{}, err
	}
	if e.Reason == WhyWaiting {
		if err := e.share(ctx, s, stats.Flow); err != nil {
			return Explanation{}, err
		}
	}
	switch {
	case e.Reason == WhyLimited && e.Key != nil && e.Key.Leased == 1:
		e.heldBy(workers, func(h *fleet.Held) bool { return h.Key == e.Key.Key })
	case e.Reason == WhyWaiting && e.Key == nil && of.full():
		e.Handlers, e.Busy, e.HeldSince, e.Worker = int(of.handlers), int(of.busy), of.since, of.only(of.running)
	}
	if first := time.UnixMilli(1); (e.Reason == WhyWaiting || e.Reason == WhyLimited) && e.Due.After(first) {
		counts, err := s.Histogram(ctx, queue, []time.Time{first, e.Due})
		if err != nil {
			return Explanation{}, err
		}
		e.Before = counts[0]
	}
	return e, nil
}

// limit finds out whether a limit of the queue or of its key holds the message back, or turns of keys do, and whether
// the message holds its key.
func (e *Explanation) limit(ctx context.Context, s store.Store, flow store.FlowState, key string) error {
	waits := e.Reason == WhyWaiting
	if waits && flow.HoldsBack() {
		e.Reason, e.Flow = WhyLimited, flow
	}
	if !flow.Fair || key == "" || !waits && flow.Key.Order == store.OrderNone {
		return nil
	}
	keys, err := s.Keys(ctx, e.Queue, store.KeysRequest{Key: key, Limit: 1})
	if err != nil || len(keys) == 0 {
		return err
	}
	switch k := &keys[0]; {
	case !waits && k.Holder == e.ID:
		e.Key = k
	case !waits:
	case k.Full() || k.Resting() || (k.Held || k.Halted) && k.Holder != e.ID:
		e.Reason, e.Flow, e.Key = WhyLimited, flow, k
	case k.Waiting > 0 && (flow.Keys.Waiting > 1 || flow.Urgency && flow.Key.Order != store.OrderNone):
		e.Flow, e.Key = flow, k
	}
	return nil
}

// share finds out whether the share of the message's shard in a limit of the queue holds the message back, or a change
// of the shards does.
func (e *Explanation) share(ctx context.Context, s store.Store, flow store.FlowState) error {
	if !flow.Limited() {
		return nil
	}
	shards, err := store.ShardsOf(ctx, s, e.Queue)
	if err != nil || shards.Number == 1 && shards.From == 1 {
		return err
	}
	if shards.Stopped {
		e.Reason, e.Flow, e.Shards, e.Moving = WhyLimited, flow, shards.Number, true
	}
	if shards.Stopped || shards.Moving {
		return nil
	}
	i := shard.Of(store.Slot(e.ID), shards.Number)
	if i < len(shards.Each) && shards.Each[i].Err == nil && shards.Each[i].Stats.Flow.HoldsBack() {
		e.Reason, e.Flow, e.Key = WhyLimited, shards.Each[i].Stats.Flow, nil
		e.Shard, e.Shards = i, shards.Number
	}
	return nil
}

// heldBy sets the worker that holds a message of the queue that match reports true for, if one does.
func (e *Explanation) heldBy(workers []fleet.Info, match func(*fleet.Held) bool) {
	for i := range workers {
		for j := range workers[i].Held {
			if h := &workers[i].Held[j]; h.Queue == e.Queue && match(h) {
				e.Worker, e.HeldSince = workers[i].Name, h.Since
			}
		}
	}
}

func (e *Explanation) why(info *store.Info) Why {
	_, givenBack := store.GivenBack(info.Failures)
	switch {
	case info.State == store.StateDead:
		return WhyDead
	case info.Follows:
		return WhyFollows
	case info.State == store.StateLeased:
		return WhyLeased
	case givenBack && info.State == store.StateScheduled:
		return WhyGivenBack
	case info.State == store.StateScheduled:
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

// limitText returns which limit holds the message back.
func (e *Explanation) limitText(in *time.Location) string {
	f, k := e.Flow, e.Key
	switch {
	case k != nil && k.Halted:
		return fmt.Sprintf("its key %s is halted by the dead message %s until that is replayed or removed, or the key "+
			"is resumed%s", k.Key, k.Holder, waitingWith(k))
	case k != nil && k.Full():
		text := fmt.Sprintf("its key %s has %d of %d messages in flight", k.Key, k.Leased, k.Concurrency)
		if e.Worker != "" {
			text += fmt.Sprintf(", for %s at worker %s", shortDuration(e.Now.Sub(e.HeldSince)), e.Worker)
		}
		return text + waitingWith(k)
	case k != nil && k.Held:
		return fmt.Sprintf("its key %s waits for message %s, which has started and is not done%s", k.Key, k.Holder,
			waitingWith(k))
	case k != nil && k.Resting():
		return fmt.Sprintf("its key %s may start %v, the next message %s%s", k.Key, k.Rate,
			relativeTime(k.Next, k.Now, in), waitingWith(k))
	}
	if e.Moving {
		return fmt.Sprintf("messages of its queue that are due have to move to %s before it starts",
			plural(int64(e.Shards), "shard"))
	}
	of := "its queue"
	if e.Shards > 0 {
		of = fmt.Sprintf("its shard %d of %d, with its share of the limits of the queue,", e.Shard, e.Shards)
	}
	text := fmt.Sprintf("%s may start %v, the next message %s", of, f.Rate, relativeTime(f.Next, f.Now, in))
	if f.Concurrency > 0 && f.Leased >= f.Concurrency {
		text = fmt.Sprintf("%s has %d of %d messages in flight", of, f.Leased, f.Concurrency)
	}
	switch {
	case f.Urgency && e.Before > 0:
		text += ", and " + e.beforeText() + e.urgencyText()
	case e.Before > 0:
		text += ", and " + verb(e.Before, "waits", "wait") + " before it"
	}
	return text
}

// waitingWith returns how many messages of the key wait.
func waitingWith(k *store.KeyState) string {
	if k.Waiting < 2 {
		return ""
	}
	return fmt.Sprintf(", and %d of its messages wait", k.Waiting)
}

var deadTexts = map[store.DeadReason]string{
	store.DeadFailed:       "its last attempt failed",
	store.DeadLeaseExpired: "the worker of its last attempt died or stalled",
	store.DeadBuried:       "its handler buried it",
	store.DeadExpired:      "it was not delivered before its expiry",
	store.DeadUnreadable:   "its stored bytes are no message of this version, or no worker could decode its payload",
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
		if e.Key != nil {
			text += fmt.Sprintf(", and its key %s waits for it", e.Key.Key)
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
		text := "died " + relativeTime(e.DiedAt, e.Now, in) + ": " + deadTexts[e.DeadReason]
		if e.Key != nil {
			text += fmt.Sprintf("; it halts its key %s", e.Key.Key)
		}
		return text
	}
	if e.Reason == WhyLimited {
		return e.limitText(in)
	}
	switch {
	case e.Running == 0:
		return "all workers of queue " + e.Queue + " are paused or draining"
	case e.Handlers > 0:
		return e.busyText()
	case e.Key != nil:
		keys := "1 key waits"
		if n := e.Flow.Keys.Waiting; n != 1 {
			keys = fmt.Sprintf("%d keys wait", n)
		}
		return fmt.Sprintf("it waits for a turn of its key %s: %s, and %s of this one", e.Key.Key, keys,
			plural(e.Key.Waiting, "message")) + e.urgencyText()
	case e.Before == 0:
		return "it is due, and no worker has claimed it yet"
	}
	return e.beforeText() + e.urgencyText()
}

// beforeText returns how many messages are due before this one.
func (e *Explanation) beforeText() string {
	if e.Flow.Urgency {
		return verb(e.Before, "was", "were") + " due before it"
	}
	return verb(e.Before, "is", "are") + " before it"
}

// busyText returns that all handlers are busy, and how many messages are before this one.
func (e *Explanation) busyText() string {
	age := ""
	if !e.HeldSince.IsZero() {
		age = shortDuration(e.Now.Sub(e.HeldSince))
	}
	text := handlersBusy(int64(e.Handlers), e.Running, e.Worker, age)
	if e.Before > 0 {
		text += ", and " + e.beforeText()
	}
	return text + e.urgencyText()
}

// urgencyText returns which messages of the queue start before the message.
func (e *Explanation) urgencyText() string {
	switch {
	case !e.Flow.Urgency:
	case e.Key != nil && e.Flow.Key.Order != store.OrderNone && e.Key.Waiting > 1:
		return "; the messages of its key start in order, and the urgency of the next one counts"
	case e.Urgency == store.UrgencyHigh:
		return ", and its urgency is high: it goes before the messages of lower urgency"
	case e.Urgency == store.UrgencyNormal:
		return ", and messages of high urgency go first"
	case e.Urgency == store.UrgencyLow:
		return ", and its urgency is low: the messages of higher urgency go first"
	}
	return ""
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
