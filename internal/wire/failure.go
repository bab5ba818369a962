package wire

import (
	"github.com/laterq/later/internal/message"
	"github.com/laterq/later/store"
)

// FailedAttempt is an attempt to handle a message that failed.
type FailedAttempt struct {
	Time     message.Time `json:"time"`
	Attempt  int          `json:"attempt"`
	Duration Duration     `json:"duration,omitempty"`
	Worker   string       `json:"worker,omitempty"`
	Error    string       `json:"error,omitempty"`
}

// NewFailures returns the JSON of failures.
func NewFailures(failures []store.Failure) []FailedAttempt {
	all := make([]FailedAttempt, len(failures))
	for i, f := range failures {
		all[i] = FailedAttempt{message.NewTime(f.Time), f.Attempt, Duration(message.NewDuration(f.Duration)),
			f.Worker, f.Error}
	}
	return all
}
