package later

import (
	"time"

	"github.com/laterq/later/store"
)

// Info is what is known of a living message. MaxAttempts is the number that counts, and not 0 when the sender
// did not say; SentAt is set, too, where the id tells it.
type Info struct {
	store.Info
	Queue string
}

func newInfo(queue string, i store.Info) *Info {
	i.MaxAttempts, i.SentAt = resolve(&i.Message)
	return &Info{i, queue}
}

// resolve gives what the sender left out of a message, and the store therefore does not keep.
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
	Next     string // the Cursor of the next page; "" when this was the last
}

// Stats counts a queue's messages.
type Stats = store.Stats
