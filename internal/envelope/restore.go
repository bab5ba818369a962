package envelope

import (
	"time"

	"github.com/laterq/later/store"
)

// AppendInfo appends the envelope of a message copied from another store. If that store could not read the message, it
// appends the raw bytes unchanged. As with a send, it omits the send time if the id contains it.
func AppendInfo(b []byte, i *store.Info) []byte {
	if i.Raw != nil {
		return append(b, i.Raw...)
	}
	m := &i.Message
	if t, ok := store.IDTime(m.ID); ok && t.Equal(m.SentAt) {
		plain := *m
		plain.SentAt = time.Time{}
		m = &plain
	}
	return Append(b, m)
}

// InfoSize returns an upper bound for the length that AppendInfo appends.
func InfoSize(i *store.Info) int { return Size(&i.Message) + len(i.Raw) }
