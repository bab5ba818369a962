package latertest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// Match is a condition for messages.
type Match struct {
	field string // the subject, such as "payload"
	want  string // for failures
	holds func(info *later.Info, now time.Time) bool
}

func (m Match) String() string { return m.field + " " + m.want }

// ID matches the message with an id.
func ID(id string) Match {
	return Match{"id", fmt.Sprintf("%q", id), func(i *later.Info, _ time.Time) bool { return i.ID == id }}
}

// Payload matches messages with a payload.
func Payload[T ~string | ~[]byte](payload T) Match {
	return Match{"payload", fmt.Sprintf("%q", cut(string(payload))), func(i *later.Info, _ time.Time) bool {
		return string(i.Payload) == string(payload)
	}}
}

// JSON matches messages with the JSON of value as payload. Spaces and the order of fields do not matter.
func JSON(value any) Match {
	text, err := json.Marshal(value)
	if err != nil {
		never := func(*later.Info, time.Time) bool { return false }
		return Match{"payload", fmt.Sprintf("of a value that has no JSON: %v", err), never}
	}
	var want any
	err = json.Unmarshal(text, &want)
	return Match{"payload", fmt.Sprintf("with the JSON %s", cut(string(text))), func(i *later.Info, _ time.Time) bool {
		var got any
		return err == nil && json.Unmarshal(i.Payload, &got) == nil && reflect.DeepEqual(got, want)
	}}
}

// Kind matches messages of a kind, which is exact: no pattern of a later.Mux. "" matches messages without a kind.
func Kind(name string) Match {
	return Match{"kind", fmt.Sprintf("%q", name), func(i *later.Info, _ time.Time) bool {
		return i.Headers[later.KindHeader] == name
	}}
}

// Header matches messages that have a header with a value.
func Header(key, value string) Match {
	return Match{"header", fmt.Sprintf("%q: %q", key, value), func(i *later.Info, _ time.Time) bool {
		got, ok := i.Headers[key]
		return ok && got == value
	}}
}

// Key matches messages with a key. "" matches messages without one.
func Key(key string) Match {
	return Match{"key", fmt.Sprintf("%q", key), func(i *later.Info, _ time.Time) bool { return i.Key == key }}
}

// Urgency matches messages with an urgency.
func Urgency(u later.Urgency) Match {
	return Match{"urgency", fmt.Sprintf("%q", u), func(i *later.Info, _ time.Time) bool { return i.Urgency == u }}
}

// In matches messages that fall due d from now on the store's clock, to the millisecond. It is for a clock that stands
// still, like the clock of a Harness. A d below zero matches messages that fell due before.
func In(d time.Duration) Match {
	return Match{"due", fmt.Sprintf("in %v", d), func(i *later.Info, now time.Time) bool {
		return i.Due.Equal(ceil(now.Add(d))) // now is in whole milliseconds
	}}
}

// At matches messages that fall due at t, rounded up to a millisecond.
func At(t time.Time) Match {
	return Match{"due", "at " + stamp(t), func(i *later.Info, _ time.Time) bool { return i.Due.Equal(ceil(t)) }}
}

// Before matches messages that fall due before t.
func Before(t time.Time) Match {
	return Match{"due", "before " + stamp(t), func(i *later.Info, _ time.Time) bool { return i.Due.Before(t) }}
}

// Where matches messages if holds returns true for them. Failures use the text what to describe the messages.
func Where(what string, holds func(*later.Info) bool) Match {
	return Match{"message", what, func(i *later.Info, _ time.Time) bool { return holds(i) }}
}

// ceil rounds up to a millisecond, as a store does.
func ceil(t time.Time) time.Time { return time.UnixMilli(store.UnixMillis(t)) }

// stamp formats a time in failures.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.999Z") }

// cut shortens a text in failures.
func cut(text string) string {
	const limit = 200
	if len(text) <= limit {
		return text
	}
	return text[:limit] + "…"
}
