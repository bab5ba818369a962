package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

// workerCommands are the commands to workers, with their summaries.
var workerCommands = []struct {
	do      later.WorkerCommand
	summary string
}{
	{later.CommandPause, "Stop a worker from claiming messages"},
	{later.CommandResume, "Let a paused worker claim messages again"},
	{later.CommandDrain, "End a worker when its handlers have finished"},
	{later.CommandRestart, "Restart a worker with a new version of its program"},
}

func registerWorkers(s *Server) {
	const tag = "workers"
	route(s, access.Look, on("GET /v1/workers", tag, "listWorkers",
		"List the live workers of all processes"), s.listWorkers)
	for _, command := range workerCommands {
		route(s, access.Operate, on("POST /v1/workers/{name}/"+string(command.do), tag,
			string(command.do)+"Worker", command.summary, fails(http.StatusNotFound), answers(http.StatusOK),
			says("The reply comes when each worker with this name or id has begun to obey, or after 30 s; one that has "+
				"not answered by then obeys if it can within two minutes."),
		), func(ctx context.Context, in *workerPath) (*output[ToldWorkers], error) {
			return s.tellWorkers(ctx, command.do, in.Name)
		})
	}
}

type listWorkersInput struct {
	Report bool `query:"report" doc:"Have them report what they hold now, which takes up to a second. Default: as of their last heartbeats, up to 14 s ago"`
}

func (s *Server) listWorkers(ctx context.Context, in *listWorkersInput) (*output[Page[wire.Worker]], error) {
	list := s.client.Workers
	if in.Report {
		var done func()
		var err error
		if ctx, done, err = s.wait(ctx, s.waits); err != nil {
			return nil, err
		}
		defer done()
		list = func(ctx context.Context) ([]later.WorkerInfo, error) { return s.client.ReportWorkers(ctx, 0) }
	}
	live, err := list(ctx)
	if err != nil {
		return nil, err
	}
	out := outputOf(Page[wire.Worker]{Items: []wire.Worker{}})
	for _, w := range live {
		if limitWorker(ctx, &w) {
			out.Body.Items = append(out.Body.Items, view.Worker(w))
		}
	}
	return out, nil
}

// limitWorker removes everything from a worker that the sender of a request may not look at, and reports whether a
// queue remains.
func limitWorker(ctx context.Context, w *later.WorkerInfo) bool {
	if hides(ctx) {
		w.GivenBack = slices.Clone(w.GivenBack)
		for i := range w.GivenBack {
			w.GivenBack[i].Kind, w.GivenBack[i].Error = "", "" // the kind is a header
		}
	}
	if access.Check(ctx, access.Look, "") == nil {
		return true
	}
	see := visible(ctx)
	w.Queues = slices.DeleteFunc(w.Queues, func(queue string) bool { return !see(queue) })
	w.Held = slices.DeleteFunc(w.Held, func(m later.HeldMessage) bool { return !see(m.Queue) })
	w.Forwards = slices.DeleteFunc(w.Forwards, func(f later.Forwarded) bool { return !see(f.Queue) })
	w.GivenBack = slices.DeleteFunc(w.GivenBack, func(g later.GivenBack) bool { return !see(g.Queue) })
	w.QueueCount, w.HeldCount, w.Forwarding = len(w.Queues), len(w.Held), 0
	return len(w.Queues) > 0
}

type workerPath struct {
	Name string `path:"name" maxLength:"128" doc:"The name of one or several workers, or the id of one"`
}

// ToldWorkers are the workers that were sent a command.
type ToldWorkers struct {
	Workers []ToldWorker `json:"workers"`
}

// ToldWorker is a worker that was sent a command.
type ToldWorker struct {
	Name    string           `json:"name"`
	ID      string           `json:"id"`
	Command string           `json:"command" enum:"pause,resume,drain,restart"`
	Error   *problem.Problem `json:"error,omitempty" doc:"Why it has not begun to obey"`
}

func (s *Server) tellWorkers(ctx context.Context, do later.WorkerCommand, name string) (*output[ToldWorkers], error) {
	before, err := s.mayTell(ctx, name)
	if err != nil {
		return nil, err
	}
	ctx, done, err := s.wait(ctx, s.waits)
	if err != nil {
		return nil, err
	}
	defer done()
	told, err := s.client.ControlWorkers(ctx, do, slices.Collect(maps.Keys(before))...)
	if len(told) == 0 && err != nil {
		return nil, err
	}
	failed := map[string]error{}
	for _, one := range joined(err) {
		refused, ok := errors.AsType[*later.WorkerError](one)
		if !ok {
			return nil, err
		}
		failed[refused.Worker.ID] = refused.Err
	}
	out := outputOf(ToldWorkers{})
	for _, w := range told {
		result := ToldWorker{Name: w.Name, ID: w.ID, Command: string(do)}
		if err := failed[w.ID]; err != nil {
			result.Error = obeyProblem(err)
		}
		out.Body.Workers = append(out.Body.Workers, result)
		s.changed(ctx, workerUndo(do, before[w.ID], w, failed[w.ID]), "worker told",
			slog.String("command", string(do)), slog.String("worker", w.Name),
			slog.String("id", w.ID), slog.Bool("obeys", failed[w.ID] == nil))
	}
	return out, nil
}

// obeyProblem returns the reason why a worker does not obey. A worker that refuses is not a failure of the server.
func obeyProblem(err error) *problem.Problem {
	status := 0
	if store.CodeOf(err) == store.Internal {
		status = http.StatusConflict
	}
	p := problem.New(status, err)
	return &p
}

// joined returns the errors that errors.Join joined.
func joined(err error) []error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// mayTell returns the states of the workers with a name or id, by id. The sender of the request must have the right to
// operate all their queues. A worker that the sender does not see is left out, so that it cannot keep the sender from
// commanding other workers of that name.
func (s *Server) mayTell(ctx context.Context, name string) (states map[string]later.WorkerState, err error) {
	live, err := s.client.Workers(ctx)
	if err != nil {
		return nil, err
	}
	states = map[string]later.WorkerState{}
	isID := slices.ContainsFunc(live, func(w later.WorkerInfo) bool { return w.ID == name })
	for _, w := range live {
		if isID && w.ID != name || !isID && w.Name != name || !seesWorker(ctx, &w) {
			continue
		}
		if err := mayTellWorker(ctx, &w); err != nil {
			return nil, err
		}
		states[w.ID] = w.State
	}
	if len(states) == 0 {
		return nil, fmt.Errorf("no live worker %q: %w", name, store.ErrNotFound)
	}
	return states, nil
}

// seesWorker reports whether the sender of a request may operate a worker, or sees it in the list.
func seesWorker(ctx context.Context, w *later.WorkerInfo) bool {
	return access.Check(ctx, access.Look, "") == nil || slices.ContainsFunc(w.Queues, visible(ctx))
}

func mayTellWorker(ctx context.Context, w *later.WorkerInfo) error {
	whole := access.Check(ctx, access.Operate, "")
	if whole == nil {
		return nil
	}
	if len(w.Queues) < w.QueueCount || len(w.Queues) == 0 {
		return whole // it has unlisted queues
	}
	for _, queue := range w.Queues {
		if may(ctx, access.Operate, queue) != nil {
			return whole // without the names of queues that they do not see
		}
	}
	return nil
}
