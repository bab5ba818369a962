// Package view has the results of package later as the JSON of package wire, for the command and the HTTP API. It
// imports these two. Each function is named after its result.
package view

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/inspect"
	"github.com/laterq/later/internal/message"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/wire"
)

// EventKinds are the kinds of events that a Watch receives in addition to EventMissed, in the order of the help text.
var EventKinds = []later.EventKind{
	later.EventSent, later.EventDuplicate, later.EventClaimed, later.EventAcked, later.EventForwarded,
	later.EventNacked,
	later.EventSnoozed, later.EventGivenBack, later.EventReleased, later.EventBuried,
	later.EventExpired, later.EventDied, later.EventDropped,
	later.EventLeaseLost, later.EventUnsettled, later.EventCancelled, later.EventRescheduled, later.EventEdited,
	later.EventPaused, later.EventResumed, later.EventReplayed, later.EventPurged, later.EventKeyResumed,
	later.EventRunMissed, later.EventRunSkipped,
}

// Kinds returns kinds of events with commas between them.
func Kinds(kinds []later.EventKind) string {
	names := make([]string, len(kinds))
	for i, kind := range kinds {
		names[i] = string(kind)
	}
	return strings.Join(names, ", ")
}

// Event returns the JSON of an event.
func Event(e *later.WatchEvent) wire.Event {
	w := wire.Event{
		Time: wire.FormatTime(e.Time), Kind: e.Kind, Queue: e.Queue, ID: e.ID, Attempt: e.Attempt,
		Lateness: wire.Measured(e.Lateness), Duration: wire.Measured(e.Duration), Error: e.Error, Count: e.Count,
		Missed: e.Missed, Headers: e.Headers,
	}
	if e.Process.PID != 0 {
		w.Process = &wire.Process{Host: e.Process.Host, PID: e.Process.PID, Name: e.Process.Name}
	}
	return w
}

// Delivery returns the JSON of a message that was received.
func Delivery(m *later.Message) wire.Delivery {
	return wire.Delivery{
		ID: m.ID, Queue: m.Queue, Payload: message.NewPayload(m.Payload, m.Headers), Headers: m.Headers,
		Handled: message.OptionsOf(m).Handled, Due: wire.FormatTime(m.Due),
		Lateness: wire.Measured(m.Lateness), Attempt: m.Attempt, MaxAttempts: m.MaxAttempts,
		SentAt: wire.FormatTime(m.SentAt), Fence: m.Fence,
	}
}

// Explanation returns the JSON of why a message has not been handled yet, with times of day of a location.
func Explanation(e inspect.Explanation, in *time.Location) wire.Explanation {
	shown := wire.Explanation{
		Queue: e.Queue, ID: e.ID, Reason: string(e.Reason), Text: e.Text(in), Due: wire.FormatTime(e.Due),
		Attempts: e.Attempts, Paused: e.Paused, Before: e.Before, Workers: e.Workers, Running: e.Running,
		Handlers: e.Handlers, Busy: e.Busy, Worker: e.Worker, Shards: e.Shards, Moving: e.Moving,
		HeldSince: wire.FormatTime(e.HeldSince), LeaseDeadline: wire.FormatTime(e.LeaseDeadline),
		DeadReason: e.DeadReason,
		DiedAt:     wire.FormatTime(e.DiedAt), GivenBackAt: wire.FormatTime(e.GivenBackAt), Error: e.Error,
		Flow: wire.NewFlowState(e.Flow), Urgency: e.Urgency, Now: wire.FormatTime(e.Now),
	}
	if e.Shards > 0 && !e.Moving {
		shown.Shard = &e.Shard
	}
	if e.Key != nil {
		key := wire.NewKey(e.Key)
		shown.Key = &key
	}
	return shown
}

// DeadErrors returns the JSON of dead messages with errors of the same pattern. queue is the only queue that was asked
// for, or "".
func DeadErrors(queue string, d inspect.DeadGroup) wire.DeadErrors {
	out := wire.DeadErrors{Queue: queue, Pattern: d.Pattern, Count: d.Count, First: wire.FormatTime(d.First),
		Last: wire.FormatTime(d.Last), Hours: d.Hours[:], ExampleQueue: d.ExampleQueue, ExampleID: d.ExampleID,
		Error: d.Error, Reason: d.Reason}
	for _, count := range d.Queues {
		out.Queues = append(out.Queues, wire.QueueCount(count))
	}
	return out
}

// Worker returns the JSON of a worker.
func Worker(w later.WorkerInfo) wire.Worker {
	held := make([]wire.Held, len(w.Held))
	for i, h := range w.Held {
		held[i] = wire.NewHeld(h.Queue, h.ID, h.Key, h.Attempt, h.Since, w.Now)
	}
	var forwards []wire.Forwarded
	for _, f := range w.Forwards {
		forwards = append(forwards, wire.Forwarded(f))
	}
	var back []wire.GivenBack
	for _, g := range w.GivenBack {
		back = append(back, wire.GivenBack(g))
	}
	return wire.Worker{
		Name: w.Name, ID: w.ID, State: string(w.State), Host: w.Host, PID: w.PID, Process: w.Process,
		Version:     w.Version,
		Concurrency: w.Concurrency, Queues: append([]string{}, w.Queues...), QueueCount: w.QueueCount,
		HeldCount: w.HeldCount, Held: held, Forwarding: w.Forwarding, Forwards: forwards, GivenBack: back,
		Started:   wire.FormatTime(w.Started),
		Heartbeat: wire.FormatTime(w.Heartbeat), Now: wire.FormatTime(w.Now),
	}
}

// Run returns the JSON of a run that is to come, with its local time.
func Run(r later.Run) wire.Run {
	return wire.Run{
		Schedule: r.Schedule, ID: r.ID, Nominal: wire.FormatTime(r.Nominal), Due: wire.FormatTime(r.Due),
		Local: r.Due.Format("2006-01-02T15:04:05.000Z07:00"), TimeZone: r.Due.Location().String(),
	}
}

// Triggered returns the JSON of a run that was triggered.
func Triggered(r later.Run) wire.Run {
	return wire.Run{Schedule: r.Schedule, ID: r.ID, Nominal: wire.FormatTime(r.Nominal), Due: wire.FormatTime(r.Due),
		Cause: string(r.Cause)}
}

// ScheduleChange returns the JSON of the change that an apply made to a schedule, or would make.
func ScheduleChange(c later.ScheduleChange, dry bool) wire.ScheduleResult {
	result := wire.ScheduleResult{Schedule: c.Name, Result: string(c.Result), DryRun: dry}
	for _, f := range c.Fields {
		result.Fields = append(result.Fields, wire.FieldChange{
			Name: f.Name, Old: json.RawMessage(f.Old), New: json.RawMessage(f.New)})
	}
	return result
}

// SeriesMessage returns the JSON of a message of a series.
func SeriesMessage(m later.SeriesMessage) wire.SeriesMessage {
	return wire.SeriesMessage{Queue: m.Queue, Series: m.Part.ID, ID: m.ID, State: m.State, Due: wire.FormatTime(m.Due),
		Until: wire.FormatTime(m.Part.Until), Offset: wire.Duration(m.Part.Offset), Index: m.Part.Index,
		Count: m.Part.Count}
}

// TopicConfig returns the JSON of a topic's configuration.
func TopicConfig(cfg later.TopicConfig) wire.TopicConfig {
	return wire.NewTopicConfig(cfg.DropUnsubscribed, cfg.HistoryAge, cfg.HistoryCount)
}

// Topic reads a topic, with the subscriptions that show reports true for, and the counts of their queues if counts is
// true.
func Topic(ctx context.Context, c *later.Client, name string, counts bool, show func(queue string) bool) (
	topic wire.Topic, err error,
) {
	t := c.Topic(name)
	cfg, err := t.Config(ctx)
	if err != nil {
		return topic, err
	}
	all, err := t.Subscriptions(ctx)
	if err != nil {
		return topic, err
	}
	queue, err := t.Queue().Stats(ctx)
	if err != nil {
		return topic, err
	}
	history, err := c.Queue(reserved.History + name).Stats(ctx)
	if err != nil {
		return topic, err
	}
	var subscriptions []wire.Subscription
	for _, s := range all {
		if !show(s.Queue) {
			continue
		}
		var stats later.Stats
		if counts {
			if stats, err = c.Queue(s.Queue).Stats(ctx); err != nil {
				return topic, err
			}
		}
		subscriptions = append(subscriptions, wire.Subscription{Stats: wire.NewStats(s.Queue, stats), Where: s.Where})
	}
	return wire.NewTopic(name, queue, history, TopicConfig(cfg), subscriptions), nil
}
