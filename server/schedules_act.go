package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

func registerScheduleActions(s *Server, tags []string) {
	const one = "/v1/schedules/{schedule}"
	route(s, access.Operate, huma.Operation{
		OperationID: "pauseSchedule", Errors: []int{http.StatusNotFound},
		Method: http.MethodPost, Path: one + "/pause", Tags: tags, Summary: "Stop the runs of a schedule",
	}, s.pauseSchedule)
	route(s, access.Operate, huma.Operation{
		OperationID: "resumeSchedule", Errors: []int{http.StatusNotFound, http.StatusConflict},
		Method: http.MethodPost, Path: one + "/resume", Tags: tags, Summary: "Let a paused schedule run again",
		Description: "It runs next at the first time of its rule from now on.",
	}, s.resumeSchedule)
	route(s, access.Operate, huma.Operation{
		OperationID: "triggerSchedule", Errors: []int{http.StatusNotFound},
		Method: http.MethodPost, Path: one + "/trigger", Tags: tags, Summary: "Send a run of a schedule now",
		Description: "It does so even if the schedule is paused or has finished, or a run is unfinished.",
	}, s.triggerSchedule)
	route(s, access.Operate, huma.Operation{
		OperationID: "backfillSchedule", Errors: []int{http.StatusNotFound},
		Method: http.MethodPost, Path: one + "/backfill", Tags: tags, Summary: "Send the runs of a past range",
		Description: "It may be repeated: a run whose message is there, or was acked within its dedup window, is " +
			"not sent again.",
	}, s.backfillSchedule)
}

type pauseScheduleInput struct {
	SchedulePath
	Body struct {
		Note string `json:"note,omitempty" maxLength:"1024" doc:"Why, for people"`
	} `required:"false"`
}

func (s *Server) pauseSchedule(ctx context.Context, in *pauseScheduleInput) (*scheduleResultOutput, error) {
	if _, err := s.schedule(ctx, access.Operate, in.Schedule); err != nil {
		return nil, err
	}
	if err := s.client.Schedules().Pause(ctx, in.Schedule, in.Body.Note); err != nil {
		return nil, err
	}
	s.scheduleChanged(ctx, "paused", in.Schedule, slog.String("note", in.Body.Note))
	return scheduleResult(in.Schedule, "paused"), nil
}

func (s *Server) resumeSchedule(ctx context.Context, in *SchedulePath) (*scheduleResultOutput, error) {
	if _, err := s.schedule(ctx, access.Operate, in.Schedule); err != nil {
		return nil, err
	}
	if err := s.client.Schedules().Resume(ctx, in.Schedule); err != nil {
		return nil, err
	}
	s.scheduleChanged(ctx, "resumed", in.Schedule)
	return scheduleResult(in.Schedule, "resumed"), nil
}

type runOutput struct{ Body wire.Run }

func (s *Server) triggerSchedule(ctx context.Context, in *SchedulePath) (*runOutput, error) {
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
	return &runOutput{view.Triggered(run)}, nil
}

type backfillInput struct {
	SchedulePath
	Body struct {
		From   time.Time `json:"from" doc:"The first time, included"`
		To     time.Time `json:"to" doc:"The time from which on there are no runs"`
		DryRun bool      `json:"dry_run,omitempty" doc:"Only count the times of the rule"`
	}
}

type backfilledOutput struct{ Body wire.Backfilled }

func (s *Server) backfillSchedule(ctx context.Context, in *backfillInput) (*backfilledOutput, error) {
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
	return &backfilledOutput{wire.Backfilled{Schedule: in.Schedule, Runs: b.Runs, Sent: b.Sent, Duplicates: b.Duplicates,
		DryRun: in.Body.DryRun}}, err
}
