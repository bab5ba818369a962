package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// Defaults and limits of RelayConfig.
const (
	DefaultBatch       = store.MaxBatch // rows of a round; also the most
	DefaultPoll        = time.Second
	DefaultDedupWindow = 24 * time.Hour
	MinPoll            = time.Millisecond
)

// While the store or the database fails, a relay waits before it tries again: at first firstBackoff, then twice as long
// each time, up to maxBackoff.
const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 10 * time.Second
)

// RelayConfig configures a Relay. The zero value works.
type RelayConfig struct {
	// Batch is the number of rows that a round moves, 1 to store.MaxBatch. A round with more than 4 MiB of payloads
	// moves fewer. Default: DefaultBatch.
	Batch int
	// Poll is how long the relay waits before it looks for rows again when there were none, at least MinPoll. Wake
	// ends the wait. Default: DefaultPoll.
	Poll time.Duration
	// DedupWindow is how long an id is remembered after its message was acked, up to store.MaxDelay. A longer window of
	// the message itself is kept. A relay that was stopped between sending a message and removing its row sends the
	// message again, and within this time the store refuses it. Default: DefaultDedupWindow.
	DedupWindow time.Duration
	// Logger receives a warning when moving begins to fail, a note when it works again, and an error for each row
	// that is set aside. Default: slog.Default().
	Logger *slog.Logger
}

func (c RelayConfig) withDefaults() RelayConfig {
	c.Batch, c.Poll = cmp.Or(c.Batch, DefaultBatch), cmp.Or(c.Poll, DefaultPoll)
	c.DedupWindow, c.Logger = cmp.Or(c.DedupWindow, DefaultDedupWindow), cmp.Or(c.Logger, slog.Default())
	return c
}

func (c RelayConfig) validate() error {
	switch {
	case c.Batch < 1 || c.Batch > store.MaxBatch:
		return store.Invalid("Batch is %d: must be 1 to %d, or 0 for the default of %d", c.Batch, store.MaxBatch,
			DefaultBatch)
	case c.Poll < MinPoll:
		return store.Invalid("Poll is %v: give at least %v, or 0 for the default of %v", c.Poll, MinPoll, DefaultPoll)
	case c.DedupWindow < 0 || c.DedupWindow > store.MaxDelay:
		return store.Invalid("DedupWindow is %v: give up to %v, or 0 for the default of %v", c.DedupWindow, store.MaxDelay,
			DefaultDedupWindow)
	}
	return nil
}

// RelayStats counts the rows and rounds of a relay since it was created.
type RelayStats struct {
	// Sent is the number of messages that were sent and removed from the outbox.
	Sent int64
	// Duplicates is the number of rows that were removed because their ids were live or remembered.
	Duplicates int64
	// SetAside is the number of rows that were set aside because the store will never accept them.
	SetAside int64
	// Failures is the number of rounds that failed and are tried again.
	Failures int64
}

// Relay moves the rows of an outbox to their queues. Create one with Outbox.Relay; its methods are safe for concurrent
// use.
type Relay struct {
	box     *Outbox
	db      *sql.DB
	client  *later.Client
	cfg     RelayConfig
	invalid error
	wake    chan struct{}

	sent, duplicates, setAside, failures atomic.Int64

	hook func(point string) // called between the steps of a round, for tests
}

// Relay returns a relay from the outbox in db to the queues of client. It starts nothing; see Relay.Run. If the
// configuration is not allowed, Run and Flush return an ErrInvalid.
//
// Any number of relays, in any number of processes, may serve an outbox. In PostgreSQL and MySQL each takes other rows
// (FOR UPDATE SKIP LOCKED). In SQLite they send the same rows, and the store refuses the duplicates, so that one is
// enough.
//
// Open the client with later.Durable to have a row removed only when its message is confirmed as durable.
func (o *Outbox) Relay(db *sql.DB, client *later.Client, cfg RelayConfig) *Relay {
	r := &Relay{box: o, db: db, client: client, cfg: cfg.withDefaults(), wake: make(chan struct{}, 1),
		hook: func(string) {}}
	switch {
	case o.invalid != nil:
		r.invalid = o.invalid
	case db == nil:
		r.invalid = store.Invalid("db is nil: give the database of the outbox")
	case client == nil:
		r.invalid = store.Invalid("client is nil: give the client to send with")
	default:
		r.invalid = r.cfg.validate()
	}
	return r
}

// Wake makes a Run look for rows at once. Call it after a commit in the process of the relay; in others, a row waits up
// to RelayConfig.Poll. It does not block, and does not end the wait after a failure.
func (r *Relay) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Stats returns the counts of the relay.
func (r *Relay) Stats() RelayStats {
	return RelayStats{
		Sent:       r.sent.Load(),
		Duplicates: r.duplicates.Load(),
		SetAside:   r.setAside.Load(),
		Failures:   r.failures.Load(),
	}
}

// Run moves rows until ctx ends, and then returns nil. It returns ErrInvalid if the configuration is not allowed, and
// ErrClosed if the client is closed.
//
// Each committed row is sent once for as long as its id is remembered, whenever the process is killed, and a row that
// is rolled back is never sent. One relay sends the committed rows of a queue in the order in which Send wrote them.
// With several relays, this order holds only within a round. Messages with different due times are delivered in order
// of their due times.
//
// While the store or the database fails, the rows wait, and Run tries again after 100 ms to 10 s. If the store fails
// for some queues only, the rows of others go on. A row that the store refuses with ErrInvalid or ErrTooLarge is set
// aside: it stays in the table with failed_at and error.
func (r *Relay) Run(ctx context.Context) error {
	if r.invalid != nil {
		return r.invalid
	}
	m := r.newMover()
	failing, backoff := false, time.Duration(0)
	for ctx.Err() == nil {
		more, err := m.round(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, store.ErrClosed) {
			return fmt.Errorf("outbox relay: %w", err)
		}
		if err != nil {
			r.failed(ctx, failing, err)
			failing = true
		} else if failing && len(m.held) == 0 {
			failing = false
			r.cfg.Logger.InfoContext(ctx, "outbox relay: rows are moved again", "table", r.box.table)
		}
		wait, wake := m.wait(r.cfg.Poll), r.wake
		if _, ofQueue := errors.AsType[*queueError](err); err != nil && !ofQueue {
			backoff = nextBackoff(backoff)
			wait, wake, more = backoff, nil, false
		} else {
			backoff = 0
		}
		if !more && !pause(ctx, wait, wake) {
			return nil
		}
	}
	return nil
}

// failed counts a failure and logs the first of an outage.
func (r *Relay) failed(ctx context.Context, failing bool, err error) {
	r.failures.Add(1)
	if !failing {
		r.cfg.Logger.WarnContext(ctx, "outbox relay: rows wait in the outbox; trying again until it works",
			"table", r.box.table, "error", err)
	}
}

// nextBackoff returns how long to wait after the next failure.
func nextBackoff(last time.Duration) time.Duration { return min(max(2*last, firstBackoff), maxBackoff) }

// pause waits for d or for a wake, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// Flush moves rows until the outbox has none to move, or until an error, which it returns. After an error the other
// rows are still in the outbox. Flush is for tests, and for programs that run now and then.
func (r *Relay) Flush(ctx context.Context) error {
	if r.invalid != nil {
		return r.invalid
	}
	m := r.newMover()
	for {
		if more, err := m.round(ctx); err != nil || !more {
			return err
		}
	}
}
