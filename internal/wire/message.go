// Package wire is the JSON of messages, counts, check results and errors, as files and programs exchange it, and the
// text of receipts. It may import package store, and internal packages about text. Start with result.go for the results
// that the command prints. AppendMessage and DecodeMessage are for messages that another store takes over; package
// migrate writes one object a line.
package wire

import (
	"time"

	"github.com/laterq/later/internal/jsonfields"
	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/message"
	"github.com/laterq/later/store"
)

// MaxMessage is the number of bytes that the JSON of a message within the limits of package store may have: a payload
// of control characters, each of them written as \u0000, or the longest raw bytes in base64.
const MaxMessage = 8 << 20

// wireMessage is the JSON of a store.Info. Fields that are zero are left out. Raw bytes that are empty are not zero.
type wireMessage struct {
	Queue string       `json:"queue"`
	ID    string       `json:"id"`
	State store.State  `json:"state"`
	Due   message.Time `json:"due"`
	message.Content
	SentAt     message.Time     `json:"sent_at,omitzero"`
	Attempts   int              `json:"attempts,omitempty"`
	Delivered  bool             `json:"delivered,omitempty"`
	LastError  string           `json:"last_error,omitempty"`
	Failures   []FailedAttempt  `json:"failures,omitempty"`
	DeadReason store.DeadReason `json:"dead_reason,omitempty"`
	DiedAt     message.Time     `json:"died_at,omitzero"`
	RawBase64  []byte           `json:"raw_base64,omitzero"`
}

// AppendMessage appends the JSON of a message to dst, in one line without its end. The info passes Info.Check. Times
// and durations are rounded up to whole milliseconds, as engines do. A leased message is written as such, without the
// deadline of its lease: no other store knows the lease.
func AppendMessage(dst []byte, queue string, info *store.Info) []byte {
	m := wireMessage{
		Queue: queue, ID: info.ID, State: info.State, Due: message.NewTime(info.Due),
		Attempts: info.Attempts, Delivered: info.Delivered, LastError: info.LastError,
		Failures:   NewFailures(info.Failures),
		DeadReason: info.DeadReason, DiedAt: message.NewTime(info.DiedAt), RawBase64: info.Raw,
	}
	if info.Raw == nil { // else the other parts of the message are not known
		m.Content, m.SentAt = message.NewContent(&info.Message), message.NewTime(info.SentAt)
	}
	return jsontext.Append(dst, m)
}

// DecodeMessage returns the message with this JSON, and its queue. It accepts only messages that a store accepts: they
// pass Info.Check. It returns the errors of jsonfields.Decode, and ErrInvalid or ErrTooLarge for a value over its
// limit. The error names the field.
func DecodeMessage(line []byte) (queue string, info store.Info, err error) {
	if len(line) > MaxMessage {
		return "", info, store.TooLarge("message is %d bytes of JSON: the limit is %d", len(line), MaxMessage)
	}
	var m wireMessage
	if err := jsonfields.Decode(line, &m); err != nil {
		return "", info, err
	}
	if m.RawBase64 != nil {
		for _, f := range jsonfields.Fields(&m.Content) {
			if !f.Value(&m.Content).IsZero() {
				return "", info, store.Field(f.Name,
					store.Invalid(`field %q is given beside "raw_base64": an unreadable message `+
						`does not have it; leave it out`, f.Name))
			}
		}
	}
	info = store.Info{
		State: m.State, Due: m.Due.Time, Attempts: m.Attempts, Delivered: m.Delivered, LastError: m.LastError,
		DeadReason: m.DeadReason, DiedAt: m.DiedAt.Time, Raw: m.RawBase64,
	}
	if info.Message, err = m.Message(); err != nil {
		return "", info, err
	}
	info.ID, info.SentAt = m.ID, m.SentAt.Time
	for _, f := range m.Failures {
		info.Failures = append(info.Failures, store.Failure{Time: f.Time.Time, Attempt: f.Attempt,
			Duration: time.Duration(f.Duration), Worker: f.Worker, Error: f.Error})
	}
	if err := store.CheckQueue(m.Queue); err != nil {
		return "", info, err
	}
	return m.Queue, info, info.Check()
}

// FormatTime formats a time, rounded up to a whole millisecond, in RFC 3339; the zero time is "".
func FormatTime(t time.Time) string { return message.FormatTime(t) }
