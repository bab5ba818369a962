// Package outbox sends messages from database transactions: a message is written to a table in the caller's
// transaction, and a relay moves it to its queue once the transaction has committed. So a message is sent if and only
// if the change that it belongs to is made.
//
// Start reading at New. An Outbox writes rows with Send and creates its tables with Migrate; a Relay moves the rows.
// The package works with PostgreSQL, MySQL, MariaDB and SQLite through database/sql and with any driver for them. It
// imports later and its package store, and no drivers.
package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// Dialect is the SQL of a kind of database.
type Dialect int

// The databases that an outbox can be in.
const (
	PostgreSQL Dialect = iota + 1 // PostgreSQL 10 or later
	MySQL                         // MySQL 8.0.1 or later, MariaDB 10.6 or later
	SQLite                        // SQLite 3.24 or later
)

// String returns the name of the database.
func (d Dialect) String() string {
	switch d {
	case PostgreSQL:
		return "PostgreSQL"
	case MySQL:
		return "MySQL"
	case SQLite:
		return "SQLite"
	}
	return fmt.Sprintf("Dialect(%d)", int(d))
}

// quote returns the name of a table as SQL, with its schema if it has one.
func (d Dialect) quote(table string) string {
	mark := `"`
	if d == MySQL {
		mark = "`"
	}
	return mark + strings.ReplaceAll(table, ".", mark+"."+mark) + mark
}

// values appends n placeholders in parentheses. They are numbered from first, and the first parameter of a statement is
// number 1.
func (d Dialect) values(sql *strings.Builder, first, n int) {
	sql.WriteByte('(')
	for i := range n {
		if i > 0 {
			sql.WriteByte(',')
		}
		if d != PostgreSQL {
			sql.WriteByte('?')
			continue
		}
		sql.WriteByte('$')
		sql.WriteString(strconv.Itoa(first + i))
	}
	sql.WriteByte(')')
}

// Execer executes a statement: a *sql.Tx, and also a *sql.Conn or *sql.DB.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Outbox is a table of messages that are to be sent. Create one with New; its methods are safe for concurrent use.
type Outbox struct {
	dialect    Dialect
	table      string
	now        func() time.Time
	middleware []func(context.Context, *later.Outgoing) error
	invalid    error // why the configuration is not allowed
}

// Option configures an Outbox.
type Option func(*Outbox)

// DefaultTable is the table of an Outbox without the option Table.
const DefaultTable = "later_outbox"

// Table sets the name of the table, which may begin with the name of a schema and a dot. Each part has 1 to 48 letters,
// digits and underscores, and does not begin with a digit. Capital letters count. A second table with "_migrations" at
// the end of its name keeps the version of the first. Default: DefaultTable.
func Table(name string) Option {
	return func(o *Outbox) { o.table = name }
}

// Clock sets the clock on which the delay of later.In counts, for tests. With the clock of latertest, a message in the
// outbox is due when the test has moved the clock by the delay of the message. Default: time.Now.
func Clock(now func() time.Time) Option {
	return func(o *Outbox) { o.now = now }
}

// WithSendMiddleware adds functions that are called, in order, for each message before it is written to the outbox,
// with the context of Send or SendBatch. They may change the message, for example to add the headers of a trace: Queue
// is set, and Headers is never nil. The message is checked after the last function. If a function returns an error, the
// send returns it and writes nothing.
//
// A relay sends the message in another context, and then the middleware of its client sees it too (see
// later.WithSendMiddleware). A function that is in both must therefore keep changes that it has made before.
func WithSendMiddleware(middleware ...func(ctx context.Context, o *later.Outgoing) error) Option {
	return func(o *Outbox) { o.middleware = append(o.middleware, middleware...) }
}

var tableName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,47}\.)?[A-Za-z_][A-Za-z0-9_]{0,47}$`)

// New returns the outbox in a table of a database. It does not use the database. If an argument is not allowed, the
// methods of the Outbox return an ErrInvalid.
func New(dialect Dialect, opts ...Option) *Outbox {
	o := &Outbox{dialect: dialect, table: DefaultTable, now: time.Now}
	for i, opt := range opts {
		if opt == nil {
			o.invalid = store.Invalid("option %d is nil: leave it out", i)
			return o
		}
		opt(o)
	}
	switch {
	case dialect < PostgreSQL || dialect > SQLite:
		o.invalid = store.Invalid("dialect is %v: give PostgreSQL, MySQL or SQLite", dialect)
	case !tableName.MatchString(o.table):
		o.invalid = store.Invalid("table name %q is not allowed: must have 1 to 48 letters, digits and underscores that do "+
			"not begin with a digit, after a schema and a dot if it needs one", o.table)
	case o.now == nil:
		o.invalid = store.Invalid("clock is nil: give a function that returns the time, or leave the option out")
	}
	for i, f := range o.middleware {
		if f == nil {
			o.invalid = store.Invalid("send middleware %d is nil: leave it out", i)
		}
	}
	return o
}

// name returns the table's name as SQL.
func (o *Outbox) name() string { return o.dialect.quote(o.table) }

// lockNumber returns the number of the lock that Migrate takes.
func (o *Outbox) lockNumber() int64 {
	h := fnv.New64a()
	h.Write([]byte("later outbox " + o.table))
	return int64(h.Sum64())
}
