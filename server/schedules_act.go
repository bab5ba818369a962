package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

func registerScheduleActions(s *Server) {
	const one = "/v1/schedules/{schedule}"
	route(s, access.Operate, on("POST "+one+"/pause", "schedules", "pauseSchedule", "Stop the runs of a schedule",
		fails(http.StatusNotFound)), s.pauseSchedule)
	route(s, access.Operate, on("POST "+one+"/resume", "schedules", "resumeSchedule",
		"Let a paused schedule run again", fails(http.StatusNotFound, http.StatusConflict),
		says("It runs next at the first time of its rule from now on.")), s.resumeSchedule)
	route(s, access.Operate, on("POST "+one+"/trigger", "schedules", "triggerSchedule",
		"Send a run of a schedule now", fails(http.StatusNotFound),
		says("It does so even if the schedule is paused or has finished, or a run is unfinished.")),
		s.triggerSchedule)
	route(s, access.Operate, on("POST "+one+"/backfill", "schedules", "backfillSchedule",
		"Send the runs of a past range", fails(http.StatusNotFound),
		says("It may be repeated: a run whose message is there, or was acked within its dedup window, is not sent "+
			"again.")), s.backfillSchedule)
}

type pauseScheduleInput struct {
	SchedulePath
	Body struct {
		Note string `json:"note,omitempty" maxLength:"1024" doc:"Why, for people"`
	} `required:"false"`
}

func (s *Server) pauseSchedule(ctx context.Context, in *pauseScheduleInput) (*output[wire.ScheduleResult], error) {
	if _, err := s.schedule(ctx, access.Operate, in.Schedule); err != nil {
		return nil, err
	}
	if err := s.client.Schedules().Pause(ctx, in.Schedule, in.Body.Note); err != nil {
		return nil, err
	}
	s.scheduleChanged(ctx, "paused", in.Schedule, slog.String("note", in.Body.Note))
	return scheduleResult(in.Schedule, "paused"), nil
}

func (s *Server) resumeSchedule(ctx context.Context, in *SchedulePath) (*output[wire.ScheduleResult], error) {
	if _, err := s.schedule(ctx, access.Operate, in.Schedule); err != nil {
		return nil, err
	}
	if err := s.client.Schedules().Resume(ctx, in.Schedule); err != nil {
		return nil, err
	}
	s.scheduleChanged(ctx, "resumed", in.Schedule)
	return scheduleResult(in.Schedule, "resumed"), nil
}

func (s *Server) triggerSchedule(ctx context.Context, in *SchedulePath) (*output[wire.Run], error) {
	if _, err := s.schedule(ctx, access.Operate, in.Schedule); err != nil {
		return nil, err
	}
	run, err := s.client.Schedules().Trigger(ctx, in.Schedule)
	if err != nil && run.ID == "" {
		return nil, err
	}
	s.scheduleChanged(ctx, "triggered", in.Schedule, slog.String("id", run.ID))
	if err != nil {
		s.log.Warn("a triggered run was sent and not counted", "schedule", in.Schedule, "id", run.ID, "error", err)
	}
	return outputOf(view.Triggered(run)), nil
}

type backfillInput struct {
	SchedulePath
	Body struct {
		From   time.Time `json:"from" doc:"The first time, included"`
		To     time.Time `json:"to" doc:"The time from which on there are no runs"`
		DryRun bool      `json:"dry_run,omitempty" doc:"Only count the times of the rule"`
	}
}

func (s *Server) backfillSchedule(ctx context.Context, in *backfillInput) (*output[wire.Backfilled], error) {
	if _, err := s.schedule(ctx, access.Operate, in.Schedule); err != nil {
		return nil, err
	}
	if !in.Body.From.Before(in.Body.To) {
		return nil, field("to", store.Invalid("is not after from: give a later time"))
	}
	b, err := s.client.Schedules().Backfill(ctx, in.Schedule, in.Body.From, in.Body.To, in.Body.DryRun)
	if b.Sent > 0 {
		s.scheduleChanged(ctx, "backfilled", in.Schedule, slog.Int("count", b.Sent))
	}
	if err != nil && b.Sent > 0 {
		err = fmt.Errorf("sent %d of %d runs, then: %w", b.Sent, b.Runs, err)
	}
	return outputOf(wire.Backfilled{Schedule: in.Schedule, Runs: b.Runs, Sent: b.Sent, Duplicates: b.Duplicates,
		DryRun: in.Body.DryRun}), err
}
