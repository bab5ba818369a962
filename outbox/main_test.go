package outbox

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/laterq/later"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// patience limits every wait. It is generous, because a busy machine must not fail a test.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if config := os.Getenv(childEnv); config != "" {
		if err := runChild(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	mysql.SetLogger(log.New(io.Discard, "", 0)) // it logs each connection broken by a killed server
	code := m.Run()
	postgres.remove()
	mariadb.remove()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintf(os.Stderr, "goroutines leaked: %v\n", err)
		code = 1
	}
	os.Exit(code)
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// bounded returns a context that expires after patience.
func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// memory returns a client of an empty store in memory.
func memory(t testing.TB) *later.Client {
	t.Helper()
	s := memstore.New()
	t.Cleanup(func() { s.Close() })
	return newClient(t, s)
}

func newClient(t testing.TB, s store.Store) *later.Client {
	t.Helper()
	c, err := later.New(s, later.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func open(t testing.TB, url string) *later.Client {
	t.Helper()
	c, err := later.Open(bounded(t), url, later.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// transact runs f in a transaction, which is committed unless f returns an error.
func transact(ctx context.Context, db *sql.DB, f func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// commit writes messages to the outbox and commits. It returns their ids.
func commit(t testing.TB, box *Outbox, db *sql.DB, queue string, msgs ...later.Outgoing) (ids []string) {
	t.Helper()
	err := transact(bounded(t), db, func(tx *sql.Tx) (err error) {
		ids, err = box.SendBatch(t.Context(), tx, queue, msgs)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func flush(t testing.TB, r *Relay) {
	t.Helper()
	if err := r.Flush(bounded(t)); err != nil {
		t.Fatal(err)
	}
}

// run runs a relay until the test ends or stop is called.
func run(t testing.TB, r *Relay) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// receive receives and acks n messages of a queue, and returns their payloads in order.
func receive(t testing.TB, q *later.Queue, n int) (payloads []string) {
	t.Helper()
	ctx := bounded(t)
	for len(payloads) < n {
		got, err := q.Receive(ctx, min(n-len(payloads), store.MaxBatch))
		if err != nil {
			t.Fatalf("after %d of %d messages: %v", len(payloads), n, err)
		}
		for _, d := range got {
			payloads = append(payloads, string(d.Payload))
			if err := d.Ack(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	return payloads
}

// wantNone checks that a queue does not have live messages.
func wantNone(t testing.TB, q *later.Queue) {
	t.Helper()
	s, err := q.Stats(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	if s.Scheduled+s.Ready+s.Leased+s.Dead != 0 {
		t.Errorf("queue has scheduled %d, ready %d, leased %d, dead %d; want none", s.Scheduled, s.Ready, s.Leased, s.Dead)
	}
}

// wantRows checks how many rows the outbox has.
func wantRows(t testing.TB, box *Outbox, db *sql.DB, want int) {
	t.Helper()
	var n int
	if err := db.QueryRowContext(bounded(t), "SELECT COUNT(*) FROM "+box.name()).Scan(&n); err != nil {
		t.Fatal(err)
	}
	if n != want {
		t.Errorf("outbox has %d rows; want %d", n, want)
	}
}

func numbered(n int) (msgs []later.Outgoing) {
	for i := range n {
		msgs = append(msgs, later.Outgoing{Payload: fmt.Appendf(nil, "%d", i)})
	}
	return msgs
}

// records keeps the log, one line for each record.
type records struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *records) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *records) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func (r *records) logger() *slog.Logger { return slog.New(slog.NewTextHandler(r, nil)) }

// eventually waits until check reports true.
func eventually(t testing.TB, what string, check func() bool) {
	t.Helper()
	limit, tick := time.After(patience), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !check() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s did not happen within %v", what, patience)
		}
	}
}
