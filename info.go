package later

import (
	"time"

	"github.com/laterq/later/store"
)

// Info describes a live message. MaxAttempts is never 0: it is the default when the sender did not set it.
// SentAt is also set when the id contains the time.
type Info struct {
	store.Info
	Queue string
}

func newInfo(queue string, i store.Info) *Info {
	i.MaxAttempts, i.SentAt = resolve(&i.Message)
	return &Info{i, queue}
}

// resolve returns MaxAttempts and SentAt, which the store does not keep when the sender left them out.
func resolve(m *store.Message) (maxAttempts int, sentAt time.Time) {
	maxAttempts, sentAt = m.MaxAttempts, m.SentAt
	if maxAttempts == 0 {
		maxAttempts = store.DefaultMaxAttempts
	}
	if sentAt.IsZero() {
		sentAt, _ = store.IDTime(m.ID)
	}
	return maxAttempts, sentAt
}

// Page is one page of a listing.
type Page struct {
	Messages []*Info
	Next     string // Cursor of the next page; "" on the last page
}

// Stats counts the messages of a queue.
type Stats = store.Stats
