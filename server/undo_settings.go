package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/changelog"
	"github.com/laterq/later/internal/pauses"
	"github.com/laterq/later/internal/undo"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

// back is how a change is undone with its record alone: one of the fields is set. It holds no payloads. Each server of
// the store can use it, and a later version must be able to read it.
type back struct {
	Move      *moveBack      `json:"move,omitempty"`
	Pause     *pauseBack     `json:"pause,omitempty"`
	Flow      *flowBack      `json:"flow,omitempty"`
	Retention *retentionBack `json:"retention,omitempty"`
	Schedule  *scheduleBack  `json:"schedule,omitempty"`
	Worker    *workerBack    `json:"worker,omitempty"`
}

// moveBack is the due time of a message before and after a reschedule, in ms since 1970.
type moveBack struct {
	ID   string `json:"id"`
	From int64  `json:"from_ms"`
	To   int64  `json:"to_ms"`
}

// pauseBack says that a queue was paused or resumed.
type pauseBack struct {
	Paused bool   `json:"paused"`
	Former string `json:"former,omitempty"`
	Left   string `json:"left,omitempty"`
}

type flowBack struct {
	Former wire.Flow `json:"former"`
	Left   string    `json:"left"` // its version
}

type retentionBack struct {
	MaxAge   int64  `json:"max_age_ms"`
	MaxCount int64  `json:"max_count"`
	Left     string `json:"left"` // its version
}

// scheduleBack says that a schedule was paused, at a time in ms since 1970, or resumed.
type scheduleBack struct {
	PausedAt int64  `json:"paused_at_ms,omitempty"` // 0 if it was resumed
	Note     string `json:"note,omitempty"`         // of the pause before
}

// workerBack has the command that undoes one to a worker.
type workerBack struct {
	ID   string              `json:"id"`
	Left later.WorkerState   `json:"left"`
	Do   later.WorkerCommand `json:"do"`
}

// undoable returns how a change that needed a right is undone with its record.
func (b back) undoable(right access.Right) *undoable {
	text, _ := json.Marshal(b) // texts and numbers can always be encoded
	return &undoable{right: right, back: text}
}

// undoRecorded undoes a change with its record.
func (s *Server) undoRecorded(ctx context.Context, c *changelog.Change) error {
	var b back
	if err := json.Unmarshal(c.Back, &b); err != nil {
		return notUndoable("its record cannot be read: use the version of the server that made it: %v", err)
	}
	q := s.client.Queue(c.Queue)
	what, err := "", error(nil)
	switch {
	case b.Move != nil:
		what, err = fmt.Sprintf("message %q", b.Move.ID), b.Move.do(ctx, q)
	case b.Pause != nil:
		what, err = "the queue", b.Pause.do(ctx, s, q)
	case b.Flow != nil:
		what = "the flow of the queue"
		err = q.SetFlow(ctx, b.Flow.Former.Flow(), func(version string) bool { return version == b.Flow.Left })
	case b.Retention != nil:
		what = "the retention of the queue"
		former := b.Retention
		err = q.SetDeadRetention(ctx, later.Retention{MaxAge: time.Duration(former.MaxAge) * time.Millisecond,
			MaxCount: former.MaxCount}, func(version string) bool { return version == b.Retention.Left })
	case b.Schedule != nil:
		name, _ := c.Attributes["schedule"].(string)
		what, err = fmt.Sprintf("schedule %q", name), b.Schedule.do(ctx, s, name)
	case b.Worker != nil:
		what, err = "the worker", b.Worker.do(ctx, s)
	default:
		return notUndoable("it was made by another version of the server: use that one")
	}
	if skipped(err) {
		return errChangedSince(what)
	}
	return err
}

func (m *moveBack) do(ctx context.Context, q *later.Queue) error {
	results, err := q.RescheduleBatch(undo.WithDue(ctx, func(i *store.Info) (time.Time, bool) {
		return time.UnixMilli(m.From), store.UnixMillis(i.Due) == m.To
	}), []string{m.ID}, later.In(0))
	if err == nil {
		err = results[0]
	}
	return err
}

func (p *pauseBack) do(ctx context.Context, s *Server, q *later.Queue) error {
	ctx, err := pauses.WithUndo(ctx, s.client.Store(), q.Name(), p.Paused,
		pauses.Change{Former: p.Former, Left: p.Left})
	switch {
	case err != nil:
		return err
	case p.Paused:
		return q.Resume(ctx)
	}
	return q.Pause(ctx)
}

func (b *scheduleBack) do(ctx context.Context, s *Server, name string) error {
	info, err := s.schedule(ctx, access.Operate, name)
	switch {
	case err != nil:
		return err
	case info.Paused != (b.PausedAt != 0), info.Paused && info.PausedAt.UnixMilli() != b.PausedAt:
		return store.ErrConflict
	case info.Paused:
		return s.client.Schedules().Resume(ctx, name)
	}
	return s.client.Schedules().Pause(ctx, name, b.Note)
}

func (b *workerBack) do(ctx context.Context, s *Server) error {
	live, err := s.client.Workers(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(live, func(w later.WorkerInfo) bool { return w.ID == b.ID })
	if at < 0 || live[at].State != b.Left {
		return store.ErrConflict
	}
	if err := mayTellWorker(ctx, &live[at]); err != nil {
		return err
	}
	ctx, done, err := s.wait(ctx, s.waits)
	if err != nil {
		return err
	}
	defer done()
	_, err = s.client.ControlWorkers(ctx, b.Do, b.ID)
	return err
}

// flowUndo returns how a change of the flow of a queue is undone that replaces a version. One that removes the limits
// of single keys cannot be.
func (s *Server) flowUndo(ctx context.Context, q *later.Queue, flow later.Flow, version string) *undoable {
	stats, err := q.Stats(ctx)
	before := stats.Flow.Flow.Normal()
	if err != nil || stats.Exists && before.Version() != version ||
		before.Fair && !flow.Normal().Fair && s.hasOverrides(ctx, q) {
		return nil
	}
	return back{Flow: &flowBack{wire.NewFlow(before), flow.Version()}}.undoable(access.Operate)
}

// hasOverrides reports whether keys of a queue have limits of their own, or that cannot be told.
func (s *Server) hasOverrides(ctx context.Context, q *later.Queue) bool {
	keys, err := q.Keys(ctx, later.KeysRequest{Overridden: true, Limit: 1})
	return err != nil || len(keys) > 0
}

// keepSchedule keeps the definition of a schedule that another one replaced, if it is known and there is room.
func (s *Server) keepSchedule(former *later.ScheduleInfo, left string) *undoable {
	if former == nil {
		return nil
	}
	k := s.undos.begin()
	text, err := json.Marshal(former.Schedule)
	if err != nil || !s.undos.take(k, 1, len(text), 0) {
		s.undos.forget(k)
		return nil
	}
	k.schedule = &keptSchedule{former.Schedule, left}
	return &undoable{right: access.Operate, kept: k}
}

// keptOf returns how the changes of a kept are undone, nil without one. A single reschedule is undone with its record.
func (s *Server) keptOf(k *kept, right access.Right) *undoable {
	if k == nil {
		return nil
	}
	if len(k.log.Moves) == 1 && len(k.log.Copies) == 0 {
		m := k.log.Moves[0]
		s.undos.forget(k)
		return back{Move: &moveBack{m.ID, m.From, m.To}}.undoable(right)
	}
	return &undoable{right: right, kept: k}
}

// undoPause returns how the pause or resume of a queue is undone, or nil if it changed nothing.
func undoPause(paused bool, was pauses.Change) *undoable {
	if !was.Changed {
		return nil
	}
	return back{Pause: &pauseBack{paused, was.Former, was.Left}}.undoable(access.Operate)
}

// retentionUndo is flowUndo for the retention of a queue.
func retentionUndo(ctx context.Context, q *later.Queue, left later.Retention, version string) *undoable {
	stats, err := q.Stats(ctx)
	former := stats.DeadRetention
	if err != nil || stats.Exists && former.Version() != version {
		return nil
	}
	return back{Retention: &retentionBack{store.Millis(former.MaxAge), former.MaxCount, left.Version()}}.
		undoable(access.Operate)
}

// schedulePauseUndo returns how the pause or resume of a schedule is undone, or nil if it changed nothing.
func (s *Server) schedulePauseUndo(ctx context.Context, before *later.ScheduleInfo, paused bool) *undoable {
	if before.Paused == paused {
		return nil
	}
	b := &scheduleBack{Note: before.PauseNote}
	if paused {
		after, err := s.client.Schedules().Get(ctx, before.Name)
		if err != nil || !after.Paused {
			return nil
		}
		b.PausedAt = after.PausedAt.UnixMilli()
	}
	return back{Schedule: b}.undoable(access.Operate)
}

// workerUndo returns how a command to a worker is undone, or nil if it cannot be.
func workerUndo(do later.WorkerCommand, before later.WorkerState, w later.WorkerInfo, err error) *undoable {
	switch {
	case err != nil:
	case do == later.CommandPause && before == later.WorkerRunning:
		return back{Worker: &workerBack{w.ID, later.WorkerPaused, later.CommandResume}}.undoable(access.Operate)
	case do == later.CommandResume && before == later.WorkerPaused:
		return back{Worker: &workerBack{w.ID, later.WorkerRunning, later.CommandPause}}.undoable(access.Operate)
	}
	return nil
}
