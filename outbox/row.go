package outbox

import (
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/jsonfields"
	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/message"
	"github.com/laterq/later/store"
)

// columns are the columns that Send writes and a relay reads after seq.
const columns = "queue, message"

// columnCount is the number of columns.
const columnCount = 2

// rowMessage is the JSON in the column message. New options of messages need no change of the table.
type rowMessage struct {
	ID  string       `json:"id" minLength:"1"`
	Due message.Time `json:"due,omitzero"` // left out if the message is due when it is relayed
	message.Content
}

// row is a message in the table.
type row struct {
	seq     int64
	queue   string
	message []byte // the JSON of a rowMessage
}

// newRow checks a message and returns its row, without a seq, and its id. A delay counts from now.
func newRow(queue string, m later.Outgoing, now time.Time) (r row, id string, err error) {
	if err := store.CheckNewQueue(queue); err != nil {
		return row{}, "", err
	}
	if m.Durability != (later.Durability{}) {
		return row{}, "", store.Invalid("durability of a message in an outbox is %v: leave it out, and open the client of "+
			"the relay with later.Durable, which then keeps each row until its message is confirmed", m.Durability)
	}
	if m.OnDuplicate != (later.DuplicateMode{}) {
		return row{}, "", store.Invalid("mode for duplicates of a message in an outbox is %v: leave it out, since a row "+
			"that is moved again must change nothing", m.OnDuplicate)
	}
	if m.Once != nil {
		return row{}, "", store.Invalid("a message in an outbox has Once: leave it out, since a row is sent once anyway")
	}
	due := m.When.Time(now)
	if !due.IsZero() {
		m.When = later.At(due)
	}
	if err := m.Check(); err != nil {
		return row{}, "", err
	}
	if m.ID == "" {
		m.ID = store.NewID()
		if m.Key != "" { // the slot of the key in place of random bits would make collisions likelier; see store.NewID
			m.ID = m.Key + "/" + m.ID
		}
	}
	stored := m.Message()
	text := jsontext.Append(nil, rowMessage{m.ID, message.NewTime(due), message.NewContent(&stored)})
	return row{queue: queue, message: text}, m.ID, nil
}

// args appends the values of columns.
func (r *row) args(args []any) []any { return append(args, r.queue, string(r.message)) }

// size returns about how many bytes the row takes in memory and in a statement.
func (r *row) size() int { return len(r.queue) + len(r.message) }

// outgoing returns the message of the row. Its id is remembered for at least window after its ack. The error is an
// ErrInvalid if the row cannot be read.
func (r *row) outgoing(window time.Duration) (later.Outgoing, error) {
	var m rowMessage // an option that only a newer version knows is an error
	if err := jsonfields.Decode(r.message, &m); err != nil {
		return later.Outgoing{}, store.Invalid("message of the row cannot be read: %v; if a newer version wrote it, "+
			"update the relay and set failed_at to null", err)
	}
	stored, err := m.Message()
	if err != nil {
		return later.Outgoing{}, err
	}
	stored.ID, stored.DedupWindow = m.ID, max(window, stored.DedupWindow)
	out := later.OutgoingOf(stored)
	if !m.Due.IsZero() {
		out.When = later.At(m.Due.Time)
	}
	return out, nil
}
