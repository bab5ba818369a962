package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

const (
	// maxRoundBytes is how many bytes of rows a round reads before it moves them.
	maxRoundBytes = store.MaxBatchBytes
	// sendLimit limits the sending of a round, so that the transaction that holds its rows ends. The rows of messages
	// that were sent by then are removed.
	sendLimit = 30 * time.Second
	// roundLimit limits a round, so that a database that does not answer does not stop a relay.
	roundLimit = sendLimit + time.Minute
)

// The points between the steps of a round. Tests kill the process there.
const (
	atClaimed   = "claimed"   // the rows are read and locked
	atSent      = "sent"      // the store has the messages
	atRemoved   = "removed"   // the rows are removed, in a transaction that is not committed, unless in SQLite
	atCommitted = "committed" // the round is done
)

// mover executes rounds, one at a time.
type mover struct {
	*Relay
	limit int             // rows of the next round; less than cfg.Batch after large ones
	held  map[string]hold // by queue: the queues where the last send failed
}

func (r *Relay) newMover() *mover {
	return &mover{Relay: r, limit: r.cfg.Batch, held: map[string]hold{}}
}

// claimedRow is a row of a round with its message and its outcome.
type claimedRow struct {
	row
	msg       later.Outgoing
	sent      bool // or found to be a duplicate
	duplicate bool
	refused   error // why the store will never accept it
}

// database is the part of a transaction that a round needs. For SQLite it is the database itself.
type database interface {
	Execer
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// round moves some rows and reports whether there may be more.
//
// PostgreSQL and MySQL lock the rows in a transaction, which also removes them after the messages are sent. Rows of
// uncommitted transactions are invisible, or are locked and passed over. The relay does not remember a position,
// because a row with a lower seq may be committed later.
//
// SQLite has one lock for the whole file. Holding it while messages are sent would block the program's own
// transactions, so the rows are read and later removed, and ids alone keep relays from sending twice.
func (m *mover) round(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	var on database = m.db
	commit := func() error { return nil }
	if m.box.dialect != SQLite {
		// MySQL's default isolation would lock the gaps between rows too, and so block inserts into the outbox.
		tx, err := m.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			return false, err
		}
		defer tx.Rollback()
		on, commit = tx, tx.Commit
	}
	rows, more, err := m.claim(ctx, on)
	if err != nil || len(rows) == 0 {
		return false, err
	}
	m.hook(atClaimed)
	sendErr := m.send(ctx, rows)
	m.hook(atSent)
	if err := m.finish(ctx, on, rows); err != nil {
		return false, err // the rows are sent again
	}
	m.hook(atRemoved)
	if err := commit(); err != nil {
		return false, err // the rows are sent again
	}
	m.hook(atCommitted)
	m.count(ctx, rows)
	return more, sendErr
}

// claim reads the first rows that no other relay holds, except rows of held queues. It reports whether there may be
// more.
func (m *mover) claim(ctx context.Context, on database) (rows []claimedRow, more bool, err error) {
	now := time.Now()
	held := m.heldQueues(now)
	if len(held) >= maxHeld {
		return nil, false, nil // most likely the whole store is away
	}
	var query strings.Builder
	query.WriteString("SELECT seq, " + columns + " FROM " + m.box.name())
	if m.box.dialect == MySQL {
		query.WriteString(" FORCE INDEX (PRIMARY)") // sorting the table would lock all of it
	}
	query.WriteString(" WHERE failed_at IS NULL")
	if len(held) > 0 {
		query.WriteString(" AND queue NOT IN ")
		m.box.dialect.values(&query, 1, len(held))
	}
	query.WriteString(" ORDER BY seq LIMIT " + strconv.Itoa(m.limit))
	if m.box.dialect != SQLite {
		query.WriteString(" FOR UPDATE SKIP LOCKED")
	}
	found, err := on.QueryContext(ctx, query.String(), held...)
	if err != nil {
		return nil, false, fmt.Errorf("read outbox %s: %w", m.box.table, err)
	}
	defer found.Close()
	size := 0
	for size < maxRoundBytes && found.Next() {
		var c claimedRow
		if err := found.Scan(&c.seq, &c.queue, &c.message); err != nil {
			return nil, false, fmt.Errorf("read outbox %s: %w", m.box.table, err)
		}
		size += c.size()
		rows = append(rows, c)
	}
	if err := found.Err(); err != nil {
		return nil, false, fmt.Errorf("read outbox %s: %w", m.box.table, err)
	}
	if len(rows) == 0 {
		m.dropHolds(now)
	}
	more = len(rows) == m.limit || size >= maxRoundBytes
	// Rows beyond maxRoundBytes were read for nothing: the next round asks for at most about the rows it can take.
	m.limit = min(m.cfg.Batch, 2*m.limit)
	if size >= maxRoundBytes {
		m.limit = min(m.cfg.Batch, len(rows)+1)
	}
	return rows, more, nil
}

// send sends the messages of rows, queue by queue in order, and sets the outcome of each row. When a send fails, its
// queue is held and the other queues go on.
func (m *mover) send(ctx context.Context, rows []claimedRow) (err error) {
	ctx, cancel := context.WithTimeout(ctx, sendLimit)
	defer cancel()
	var queues []string
	byQueue := map[string][]*claimedRow{}
	for i := range rows {
		c := &rows[i]
		if c.msg, c.refused = c.outgoing(m.cfg.DedupWindow); c.refused != nil {
			continue
		}
		if byQueue[c.queue] == nil {
			queues = append(queues, c.queue)
		}
		byQueue[c.queue] = append(byQueue[c.queue], c)
	}
	for _, queue := range queues {
		failed := m.sendQueue(ctx, m.client.Queue(queue), byQueue[queue])
		if failed == nil {
			delete(m.held, queue)
			continue
		}
		m.held[queue] = m.held[queue].longer()
		if err == nil {
			err = &queueError{queue, failed}
		}
	}
	return err
}

// sendQueue sends the messages of one queue. If the store refuses one of them for good, it sends each alone, so that
// only the refused rows stay.
func (m *mover) sendQueue(ctx context.Context, q *later.Queue, rows []*claimedRow) error {
	msgs := make([]later.Outgoing, len(rows))
	for i, c := range rows {
		msgs[i] = c.msg
	}
	results, err := q.SendBatch(ctx, msgs)
	for i, result := range results {
		if result.Err == nil {
			rows[i].sent, rows[i].duplicate = true, result.Duplicate
		}
	}
	if !isRefusal(err) {
		return err
	}
	if len(rows) == 1 {
		rows[0].refused = err
		return nil
	}
	for i := range rows {
		if rows[i].sent {
			continue
		}
		if err := m.sendQueue(ctx, q, rows[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// isRefusal reports whether the store will never accept the message.
func isRefusal(err error) bool {
	return errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrTooLarge)
}

// finish removes the sent rows and marks the refused rows.
func (m *mover) finish(ctx context.Context, on database, rows []claimedRow) error {
	var sent []any
	for i := range rows {
		if rows[i].sent {
			sent = append(sent, rows[i].seq)
		}
	}
	if len(sent) > 0 {
		query, args := m.box.deletion(sent)
		if _, err := on.ExecContext(ctx, query, args...); err != nil {
			return fmt.Errorf("remove rows from outbox %s: %w", m.box.table, err)
		}
	}
	query := "UPDATE " + m.box.name() + " SET failed_at = CURRENT_TIMESTAMP, error = ? WHERE seq = ?"
	if m.box.dialect == PostgreSQL {
		query = strings.Replace(strings.Replace(query, "?", "$1", 1), "?", "$2", 1)
	}
	for i := range rows {
		if err := rows[i].refused; err != nil {
			if _, err := on.ExecContext(ctx, query, store.CutReason(err.Error()), rows[i].seq); err != nil {
				return fmt.Errorf("set aside a row of outbox %s: %w", m.box.table, err)
			}
		}
	}
	return nil
}

// deletion returns the statement that deletes rows by seq.
//
// With IN, MySQL and MariaDB scan the table if they believe that it has few rows, and wait for the rows of other
// relays, which wait for theirs in turn: a deadlock. A join in a given order looks up each row. The numbers are in the
// statement, because MySQL would treat a parameter there as a text, and then not use the index.
func (o *Outbox) deletion(seqs []any) (query string, args []any) {
	var sql strings.Builder
	if o.dialect != MySQL {
		sql.WriteString("DELETE FROM " + o.name() + " WHERE seq IN ")
		o.dialect.values(&sql, 1, len(seqs))
		return sql.String(), seqs
	}
	sql.WriteString("DELETE t FROM (SELECT 0 AS seq") // no row has seq 0
	for _, seq := range seqs {
		fmt.Fprintf(&sql, " UNION ALL SELECT %d", seq)
	}
	sql.WriteString(") AS k STRAIGHT_JOIN " + o.name() + " AS t FORCE INDEX (PRIMARY) ON t.seq = k.seq")
	return sql.String(), nil
}

// count counts the rows of a round that is done, and logs rows that were set aside.
func (m *mover) count(ctx context.Context, rows []claimedRow) {
	for i := range rows {
		switch c := &rows[i]; {
		case c.refused != nil:
			m.setAside.Add(1)
			m.cfg.Logger.ErrorContext(ctx, "outbox relay: row is set aside, the store will never accept it",
				"table", m.box.table, "seq", c.seq, "queue", c.queue, "id", c.msg.ID, "error", c.refused)
		case c.duplicate:
			m.duplicates.Add(1)
		case c.sent:
			m.sent.Add(1)
		}
	}
}
