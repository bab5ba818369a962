package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/changelog"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/internal/undo"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

const (
	maxRunning  = 8    // operations at the same time
	maxExample  = 1024 // bytes of the payload of an example
	maxFinished = 100  // operations that are remembered
	maxExamples = 10   // messages of an operation that are shown
)

// The states of an operation.
const (
	opRunning = "running"
	opDone    = "done"
	opStopped = "stopped"
	opFailed  = "failed"
)

func registerOperations(s *Server) {
	const one = "/v1/operations/{operation}"
	const tag = "operations"
	route(s, access.Look, on("GET /v1/operations", tag, "listOperations",
		"List operations of this server, latest first",
		says("A server remembers its last 100 operations until it ends.")), s.listOperations)
	route(s, access.Look, on("GET "+one, tag, "getOperation", "Get the progress of an operation",
		fails(http.StatusNotFound)), s.waitForOperation)
	route(s, access.Operate, on("DELETE "+one, tag, "stopOperation", "Stop an operation",
		fails(http.StatusNotFound),
		says("What it has changed stays changed.")), s.stopOperation)
}

// Operation is a bulk change, under way or finished.
type Operation struct {
	ID       string           `json:"id"`
	Queue    string           `json:"queue"`
	Action   string           `json:"action" enum:"cancel,run,reschedule,shift,replay,undo"`
	DryRun   bool             `json:"dry_run,omitempty"`
	State    string           `json:"state" enum:"running,done,stopped,failed"`
	By       string           `json:"by,omitempty" doc:"Who started it"`
	Started  string           `json:"started"`
	Finished string           `json:"finished,omitempty"`
	Looked   int              `json:"looked" doc:"Messages that were looked at"`
	Matched  int              `json:"matched" doc:"Messages that match"`
	Changed  int              `json:"changed" doc:"Messages that were changed"`
	Skipped  int              `json:"skipped" doc:"Messages that matched and could then not be changed, because of their state, and ids of the filter without a message that matches"`
	Examples []Message        `json:"examples,omitempty" doc:"The first ten that match"`
	Change   string           `json:"change,omitempty" doc:"The change that it makes, for undoChange"`
	Undo     *Undoable        `json:"undo,omitempty" doc:"Set while the sender of the request can undo the change"`
	Error    *problem.Problem `json:"error,omitempty"`
}

// operations are the operations of one server.
type operations struct {
	server *Server

	mu  sync.Mutex
	all []*operation // in order of their start
}

type operation struct {
	Operation
	made     *changelog.Change // nil for an undo, which lists its change at the end
	kept     *kept             // for an undo of the change
	stop     context.CancelCauseFunc
	finished chan struct{}
}

var errStopped = errors.New("the operation was stopped")

// start runs an operation in the background. do reports progress through update. made, unless it is nil, lists the
// change that begins, and returns what will be kept of it.
func (o *operations) start(
	ctx context.Context, op Operation, made func(*Operation) (*changelog.Change, *kept),
	do func(ctx context.Context, update func(func(*Operation))) error,
) (Operation, error) {
	giveBack, err := o.server.running.take(ctx, 1)
	if err != nil {
		return op, err
	}
	who, _ := access.FromContext(ctx)
	op.ID, op.State, op.By, op.Started = store.NewID(), opRunning, who.Name, wire.FormatTime(time.Now())
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.server.ending.Err() != nil {
		giveBack()
		return op, errEnding
	}
	running := &operation{finished: make(chan struct{})}
	if made != nil {
		running.made, running.kept = made(&op)
		op.Change = running.made.ID
	}
	running.Operation = op
	ctx, running.stop = context.WithCancelCause(withHeader(context.WithoutCancel(ctx), nil)) // the reply will be gone
	if running.kept != nil {
		ctx = undo.WithLog(ctx, &running.kept.log)
	}
	o.all = append(o.all, running)
	if len(o.all) > maxFinished { // these are more than can run, so one is finished
		old := slices.IndexFunc(o.all, func(op *operation) bool { return op.State != opRunning })
		o.all = slices.Delete(o.all, old, old+1)
	}
	o.server.open.Go(func() {
		defer giveBack()
		defer context.AfterFunc(o.server.ending, func() { running.stop(errEnding) })()
		err := do(ctx, func(change func(*Operation)) {
			o.mu.Lock()
			defer o.mu.Unlock()
			change(&running.Operation)
		})
		o.finish(ctx, running, err)
	})
	return op, nil
}

func (o *operations) finish(ctx context.Context, op *operation, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	op.Finished = wire.FormatTime(time.Now())
	switch cause := context.Cause(ctx); {
	case err == nil:
		op.State = opDone
	case cause != nil && errors.Is(err, cause):
		op.State = opStopped
	default:
		op.State, op.Error = opFailed, o.server.problemOf(context.WithoutCancel(ctx), err)
	}
	op.stop(nil)
	if op.made != nil {
		access.Log(ctx, o.server.log, "bulk change "+op.State, slog.String("operation", op.ID),
			slog.String("queue", op.Queue), slog.String("action", op.Action), slog.Int("count", op.Changed))
		if op.kept != nil {
			o.server.undos.keep(op.made.ID, op.kept)
		}
		o.server.amended(op.made, slog.String("state", op.State), slog.Int("count", op.Changed))
	}
	close(op.finished)
}

// isRunning reports whether the operation of a change goes on.
func (o *operations) isRunning(change string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.all, func(op *operation) bool { return op.Change == change && op.State == opRunning })
}

// get returns the operations that the sender of a request may see: that with an id, or all.
func (o *operations) get(ctx context.Context, id string) []Operation {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := []Operation{}
	for _, op := range o.all {
		if (id == "" || op.ID == id) && may(ctx, access.Look, op.Queue) == nil {
			one := op.Operation
			if may(ctx, access.Operate, op.Queue) == nil {
				one.Undo = o.server.undos.of(op.Change)
			}
			one.Examples = make([]Message, len(op.Examples))
			for i, m := range op.Examples {
				if one.Examples[i] = m; hides(ctx) {
					one.Examples[i] = shownMessage(ctx, m.Info)
				}
			}
			seen = append(seen, one)
		}
	}
	return seen
}

// attrsOf returns the log attributes of a bulk change that starts.
func attrsOf(op *Operation, filter *Filter, action *Action) []slog.Attr {
	f, _ := json.Marshal(filter) // texts, numbers and times can always be encoded
	a, _ := json.Marshal(action)
	return []slog.Attr{slog.String("operation", op.ID), slog.String("queue", op.Queue), slog.String("action", string(a)),
		slog.String("filter", string(f))}
}

type OperationPath struct {
	ID string `path:"operation" maxLength:"64" doc:"The id of the operation"`
}

func (s *Server) listOperations(ctx context.Context, _ *struct{}) (*output[Page[Operation]], error) {
	out := &output[Page[Operation]]{}
	out.Body.Items = s.operations.get(ctx, "")
	slices.SortFunc(out.Body.Items, func(a, b Operation) int { return cmp.Compare(b.Started, a.Started) })
	return out, nil
}

type waitInput struct {
	OperationPath
	Wait Duration `query:"wait" doc:"Wait so long for its end, up to 5m. Default: not at all"`
}

func (s *Server) waitForOperation(ctx context.Context, in *waitInput) (*operationOutput, error) {
	wait, err := in.Wait.wait("query.wait")
	if err != nil {
		return nil, err
	}
	if op := s.operations.find(in.ID); wait > 0 && op != nil {
		waiting, done, err := s.wait(ctx, s.waits)
		if err != nil {
			return nil, err
		}
		defer done()
		select {
		case <-op.finished:
		case <-waiting.Done():
			if err := context.Cause(waiting); err != errEnding { // else the reply is how far it has come
				return nil, err
			}
		case <-time.After(wait):
		}
	}
	return s.getOperation(ctx, &in.OperationPath)
}

// find returns an operation, or nil for an unknown id.
func (o *operations) find(id string) *operation {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := slices.IndexFunc(o.all, func(op *operation) bool { return op.ID == id }); i >= 0 {
		return o.all[i]
	}
	return nil
}

func (s *Server) getOperation(ctx context.Context, in *OperationPath) (*operationOutput, error) {
	found := s.operations.get(ctx, in.ID)
	if len(found) == 0 {
		return nil, fmt.Errorf("no operation %q on this server: %w", in.ID, later.ErrNotFound)
	}
	return &operationOutput{Body: found[0]}, nil
}

func (s *Server) stopOperation(ctx context.Context, in *OperationPath) (*operationOutput, error) {
	out, err := s.getOperation(ctx, in)
	if err == nil {
		err = may(ctx, access.Operate, out.Body.Queue)
	}
	if err != nil {
		return nil, err
	}
	if op := s.operations.find(in.ID); op != nil {
		op.stop(errStopped)
	}
	s.Changed(ctx, "bulk change told to stop", slog.String("operation", in.ID), slog.String("queue", out.Body.Queue))
	return s.getOperation(ctx, in)
}

// skipped reports whether a message could not be changed because of its state.
func skipped(err error) bool {
	return errors.Is(err, later.ErrNotFound) || errors.Is(err, later.ErrLeased) || errors.Is(err, later.ErrDead) ||
		errors.Is(err, store.ErrConflict)
}
