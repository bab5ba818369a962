package outbox

import (
	"database/sql"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/jsonfields"
	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/message"
	"github.com/laterq/later/store"
)

// columns are the columns that Send writes and a relay reads after seq.
const columns = "queue, id, payload, due_ms, options"

// columnCount is the number of columns.
const columnCount = 5

// options is the JSON in the column of that name: the options of the message, as package message describes all of them.
// New options of messages need no change of the table.
type options struct {
	Headers map[string]string `json:"headers,omitempty"`
	message.Options
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
	stored := m.Message()
	return string(jsontext.Append(nil, options{m.Headers, message.NewOptions(&stored)}))
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
	var o options // an option that only a newer version knows is an error
	if err := jsonfields.Decode([]byte(r.options), &o); err != nil {
		return later.Outgoing{}, store.Invalid("options of the row cannot be read: %v; if a newer version wrote it, "+
			"update the relay and set failed_at to null", err)
	}
	if r.id == "" {
		return later.Outgoing{}, store.Invalid("id of the row is empty: give each row an id of its own")
	}
	stored := store.Message{ID: r.id, Payload: r.payload, Headers: o.Headers}
	o.Set(&stored)
	stored.DedupWindow = max(window, stored.DedupWindow)
	m := later.OutgoingOf(stored)
	if r.due.Valid {
		m.When = later.At(time.UnixMilli(r.due.Int64))
	}
	return m, nil
}
