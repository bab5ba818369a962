package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

func registerApply(s *Server) {
	route(s, access.Operate, on("POST /v1/schedules/apply", "schedules", "applySchedules",
		"Store several schedules, such as those of a file", fails(http.StatusConflict), answers(http.StatusOK),
		bodyUpTo(maxBatchBody),
		says("All are checked before the first is stored. After an error some may have been stored; apply them "+
			"again.")), s.applySchedules)
}

type applySchedulesInput struct {
	Body struct {
		Schedules []Schedule `json:"schedules" maxItems:"1000"`
		Set       string     `json:"set,omitempty" maxLength:"80" doc:"The name of the set that the schedules are"`
		Prune     bool       `json:"prune,omitempty" doc:"Delete the other schedules of the set"`
		DryRun    bool       `json:"dry_run,omitempty" doc:"Change nothing"`
	}
}

type appliedSchedulesOutput struct {
	Body struct {
		Schedules []wire.ScheduleResult `json:"schedules" doc:"What was done with each, in order of name"`
	}
}

func (s *Server) applySchedules(ctx context.Context, in *applySchedulesInput) (*appliedSchedulesOutput, error) {
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
				s.scheduleChanged(ctx, string(change.Result), change.Name, slog.String("set", b.Set))
			}
		}
	}
	out := &appliedSchedulesOutput{}
	out.Body.Schedules = make([]wire.ScheduleResult, len(changes))
	for i, change := range changes {
		if hides(ctx) {
			change.Fields = nil
		}
		out.Body.Schedules[i] = view.ScheduleChange(change, b.DryRun)
	}
	return out, err
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
