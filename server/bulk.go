package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/inspect"
	"github.com/laterq/later/internal/changelog"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/undo"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

const (
	maxMatched = 1_000_000 // messages that one bulk change may match
	// maxMatchedBytes is how much the matches of all operations take. A single sender can have a million with ids that
	// were generated.
	maxMatchedBytes = 128 << 20
)

func registerBulk(s *Server) {
	route(s, access.Operate, on("POST /v1/queues/{queue}/bulk", "operations", "startBulkChange",
		"Change all messages that match a filter", fails(http.StatusNotFound), answers(http.StatusAccepted),
		says("The reply is an operation, which goes on after it: look at /v1/operations/{id} for its progress. The "+
			"messages that match are found first, up to a million, and then changed; those that have changed or "+
			"gone meanwhile are skipped. With ids in the filter, only these messages can match. With dry_run they are "+
			"only counted, with ten of them as examples.")),
		s.bulk)
}

// Action is the change that a bulk change makes to each message.
type Action struct {
	Action string `json:"action" enum:"cancel,run,reschedule,shift,replay" doc:"run makes due at once; reschedule and replay take in or at; shift moves the due time by a duration; replay makes dead ones live again"`
	Due
	By     string `json:"by,omitempty" pattern:"^-?[0-9].*$" doc:"Of shift: a duration, below zero for earlier" example:"-2h"`
	KeepID bool   `json:"keep_id,omitempty" doc:"Of cancel: start the dedup windows, as acks do"`
}

type bulkChangeInput struct {
	QueuePath
	Body struct {
		Filter BulkFilter `json:"filter"`
		Action
		DryRun    bool `json:"dry_run,omitempty" doc:"Count what matches, and change nothing"`
		PerSecond int  `json:"per_second,omitempty" minimum:"1" doc:"Change at most so many messages a second. Default: no limit"`
	}
}

type operationOutput struct {
	Location string `header:"Location"`
	Body     Operation
}

func (s *Server) bulk(ctx context.Context, in *bulkChangeInput) (*operationOutput, error) {
	filter, err := in.Body.Filter.filter(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := in.Body.Filter.ids()
	if err != nil {
		return nil, field("filter", err)
	}
	q := s.client.Queue(in.Queue)
	b := &bulkChange{server: s, queue: q, filter: filter, ids: ids, dry: in.Body.DryRun,
		cancels: in.Body.Action.Action == "cancel", perSecond: in.Body.PerSecond}
	if b.change, err = in.Body.Action.change(q); err != nil {
		return nil, err
	}
	if err := s.queueExists(ctx, in.Queue); err != nil {
		return nil, err
	}
	made := func(op *Operation) (*changelog.Change, *kept) {
		attrs := append(attrsOf(op, &in.Body.Filter.Filter, &in.Body.Action), in.Body.Filter.attrs()...)
		if !in.Body.Action.undoable() {
			return s.changed(ctx, nil, "bulk change", attrs...), nil
		}
		return s.changed(ctx, &undoable{right: access.Operate}, "bulk change", attrs...), s.undos.begin()
	}
	if b.dry {
		made = nil
	}
	begun := Operation{Queue: in.Queue, Action: in.Body.Action.Action, DryRun: b.dry}
	op, err := s.operations.start(ctx, begun, made, b.run)
	if err != nil {
		return nil, err
	}
	return &operationOutput{"/v1/operations/" + op.ID, op}, nil
}

// found is a message that a bulk change matched.
type found struct {
	id  string
	due int64 // in ms since 1970
}

// size returns how many bytes it takes.
func (f *found) size() int64 { return int64(len(f.id)) + 32 }

// undoable reports whether what the action does can be undone.
func (a *Action) undoable() bool { return a.Action != "run" && a.Action != "replay" }

// change changes some messages, and returns how many it changed. A skipped message is not an error.
type change func(ctx context.Context, messages []found) (n int, err error)

// change returns the function that applies the action. It returns ErrInvalid for fields that the action does not take.
func (a *Action) change(q *later.Queue) (change, error) {
	timed := a.given()
	switch {
	case timed && a.Action != "reschedule" && a.Action != "replay":
		return nil, field("in", store.Invalid("%s takes no due time: omit in and at", a.Action))
	case !timed && a.Action == "reschedule":
		return nil, field("in", store.Invalid("reschedule needs a due time: give in or at"))
	case (a.By != "") != (a.Action == "shift"):
		return nil, field("by", store.Invalid("by is for shift, which needs it: give both, such as 2h, or neither"))
	case a.KeepID && a.Action != "cancel":
		return nil, field("keep_id", store.Invalid("%s takes no keep_id: omit it", a.Action))
	}
	due, err := a.when()
	if err != nil {
		return nil, err
	}
	switch a.Action {
	case "cancel":
		var opts []later.CancelOption
		if a.KeepID {
			opts = append(opts, later.KeepID())
		}
		return func(ctx context.Context, messages []found) (int, error) {
			results, err := q.CancelBatch(ctx, ids(messages), opts...)
			return countNil(results, func(r later.CancelResult) error { return r.Err }), err
		}, nil
	case "run", "reschedule":
		return func(ctx context.Context, messages []found) (int, error) {
			results, err := q.RescheduleBatch(ctx, ids(messages), due)
			return countNil(results, func(err error) error { return err }), err
		}, nil
	case "replay":
		return func(ctx context.Context, messages []found) (int, error) {
			return q.Replay(ctx, due, ids(messages)...)
		}, nil
	}
	text, earlier := strings.CutPrefix(a.By, "-")
	by, err := durations.Parse(text)
	if err != nil {
		return nil, field("by", err)
	}
	if earlier {
		by = -by
	}
	return func(ctx context.Context, messages []found) (int, error) {
		before := make(map[string]int64, len(messages))
		for _, m := range messages {
			before[m.id] = m.due
		}
		results, err := q.RescheduleBatch(undo.WithDue(ctx, func(m *store.Info) (time.Time, bool) {
			at := store.UnixMillis(m.Due)
			due, ok := before[m.ID]
			return time.UnixMilli(at + by.Milliseconds()), ok && due == at // else it has changed since it matched
		}), ids(messages), later.In(0))
		return countNil(results, func(err error) error { return err }), err
	}, nil
}

func ids(messages []found) []string {
	all := make([]string, len(messages))
	for i := range messages {
		all[i] = messages[i].id
	}
	return all
}

func countNil[T any](results []T, errorOf func(T) error) (n int) {
	for _, r := range results {
		if errorOf(r) == nil {
			n++
		}
	}
	return n
}

// bulkChange is the work of one bulk change.
type bulkChange struct {
	server    *Server
	queue     *later.Queue
	filter    inspect.Filter
	ids       []string // of the messages that may match; none for all
	change    change
	dry       bool
	cancels   bool
	perSecond int
}

// run finds all messages before it changes the first, because a change can move a message to where it would be found
// again.
func (b *bulkChange) run(ctx context.Context, update func(func(*Operation))) error {
	matched, give, err := b.find(ctx, update)
	defer give()
	if err != nil || b.dry {
		return err
	}
	if b.cancels && len(matched) > maxCopies {
		undo.Stop(ctx)
	}
	begin := time.Now()
	for done := 0; done < len(matched); {
		part := matched[done:min(len(matched), done+b.part())]
		n, err := b.change(ctx, part)
		done += len(part)
		update(func(o *Operation) {
			o.Changed += n
			if err == nil {
				o.Skipped += len(part) - n
			}
		})
		if err != nil {
			return err
		}
		if err := b.pace(ctx, begin, done); err != nil {
			return err
		}
	}
	return nil
}

// part returns how many messages to change at a time.
func (b *bulkChange) part() int {
	if b.perSecond > 0 {
		return min(b.perSecond, store.MaxBatch)
	}
	return store.MaxBatch
}

// pace waits until the next part may be changed.
func (b *bulkChange) pace(ctx context.Context, begin time.Time, done int) error {
	if b.perSecond == 0 {
		return context.Cause(ctx)
	}
	wait := time.NewTimer(time.Until(begin.Add(time.Duration(done) * time.Second / time.Duration(b.perSecond))))
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// find returns the messages that match. The caller calls give when it needs them no longer.
func (b *bulkChange) find(
	ctx context.Context, update func(func(*Operation)),
) (matched []found, give func(), err error) {
	count, size, who := 0, int64(0), senderOf(ctx)
	give = func() { b.server.matched.Give(who, size) }
	for o := (inspect.SearchOptions{Limit: store.MaxBatch, Bytes: maxPageBytes}); ; {
		page, err := b.search(ctx, o)
		if err != nil {
			return nil, give, err
		}
		count += len(page.Messages)
		if !b.dry {
			more := int64(0)
			for _, m := range page.Messages {
				matched = append(matched, found{m.ID, m.Due.UnixMilli()})
				more += matched[len(matched)-1].size()
			}
			if err := b.server.matched.refusal(b.server.matched.Take(who, more)); err != nil {
				return nil, give, err
			}
			size += more
		}
		update(func(op *Operation) {
			op.Looked, op.Matched = op.Looked+page.Looked, count
			if len(b.ids) > 0 {
				op.Skipped += page.Looked - len(page.Messages)
			}
			for i := 0; i < len(page.Messages) && len(op.Examples) < maxExamples; i++ {
				example := Message{Info: page.Messages[i]}
				example.cut(maxExample)
				op.Examples = append(op.Examples, example)
			}
		})
		switch {
		case len(matched) > maxMatched:
			return nil, give, fmt.Errorf("more than %d messages match: narrow the filter, such as by due time: %w", maxMatched,
				store.ErrTooLarge)
		case page.Next == "":
			return matched, give, nil
		}
		o.Cursor = page.Next
	}
}
