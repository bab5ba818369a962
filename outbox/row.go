package outbox

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// columns are the columns that Send writes and a relay reads after seq.
const columns = "queue, id, payload, due_ms, options"

// columnCount is the number of columns.
const columnCount = 5

// options is the JSON in the column of that name: what most messages do not have. New options of messages need no
// change of the table.
type options struct {
	Headers       map[string]string `json:"headers,omitempty"`
	MaxAttempts   int               `json:"max_attempts,omitempty"`
	TimeoutMS     int64             `json:"timeout_ms,omitempty"`
	ExpireAfterMS int64             `json:"expire_after_ms,omitempty"`
	ExpireAtMS    *int64            `json:"expire_at_ms,omitempty"`
	DedupWindowMS int64             `json:"dedup_window_ms,omitempty"`
	Group         string            `json:"group,omitempty"`
}

// row is a message in the table.
type row struct {
	seq     int64
	queue   string
	id      string
	payload []byte
	due     sql.NullInt64 // ms since 1970; null means at once
	options string
}

// newRow checks a message and returns its row, without a seq. A delay counts from now.
func newRow(queue string, m later.Outgoing, now time.Time) (row, error) {
	if err := store.CheckNewQueue(queue); err != nil {
		return row{}, err
	}
	if m.Durability != (later.Durability{}) {
		return row{}, store.Invalid("durability of a message in an outbox is %v: leave it out, and open the client of the "+
			"relay with later.Durable, which then keeps each row until its message is confirmed", m.Durability)
	}
	if m.OnDuplicate != (later.DuplicateMode{}) {
		return row{}, store.Invalid("mode for duplicates of a message in an outbox is %v: leave it out, since a row that is "+
			"moved again must change nothing", m.OnDuplicate)
	}
	if m.Once != nil {
		return row{}, store.Invalid("a message in an outbox has Once: leave it out, since a row is sent once anyway")
	}
	due := m.When.Time(now)
	if !due.IsZero() {
		m.When = later.At(due)
	}
	if err := m.Check(); err != nil {
		return row{}, err
	}
	r := row{queue: queue, id: m.ID, payload: m.Payload, options: encodeOptions(m)}
	if r.id == "" {
		r.id = store.NewID()
	}
	if r.payload == nil {
		r.payload = []byte{} // drivers write nil as NULL
	}
	if !due.IsZero() {
		r.due = sql.NullInt64{Int64: store.UnixMillis(due), Valid: true}
	}
	return r, nil
}

func encodeOptions(m later.Outgoing) string {
	o := options{
		Headers:       m.Headers,
		MaxAttempts:   m.MaxAttempts,
		TimeoutMS:     store.Millis(m.Timeout),
		ExpireAfterMS: store.Millis(m.ExpireAfter),
		DedupWindowMS: store.Millis(m.DedupWindow),
		Group:         m.Group,
	}
	if !m.ExpireAt.IsZero() {
		at := store.UnixMillis(m.ExpireAt)
		o.ExpireAtMS = &at
	}
	text, _ := json.Marshal(o) // such a struct always has a JSON
	return string(text)
}

// args appends the values of columns.
func (r *row) args(args []any) []any {
	return append(args, r.queue, r.id, r.payload, r.due, r.options)
}

// size returns about how many bytes the row takes in memory and in a statement.
func (r *row) size() int { return len(r.payload) + len(r.options) + len(r.id) + len(r.queue) }

// message returns the message of the row. Its id is remembered for at least window after its ack. The error is an
// ErrInvalid if the row cannot be read.
func (r *row) message(window time.Duration) (later.Outgoing, error) {
	var o options
	decoder := json.NewDecoder(bytes.NewReader([]byte(r.options)))
	decoder.DisallowUnknownFields() // else a message could lose an option that only a newer version knows
	if err := decoder.Decode(&o); err != nil {
		return later.Outgoing{}, store.Invalid("options of the row cannot be read: %v; if a newer version wrote it, "+
			"update the relay and set failed_at to null", err)
	}
	if r.id == "" {
		return later.Outgoing{}, store.Invalid("id of the row is empty: give each row an id of its own")
	}
	m := later.Outgoing{
		ID:          r.id,
		Payload:     r.payload,
		Headers:     o.Headers,
		MaxAttempts: o.MaxAttempts,
		Timeout:     millis(o.TimeoutMS),
		ExpireAfter: millis(o.ExpireAfterMS),
		DedupWindow: max(window, millis(o.DedupWindowMS)),
		Group:       o.Group,
	}
	if o.ExpireAtMS != nil {
		m.ExpireAt = time.UnixMilli(*o.ExpireAtMS)
	}
	if r.due.Valid {
		m.When = later.At(time.UnixMilli(r.due.Int64))
	}
	return m, nil
}

// millis returns a number of milliseconds as a duration. One that is too large for that stays too large for every
// limit.
func millis(n int64) time.Duration {
	const most = int64(store.MaxDelay/time.Millisecond) + 1
	return time.Duration(max(-1, min(n, most))) * time.Millisecond
}
