package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/hibiken/asynq"
)

const (
	outboxPoll  = time.Second
	outboxBatch = 100
	// remembered is how long the id of a task is refused after it has run: longer than a relay may be away between the
	// sending of a task and the removal of its row.
	remembered = 24 * time.Hour
)

// message is a task in the outbox.
type message struct {
	queue, kind, id string
	payload         []byte
	headers         map[string]string
	due             time.Time // zero: at once
	maxRetry        int       // 0: asynq's default
	timeout         time.Duration
}

// outbox is a table of tasks that are enqueued when their transactions have committed.
type outbox struct {
	db     *sql.DB
	client *asynq.Client
	wake   chan struct{}
}

func newOutbox(ctx context.Context, db *sql.DB, client *asynq.Client) (*outbox, error) {
	_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS outbox (
		seq INTEGER PRIMARY KEY, queue TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL, payload BLOB NOT NULL,
		headers TEXT NOT NULL, due_ms INTEGER, max_retry INTEGER NOT NULL, timeout_ms INTEGER NOT NULL)`)
	return &outbox{db, client, make(chan struct{}, 1)}, err
}

// write adds a task to the transaction.
func (b *outbox) write(ctx context.Context, tx *sql.Tx, m message) error {
	headers, err := json.Marshal(withTrace(ctx, m.headers))
	if err != nil {
		return err
	}
	due := sql.NullInt64{Int64: m.due.UnixMilli(), Valid: !m.due.IsZero()}
	_, err = tx.ExecContext(ctx, `INSERT INTO outbox (queue, kind, id, payload, headers, due_ms, max_retry, timeout_ms)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		m.queue, m.kind, m.id, m.payload, headers, due, m.maxRetry, m.timeout.Milliseconds())
	return err
}

// notify has run look for tasks at once.
func (b *outbox) notify() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// run moves tasks until ctx ends. While Redis or the database fails, the tasks wait.
func (b *outbox) run(ctx context.Context, failed func(error)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-b.wake:
		}
		if err := b.flush(ctx); err != nil && ctx.Err() == nil {
			failed(err)
		}
		timer.Reset(outboxPoll)
	}
}

// flush moves all tasks that it finds.
func (b *outbox) flush(ctx context.Context) error {
	for {
		if n, err := b.round(ctx); err != nil || n == 0 {
			return err
		}
	}
}

// round moves some tasks in order and returns how many. A task that is moved twice, because the process died before its
// row was removed, has the same id, which asynq refuses while it keeps the task.
func (b *outbox) round(ctx context.Context) (n int, err error) {
	rows, err := b.db.QueryContext(ctx, `SELECT seq, queue, kind, id, payload, headers, due_ms, max_retry, timeout_ms
		FROM outbox ORDER BY seq LIMIT ?`, outboxBatch)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var msgs []message
	var seqs []int64
	for rows.Next() {
		var m message
		var seq, timeout int64
		var headers []byte
		var due sql.NullInt64
		if err := rows.Scan(&seq, &m.queue, &m.kind, &m.id, &m.payload, &headers, &due, &m.maxRetry,
			&timeout); err != nil {
			return 0, err
		}
		if err := json.Unmarshal(headers, &m.headers); err != nil {
			return 0, err
		}
		if due.Valid {
			m.due = time.UnixMilli(due.Int64)
		}
		m.timeout = time.Duration(timeout) * time.Millisecond
		msgs, seqs = append(msgs, m), append(seqs, seq)
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	rows.Close()
	for i, m := range msgs {
		if err := enqueue(ctx, b.client, m); err != nil {
			return i, err
		}
		if _, err := b.db.ExecContext(ctx, `DELETE FROM outbox WHERE seq = ?`, seqs[i]); err != nil {
			return i, err
		}
	}
	return len(msgs), nil
}

// enqueue enqueues a task, unless one with its id is there.
func enqueue(ctx context.Context, client *asynq.Client, m message) error {
	opts := []asynq.Option{asynq.Queue(m.queue), asynq.TaskID(m.id), asynq.Retention(remembered)}
	if !m.due.IsZero() {
		opts = append(opts, asynq.ProcessAt(m.due.Add(time.Second-time.Millisecond))) // asynq drops the milliseconds
	}
	if m.maxRetry > 0 {
		opts = append(opts, asynq.MaxRetry(m.maxRetry))
	}
	if m.timeout > 0 {
		opts = append(opts, asynq.Timeout(m.timeout))
	}
	_, err := client.EnqueueContext(ctx, asynq.NewTaskWithHeaders(m.kind, m.payload, m.headers), opts...)
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		return nil
	}
	return err
}
