package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

// Requests about a schedule need the right for schedules and for the queue that receives its messages.

func registerSchedules(s *Server) {
	const one = "/v1/schedules/{schedule}"
	const tag = "schedules"
	route(s, access.Look, on("GET /v1/schedules", tag, "listSchedules",
		"List schedules with what became of them", s.fewReads), s.listSchedules)
	route(s, access.Look, on("GET "+one, tag, "getSchedule", "Get a schedule with what became of it",
		fails(http.StatusNotFound)), s.getSchedule)
	route(s, access.Operate, on("PUT "+one, tag, "putSchedule", "Store a schedule",
		fails(http.StatusConflict, http.StatusPreconditionFailed), bodyUpTo(maxScheduleBody),
		says("It replaces the schedule with this name. If the rule does not change, the next run stays.")),
		s.putSchedule)
	route(s, access.Operate, on("DELETE "+one, tag, "deleteSchedule", "Delete a schedule",
		fails(http.StatusNotFound),
		says("Runs that were sent stay in their queue.")), s.deleteSchedule)
	registerScheduleActions(s)
}

// maxScheduleBody is more than a schedule that is allowed has: its payload may be escaped.
const maxScheduleBody = wire.MaxMessage

// SchedulePath is the schedule of a path.
type SchedulePath struct {
	Schedule string `path:"schedule" maxLength:"80" doc:"The name of the schedule"`
}

// Schedule is a schedule in a request.
type Schedule struct{ later.Schedule }

// Schema returns the schema of the JSON that later.Schedule decodes.
func (Schedule) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(typeOf[wire.ScheduleFields](), true, "")
}

// UnmarshalJSON decodes a schedule. Errors do not name it, because the path or the place in a list does.
func (s *Schedule) UnmarshalJSON(text []byte) error {
	err := s.Schedule.UnmarshalJSON(text)
	return cmp.Or(errors.Unwrap(err), err)
}

// ScheduleInfo is a schedule in a reply.
type ScheduleInfo struct{ *later.ScheduleInfo }

// Schema returns the schema of the JSON of later.ScheduleInfo.
func (ScheduleInfo) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(typeOf[scheduleInfoFields](), true, "")
}

type scheduleInfoFields struct {
	wire.ScheduleFields
	wire.ScheduleStatus
}

// shown returns a schedule as the sender of a request may see it.
func shown(ctx context.Context, info *later.ScheduleInfo) ScheduleInfo {
	if !hides(ctx) {
		return ScheduleInfo{info}
	}
	hidden := *info
	hidden.Payload, hidden.Headers = nil, nil
	return ScheduleInfo{&hidden}
}

// schedule returns a schedule, if the sender of a request has a right for its queue.
func (s *Server) schedule(ctx context.Context, right access.Right, name string) (*later.ScheduleInfo, error) {
	info, err := s.client.Schedules().Get(ctx, name)
	if err != nil {
		return nil, err
	}
	return info, may(ctx, right, info.Queue)
}

// SchedulePage is a page of schedules, in order of name.
type SchedulePage struct {
	Page[ScheduleInfo]
	Unreadable []*problem.Problem `json:"unreadable,omitempty" doc:"One for each schedule of the page that cannot be read and does not run"`
}

func (s *Server) listSchedules(ctx context.Context, in *PageQuery) (*output[SchedulePage], error) {
	if err := access.CheckSchedules(ctx, access.Look); err != nil {
		return nil, err
	}
	page, err := s.client.Schedules().List(ctx, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &output[SchedulePage]{}
	out.Body.Items, out.Body.Next = []ScheduleInfo{}, page.Next
	see := visible(ctx)
	for _, info := range page.Schedules {
		if see(info.Queue) {
			out.Body.Items = append(out.Body.Items, shown(ctx, info))
		}
	}
	if access.Check(ctx, access.Look, "") == nil { // their queues are unknown
		for _, err := range page.Unreadable {
			out.Body.Unreadable = append(out.Body.Unreadable, s.problemOf(ctx, err))
		}
	}
	return out, nil
}

func (s *Server) getSchedule(ctx context.Context, in *SchedulePath) (*tagged[ScheduleInfo], error) {
	info, err := s.schedule(ctx, access.Look, in.Schedule)
	if err != nil {
		return nil, err
	}
	out := &tagged[ScheduleInfo]{Body: shown(ctx, info)}
	if !hides(ctx) { // it would tell whether a payload was guessed
		out.ETag = etagOf(info.Version())
	}
	return out, nil
}

type putScheduleInput struct {
	SchedulePath
	Preconditions
	Body Schedule
}

func (s *Server) putSchedule(ctx context.Context, in *putScheduleInput) (*tagged[wire.ScheduleResult], error) {
	schedule := in.Body.Schedule
	switch {
	case schedule.Name != "" && schedule.Name != in.Schedule:
		return nil, field("name", store.Invalid("is %q, and the path has %q: omit it", schedule.Name, in.Schedule))
	case schedule.Queue == "":
		return nil, field("queue", store.Invalid("is empty: give the queue that receives the messages"))
	}
	schedule.Name = in.Schedule
	if err := may(ctx, access.Operate, schedule.Queue); err != nil {
		return nil, field("queue", err)
	}
	if err := s.mayReplace(ctx, in.Schedule); err != nil {
		return nil, err
	}
	if err := checkSchedule(&schedule); err != nil {
		return nil, err
	}
	if hides(ctx) && len(in.IfMatch) > 0 && !slices.Equal(in.IfMatch, []string{"*"}) {
		return nil, field("header.If-Match", errGuess)
	}
	var former *later.ScheduleInfo
	result, err := s.client.Schedules().Put(ctx, schedule, func(version string) bool {
		info, err := s.client.Schedules().Get(ctx, in.Schedule)
		if former = info; err != nil || info.Version() != version {
			former = nil
		}
		return in.allow(version)
	})
	if err != nil {
		return nil, in.refused(err)
	}
	if result != later.PutUnchanged {
		s.scheduleChanged(ctx, s.keepSchedule(former, schedule.Version()), string(result), in.Schedule,
			slog.String("queue", schedule.Queue))
	}
	out := &tagged[wire.ScheduleResult]{ETag: etagOf(schedule.Version())}
	out.Body = wire.ScheduleResult{Schedule: in.Schedule, Result: string(result)}
	return out, nil
}

// errGuess refuses an If-Match of a sender that may not see payloads. The ETag of a schedule depends on its payload, so
// a match would confirm a guess without changing the schedule.
var errGuess = fmt.Errorf("the schedule is compared with payloads, which are hidden from you: %w", store.ErrForbidden)

func scheduleResult(name, result string) *output[wire.ScheduleResult] {
	return outputOf(wire.ScheduleResult{Schedule: name, Result: result})
}

// scheduleChanged logs a change of a schedule.
func (s *Server) scheduleChanged(ctx context.Context, u *undoable, result, name string, attrs ...slog.Attr) {
	s.changed(ctx, u, "schedule "+result, append([]slog.Attr{slog.String("schedule", name)}, attrs...)...)
}

// mayReplace returns an error if there is a schedule that the sender of a request must not change. For one that cannot
// be read, they need the right for all queues.
func (s *Server) mayReplace(ctx context.Context, name string) error {
	_, err := s.schedule(ctx, access.Operate, name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrUnsupported):
		return access.Check(ctx, access.Operate, "")
	}
	return err
}

// checkSchedule returns the error that refuses a schedule, or nil.
func checkSchedule(schedule *later.Schedule) error {
	if err := checkRule(schedule); err != nil {
		return err
	}
	if err := checkContentType(schedule.Headers); err != nil {
		return err
	}
	return schedule.Check()
}

// checkRule returns an error that names the field if the rule of a schedule is not allowed.
func checkRule(schedule *later.Schedule) error {
	_, err := recurrence.Compile(schedule.When, recurrence.Options{Name: schedule.Name, Created: time.Now()})
	if err != nil {
		name, _, _ := strings.Cut(err.Error(), ":")
		return &problem.Error{Err: err, Field: strings.ReplaceAll(name, " ", "_")}
	}
	return nil
}

func (s *Server) deleteSchedule(ctx context.Context, in *SchedulePath) (*output[wire.ScheduleResult], error) {
	if err := s.mayReplace(ctx, in.Schedule); err != nil {
		return nil, err
	}
	err := s.done(ctx, s.client.Schedules().Delete(ctx, in.Schedule), "schedule deleted",
		slog.String("schedule", in.Schedule))
	return scheduleResult(in.Schedule, string(later.PutDeleted)), err
}
