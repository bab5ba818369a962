package envelope

import (
	"time"

	"github.com/laterq/later/store"
)

// AppendInfo appends the envelope of a message that is restored: of one that another store could not read, its bytes
// as they are. The time at which it was sent is left out where the id tells it, as when it was sent.
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

// InfoSize is an upper bound of the length that AppendInfo appends.
func InfoSize(i *store.Info) int { return Size(&i.Message) + len(i.Raw) }
