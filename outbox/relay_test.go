package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// faulty is a store that fails sends with the error that sendError returns.
type faulty struct {
	store.Store
	sendError atomic.Pointer[func(queue string) error]
}

func (f *faulty) fail(sendError func(queue string) error) { f.sendError.Store(&sendError) }

func (f *faulty) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	if failed := f.sendError.Load(); failed != nil {
		if err := (*failed)(queue); err != nil {
			return nil, err
		}
	}
	return f.Store.Send(ctx, queue, msgs)
}

// recorder is a store that records the ids of its sends, in order.
type recorder struct {
	store.Store
	ids []string
}

func (r *recorder) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	for _, m := range msgs {
		r.ids = append(r.ids, m.ID)
	}
	return r.Store.Send(ctx, queue, msgs)
}

func TestOpenTransactionDelaysOnlyItsOwnRows(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		if k.dialect == SQLite {
			t.Skip("SQLite has one writer at a time, so no row is committed before one with a lower seq")
		}
		box, db := k.newBox(t)
		client := memory(t)
		q, r := client.Queue("q"), box.Relay(db, client, RelayConfig{})
		tx, err := db.BeginTx(bounded(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if _, err := box.Send(bounded(t), tx, "q", later.Outgoing{Payload: []byte("slow")}); err != nil {
			t.Fatal(err)
		}
		commit(t, box, db, "q", later.Outgoing{Payload: []byte("fast")})
		flush(t, r)
		if got := receive(t, q, 1); got[0] != "fast" {
			t.Errorf("received %q", got)
		}
		wantNone(t, q)
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		flush(t, r)
		if got := receive(t, q, 1); got[0] != "slow" {
			t.Errorf("received %q; the row with the lower seq was lost", got)
		}
	})
}

func TestRelayDoesNotBlockWriters(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		box, db := k.newBox(t)
		client := memory(t)
		commit(t, box, db, "q", numbered(3)...)
		r, written := box.Relay(db, client, RelayConfig{}), 0
		r.hook = func(point string) {
			if point == atClaimed || point == atSent {
				commit(t, box, db, "other", later.Outgoing{}) // fails if it has to wait for this function
				written++
			}
		}
		if _, err := r.newMover().round(bounded(t)); err != nil {
			t.Fatal(err)
		}
		if written != 2 {
			t.Errorf("wrote %d rows during a round; want 2", written)
		}
		wantRows(t, box, db, 2)
	})
}

func TestRefusedRowsAreSetAside(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		box, db := k.newBox(t)
		client := memory(t)
		logged := &records{}
		for i, bad := range []row{
			{queue: "q", message: []byte("{")},
			{queue: "q", message: []byte(`{"id":"unknown","payload_text":"bad","new_in_version_9":1}`)},
			{queue: "{q}", message: []byte(`{"id":"bad queue"}`)},
			{queue: "q", message: []byte(`{"id":"bad due","due":"1066-10-14T09:00:00Z"}`)},
			{queue: "q", message: []byte(`{"id":"bad timeout","timeout":"9000000h"}`)},
			{queue: "q", message: []byte(`{"id":"","payload_text":"bad"}`)},
		} {
			if err := box.insert(bounded(t), db, []row{bad}); err != nil {
				t.Fatal(err)
			}
			commit(t, box, db, "q", later.Outgoing{Payload: fmt.Appendf(nil, "good %d", i)})
		}
		r := box.Relay(db, client, RelayConfig{Logger: logged.logger()})
		flush(t, r)
		flush(t, r) // does not read them again
		if s := r.Stats(); s != (RelayStats{Sent: 6, SetAside: 6}) {
			t.Errorf("stats are %+v", s)
		}
		if got := receive(t, client.Queue("q"), 6); strings.Contains(strings.Join(got, " "), "bad") {
			t.Errorf("received %q", got)
		}
		wantNone(t, client.Queue("q"))
		wantRows(t, box, db, 6)
		if n := strings.Count(logged.String(), "level=ERROR"); n != 6 {
			t.Errorf("logged %d errors; want 6:\n%s", n, logged)
		}
		var reason string
		err := db.QueryRowContext(bounded(t), "SELECT error FROM "+box.name()+
			" WHERE message LIKE '%new_in_version_9%' AND failed_at IS NOT NULL").Scan(&reason)
		if err != nil || !strings.Contains(reason, "new_in_version_9") || !strings.Contains(reason, "update the relay") {
			t.Errorf("reason is %q, %v", reason, err)
		}

		// As docs/outbox.md says.
		repair := "UPDATE " + box.name() + " SET failed_at = NULL, error = NULL, " +
			`message = REPLACE(message, ',"new_in_version_9":1', '') WHERE message LIKE '%new_in_version_9%'`
		if _, err := db.ExecContext(bounded(t), repair); err != nil {
			t.Fatal(err)
		}
		flush(t, r)
		if got := receive(t, client.Queue("q"), 1); got[0] != "bad" {
			t.Errorf("received %q after the repair", got)
		}
	})
}

func TestRowThatTheStoreRefusesDoesNotStopTheOthers(t *testing.T) {
	box, db := kinds[2].newBox(t)
	mem := memstore.New()
	t.Cleanup(func() { mem.Close() })
	refusing := &refusing{Store: mem}
	client := newClient(t, refusing)
	commit(t, box, db, "q", later.Outgoing{ID: "a"}, later.Outgoing{ID: "refused"}, later.Outgoing{ID: "c"})
	r := box.Relay(db, client, RelayConfig{Logger: quiet})
	flush(t, r)
	if s := r.Stats(); s != (RelayStats{Sent: 2, SetAside: 1}) {
		t.Errorf("stats are %+v", s)
	}
	wantRows(t, box, db, 1)
}

// refusing is a store with a limit that its clients do not know.
type refusing struct{ store.Store }

func (r *refusing) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	for _, m := range msgs {
		if m.ID == "refused" {
			return nil, store.TooLarge("message is too large for this store")
		}
	}
	return r.Store.Send(ctx, queue, msgs)
}

func TestDuplicatesCountAsSent(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		box, db := k.newBox(t)
		client := memory(t)
		r := box.Relay(db, client, RelayConfig{})
		commit(t, box, db, "q", later.Outgoing{ID: "a", Payload: []byte("1")}, later.Outgoing{ID: "a", Payload: []byte("2")})
		flush(t, r)
		if got := receive(t, client.Queue("q"), 1); got[0] != "1" {
			t.Errorf("received %q", got)
		}
		commit(t, box, db, "q", later.Outgoing{ID: "a", Payload: []byte("3")}) // remembered after the ack
		flush(t, r)
		wantNone(t, client.Queue("q"))
		wantRows(t, box, db, 0)
		if s := r.Stats(); s != (RelayStats{Sent: 1, Duplicates: 2}) {
			t.Errorf("stats are %+v", s)
		}
	})
}

func TestWakeEndsTheWaitOfARelay(t *testing.T) {
	box, db := kinds[2].newBox(t)
	client := memory(t)
	looked := make(chan struct{}, 100)
	r := box.Relay(db, client, RelayConfig{Poll: 24 * time.Hour})
	r.hook = func(point string) {
		if point == atCommitted {
			looked <- struct{}{}
		}
	}
	commit(t, box, db, "q", later.Outgoing{Payload: []byte("0")})
	run(t, r)
	<-looked
	for i := range 3 {
		commit(t, box, db, "q", later.Outgoing{Payload: fmt.Append(nil, i+1)})
		r.Wake()
		r.Wake()
		select {
		case <-looked:
		case <-time.After(patience):
			t.Fatal("the relay does not wake")
		}
	}
	receive(t, client.Queue("q"), 4)
}

func TestQueueThatFailsDoesNotHoldUpOthers(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		box, db := k.newBox(t)
		mem := memstore.New()
		t.Cleanup(func() { mem.Close() })
		s := &faulty{Store: mem}
		client := newClient(t, s)
		var refused atomic.Int64
		s.fail(func(queue string) error {
			if queue == "failing" {
				refused.Add(1)
				return store.ErrUnavailable
			}
			return nil
		})
		commit(t, box, db, "failing", numbered(700)...) // more than a round
		commit(t, box, db, "working", numbered(3)...)
		logged := &records{}
		r := box.Relay(db, client, RelayConfig{Poll: time.Millisecond, Logger: logged.logger()})
		stop := run(t, r)
		receive(t, client.Queue("working"), 3)
		eventually(t, "removal of what was sent", func() bool { return rowCount(t, box, db) == 700 })
		eventually(t, "a second try", func() bool { return refused.Load() >= 2 })
		s.fail(func(string) error { return nil })
		receive(t, client.Queue("failing"), 700)
		eventually(t, "removal of the last row", func() bool { return r.Stats().Sent == 703 })
		eventually(t, "the end of the outage", func() bool { return strings.Contains(logged.String(), "moved again") })
		stop()
		if n := strings.Count(logged.String(), "level=WARN"); n != 1 {
			t.Errorf("logged %d warnings of one outage:\n%s", n, logged)
		}
		if s := r.Stats(); s.Failures < 2 || s.SetAside != 0 || s.Duplicates != 0 {
			t.Errorf("stats are %+v", s)
		}
	})
}

func TestManyFailingQueuesAreAnOutage(t *testing.T) {
	box, db := kinds[2].newBox(t)
	mem := memstore.New()
	t.Cleanup(func() { mem.Close() })
	s := &faulty{Store: mem}
	var calls atomic.Int64
	s.fail(func(string) error {
		calls.Add(1)
		return store.ErrUnavailable
	})
	client := newClient(t, s)
	const queues = 3 * maxHeld
	for i := range queues {
		commit(t, box, db, fmt.Sprint("q", i), later.Outgoing{})
	}
	logged := &records{}
	r := box.Relay(db, client, RelayConfig{Batch: 50, Logger: logged.logger()})
	run(t, r)
	eventually(t, "the outage", func() bool { return calls.Load() > queues })
	s.fail(func(string) error { return nil })
	eventually(t, "the end of the outage", func() bool { return r.Stats().Sent == queues })
	if n := strings.Count(logged.String(), "level=WARN"); n != 1 {
		t.Errorf("logged %d warnings of one outage:\n%s", n, logged)
	}
}

func TestRunEndsWhenTheClientIsClosed(t *testing.T) {
	box, db := kinds[2].newBox(t)
	client := memory(t)
	commit(t, box, db, "q", later.Outgoing{})
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if err := box.Relay(db, client, RelayConfig{Logger: quiet}).Run(bounded(t)); !errors.Is(err, later.ErrClosed) {
		t.Errorf("Run: %v", err)
	}
	wantRows(t, box, db, 1)
}

func TestFlushReturnsTheErrorOfTheStore(t *testing.T) {
	box, db := kinds[2].newBox(t)
	mem := memstore.New()
	t.Cleanup(func() { mem.Close() })
	s := &faulty{Store: mem}
	s.fail(func(string) error { return store.ErrFull })
	commit(t, box, db, "q", later.Outgoing{})
	err := box.Relay(db, newClient(t, s), RelayConfig{}).Flush(bounded(t))
	wantError(t, "Flush", err, later.ErrFull, `queue "q"`)
	wantRows(t, box, db, 1)
}

func TestRelaySurvivesACrashOfTheDatabase(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		if k.server == nil {
			t.Skip("SQLite has no server")
		}
		box, db := k.newBox(t)
		client := memory(t)
		q := client.Queue("q")
		logged := &records{}
		r := box.Relay(db, client, RelayConfig{Poll: time.Millisecond, Logger: logged.logger()})
		stop := run(t, r)
		commit(t, box, db, "q", numbered(100)...)
		receive(t, q, 100)
		k.server.restart(t, func() {
			eventually(t, "a failure", func() bool { return r.Stats().Failures > 0 })
		})
		eventually(t, "a commit", func() bool {
			_, err := box.Send(t.Context(), db, "q", later.Outgoing{Payload: []byte("after")})
			return err == nil
		})
		if got := receive(t, q, 1); got[0] != "after" {
			t.Errorf("received %q", got)
		}
		eventually(t, "the end of the outage", func() bool { return strings.Contains(logged.String(), "moved again") })
		eventually(t, "removal of the last row", func() bool { return rowCount(t, box, db) == 0 })
		stop()
		wantNone(t, q)
		if n := strings.Count(logged.String(), "level=WARN"); n != 1 {
			t.Errorf("logged %d warnings of one outage:\n%s", n, logged)
		}
	})
}

func TestRowsWaitWhileRedisIsAway(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		box, db := k.newBox(t)
		server := redistest.Start(t)
		client := open(t, server.URL()+"?retry=100ms")
		q := client.Queue("q")
		r := box.Relay(db, client, RelayConfig{Poll: time.Millisecond, Logger: quiet})
		stop := run(t, r)
		commit(t, box, db, "q", later.Outgoing{Payload: []byte("before")})
		receive(t, q, 1)
		server.Stop()
		commit(t, box, db, "q", numbered(50)...)
		eventually(t, "a failure", func() bool { return r.Stats().Failures > 0 })
		wantRows(t, box, db, 50)
		server.Restart(t)
		receive(t, q, 50)
		eventually(t, "an empty outbox", func() bool { return r.Stats().Sent+r.Stats().Duplicates == 51 })
		stop()
		wantNone(t, q)
		wantRows(t, box, db, 0)
	})
}
