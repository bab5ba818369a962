package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/internal/pauses"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

func registerQueues(s *Server) {
	const one = "/v1/queues/{queue}"
	const tag = "queues"
	route(s, access.Look, on("GET /v1/queues", tag, "listQueues", "List queues with their counts",
		s.fewReads), s.listQueues)
	route(s, access.Look, on("GET "+one, tag, "getQueue", "Count the messages of a queue",
		fails(http.StatusNotFound)), s.queueStats)
	route(s, access.Look, on("GET "+one+"/activity", tag, "getActivity",
		"Count the events of a queue in the last minute, hour and day", fails(http.StatusNotFound)), s.queueActivity)
	route(s, access.Look, on("GET "+one+"/horizon", tag, "getHorizon",
		"Count the messages that fall due in each part of a time", fails(http.StatusNotFound), s.fewReads),
		s.horizon)
	route(s, access.Operate, on("POST "+one+"/pause", tag, "pauseQueue", "Stop deliveries of a queue"),
		s.pauseQueue)
	route(s, access.Operate, on("POST "+one+"/resume", tag, "resumeQueue", "Resume deliveries of a queue"),
		s.resumeQueue)
	route(s, access.Look, on("GET "+one+"/dead-retention", tag, "getDeadRetention",
		"Get the limits of dead messages", fails(http.StatusNotFound)), s.retention)
	route(s, access.Operate, on("PUT "+one+"/dead-retention", tag, "setDeadRetention",
		"Limit the dead messages of a queue", fails(http.StatusPreconditionFailed)), s.setRetention)
	route(s, access.Look, on("GET "+one+"/flow", tag, "getFlow", "Get the limits of a queue",
		fails(http.StatusNotFound)), s.flow)
	route(s, access.Operate, on("PUT "+one+"/flow", tag, "setFlow",
		"Limit how fast messages of a queue start", fails(http.StatusPreconditionFailed),
		says("An empty object removes all limits.")), s.setFlow)
	route(s, access.Look, on("GET "+one+"/keys", tag, "listKeys", "List the keys that wait in a queue",
		fails(http.StatusNotFound), s.fewReads, says("In the order of their bytes, with what they wait for. "+
			"It lists nothing if keys of the queue have no limits and take no turns.")), s.listKeys)
	route(s, access.Look, on("GET "+one+"/keys/{key}", tag, "getKey", "Get the limits of a key and their state",
		fails(http.StatusNotFound)), s.getKey)
	route(s, access.Operate, on("PUT "+one+"/keys/{key}/flow", tag, "setKeyFlow",
		"Give a key limits that differ from the limits of other keys", fails(http.StatusNotFound),
		says("An empty object removes them. The flow of the queue must be fair or limit each key.")), s.setKeyFlow)
	route(s, access.Operate, on("POST "+one+"/keys/{key}/resume", tag, "resumeKey",
		"Let a halted key go on", fails(http.StatusNotFound),
		says("The dead message that halted it stays dead. To have it start first, replay it instead.")), s.resumeKey)
	route(s, access.Look, on("GET "+one+"/shards", tag, "getShards", "Count the messages of each shard of a queue",
		fails(http.StatusNotFound), says("And how far a change of their number is.")), s.shards)
	route(s, access.Operate, on("PUT "+one+"/shards", tag, "setShards", "Change the number of shards of a queue",
		fails(http.StatusConflict), answers(http.StatusAccepted),
		says("The reply comes when the change has begun. Then the processes that use the queue move its messages: "+
			"getShards shows how far they are. Repeat the request as you like. The number can be changed again 7 minutes "+
			"after all messages have moved.")), s.setShards)
	route(s, access.Operate, on("POST "+one+"/replay", tag, "replayQueue", "Make dead messages live again",
		fails(http.StatusNotFound), says("Without in and at they are due at once.")), s.replayQueue)
	route(s, access.Operate, on("POST "+one+"/purge", tag, "purgeQueue", "Remove messages in some states",
		fails(http.StatusNotFound)), s.purgeQueue)
	route(s, access.Administer, on("DELETE "+one, tag, "deleteQueue", "Delete a queue with all its messages",
		fails(http.StatusNotFound)), s.deleteQueue)
}

type listQueuesInput struct {
	Prefix string `query:"prefix" maxLength:"128" doc:"Only queues whose names begin with this"`
	PageQuery
}

func (s *Server) listQueues(ctx context.Context, in *listQueuesInput) (*output[Page[wire.Stats]], error) {
	names, err := s.client.Queues(ctx)
	if err != nil {
		return nil, err
	}
	out := &output[Page[wire.Stats]]{}
	names, out.Body.Next = in.names(names, in.Prefix, visible(ctx))
	out.Body.Items = make([]wire.Stats, len(names))
	for i, name := range names {
		stats, err := s.client.Queue(name).Stats(ctx)
		if err != nil {
			return nil, err
		}
		out.Body.Items[i] = wire.NewStats(name, stats)
	}
	return out, nil
}

// existing returns the counts of a queue, or an ErrNotFound if it does not exist. A request that names a queue and
// finds nothing in it uses existing. A request that may come before the first message, such as a pause or a receive,
// does not.
func (s *Server) existing(ctx context.Context, name string) (later.Stats, error) {
	stats, err := s.client.Queue(name).Stats(ctx)
	if err == nil && !stats.Exists {
		err = fmt.Errorf("queue %q does not exist: %w", name, store.ErrNotFound)
	}
	return stats, err
}

// queueExists is existing for a request that needs no counts.
func (s *Server) queueExists(ctx context.Context, name string) error {
	_, err := s.existing(ctx, name)
	return err
}

// foundSome returns an error if a request found nothing to do in a queue that does not exist.
func (s *Server) foundSome(ctx context.Context, queue string, n int, err error) error {
	if err == nil && n == 0 {
		err = s.queueExists(ctx, queue)
	}
	return err
}

func (s *Server) queueStats(ctx context.Context, in *QueuePath) (*output[wire.Stats], error) {
	stats, err := s.existing(ctx, in.Queue)
	return outputOf(wire.NewStats(in.Queue, stats)), err
}

func (s *Server) queueActivity(ctx context.Context, in *QueuePath) (*output[wire.Activity], error) {
	activity, err := s.client.Queue(in.Queue).Activity(ctx)
	err = s.foundSome(ctx, in.Queue, len(activity.Day.Counts), err)
	return outputOf(wire.NewActivity(in.Queue, activity)), err
}

type horizonInput struct {
	QueuePath
	From    time.Time `query:"from" required:"true" doc:"Count what falls due from this time on"`
	To      time.Time `query:"to" required:"true" doc:"And before this time"`
	Buckets int       `query:"buckets" minimum:"1" maximum:"500" default:"60" doc:"In so many equal parts"`
}

// Horizon counts the messages of a queue that fall due in each part of a time.
type Horizon struct {
	Queue  string  `json:"queue"`
	From   string  `json:"from"`
	To     string  `json:"to"`
	Counts []int64 `json:"counts" doc:"Scheduled and ready messages due in each of the equal parts"`
}

func (s *Server) horizon(ctx context.Context, in *horizonInput) (*output[Horizon], error) {
	counts, err := s.client.Queue(in.Queue).Histogram(ctx, in.From, in.To, in.Buckets)
	err = s.foundSome(ctx, in.Queue, int(slices.Max(append(counts, 0))), err)
	return outputOf(Horizon{in.Queue, wire.FormatTime(in.From), wire.FormatTime(in.To), counts}), err
}

func (s *Server) pauseQueue(ctx context.Context, in *QueuePath) (*output[wire.Paused], error) {
	var was pauses.Change
	err := s.client.Queue(in.Queue).Pause(pauses.WithChange(pauses.WithAuthor(ctx, authorOf(ctx)), &was))
	if err != nil {
		return nil, err
	}
	s.changed(ctx, undoPause(true, was), "queue paused", slog.String("queue", in.Queue))
	return outputOf(wire.Paused{Queue: in.Queue, Paused: true}), nil
}

// authorOf returns the name of the sender of a request, as the author of a change.
func authorOf(ctx context.Context) string {
	if _, controlled := access.FromContext(ctx); controlled {
		return access.NameOf(ctx)
	}
	return "a caller of " + fleet.DefaultName()
}

func (s *Server) resumeQueue(ctx context.Context, in *QueuePath) (*output[wire.Paused], error) {
	var was pauses.Change
	if err := s.client.Queue(in.Queue).Resume(pauses.WithChange(ctx, &was)); err != nil {
		return nil, err
	}
	s.changed(ctx, undoPause(false, was), "queue resumed", slog.String("queue", in.Queue))
	return outputOf(wire.Paused{Queue: in.Queue}), nil
}

// DeadRetention is the body of a request or reply with the limits of a queue's dead messages.
type DeadRetention struct {
	MaxAge   Duration `json:"max_age,omitempty" doc:"Drop dead messages after so long. Default: no limit"`
	MaxCount int64    `json:"max_count,omitempty" minimum:"0" doc:"Keep so many dead messages. Default: no limit"`
}

func (s *Server) retention(ctx context.Context, in *QueuePath) (*tagged[DeadRetention], error) {
	stats, err := s.existing(ctx, in.Queue)
	r := stats.DeadRetention
	out := &tagged[DeadRetention]{ETag: etagOf(r.Version()), Body: DeadRetention{MaxCount: r.MaxCount}}
	if r.MaxAge > 0 {
		out.Body.MaxAge = Duration(r.MaxAge.String())
	}
	return out, err
}

type deadRetentionInput struct {
	QueuePath
	Preconditions
	Body DeadRetention
}

func (s *Server) setRetention(ctx context.Context, in *deadRetentionInput) (*tagged[wire.Stats], error) {
	age, err := in.Body.MaxAge.parse("max_age", false)
	if err != nil {
		return nil, err
	}
	retention := later.Retention{MaxAge: age, MaxCount: in.Body.MaxCount}
	q := s.client.Queue(in.Queue)
	var undo *undoable
	if err := q.SetDeadRetention(ctx, retention, func(version string) bool {
		undo = retentionUndo(ctx, q, retention, version)
		return in.allow(version)
	}); err != nil {
		return nil, in.refused(err)
	}
	s.changed(ctx, undo, "retention of dead messages set", slog.String("queue", in.Queue), slog.Duration("max_age", age),
		slog.Int64("max_count", retention.MaxCount))
	stats, err := s.existing(ctx, in.Queue)
	return &tagged[wire.Stats]{etagOf(retention.Version()), wire.NewStats(in.Queue, stats)}, err
}

type replayQueueInput struct {
	QueuePath
	Body struct {
		IDs []string `json:"ids,omitempty" maxItems:"1000" doc:"Default: all dead messages"`
		Due
	} `required:"false"`
}

func (s *Server) replayQueue(ctx context.Context, in *replayQueueInput) (*output[wire.Changed], error) {
	due, err := in.Body.when()
	if err != nil {
		return nil, err
	}
	n, err := s.client.Queue(in.Queue).Replay(ctx, due, in.Body.IDs...)
	s.changedSome(ctx, nil, "dead messages replayed", in.Queue, n)
	err = s.foundSome(ctx, in.Queue, n, err)
	return outputOf(wire.Changed{Queue: in.Queue, Replayed: &n}), err
}

type purgeInput struct {
	QueuePath
	Body struct {
		States []string `json:"states,omitempty" enum:"scheduled,ready,dead" doc:"At least one, unless all is set"`
		IDs    []string `json:"ids,omitempty" maxItems:"1000" doc:"Of dead messages; only with the state dead. Default: all"`
		All    bool     `json:"all,omitempty" doc:"All messages of the queue, also leased ones"`
	}
}

func (s *Server) purgeQueue(ctx context.Context, in *purgeInput) (*output[wire.Changed], error) {
	b, q := &in.Body, s.client.Queue(in.Queue)
	states := make([]later.State, len(b.States))
	for i, state := range b.States {
		states[i] = later.State(state)
	}
	var n int
	var err error
	var resumed []string
	ctx = event.WithResumed(ctx, &resumed)
	switch {
	case b.All == (len(b.States) > 0):
		return nil, field("states", store.Invalid("give states, or all"))
	case len(b.IDs) > 0 && !slices.Equal(states, []later.State{later.StateDead}):
		return nil, field("ids", store.Invalid("ids are of dead messages: give the state dead alone, or cancel the others"))
	case len(b.IDs) > 0:
		n, err = q.PurgeDead(ctx, b.IDs...)
	default:
		n, err = q.Purge(ctx, states...)
	}
	s.changedSome(ctx, nil, "messages purged", in.Queue, n)
	err = s.foundSome(ctx, in.Queue, n, err)
	return outputOf(wire.Changed{Queue: in.Queue, Purged: &n, Resumed: resumed}), err
}

// changedSome logs a change of some messages, also if it ended with an error.
func (s *Server) changedSome(ctx context.Context, u *undoable, what, queue string, n int, attrs ...slog.Attr) {
	if n > 0 {
		attrs = append([]slog.Attr{slog.String("queue", queue)}, attrs...)
		s.changed(ctx, u, what, append(attrs, slog.Int("count", n))...)
	} else if u != nil && u.kept != nil {
		s.undos.forget(u.kept)
	}
}

// changedPart logs a change of the messages of a group or series, and returns an ErrNotFound if there were none.
func (s *Server) changedPart(ctx context.Context, u *undoable, kind, done, queue, name string, n, found int,
	err error) error {
	s.changedSome(ctx, u, kind+" "+done, queue, n, slog.String(kind, name))
	if err == nil && found == 0 {
		err = nothingOf(kind, queue, name)
	}
	return err
}

// nothingOf returns the error for a group or series without messages.
func nothingOf(kind, queue, name string) error {
	return fmt.Errorf("no message of %s %q in queue %q: %w", kind, name, queue, store.ErrNotFound)
}

func (s *Server) deleteQueue(ctx context.Context, in *QueuePath) (*output[wire.Deleted], error) {
	if err := s.queueExists(ctx, in.Queue); errors.Is(err, store.ErrNotFound) { // one that cannot be read is deleted
		return nil, err
	}
	if err := s.client.Queue(in.Queue).Delete(ctx); err != nil {
		return nil, err
	}
	s.finished.forget(in.Queue)
	s.Changed(ctx, "queue deleted", slog.String("queue", in.Queue))
	return outputOf(wire.Deleted{Queue: in.Queue, Deleted: true}), nil
}
