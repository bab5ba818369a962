package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/bsm/redislock"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// Queues of the service, and the kinds of tasks.
const (
	ordersQueue  = "orders"
	partnerQueue = "partner"
	mailQueue    = "mail"

	kindRemind = "order:remind"
	kindCancel = "order:cancel"
	kindShip   = "order:ship"
	kindMail   = "mail"

	customerHeader = "customer"
	// shipAttempts is how often the partner is called before a task is dead.
	shipAttempts = 8
)

// Config configures a Shop.
type Config struct {
	RemindAfter, CancelAfter time.Duration // of an unpaid order
	Retry                    time.Duration // first delay after the partner failed
	CheckEvery               time.Duration // how often asynq looks for tasks that are due
	Partner                  Partner       // is told of paid orders
	Mail                     func(Mail)    // default: logs it
	Log                      *slog.Logger
}

// Shop is the service. Orders are in a database; their later steps are tasks.
type Shop struct {
	cfg     Config
	db      *sql.DB
	client  *asynq.Client
	inspect *asynq.Inspector
	locks   *redislock.Client
	box     *outbox
	servers []*asynq.Server
	metrics *Metrics
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
func New(ctx context.Context, db *sql.DB, rdb *redis.Client, cfg Config) (*Shop, error) {
	s := &Shop{
		cfg: cfg, db: db, client: asynq.NewClientFromRedisClient(rdb), inspect: asynq.NewInspectorFromRedisClient(rdb),
		locks: redislock.New(rdb), metrics: &Metrics{},
	}
	_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders (
		id TEXT PRIMARY KEY, customer TEXT NOT NULL, cents INTEGER NOT NULL, state TEXT NOT NULL)`)
	if err != nil {
		return nil, err
	}
	if s.box, err = newOutbox(ctx, db, s.client); err != nil {
		return nil, err
	}
	s.servers = s.newServers(rdb)
	return s, nil
}

// Place stores an unpaid order, and its later steps: all or nothing.
func (s *Shop) Place(ctx context.Context, o Order) error {
	return s.transaction(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES (?, ?, ?, 'unpaid')`, o.ID, o.Customer, o.Cents)
		if err != nil {
			return err
		}
		if err := s.box.write(ctx, tx, newMessage(ordersQueue, kindRemind, "remind-", o,
			s.cfg.RemindAfter)); err != nil {
			return err
		}
		return s.box.write(ctx, tx, newMessage(ordersQueue, kindCancel, "cancel-", o, s.cfg.CancelAfter))
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
		ship := newMessage(partnerQueue, kindShip, "ship-", o, 0)
		ship.maxRetry, ship.timeout = shipAttempts-1, lockWait+callLimit
		return s.box.write(ctx, tx, ship)
	})
	if err != nil {
		return err
	}
	// This only saves work: a task that is left finds a paid order, and does nothing.
	for _, task := range []string{"remind-" + id, "cancel-" + id} {
		err := s.inspect.DeleteTask(ordersQueue, task)
		if err != nil && !errors.Is(err, asynq.ErrTaskNotFound) && !errors.Is(err, asynq.ErrQueueNotFound) {
			s.cfg.Log.Warn("a task of a paid order was not cancelled", "task", task, "error", err)
		}
	}
	return nil
}

// Get returns an order.
func (s *Shop) Get(ctx context.Context, id string) (Order, error) { return get(ctx, s.db, id) }

// newMessage returns a task about an order for the outbox.
func newMessage(queue, kind, prefix string, o Order, delay time.Duration) message {
	payload, _ := json.Marshal(o) // cannot fail
	m := message{
		queue: queue, kind: kind, id: prefix + o.ID, payload: payload,
		headers: map[string]string{customerHeader: o.Customer},
	}
	if delay > 0 {
		m.due = time.Now().Add(delay)
	}
	return m
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
	s.box.notify()
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
