package schedule

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/laterq/later/internal/jsonfields"
	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/message"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// MarshalJSON returns the JSON of the schedule, as in a file for Apply and in the store. The fields of When are next to
// its own.
func (s Schedule) MarshalJSON() ([]byte, error) {
	when, err := json.Marshal(s.When)
	if err != nil {
		return nil, err
	}
	m := s.message()
	content := message.NewContent(&m)
	return joinObjects(jsontext.Append(nil, wire.ScheduleFields{
		Name: s.Name, Queue: s.Queue, Set: s.Set, Payload: content.Payload, Headers: content.Headers,
		Common: content.Common, Missed: string(s.Missed), MissedWithin: jsonfields.Duration(s.MissedWithin),
		MissedMax: s.MissedMax, Unfinished: string(s.Unfinished),
	}), when), nil
}

// joinObjects returns the JSON of an object with the fields of two others. The first is not empty.
func joinObjects(a, b []byte) []byte {
	if string(b) == "{}" {
		return a
	}
	return append(append(a[:len(a)-1], ','), b[1:]...)
}

// runJSON returns the JSON of a run, or nil if there is none.
func runJSON(r Run) *wire.Run {
	if r.Nominal.IsZero() {
		return nil
	}
	return &wire.Run{
		Schedule: r.Schedule, ID: r.ID, Nominal: wire.FormatTime(r.Nominal), Due: wire.FormatTime(r.Due),
		Cause: string(r.Cause),
	}
}

// UnmarshalJSON replaces the schedule by one that MarshalJSON returned or a user wrote. A payload that is a JSON
// value has its content type in Headers. A field that it does not know is an error.
func (s *Schedule) UnmarshalJSON(text []byte) error {
	var j wire.ScheduleFields
	err := jsonfields.Decode(text, &j)
	var when []byte
	if err == nil {
		when, err = json.Marshal(j.Rule)
	}
	if err == nil {
		err = s.When.UnmarshalJSON(when)
	}
	var payload []byte
	var headers map[string]string
	if err == nil {
		payload, headers, err = j.Payload.Message(j.Headers)
	}
	switch {
	case err != nil && j.Name != "":
		return fmt.Errorf("schedule %q: %w", j.Name, err)
	case err != nil:
		return fmt.Errorf("schedule: %w", err)
	}
	*s = Schedule{
		Name: j.Name, Queue: j.Queue, When: s.When, Payload: payload, Headers: headers, Set: j.Set,
		Missed: MissedPolicy(j.Missed), MissedWithin: time.Duration(j.MissedWithin), MissedMax: j.MissedMax,
		Unfinished: UnfinishedPolicy(j.Unfinished),
	}
	options := message.Options{Common: j.Common}
	options.Set(s)
	return nil
}

// message returns the content of the schedule's messages, without an id and the headers of a run.
func (s *Schedule) message() store.Message {
	m := store.Message{Payload: s.Payload, Headers: s.Headers}
	options := message.OptionsOf(s)
	options.Set(&m)
	return m
}
