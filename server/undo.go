package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/changelog"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/internal/undo"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

// undoable is how a change can be undone: with its record, by all servers at any time, or with a copy in the memory of
// this server.
type undoable struct {
	right access.Right // which the change needed
	back  json.RawMessage
	kept  *kept
}

// ChangePath is the change of a path.
type ChangePath struct {
	Change string `path:"change" maxLength:"128" doc:"The id of the change"`
}

// UndoneChange is the result of an undo.
type UndoneChange struct {
	Undoes    string     `json:"undoes" doc:"The id of the change that was undone"`
	Changed   int        `json:"changed" doc:"How many messages or settings are as before"`
	Skipped   int        `json:"skipped" doc:"How many messages were left as they are, because they have changed since or their ids are in use again"`
	Operation *Operation `json:"operation,omitempty" doc:"It undoes the change after the reply; its own numbers count"`
}

func (s *Server) undoChange(ctx context.Context, in *ChangePath) (*output[UndoneChange], error) {
	c, err := s.changes.Get(ctx, in.Change)
	if err != nil {
		return nil, err
	}
	if err := s.mayUndo(ctx, c); err != nil {
		if !seesChange(ctx)(c) {
			err = fmt.Errorf("no change %q is listed: %w", in.Change, store.ErrNotFound)
		}
		return nil, err
	}
	switch {
	case c.Undone != nil:
		return nil, notUndoable("it was undone by %s at %s already", c.Undone.Who, c.Undone.Time.UTC().Format(time.RFC3339))
	case s.operations.isRunning(c.ID):
		return nil, field("path.change", store.Invalid("%q is still going on: stop its operation first", c.ID))
	}
	out := UndoneChange{Undoes: c.ID}
	if k := s.undos.claim(c.ID); k != nil {
		if n := k.messages(); n > store.MaxBatch {
			out.Operation, err = s.startUndo(ctx, c, k, n)
		} else {
			out.Changed, out.Skipped, err = s.undoKept(ctx, c, k, func(int, int) {})
		}
		return outputOf(out), err
	}
	if c.Back == nil {
		return nil, notUndoable("this server keeps nothing for that: it is being undone, was made before a restart, is " +
			"more than ten minutes old, changed more than can be kept, or was made through another server: ask that one")
	}
	if err := s.undoRecorded(ctx, c); err != nil {
		return nil, err
	}
	out.Changed = 1
	s.changeUndone(ctx, c, 1, 0)
	return outputOf(out), nil
}

// mayUndo returns an error unless the sender of a request has the right that a change needed.
func (s *Server) mayUndo(ctx context.Context, c *changelog.Change) error {
	right, ok := rightOf(c.Right)
	if !ok {
		return notUndoable("it left nothing to undo it with: give undoable with the next change of a message; run, replay " +
			"and some other changes have no undo")
	}
	if _, scheduled := c.Attributes["schedule"]; scheduled {
		if err := access.CheckSchedules(ctx, right); err != nil {
			return err
		}
	}
	return may(ctx, right, c.Queue)
}

func rightOf(name string) (access.Right, bool) {
	for right := access.Look; right <= access.Administer; right++ {
		if right.Name() == name {
			return right, true
		}
	}
	return 0, false
}

// notUndoable returns the error of a change that cannot be undone.
func notUndoable(why string, args ...any) error {
	return &problem.Error{Status: http.StatusConflict,
		Err: fmt.Errorf("the change cannot be undone: %s: %w", fmt.Sprintf(why, args...), store.ErrConflict)}
}

// errChangedSince returns the error of a change that left nothing to undo, since others have changed it.
func errChangedSince(what string) error {
	return notUndoable("%s is no longer as the change left it, and is left as it is", what)
}

// changeUndone lists that a change was undone.
func (s *Server) changeUndone(ctx context.Context, c *changelog.Change, changed, skipped int) {
	by := s.changed(ctx, nil, "change undone", undoneAttrs(c, changed, skipped)...)
	after := *c
	after.Undone = &changelog.Undone{Time: by.Time, Who: by.Who, Change: by.ID}
	s.changes.Put(&after)
}

// undoneAttrs returns the log attributes of an undo.
func undoneAttrs(c *changelog.Change, changed, skipped int) []slog.Attr {
	attrs := []slog.Attr{slog.String("undoes", c.ID), slog.String("was", c.What), slog.Int("count", changed)}
	if skipped > 0 {
		attrs = append(attrs, slog.Int("skipped", skipped))
	}
	if c.Queue != "" {
		attrs = append(attrs, slog.String("queue", c.Queue))
	}
	for _, name := range []string{"schedule", "id", "group", "series", "worker"} {
		if value, ok := c.Attributes[name].(string); ok {
			attrs = append(attrs, slog.String(name, value))
		}
	}
	return attrs
}

// startUndo undoes a change of many messages in an operation.
func (s *Server) startUndo(ctx context.Context, c *changelog.Change, k *kept, n int) (*Operation, error) {
	op, err := s.operations.start(ctx, Operation{Queue: c.Queue, Action: "undo", Matched: n}, nil,
		func(ctx context.Context, update func(func(*Operation))) error {
			_, _, err := s.undoKept(ctx, c, k, func(changed, skipped int) {
				update(func(o *Operation) { o.Changed, o.Skipped = changed, skipped })
			})
			return err
		})
	if err != nil {
		s.undos.release(k)
		return nil, err
	}
	return &op, nil
}

// undoKept undoes a change with its kept. After an error the rest of it can be undone again.
func (s *Server) undoKept(ctx context.Context, c *changelog.Change, k *kept, progress func(changed, skipped int)) (
	changed, skipped int, err error) {
	b := &backer{ctx: ctx, server: s, queue: s.client.Queue(c.Queue), id: c.ID, kept: k, progress: progress}
	if err = b.do(); err != nil {
		k.done += b.changed
		s.undos.release(k)
		if b.changed > 0 {
			s.Changed(ctx, "change undone in part", undoneAttrs(c, b.changed, b.skipped)...)
			err = fmt.Errorf("%d messages are as before, and then this failed: repeat it for the others: %w", b.changed, err)
		}
		return b.changed, b.skipped, err
	}
	if b.changed+k.done == 0 {
		k.restoreAll(b.left)
		s.undos.release(k)
		return 0, b.skipped, errChangedSince(b.what())
	}
	s.undos.forget(k)
	s.changeUndone(ctx, c, b.changed+k.done, b.skipped)
	return b.changed, b.skipped, nil
}

// backer undoes one change.
type backer struct {
	ctx              context.Context
	server           *Server
	queue            *later.Queue
	id               string
	kept             *kept
	progress         func(changed, skipped int)
	changed, skipped int
	left             undo.Log // the skipped messages, for another try
}

func (b *backer) do() error {
	if b.kept.schedule != nil {
		return b.putSchedule()
	}
	if err := b.edit(); err != nil {
		return err
	}
	if err := b.moveBack(); err != nil {
		return err
	}
	return b.restore()
}

func (b *backer) what() string {
	switch log := &b.kept.log; {
	case b.kept.schedule != nil:
		return fmt.Sprintf("schedule %q", b.kept.schedule.former.Name)
	case log.Edited != nil:
		return fmt.Sprintf("message %q", log.Edited.Before.ID)
	case len(log.Moves) == 1:
		return fmt.Sprintf("message %q", log.Moves[0].ID)
	case len(log.Copies) == 1:
		return fmt.Sprintf("the id %q", log.Copies[0].ID)
	}
	return "each of its messages"
}

func (b *backer) count(changed, skipped int) {
	b.changed, b.skipped = b.changed+changed, b.skipped+skipped
	b.progress(b.changed, b.skipped)
}

// moveBack gives the messages that still have the due time of the change their former one. It begins with the last
// move: a change moves a message twice that it found twice, because others moved it meanwhile.
func (b *backer) moveBack() error {
	log := &b.kept.log
	for len(log.Moves) > 0 {
		if err := context.Cause(b.ctx); err != nil {
			return err
		}
		rest := lastMoves(log.Moves)
		part := log.Moves[rest:]
		table, ids := make(map[string]undo.Move, len(part)), make([]string, len(part))
		for i, m := range part {
			table[m.ID], ids[i] = m, m.ID
		}
		isBack := map[string]bool{} // by an undo that failed before it learned that
		results, err := b.queue.RescheduleBatch(undo.WithDue(b.ctx, func(m *store.Info) (time.Time, bool) {
			move, at := table[m.ID], store.UnixMillis(m.Due)
			isBack[m.ID] = at == move.From
			return time.UnixMilli(move.From), at == move.To
		}), ids, later.In(0))
		if err != nil {
			return err
		}
		var left []undo.Move
		for i, err := range results {
			switch {
			case err == nil, isBack[part[i].ID]:
			case skipped(err):
				left = append(left, part[i])
			default:
				return err
			}
		}
		b.left.Moves = slices.Concat(left, b.left.Moves)
		log.Moves = log.Moves[:rest]
		b.count(len(part)-len(left), len(left))
	}
	return nil
}

// lastMoves returns where the last moves begin that one call can make, of different messages.
func lastMoves(moves []undo.Move) int {
	at, seen := len(moves), map[string]bool{}
	for at > 0 && len(seen) < store.MaxBatch && !seen[moves[at-1].ID] {
		at--
		seen[moves[at].ID] = true
	}
	return at
}

// restore adds the copies if their ids are free.
func (b *backer) restore() error {
	log := &b.kept.log
	if len(log.Copies) == 0 {
		return nil
	}
	added, next, err := undo.Restore(b.ctx, b.server.client.Store(), b.queue.Name(), "undo-"+b.id, b.kept.part, log.Copies)
	changed := 0
	for i, ok := range added {
		if ok {
			changed++
		} else {
			b.left.Copies = append(b.left.Copies, log.Copies[i])
		}
	}
	log.Copies, b.kept.part = log.Copies[len(added):], next
	b.count(changed, len(added)-changed)
	return err
}

// edit puts the message before an edit in the place of the one after it.
func (b *backer) edit() error {
	e := b.kept.log.Edited
	if e == nil {
		return nil
	}
	isBack := false // by an undo that failed before it learned that
	ctx := undo.WithCheck(b.ctx, func(m *store.Info) error {
		is := func(o *store.Info) bool {
			return m.SameMessage(o) && store.UnixMillis(m.Due) == store.UnixMillis(o.Due)
		}
		if isBack = is(&e.Before); isBack || !is(&e.After) {
			return store.ErrNotFound // there is nothing to edit
		}
		return nil
	})
	err := b.queue.Edit(ctx, e.Before.ID, func(m *later.Outgoing) error {
		former := later.OutgoingOf(e.Before.Message)
		former.Queue, former.OnDuplicate, former.When = m.Queue, m.OnDuplicate, later.At(e.Before.Due)
		*m = former
		return nil
	})
	switch {
	case err == nil, isBack:
		b.count(1, 0)
	case skipped(err):
		b.count(0, 1)
	default:
		return err
	}
	return nil
}

// putSchedule stores the definition of a schedule before a change, if the one after it is still stored.
func (b *backer) putSchedule() error {
	k := b.kept.schedule
	if err := may(b.ctx, access.Operate, k.former.Queue); err != nil {
		return err
	}
	if err := b.server.mayReplace(b.ctx, k.former.Name); err != nil {
		return err
	}
	_, err := b.server.client.Schedules().Put(b.ctx, k.former, func(version string) bool { return version == k.left })
	switch {
	case err == nil:
		b.count(1, 0)
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
		b.count(0, 1)
	default:
		return err
	}
	return nil
}

// restoreAll keeps the skipped messages for another try.
func (k *kept) restoreAll(left undo.Log) {
	k.log.Moves = slices.Concat(k.log.Moves, left.Moves)
	k.log.Copies = slices.Concat(left.Copies, k.log.Copies)
}
