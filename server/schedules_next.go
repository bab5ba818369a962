package server

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

func registerRuns(s *Server, tags []string) {
	route(s, access.Look, huma.Operation{
		Method: http.MethodGet, Path: "/v1/schedules/{schedule}/next", Tags: tags,
		Summary:     "List the next runs of a schedule",
		Description: "A schedule that is paused or has finished has none.",
	}, s.nextRuns)
	route(s, access.Look, huma.Operation{
		Method: http.MethodGet, Path: "/v1/schedules-upcoming", Tags: tags, Summary: "List the next runs of all schedules",
		Description: "They are in order of time, as if all of them were sent.",
	}, s.upcomingRuns)
	route(s, access.Look, huma.Operation{
		Method: http.MethodPost, Path: "/v1/schedule-preview", Tags: tags, DefaultStatus: http.StatusOK,
		Summary: "List the next runs of a schedule that is not stored", MaxBodyBytes: maxScheduleBody,
		Description: "Times that are counted from the creation of a schedule are counted from after.",
	}, s.previewRuns)
}

// RunCount is how many runs a request asks for.
type RunCount struct {
	N int `query:"n" minimum:"1" maximum:"1000" default:"10" doc:"How many runs"`
}

type nextRunsInput struct {
	SchedulePath
	RunCount
}

type runsOutput struct {
	Body struct {
		Runs []wire.Run `json:"runs"`
	}
}

func runsOf(runs []later.Run) *runsOutput {
	out := &runsOutput{}
	out.Body.Runs = make([]wire.Run, len(runs))
	for i, run := range runs {
		out.Body.Runs[i] = view.Run(run)
	}
	return out
}

func (s *Server) nextRuns(ctx context.Context, in *nextRunsInput) (*runsOutput, error) {
	info, err := s.schedule(ctx, access.Look, in.Schedule)
	if err != nil {
		return nil, err
	}
	runs, err := info.NextRuns(in.N)
	if err != nil {
		return nil, err
	}
	return runsOf(runs), nil
}

func (s *Server) upcomingRuns(ctx context.Context, in *RunCount) (*runsOutput, error) {
	if err := may(ctx, access.Look, schedulesQueue); err != nil {
		return nil, err
	}
	seen := map[string]bool{} // schedules, and whether the sender may look at them
	for n := in.N; ; n = min(4*n, later.MaxRuns) {
		runs, err := s.client.Schedules().Upcoming(ctx, n)
		if err != nil {
			return nil, err
		}
		all := len(runs) < n || n == later.MaxRuns
		if runs, err = s.visibleRuns(ctx, runs, seen); err != nil {
			return nil, err
		}
		if all || len(runs) >= in.N {
			return runsOf(runs[:min(len(runs), in.N)]), nil
		}
	}
}

// visibleRuns returns those runs that the sender of a request may look at.
func (s *Server) visibleRuns(ctx context.Context, runs []later.Run, seen map[string]bool) ([]later.Run, error) {
	if access.Check(ctx, access.Look, "") == nil {
		return runs, nil
	}
	var visible []later.Run
	for _, run := range runs {
		see, known := seen[run.Schedule]
		if !known {
			info, err := s.client.Schedules().Get(ctx, run.Schedule)
			if err != nil && store.CodeOf(err) != store.ErrNotFound.Code { // deleted meanwhile
				return nil, err
			}
			see = err == nil && may(ctx, access.Look, info.Queue) == nil
			seen[run.Schedule] = see
		}
		if see {
			visible = append(visible, run)
		}
	}
	return visible, nil
}

type previewInput struct {
	RunCount
	After time.Time `query:"after" doc:"List runs later than this. Default: now"`
	Body  Schedule
}

func (s *Server) previewRuns(_ context.Context, in *previewInput) (*runsOutput, error) {
	if in.After.IsZero() {
		in.After = time.Now()
	}
	if err := checkRule(&in.Body.Schedule); err != nil {
		return nil, err
	}
	runs, err := in.Body.Next(in.After, in.N)
	if err != nil {
		return nil, err
	}
	return runsOf(runs), nil
}
