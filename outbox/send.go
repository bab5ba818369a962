package outbox

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/laterq/later"
)

// Limits of one INSERT: SQLite before 3.32 takes 999 values, and MySQL takes a packet of 16 MiB by default.
const (
	maxInsertRows  = 100
	maxInsertBytes = 4 << 20
)

// Send writes a message for a queue to the outbox, in the transaction tx, and returns the message's id. A relay sends
// the message after the transaction has committed. If the transaction is rolled back, the message is never sent.
//
// The message is checked first, as Queue.Send does, and Send returns ErrInvalid or ErrTooLarge if it is not allowed;
// nothing is written then. A message without an id gets one that sorts by time. All other errors come from the
// database, and after them most databases can only roll the transaction back.
//
// A delay set with later.In counts from this call, on this process's clock or that of the option Clock. Without a due
// time the message is due when the relay sends it, and an ExpireAfter counts from then. The message's Durability must
// not be set, because the relay sends the message. SentAt of the delivered message is the time of that send.
//
// The id is remembered for at least the DedupWindow of the relay after the message was acked. Choose an id of your own
// only for a message that must not be sent again within that time.
func (o *Outbox) Send(ctx context.Context, tx Execer, queue string, msg later.Outgoing) (string, error) {
	ids, err := o.send(ctx, tx, queue, msg)
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// SendBatch is like Send for any number of messages of a queue, and returns their ids in order. It checks all of them
// before it writes the first; the error names the index of one that is not allowed. It takes one INSERT for 100
// messages, or for fewer large ones.
func (o *Outbox) SendBatch(ctx context.Context, tx Execer, queue string, msgs []later.Outgoing) ([]string, error) {
	return o.send(ctx, tx, queue, msgs...)
}

func (o *Outbox) send(ctx context.Context, tx Execer, queue string, msgs ...later.Outgoing) ([]string, error) {
	if o.invalid != nil {
		return nil, o.invalid
	}
	rows, ids := make([]row, len(msgs)), make([]string, len(msgs))
	now := o.now()
	for i, m := range msgs {
		r, id, err := o.prepare(ctx, queue, m, now)
		if err != nil && len(msgs) > 1 {
			err = fmt.Errorf("message %d of the batch: %w", i, err)
		}
		if err != nil {
			return nil, err
		}
		rows[i], ids[i] = r, id
	}
	for len(rows) > 0 {
		n := insertEnd(rows)
		if err := o.insert(ctx, tx, rows[:n]); err != nil {
			return nil, fmt.Errorf("write to outbox %s: %w", o.table, err)
		}
		rows = rows[n:]
	}
	return ids, nil
}

// prepare calls the middleware for a message, checks it and returns its row and id.
func (o *Outbox) prepare(ctx context.Context, queue string, m later.Outgoing, now time.Time) (row, string, error) {
	m.Queue = queue
	if len(o.middleware) > 0 {
		if m.Headers = maps.Clone(m.Headers); m.Headers == nil {
			m.Headers = map[string]string{}
		}
	}
	for _, f := range o.middleware {
		if err := f(ctx, &m); err != nil {
			return row{}, "", err
		}
	}
	return newRow(queue, m, now)
}

// insertEnd returns how many of the rows one INSERT takes.
func insertEnd(rows []row) int {
	size := 0
	for i := range rows {
		size += rows[i].size()
		if i > 0 && (i == maxInsertRows || size > maxInsertBytes) {
			return i
		}
	}
	return len(rows)
}

func (o *Outbox) insert(ctx context.Context, tx Execer, rows []row) error {
	var sql strings.Builder
	sql.WriteString("INSERT INTO " + o.name() + " (" + columns + ") VALUES ")
	args := make([]any, 0, len(rows)*columnCount)
	for i := range rows {
		if i > 0 {
			sql.WriteByte(',')
		}
		o.dialect.values(&sql, len(args)+1, columnCount)
		args = rows[i].args(args)
	}
	_, err := tx.ExecContext(ctx, sql.String(), args...)
	return err
}
