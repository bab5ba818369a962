package later

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"
	"unicode/utf8"

	"github.com/laterq/later/internal/jsonfields"
	"github.com/laterq/later/internal/wire"
)

// scheduleJSON is the JSON of a Schedule but for its rule, whose fields are next to these.
type scheduleJSON struct {
	Name  string `json:"name"`
	Queue string `json:"queue"`
	Set   string `json:"set,omitempty"`
	wire.Payload
	Headers      map[string]string   `json:"headers,omitempty"`
	MaxAttempts  int                 `json:"max_attempts,omitempty"`
	Timeout      jsonfields.Duration `json:"timeout,omitempty"`
	ExpireAfter  jsonfields.Duration `json:"expire_after,omitempty"`
	Group        string              `json:"group,omitempty"`
	DedupWindow  jsonfields.Duration `json:"dedup_window,omitempty"`
	Missed       MissedPolicy        `json:"missed,omitempty"`
	MissedWithin jsonfields.Duration `json:"missed_within,omitempty"`
	MissedMax    int                 `json:"missed_max,omitempty"`
	Unfinished   UnfinishedPolicy    `json:"unfinished,omitempty"`
}

// ruleFields are the fields of a rule's JSON.
var ruleFields = []string{"cron", "every", "rrule", "times", "series", "time_zone", "start", "end", "exclude", "jitter",
	"max_runs", "gap", "overlap"}

// MarshalJSON returns the JSON of the schedule, as in a file for Apply. The fields of When are next to its own.
func (s Schedule) MarshalJSON() ([]byte, error) {
	var payload wire.Payload
	if len(s.Payload) > 0 {
		payload = wire.NewPayload(s.Payload, s.Headers)
	}
	return s.marshal(payload)
}

// marshalStored returns the JSON of the schedule as records have it: "payload" is text whatever its content type.
func (s *Schedule) marshalStored() ([]byte, error) {
	var payload wire.Payload
	switch {
	case len(s.Payload) == 0:
	case utf8.Valid(s.Payload):
		payload.Payload = wire.Append(nil, string(s.Payload))
	default:
		payload.PayloadBase64 = s.Payload
	}
	return s.marshal(payload)
}

func (s *Schedule) marshal(payload wire.Payload) ([]byte, error) {
	when, err := json.Marshal(s.When)
	if err != nil {
		return nil, err
	}
	return joinObjects(wire.Append(nil, scheduleJSON{
		Name: s.Name, Queue: s.Queue, Set: s.Set, Payload: payload, Headers: s.Headers, MaxAttempts: s.MaxAttempts,
		Timeout: jsonfields.Duration(s.Timeout), ExpireAfter: jsonfields.Duration(s.ExpireAfter), Group: s.Group,
		DedupWindow: jsonfields.Duration(s.DedupWindow), Missed: s.Missed,
		MissedWithin: jsonfields.Duration(s.MissedWithin), MissedMax: s.MissedMax, Unfinished: s.Unfinished,
	}), when), nil
}

// joinObjects returns the JSON of an object with the fields of two others. The first is not empty.
func joinObjects(a, b []byte) []byte {
	if string(b) == "{}" {
		return a
	}
	return append(append(a[:len(a)-1], ','), b[1:]...)
}

// MarshalJSON returns the JSON of the schedule with its status, as the later command prints it; see docs/cli.md.
func (i ScheduleInfo) MarshalJSON() ([]byte, error) {
	schedule, err := i.Schedule.MarshalJSON()
	if err != nil {
		return nil, err
	}
	status, err := json.Marshal(wire.ScheduleStatus{
		Created: wire.FormatTime(i.Created), Changed: wire.FormatTime(i.Changed), Generation: i.Generation,
		NextRun: i.NextRun.wire(), LastRun: i.LastRun.wire(), Finished: i.Finished, Paused: i.Paused,
		PauseNote: i.PauseNote, PausedAt: wire.FormatTime(i.PausedAt), Runs: i.Runs, MissedRuns: i.MissedRuns,
		SkippedRuns: i.SkippedRuns, TriggeredRuns: i.TriggeredRuns, LastMissed: wire.FormatTime(i.LastMissed),
		LastSkipped: wire.FormatTime(i.LastSkipped), MadeUpWithin: i.MadeUpWithin.String(),
		Buffered: wire.FormatTime(i.Buffered),
	})
	return joinObjects(schedule, status), err
}

// wire returns the JSON of the run, or nil if there is none.
func (r Run) wire() *wire.Run {
	if r.Nominal.IsZero() {
		return nil
	}
	return &wire.Run{
		Schedule: r.Schedule, ID: r.ID, Nominal: wire.FormatTime(r.Nominal), Due: wire.FormatTime(r.Due),
		Cause: string(r.Cause),
	}
}

// UnmarshalJSON replaces the schedule by one of a file for Apply. A payload that is a JSON value has its content type in
// Headers. A field that it does not know is an error.
func (s *Schedule) UnmarshalJSON(text []byte) error {
	return s.unmarshal(text, (*wire.Payload).Message)
}

// unmarshalStored replaces the schedule by what marshalStored has returned.
func (s *Schedule) unmarshalStored(text []byte) error {
	return s.unmarshal(text, func(p *wire.Payload, headers map[string]string) ([]byte, map[string]string, error) {
		if p.Payload == nil {
			return p.PayloadBase64, headers, nil
		}
		var text string
		err := json.Unmarshal(p.Payload, &text)
		return []byte(text), headers, err
	})
}

func (s *Schedule) unmarshal(text []byte,
	payloadOf func(*wire.Payload, map[string]string) ([]byte, map[string]string, error)) error {
	var j scheduleJSON
	fields := map[string]any{
		"name": &j.Name, "queue": &j.Queue, "set": &j.Set, "payload": &j.Payload.Payload,
		"payload_text": &j.PayloadText, "payload_base64": &j.PayloadBase64,
		"headers": &j.Headers, "max_attempts": &j.MaxAttempts, "timeout": &j.Timeout, "expire_after": &j.ExpireAfter,
		"group": &j.Group, "dedup_window": &j.DedupWindow, "missed": &j.Missed, "missed_within": &j.MissedWithin,
		"missed_max": &j.MissedMax, "unfinished": &j.Unfinished,
	}
	rule := map[string]*json.RawMessage{}
	for _, name := range ruleFields {
		rule[name] = new(json.RawMessage)
		fields[name] = rule[name]
	}
	err := jsonfields.Decode(text, fields)
	if err == nil {
		maps.DeleteFunc(rule, func(_ string, value *json.RawMessage) bool { return *value == nil })
		var when []byte
		if when, err = json.Marshal(rule); err == nil {
			err = s.When.UnmarshalJSON(when)
		}
	}
	var payload []byte
	if err == nil {
		payload, j.Headers, err = payloadOf(&j.Payload, j.Headers)
	}
	switch {
	case err != nil && j.Name != "":
		return fmt.Errorf("schedule %q: %w", j.Name, err)
	case err != nil:
		return fmt.Errorf("schedule: %w", err)
	}
	*s = Schedule{
		Name: j.Name, Queue: j.Queue, When: s.When, Set: j.Set, Payload: payload, Headers: j.Headers,
		MaxAttempts: j.MaxAttempts, Timeout: time.Duration(j.Timeout), ExpireAfter: time.Duration(j.ExpireAfter),
		Group: j.Group, DedupWindow: time.Duration(j.DedupWindow), Missed: j.Missed,
		MissedWithin: time.Duration(j.MissedWithin), MissedMax: j.MissedMax, Unfinished: j.Unfinished,
	}
	return nil
}
