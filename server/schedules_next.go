package server

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

func registerRuns(s *Server) {
	route(s, access.Look, on("GET /v1/schedules/{schedule}/next", "schedules", "listNextRuns",
		"List the next runs of a schedule", fails(http.StatusNotFound),
		says("A schedule that is paused or has finished has none.")), s.nextRuns)
	route(s, access.Look, on("GET /v1/schedules/{schedule}/runs", "schedules", "listRuns",
		"List the runs of a schedule in a time", fails(http.StatusNotFound), s.fewReads,
		says("Past ones since its rule was stored, and those to come. The state is that of the message, if it is "+
			"live, else planned or past; a run that is past was done, missed or skipped.")), s.scheduleRuns)
	route(s, access.Look, on("GET /v1/schedules-upcoming", "schedules", "listUpcomingRuns",
		"List the next runs of all schedules", s.fewReads,
		says("They are in order of time, as if all of them were sent.")), s.upcomingRuns)
	route(s, access.Look, on("POST /v1/schedule-preview", "schedules", "previewRuns",
		"List the next runs of a schedule that is not stored", answers(http.StatusOK), bodyUpTo(maxScheduleBody),
		says("Times that are counted from the creation of a schedule are counted from after.")), s.previewRuns)
}

// RunCount is how many runs a request asks for.
type RunCount struct {
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"10" doc:"How many runs"`
}

type nextRunsInput struct {
	SchedulePath
	RunCount
}

// RunPage is the next runs, in order of time.
type RunPage struct{ Page[wire.Run] }

func runsOf(runs []later.Run) *output[RunPage] { return outputOf(RunPage{pageOf(runs, view.Run)}) }

func (s *Server) nextRuns(ctx context.Context, in *nextRunsInput) (*output[RunPage], error) {
	info, err := s.schedule(ctx, access.Look, in.Schedule)
	if err != nil {
		return nil, err
	}
	runs, err := info.NextRuns(in.Limit)
	if err != nil {
		return nil, err
	}
	return runsOf(runs), nil
}

// ScheduledRun is a run of a schedule, past or to come.
type ScheduledRun struct {
	wire.Run
	State string `json:"state" enum:"past,planned,scheduled,ready,leased,dead"`
}

type scheduleRunsInput struct {
	SchedulePath
	From  time.Time `query:"from" doc:"Only runs whose nominal times are at this time or later. Default: now"`
	To    time.Time `query:"to" doc:"Only runs whose nominal times are before this time. Default: no limit"`
	Limit int       `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"How many runs; the next ones begin after the last of them"`
}

// ScheduledRunPage is runs of a schedule, in order of nominal time.
type ScheduledRunPage struct{ Page[ScheduledRun] }

func (s *Server) scheduleRuns(ctx context.Context, in *scheduleRunsInput) (*output[ScheduledRunPage], error) {
	if _, err := s.schedule(ctx, access.Look, in.Schedule); err != nil {
		return nil, err
	}
	if in.From.IsZero() {
		in.From = time.Now()
	}
	if !in.To.IsZero() && !in.From.Before(in.To) {
		return nil, field("query.to", store.Invalid("is not later than from: give a later time, or omit it"))
	}
	runs, err := s.client.Schedules().Runs(ctx, in.Schedule, in.From, in.To, in.Limit)
	if err != nil {
		return nil, err
	}
	return outputOf(ScheduledRunPage{pageOf(runs, func(run later.ScheduledRun) ScheduledRun {
		return ScheduledRun{view.Run(run.Run), string(run.State)}
	})}), nil
}

func (s *Server) upcomingRuns(ctx context.Context, in *RunCount) (*output[RunPage], error) {
	if err := access.CheckSchedules(ctx, access.Look); err != nil {
		return nil, err
	}
	runs, err := s.upcoming(ctx, in.Limit, later.MaxRuns, visible(ctx))
	if err != nil {
		return nil, err
	}
	return runsOf(runs), nil
}

// upcoming returns the next n runs to queues for which see reports true, among the next most runs of all schedules.
func (s *Server) upcoming(ctx context.Context, n, most int, see func(queue string) bool) ([]later.Run, error) {
	for ask := n; ; ask = min(4*ask, most) {
		runs, err := s.client.Schedules().Upcoming(ctx, ask)
		if err != nil {
			return nil, err
		}
		all := len(runs) < ask || ask == most
		runs = slices.DeleteFunc(runs, func(run later.Run) bool { return !see(run.Queue) })
		if all || len(runs) >= n {
			return runs[:min(len(runs), n)], nil
		}
	}
}

type previewInput struct {
	RunCount
	After time.Time `query:"after" doc:"List runs later than this. Default: now"`
	Body  Schedule
}

func (s *Server) previewRuns(_ context.Context, in *previewInput) (*output[RunPage], error) {
	if in.After.IsZero() {
		in.After = time.Now()
	}
	if err := checkRule(&in.Body.Schedule); err != nil {
		return nil, err
	}
	runs, err := in.Body.Next(in.After, in.Limit)
	if err != nil {
		return nil, err
	}
	return runsOf(runs), nil
}
