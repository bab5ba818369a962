package server

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// mergeCursor is the cursor of a merged list as JSON: the source of the last message, and how that goes on. Other
// sources go on at the time of the message.
type mergeCursor struct {
	Queue  string      `json:"q"`
	State  later.State `json:"s,omitempty"`
	Time   int64       `json:"t,omitempty"` // of the last message, in ms since 1970
	ID     string      `json:"i,omitempty"` // of the last message: the ones up to it are left out of the page at Cursor
	From   int64       `json:"f,omitempty"` // the from of the source, in ms since 1970
	Cursor string      `json:"c,omitempty"`
	Done   bool        `json:"d,omitempty"` // queue by queue, the source has no more
}

// resume goes to a cursor, "" for the beginning.
func (m *merge) resume(cursor string) error {
	if cursor == "" {
		return nil
	}
	var c mergeCursor
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || json.Unmarshal(text, &c) != nil || store.CheckQueue(c.Queue) != nil {
		return store.Invalid("is %.40q: give the next of the page before", cursor)
	}
	last := &mergeSource{queue: c.Queue, state: c.State}
	after := place{id: c.ID}
	if c.Time != 0 {
		after.at = time.UnixMilli(c.Time)
	}
	m.sources = slices.DeleteFunc(m.sources, func(source *mergeSource) bool {
		order := source.compare(last)
		switch {
		case order == 0:
			source.next, source.after, source.bound, source.done = c.Cursor, after, after.at, false
			if from := time.UnixMilli(c.From); c.From != 0 && from.After(source.from) {
				source.from = from
			}
		case m.byQueue:
		case source.queue == c.Queue: // messages in the other state may have been in this one
			source.goOn(after.at, false)
			source.after = after
		default:
			source.goOn(after.at, order < 0)
		}
		return m.byQueue && (order < 0 || order == 0 && c.Done) // it has been listed
	})
	return nil
}

// end returns the cursor of the rest, or "" if there is none.
func (m *merge) end() string {
	if m.last == nil || !slices.ContainsFunc(m.sources, func(s *mergeSource) bool {
		return !s.done || s.again || s.head() != nil
	}) {
		return ""
	}
	s := m.last
	c := mergeCursor{Queue: s.queue, State: s.state, ID: s.after.id, Cursor: s.next, Done: s.done && s.head() == nil}
	if s.done || s.head() != nil { // the rest of the page, and messages that come to it, are read again
		c.Cursor = s.cursor
	}
	if !s.after.at.IsZero() {
		c.Time = s.after.at.UnixMilli()
	}
	if !m.byQueue && s.from.After(m.filter.From) {
		c.From = s.from.UnixMilli()
	}
	text, _ := json.Marshal(c) // texts and numbers can always be encoded
	return base64.RawURLEncoding.EncodeToString(text)
}
