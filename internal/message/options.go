// Package message describes the options of a message once. The tags of Options say what an option is called and what it
// may be; JSON, HTTP headers, flags of the command, the OpenAPI description, exports, outbox and records of schedules
// follow from them. The package may import package store and internal packages about text. Start with Options.
package message

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/store"
)

// Options are the options that any message can have, but for headers. A new one is a field here, under the name of its
// field in store.Message.
//
// The name of an option is that of its tag in JSON, with hyphens that of its flag, and with Later- before it that of
// its HTTP header. Package store checks it, in Message.check.
type Options struct {
	Common
	ExpireAt Time `json:"expire_at,omitzero" doc:"Dead if not delivered by this time"`
}

// Common are the options that the messages of schedules can have, too.
type Common struct {
	MaxAttempts int `json:"max_attempts,omitempty" minimum:"1" maximum:"65535" doc:"Dead after so many failed attempts. Default: 20"`
	Handled
	ExpireAfter Duration `json:"expire_after,omitempty" doc:"Dead if not delivered within this time after it is due"`
	DedupWindow Duration `json:"dedup_window,omitempty" doc:"Refuse the id this long after its ack. Default: none; 24h in schedules and series"`
}

// Handled are the options that the handler of a message sees, besides MaxAttempts.
type Handled struct {
	Timeout Duration      `json:"timeout,omitempty" doc:"Limit of one run of a handler. Default: the worker's"`
	Group   string        `json:"group,omitempty" minLength:"1" maxLength:"128" doc:"Messages of a group can be listed, cancelled and rescheduled together"`
	Key     string        `json:"key,omitempty" minLength:"1" maxLength:"64" doc:"Whom or which thing the message is about, such as a customer; without a slash"`
	Urgency store.Urgency `json:"urgency,omitempty" enum:"high,low" doc:"Goes before or after others, if the flow of the queue has urgency. Default: normal"`
}

// FlagName returns the name of the flag of an option with a name in JSON.
func FlagName(name string) string { return strings.ReplaceAll(name, "_", "-") }

// Duration is a duration above zero: its JSON is a text such as 1h30m0s, and is read with days too.
type Duration time.Duration

// NewDuration returns a duration, rounded up to a whole millisecond. One below zero stays, for package store to refuse.
func NewDuration(d time.Duration) Duration {
	if d < 0 {
		return Duration(d)
	}
	return Duration(time.Duration(store.Millis(d)) * time.Millisecond)
}

// MarshalText returns the text.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads the text, and rounds the duration up to a millisecond. One that is zero is refused.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := durations.Parse(string(text))
	if err == nil && parsed == 0 {
		err = errZero
	}
	*d = NewDuration(parsed)
	return err
}

var errZero = store.Invalid("is 0: must be more, or left out")

// Delay is a duration of which one below zero is none.
type Delay time.Duration

// UnmarshalText reads the text.
func (d *Delay) UnmarshalText(text []byte) error {
	parsed, err := durations.ParseDelay(string(text))
	*d = Delay(parsed)
	return err
}

// Time is a time in whole milliseconds.
type Time struct{ time.Time }

// NewTime returns a time, rounded up to a whole millisecond.
func NewTime(t time.Time) Time {
	if t.IsZero() {
		return Time{}
	}
	return Time{store.Time(store.UnixMillis(t))}
}

// timeFormat is RFC 3339 in UTC with milliseconds.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// FormatTime formats a time, rounded up to a whole millisecond, in RFC 3339; the zero time is "".
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return NewTime(t).UTC().Format(timeFormat)
}

// MarshalJSON returns the text of the time.
func (t Time) MarshalJSON() ([]byte, error) { return json.Marshal(FormatTime(t.Time)) }

// MarshalText returns the text of the time.
func (t Time) MarshalText() ([]byte, error) { return []byte(FormatTime(t.Time)), nil }

// UnmarshalText reads a time in RFC 3339, and rounds it up to a millisecond.
func (t *Time) UnmarshalText(text []byte) error {
	parsed, err := time.Parse(time.RFC3339Nano, string(text))
	switch {
	case err != nil:
		return store.Invalid("is %.40q: must be a time such as 2030-12-31T23:59:59.000Z", text)
	case parsed.Before(time.UnixMilli(1)): // which would be no time at all, or one that no engine keeps
		return store.Invalid("is %.40q: must be a time after 1970", text)
	}
	*t = NewTime(parsed)
	return nil
}
