package wire

import (
	"encoding/json"

	"github.com/laterq/later/store"
)

// FailedAttempt is an attempt to handle a message that failed.
type FailedAttempt struct {
	Time     string   `json:"time"`
	Attempt  int      `json:"attempt"`
	Duration Duration `json:"duration,omitempty"`
	Worker   string   `json:"worker,omitempty"`
	Error    string   `json:"error,omitempty"`
}

// NewFailures returns the JSON of failures.
func NewFailures(failures []store.Failure) []FailedAttempt {
	all := make([]FailedAttempt, len(failures))
	for i, f := range failures {
		all[i] = FailedAttempt{FormatTime(f.Time), f.Attempt, wholeMillis(f.Duration), f.Worker, f.Error}
	}
	return all
}

// Failures reads an array of failures. In version 1 of exports their durations are milliseconds.
func (v *Value) Failures(version1 bool) (failures []store.Failure) {
	if token := v.next(); token != json.Delim('[') {
		v.refuse("is %s: give an array of failures", kindOf(token))
		return nil
	}
	for v.json.More() && v.err == nil {
		var one json.RawMessage
		if err := v.json.Decode(&one); err != nil {
			v.refuse("cannot be read: %v", err)
			return nil
		}
		var f store.Failure
		if _, err := DecodeObject(one, func(name string, v *Value) {
			if version1 && name == "duration_ms" {
				f.Duration = v.millis()
			} else {
				decodeFailure(&f, name, v)
			}
		}); err != nil {
			v.refuse("has a failure that is refused: %v", err)
		}
		failures = append(failures, f)
	}
	v.next() // ]
	return failures
}

func decodeFailure(f *store.Failure, name string, v *Value) {
	switch name {
	case "time":
		f.Time = v.Time()
	case "attempt":
		f.Attempt = v.Count()
	case "duration":
		f.Duration = v.Duration()
	case "worker":
		f.Worker = v.Text()
	case "error":
		f.Error = v.Text()
	default:
		v.Unknown()
	}
}
