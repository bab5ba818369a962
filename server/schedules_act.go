package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/schedule"
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
	route(s, access.Operate, on("POST /v1/schedules/apply", "schedules", "applySchedules",
		"Store several schedules, such as those of a file", fails(http.StatusConflict), answers(http.StatusOK),
		bodyUpTo(maxBatchBody),
		says("All are checked before the first is stored. After an error some may have been stored; apply them "+
			"again.")), s.applySchedules)
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

type pauseScheduleInput struct {
	SchedulePath
	Body struct {
		Note string `json:"note,omitempty" maxLength:"1024" doc:"Why, for people"`
	} `required:"false"`
}

func (s *Server) pauseSchedule(ctx context.Context, in *pauseScheduleInput) (*output[wire.ScheduleResult], error) {
	before, err := s.schedule(ctx, access.Operate, in.Schedule)
	if err != nil {
		return nil, err
	}
	if err := s.client.Schedules().Pause(ctx, in.Schedule, in.Body.Note); err != nil {
		return nil, err
	}
	s.scheduleChanged(ctx, s.schedulePauseUndo(ctx, before, true), "paused", in.Schedule,
		slog.String("note", in.Body.Note), slog.String("queue", before.Queue))
	return scheduleResult(in.Schedule, "paused"), nil
}

func (s *Server) resumeSchedule(ctx context.Context, in *SchedulePath) (*output[wire.ScheduleResult], error) {
	before, err := s.schedule(ctx, access.Operate, in.Schedule)
	if err != nil {
		return nil, err
	}
	if err := s.client.Schedules().Resume(ctx, in.Schedule); err != nil {
		return nil, err
	}
	s.scheduleChanged(ctx, s.schedulePauseUndo(ctx, before, false), "resumed", in.Schedule,
		slog.String("queue", before.Queue))
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
	s.scheduleChanged(ctx, nil, "triggered", in.Schedule, slog.String("id", run.ID))
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
		s.scheduleChanged(ctx, nil, "backfilled", in.Schedule, slog.Int("count", b.Sent))
	}
	if err != nil && b.Sent > 0 {
		err = fmt.Errorf("sent %d of %d runs, then: %w", b.Sent, b.Runs, err)
	}
	return outputOf(wire.Backfilled{Schedule: in.Schedule, Runs: b.Runs, Sent: b.Sent, Duplicates: b.Duplicates,
		DryRun: in.Body.DryRun}), err
}

type applySchedulesInput struct {
	Body struct {
		Schedules []Schedule `json:"schedules" maxItems:"1000"`
		Set       string     `json:"set,omitempty" maxLength:"80" doc:"The name of the set that the schedules are"`
		Prune     bool       `json:"prune,omitempty" doc:"Delete the other schedules of the set"`
		DryRun    bool       `json:"dry_run,omitempty" doc:"Change nothing"`
	}
}

// AppliedSchedules are schedules that were stored together.
type AppliedSchedules struct {
	Schedules []wire.ScheduleResult `json:"schedules" doc:"What was done with each, in order of name"`
}

func (s *Server) applySchedules(ctx context.Context, in *applySchedulesInput) (*output[AppliedSchedules], error) {
	b := &in.Body
	if err := access.CheckSchedules(ctx, access.Operate); err != nil {
		return nil, err
	}
	if b.DryRun && hides(ctx) {
		return nil, field("dry_run", errGuess)
	}
	if b.Prune && b.Set == "" {
		return nil, field("set", store.Invalid("prune needs a set: name one, so that the schedules of others stay"))
	}
	schedules := make([]later.Schedule, len(b.Schedules))
	for i := range schedules {
		schedules[i] = b.Schedules[i].Schedule
		err := may(ctx, access.Operate, schedules[i].Queue)
		if err == nil {
			err = checkSchedule(&schedules[i])
		}
		if err != nil {
			return nil, field(fmt.Sprintf("schedules[%d]", i), err)
		}
	}
	o := later.ApplyOptions{Set: b.Set, Prune: b.Prune, DryRun: true}
	changes, err := s.client.Schedules().Apply(ctx, schedules, o)
	if err != nil {
		return nil, err
	}
	if err := mayApply(ctx, changes); err != nil {
		return nil, err
	}
	if !b.DryRun {
		o.DryRun = false
		changes, err = s.client.Schedules().Apply(ctx, schedules, o)
		for _, change := range changes {
			if change.Result != later.PutUnchanged {
				s.scheduleChanged(ctx, nil, string(change.Result), change.Name, slog.String("set", b.Set))
			}
		}
	}
	return outputOf(AppliedSchedules{pageOf(changes, func(change later.ScheduleChange) wire.ScheduleResult {
		if hides(ctx) {
			change.Fields = nil
		}
		return view.ScheduleChange(change, b.DryRun)
	}).Items}), err
}

// mayApply returns an error if a change takes a schedule from a queue that the sender of a request must not change.
func mayApply(ctx context.Context, changes []later.ScheduleChange) error {
	for _, change := range changes {
		for _, f := range change.Fields {
			if f.Name != "queue" || f.Old == "" {
				continue
			}
			var queue string
			if err := json.Unmarshal([]byte(f.Old), &queue); err != nil {
				return err
			}
			if err := may(ctx, access.Operate, queue); err != nil {
				return fmt.Errorf("schedule %q: %w", change.Name, err)
			}
		}
	}
	return nil
}

// RunCount is how many runs a request asks for.
type RunCount struct {
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"10" doc:"How many runs"`
}

type nextRunsInput struct {
	SchedulePath
	RunCount
}

func runsOf(runs []later.Run) *output[Page[wire.Run]] { return outputOf(pageOf(runs, view.Run)) }

func (s *Server) nextRuns(ctx context.Context, in *nextRunsInput) (*output[Page[wire.Run]], error) {
	info, err := s.schedule(ctx, access.Look, in.Schedule)
	if err != nil {
		return nil, err
	}
	runs, err := info.NextRuns(in.Limit)
	return runsOf(runs), err
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

func (s *Server) scheduleRuns(ctx context.Context, in *scheduleRunsInput) (*output[Page[ScheduledRun]], error) {
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
	return outputOf(pageOf(runs, func(run later.ScheduledRun) ScheduledRun {
		return ScheduledRun{view.Run(run.Run), string(run.State)}
	})), err
}

func (s *Server) upcomingRuns(ctx context.Context, in *RunCount) (*output[Page[wire.Run]], error) {
	if err := access.CheckSchedules(ctx, access.Look); err != nil {
		return nil, err
	}
	runs, err := s.upcoming(ctx, in.Limit, schedule.MaxRuns, visible(ctx))
	return runsOf(runs), err
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

func (s *Server) previewRuns(_ context.Context, in *previewInput) (*output[Page[wire.Run]], error) {
	if in.After.IsZero() {
		in.After = time.Now()
	}
	if err := checkRule(&in.Body.Schedule); err != nil {
		return nil, err
	}
	runs, err := in.Body.Next(in.After, in.Limit)
	return runsOf(runs), err
}
