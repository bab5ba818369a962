package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// received counts the messages of a queue by payload, each acked when it is received.
type received struct {
	mu     sync.Mutex
	counts map[string]int
}

// consume receives and acks the messages of a queue until the test ends.
func consume(t *testing.T, q *later.Queue) *received {
	t.Helper()
	r := &received{counts: map[string]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			got, err := q.Receive(ctx, 100)
			if err != nil {
				continue
			}
			r.mu.Lock()
			for _, d := range got {
				r.counts[string(d.Payload)]++
			}
			r.mu.Unlock()
			for _, d := range got {
				if err := d.Ack(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return r
}

func (r *received) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.counts)
}

// verify checks that each of the payloads was received once, and nothing else.
func (r *received) verify(t *testing.T, q *later.Queue, payloads []string) {
	t.Helper()
	eventually(t, "the last message", func() bool {
		s, err := q.Stats(t.Context())
		return err == nil && r.len() >= len(payloads) && s.Scheduled+s.Ready+s.Leased+s.Dead == 0
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range payloads {
		if n := r.counts[p]; n != 1 {
			t.Errorf("committed message %q was received %d times", p, n)
		}
		delete(r.counts, p)
	}
	for p, n := range r.counts {
		t.Errorf("message %q was not committed and was received %d times", p, n)
	}
}

// write writes n rows in transactions of up to five rows, and rolls back every third transaction. It returns the
// committed payloads.
func write(t *testing.T, box *Outbox, db *sql.DB, name string, n int) (committed []string) {
	t.Helper()
	rolledBack := errors.New("rolled back")
	for i := 0; n > 0; i++ {
		var payloads []string
		err := transact(bounded(t), db, func(tx *sql.Tx) error {
			for range min(n, 1+i%5) {
				p := fmt.Sprintf("%s %d", name, n)
				n--
				payloads = append(payloads, p)
				if _, err := box.Send(t.Context(), tx, "q", later.Outgoing{Payload: []byte(p)}); err != nil {
					return err
				}
			}
			if i%3 == 2 {
				return rolledBack
			}
			return nil
		})
		switch {
		case err == nil:
			committed = append(committed, payloads...)
		case !errors.Is(err, rolledBack):
			t.Fatal(err)
		}
	}
	return committed
}

// TestKilledRelaySendsEachRowOnce kills relays with SIGKILL at each point of a round. The messages of a relay that is
// killed after its send are received and acked before the next relay sends them again.
func TestKilledRelaySendsEachRowOnce(t *testing.T) {
	server := redistest.Start(t)
	eachKind(t, func(t *testing.T, k *kind) {
		for _, point := range []string{atClaimed, atSent, atRemoved, atCommitted} {
			t.Run(point, func(t *testing.T) {
				dsn := k.newDSN(t)
				db, box := k.open(t, dsn), New(k.dialect)
				if err := box.Migrate(bounded(t), db); err != nil {
					t.Fatal(err)
				}
				server := redisDatabase(t, server)
				client := open(t, server)
				q := client.Queue("q")
				got := consume(t, q)
				committed := write(t, box, db, "row", 150)
				c := child{Driver: k.driver, DSN: dsn, Dialect: k.dialect, Redis: server, Batch: 10, StopAt: point}
				for skip := range 3 {
					c.Skip = skip
					p := c.start(t)
					p.await("stopped", 1)
					if point == atSent && skip == 0 {
						eventually(t, "the ack of what was sent", func() bool { return got.len() == 10 })
					}
					p.kill()
					if rows := rowCount(t, box, db); rows == 0 {
						t.Fatal("no row is left to be moved by the next relay")
					}
				}
				r := box.Relay(db, client, RelayConfig{Poll: time.Millisecond, Logger: quiet})
				run(t, r) // the database may still be ending the transaction of the killed relay
				eventually(t, "an empty outbox", func() bool { return rowCount(t, box, db) == 0 })
				got.verify(t, q, committed)
				if point == atSent { // else nothing was tested; rows are counted after they are gone
					eventually(t, "a row that was sent twice", func() bool { return r.Stats().Duplicates > 0 })
				}
			})
		}
	})
}

// TestRelaysKilledAtRandomSendEachRowOnce kills one of three relays again and again at a random moment, while rows are
// written and another is rolled back.
func TestRelaysKilledAtRandomSendEachRowOnce(t *testing.T) {
	server := redistest.Start(t)
	eachKind(t, func(t *testing.T, k *kind) {
		dsn := k.newDSN(t)
		db, box := k.open(t, dsn), New(k.dialect)
		if err := box.Migrate(bounded(t), db); err != nil {
			t.Fatal(err)
		}
		url := redisDatabase(t, server)
		client := open(t, url)
		q := client.Queue("q")
		got := consume(t, q)
		c := child{Driver: k.driver, DSN: dsn, Dialect: k.dialect, Redis: url, Batch: 5}
		relays := []*process{c.start(t), c.start(t), c.start(t)}
		var committed []string
		const rounds = 12
		for i := range rounds {
			committed = append(committed, write(t, box, db, fmt.Sprint("round ", i), 60)...)
			victim := &relays[i%len(relays)]
			select { // a relay may find no rows, because the others were faster
			case <-(*victim).lines:
				for range rand.IntN(5) {
					select {
					case <-(*victim).lines:
					default:
					}
				}
			default:
			}
			(*victim).kill()
			*victim = c.start(t)
		}
		eventually(t, "an empty outbox", func() bool { return rowCount(t, box, db) == 0 })
		got.verify(t, q, committed)
	})
}

// TestRacingRelaysSendEachRowOnce has eight relays in this process and three in others move the same rows.
func TestRacingRelaysSendEachRowOnce(t *testing.T) {
	server := redistest.Start(t)
	eachKind(t, func(t *testing.T, k *kind) {
		dsn := k.newDSN(t)
		db, box := k.open(t, dsn), New(k.dialect)
		if err := box.Migrate(bounded(t), db); err != nil {
			t.Fatal(err)
		}
		url := redisDatabase(t, server)
		client := open(t, url)
		q := client.Queue("q")
		got := consume(t, q)
		committed := write(t, box, db, "before", 600)
		c := child{Driver: k.driver, DSN: dsn, Dialect: k.dialect, Redis: url, Batch: 7}
		for range 3 {
			c.start(t)
		}
		var relays []*Relay
		for range 8 {
			r := box.Relay(db, client, RelayConfig{Poll: time.Millisecond, Batch: 7, Logger: quiet})
			relays = append(relays, r)
			run(t, r)
		}
		committed = append(committed, write(t, box, db, "meanwhile", 600)...)
		eventually(t, "an empty outbox", func() bool { return rowCount(t, box, db) == 0 })
		got.verify(t, q, committed)
		for i, r := range relays {
			if s := r.Stats(); s.Failures != 0 {
				t.Errorf("relay %d has stats %+v; relays that race must not fail, for example by a deadlock", i, s)
			}
		}
	})
}

func rowCount(t *testing.T, box *Outbox, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRowContext(bounded(t), "SELECT COUNT(*) FROM "+box.name()).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// redisDatabase returns the URL of the server, and empties the server's database when the test ends.
func redisDatabase(t *testing.T, s *redistest.Server) string {
	t.Helper()
	rdb := s.Client(t)
	t.Cleanup(func() { rdb.FlushDB(context.Background()) })
	return s.URL()
}
