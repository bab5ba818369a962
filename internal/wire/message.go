// Package wire is the JSON of messages, counts, check results and errors, as files and programs exchange it, and the
// text of receipts. It may import package store, and internal packages about text. Start with result.go for what the
// command shows; AppendMessage and DecodeMessage are for messages that another store takes over, which package migrate
// writes one object a line.
package wire

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/store"
)

// MaxMessage is the number of bytes that the JSON of a message within the limits of package store may have: a payload
// of control characters, each of them written as \u0000, or the longest raw bytes in base64.
const MaxMessage = 8 << 20

// timeFormat is RFC 3339 in UTC with milliseconds.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// message is the JSON of a store.Info. What is zero is left out. A raw message that is empty is not zero.
type message struct {
	Queue string      `json:"queue"`
	ID    string      `json:"id"`
	State store.State `json:"state"`
	Due   string      `json:"due"`
	Payload
	Headers     map[string]string `json:"headers,omitempty"`
	MaxAttempts int               `json:"max_attempts,omitempty"`
	Timeout     Duration          `json:"timeout,omitempty"`
	ExpireAfter Duration          `json:"expire_after,omitempty"`
	ExpireAt    string            `json:"expire_at,omitempty"`
	DedupWindow Duration          `json:"dedup_window,omitempty"`
	Group       string            `json:"group,omitempty"`
	SentAt      string            `json:"sent_at,omitempty"`
	Attempts    int               `json:"attempts,omitempty"`
	Delivered   bool              `json:"delivered,omitempty"`
	LastError   string            `json:"last_error,omitempty"`
	Failures    []FailedAttempt   `json:"failures,omitempty"`
	DeadReason  store.DeadReason  `json:"dead_reason,omitempty"`
	DiedAt      string            `json:"died_at,omitempty"`
	RawBase64   []byte            `json:"raw_base64,omitzero"`
}

// AppendMessage appends the JSON of a message to dst, in one line without its end. The info passes Info.Check. Times
// and durations are rounded up to whole milliseconds, as engines do. A leased message is written as such, without the
// deadline of its lease: no other store knows the lease.
func AppendMessage(dst []byte, queue string, info *store.Info) []byte {
	m := message{
		Queue: queue, ID: info.ID, State: info.State, Due: FormatTime(info.Due),
		Attempts: info.Attempts, Delivered: info.Delivered, LastError: info.LastError,
		Failures:   NewFailures(info.Failures),
		DeadReason: info.DeadReason, DiedAt: FormatTime(info.DiedAt), RawBase64: info.Raw,
	}
	if info.Raw == nil { // else the other parts of the message are not known
		m.Headers, m.MaxAttempts = info.Headers, info.MaxAttempts
		m.Timeout, m.DedupWindow = wholeMillis(info.Timeout), wholeMillis(info.DedupWindow)
		m.ExpireAfter, m.ExpireAt = wholeMillis(info.ExpireAfter), FormatTime(info.ExpireAt)
		m.Group, m.SentAt = info.Group, FormatTime(info.SentAt)
		if len(info.Payload) > 0 {
			m.Payload = exactPayload(info)
		}
	}
	return Append(dst, m)
}

// exactPayload returns the JSON of a payload that DecodeMessage turns into the same bytes: a value with spaces is text.
func exactPayload(info *store.Info) Payload {
	p := NewPayload(info.Payload, info.Headers)
	if p.Payload != nil {
		if compact, _ := jsontext.Compact(p.Payload); len(compact) < len(p.Payload) {
			return NewPayload(info.Payload, nil)
		}
	}
	return p
}

// Append appends the JSON of a value that always has one, in one line without its end.
func Append(dst []byte, value any) []byte {
	b := bytes.NewBuffer(dst)
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false)
	encoder.Encode(value)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// FormatTime formats a time, rounded up to a whole millisecond, in RFC 3339; the zero time is "".
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return store.Time(store.UnixMillis(t)).UTC().Format(timeFormat)
}
