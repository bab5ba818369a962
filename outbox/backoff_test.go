package outbox

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// TestBackoffBeginsAnewAfterASuccess counts the tries of a queue that fails, works and fails again. The pauses between
// them grow, and are short again after the success.
func TestBackoffBeginsAnewAfterASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box, db := kinds[2].newBox(t)
		mem := memstore.New()
		t.Cleanup(func() { mem.Close() })
		s := &faulty{Store: mem}
		began := time.Now()
		var tries []time.Duration
		fails := 5
		s.fail(func(string) error {
			tries = append(tries, time.Since(began))
			if fails--; fails != 0 { // the fifth one works
				return store.ErrUnavailable
			}
			return nil
		})
		commit(t, box, db, "q", later.Outgoing{}, later.Outgoing{})
		stop := run(t, box.Relay(db, newClient(t, s), RelayConfig{Batch: 1, Logger: quiet}))
		const ms = time.Millisecond
		time.Sleep(1850 * ms)
		stop()
		want := []time.Duration{0, 100 * ms, 300 * ms, 700 * ms, 1500 * ms, 1500 * ms, 1600 * ms, 1800 * ms}
		if !slices.Equal(tries, want) {
			t.Errorf("tried after %v, want %v", tries, want)
		}
	})
}

// TestBackoffOfTheDatabaseBeginsAnewAfterASuccess is the same for a table that is missing for a while.
func TestBackoffOfTheDatabaseBeginsAnewAfterASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box, db := kinds[2].newBox(t)
		rename := func(from, to string) {
			t.Helper()
			if _, err := db.ExecContext(t.Context(), "ALTER TABLE "+from+" RENAME TO "+to); err != nil {
				t.Fatal(err)
			}
		}
		r := box.Relay(db, memory(t), RelayConfig{Poll: time.Second, Logger: quiet})
		rename(box.table, "elsewhere")
		stop := run(t, r)
		defer stop()
		for i, pauses := range []time.Duration{0, 100, 200, 400, 800, 1600} {
			time.Sleep(pauses * time.Millisecond)
			synctest.Wait()
			if got := r.Stats().Failures; got != int64(i+1) {
				t.Errorf("failed %d times after try %d", got, i)
			}
		}
		failures := r.Stats().Failures
		r.Wake() // does not end the wait after a failure
		synctest.Wait()
		if got := r.Stats().Failures; got != failures {
			t.Errorf("a wake caused %d tries", got-failures)
		}
		rename("elsewhere", box.table)
		time.Sleep(maxBackoff) // it works again, and looks every second
		rename(box.table, "elsewhere")
		before := r.Stats().Failures
		for r.Stats().Failures == before {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(150 * time.Millisecond)
		synctest.Wait()
		if got := r.Stats().Failures - before; got != 2 {
			t.Errorf("failed %d times in 150 ms after a success, want 2", got)
		}
	})
}

// TestManyFailingQueuesAreTriedOnlyOnce shows that a relay takes a hundred queues that fail for an outage of the store,
// and leaves the others alone until it is time to try again.
func TestManyFailingQueuesAreTriedOnlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box, db := kinds[2].newBox(t)
		mem := memstore.New()
		t.Cleanup(func() { mem.Close() })
		s := &faulty{Store: mem}
		calls := 0
		s.fail(func(string) error {
			calls++
			return store.ErrUnavailable
		})
		for i := range 2 * maxHeld {
			commit(t, box, db, fmt.Sprint("q", i), later.Outgoing{})
		}
		stop := run(t, box.Relay(db, newClient(t, s), RelayConfig{Batch: maxHeld / 2, Logger: quiet}))
		time.Sleep(firstBackoff / 2)
		stop()
		if calls != maxHeld {
			t.Errorf("tried %d queues, want %d", calls, maxHeld)
		}
	})
}

// TestRelayDoesNotSpinForRowsThatAnotherOneMoved would not end if the relay looked without a pause, because the clock
// of a bubble would stand still.
func TestRelayDoesNotSpinForRowsThatAnotherOneMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box, db := kinds[2].newBox(t)
		mem := memstore.New()
		t.Cleanup(func() { mem.Close() })
		s := &faulty{Store: mem}
		s.fail(func(string) error { return store.ErrUnavailable })
		commit(t, box, db, "q", later.Outgoing{})
		stop := run(t, box.Relay(db, newClient(t, s), RelayConfig{Poll: time.Second, Logger: quiet}))
		time.Sleep(firstBackoff / 2)
		if _, err := db.ExecContext(t.Context(), "DELETE FROM "+box.table); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		stop()
	})
}

func TestRowsThatWereSentBeforeARefusedOneAreNotSentAgain(t *testing.T) {
	box, db := kinds[2].newBox(t)
	mem := memstore.New()
	t.Cleanup(func() { mem.Close() })
	msgs := make([]later.Outgoing, 5)
	for i := range msgs {
		msgs[i].Payload = make([]byte, store.MaxBatchBytes*9/40) // four are sent in one call
	}
	msgs[4].ID = "refused"
	commit(t, box, db, "q", msgs...)
	r := box.Relay(db, newClient(t, &refusing{Store: mem}), RelayConfig{Logger: quiet})
	flush(t, r)
	if s := r.Stats(); s != (RelayStats{Sent: 4, SetAside: 1}) {
		t.Errorf("stats are %+v", s)
	}
}

func TestRoundAfterLargeRowsReadsAboutWhatItCanMove(t *testing.T) {
	box, db := kinds[2].newBox(t)
	msgs := make([]later.Outgoing, 10)
	for i := range msgs {
		msgs[i].Payload = bytes.Repeat([]byte("0"), store.MaxPayload)
	}
	commit(t, box, db, "q", msgs...)
	m := box.Relay(db, memory(t), RelayConfig{Logger: quiet}).newMover()
	for _, want := range []int{5, 5, 10} { // 4 and 4 large rows, then the rest
		if _, err := m.round(bounded(t)); err != nil || m.limit != want {
			t.Errorf("the next round reads %d rows, want %d: %v", m.limit, want, err)
		}
	}
}

func TestRowWithoutAnIDIsSetAside(t *testing.T) {
	box, db := kinds[2].newBox(t)
	commit(t, box, db, "q", later.Outgoing{})
	if _, err := db.ExecContext(t.Context(), "UPDATE "+box.table+" SET message = '{\"id\":\"\"}'"); err != nil {
		t.Fatal(err)
	}
	r := box.Relay(db, memory(t), RelayConfig{Logger: quiet})
	flush(t, r)
	var text string
	if err := db.QueryRowContext(t.Context(), "SELECT error FROM "+box.table).Scan(&text); err != nil ||
		!strings.Contains(text, `field "id" is empty: give a value`) {
		t.Errorf("%q, %v", text, err)
	}
}

func TestInsertTakesNoMoreThanItsLimits(t *testing.T) {
	large := row{message: make([]byte, store.MaxPayload)}
	for want, rows := range map[int][]row{
		1:             {{}},
		4:             {large, large, large, large, {queue: "q"}},
		maxInsertRows: make([]row, maxInsertRows+1),
	} {
		if got := insertEnd(rows); got != want {
			t.Errorf("takes %d of %d rows, want %d", got, len(rows), want)
		}
	}
}
