package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/lock"
	"github.com/laterq/later/outbox"
)

// Queues of the service, and the kinds of messages in the first one.
const (
	ordersQueue  = "orders"
	partnerQueue = "partner"
	mailQueue    = "mail"

	kindRemind = "order.remind"
	kindCancel = "order.cancel"

	customerHeader = "customer"
	// shipAttempts is how often the partner is called before a message is dead.
	shipAttempts = 8
)

// Config configures a Shop.
type Config struct {
	RemindAfter, CancelAfter time.Duration    // of an unpaid order
	Retry                    time.Duration    // first delay after the partner failed
	Partner                  Partner          // is told of paid orders
	Locker                   lock.Locker      // serves all processes of the shop
	Now                      func() time.Time // default: time.Now; a test's clock
	Metrics                  *Metrics
	Log                      *slog.Logger
}

// Shop is the service. Orders are in a database; their later steps are messages.
type Shop struct {
	cfg    Config
	db     *sql.DB
	client *later.Client
	box    *outbox.Outbox
	relay  *outbox.Relay
	worker *later.Worker
}

// Order is an order of a customer.
type Order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Cents    int64  `json:"cents"`
	State    string `json:"state"` // unpaid, paid, shipped or cancelled
}

// Errors of the shop.
var (
	errNoOrder    = errors.New("there is no such order")
	errWrongState = errors.New("the order is in another state")
)

// New returns a Shop and creates its tables if necessary. It starts nothing.
func New(ctx context.Context, db *sql.DB, client *later.Client, cfg Config) (*Shop, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Shop{cfg: cfg, db: db, client: client}
	s.box = outbox.New(outbox.SQLite, outbox.Clock(cfg.Now), outbox.WithSendMiddleware(traceSend))
	_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders (
		id TEXT PRIMARY KEY, customer TEXT NOT NULL, cents INTEGER NOT NULL, state TEXT NOT NULL)`)
	if err != nil {
		return nil, err
	}
	if err := s.box.Migrate(ctx, db); err != nil {
		return nil, err
	}
	s.relay = s.box.Relay(db, client, outbox.RelayConfig{Logger: cfg.Log})
	s.worker = s.newWorker()
	return s, nil
}

// Place stores an unpaid order, and its later steps: all or nothing.
func (s *Shop) Place(ctx context.Context, o Order) error {
	return s.transaction(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES (?, ?, ?, 'unpaid')`, o.ID, o.Customer, o.Cents)
		if err != nil {
			return err
		}
		_, err = s.box.SendBatch(ctx, tx, ordersQueue, []later.Outgoing{
			message(kindRemind, "remind-", o, s.cfg.RemindAfter),
			message(kindCancel, "cancel-", o, s.cfg.CancelAfter),
		})
		return err
	})
}

// Pay marks an unpaid order as paid and has the partner told.
func (s *Shop) Pay(ctx context.Context, id string) error {
	err := s.transaction(ctx, func(tx *sql.Tx) error {
		if err := change(ctx, tx, id, "unpaid", "paid"); err != nil {
			return err
		}
		o, err := get(ctx, tx, id)
		if err != nil {
			return err
		}
		ship := message("", "ship-", o, 0)
		ship.MaxAttempts = shipAttempts
		_, err = s.box.Send(ctx, tx, partnerQueue, ship)
		return err
	})
	if err != nil {
		return err
	}
	// This only saves work: a message that is left finds a paid order, and does nothing.
	results, err := s.client.Queue(ordersQueue).CancelBatch(ctx, []string{"remind-" + id, "cancel-" + id})
	for _, r := range results {
		if r.Err != nil && !errors.Is(r.Err, later.ErrNotFound) {
			err = errors.Join(err, r.Err)
		}
	}
	if err != nil {
		s.cfg.Log.Warn("messages of a paid order were not cancelled", "order", id, "error", err)
	}
	return nil
}

// Get returns an order.
func (s *Shop) Get(ctx context.Context, id string) (Order, error) { return get(ctx, s.db, id) }

// message returns a message about an order for the outbox.
func message(kind, prefix string, o Order, delay time.Duration) later.Outgoing {
	payload, _ := json.Marshal(o) // cannot fail
	headers := map[string]string{customerHeader: o.Customer}
	if kind != "" {
		headers[later.KindHeader] = kind
	}
	return later.Outgoing{ID: prefix + o.ID, Payload: payload, Headers: headers, When: later.In(delay)}
}

// transaction commits the changes of f, unless f fails, and wakes the relay.
func (s *Shop) transaction(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if err := f(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.relay.Wake()
	return nil
}

// querier is a database or a transaction.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func get(ctx context.Context, q querier, id string) (o Order, err error) {
	row := q.QueryRowContext(ctx, `SELECT id, customer, cents, state FROM orders WHERE id = ?`, id)
	err = row.Scan(&o.ID, &o.Customer, &o.Cents, &o.State)
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("order %q: %w", id, errNoOrder)
	}
	return o, err
}

// change changes the state of an order from one to another, or returns errWrongState or errNoOrder.
func change(ctx context.Context, q querier, id, from, to string) error {
	result, err := q.ExecContext(ctx, `UPDATE orders SET state = ? WHERE id = ? AND state = ?`, to, id, from)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 1 {
		return err
	}
	o, err := get(ctx, q, id)
	if err != nil {
		return err
	}
	return fmt.Errorf("order %q is %s, not %s: %w", id, o.State, from, errWrongState)
}
