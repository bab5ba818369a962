package diskstore

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

func TestIDThatIsNamedTwiceCountsOnce(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	bury := func(ids ...string) {
		t.Helper()
		send(t, s, ids...)
		c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: len(ids), Lease: time.Minute})
		try(t, err)
		for _, m := range c.Messages {
			_, err := s.Settle(t.Context(), "q", []store.Settlement{{Receipt: m.Receipt, Action: store.Bury}})
			try(t, err)
		}
	}
	twice := store.Selection{IDs: []string{"a", "a"}, State: store.StateDead}
	bury("a", "b")
	b, err := s.Replay(t.Context(), "q", twice, store.Due{Delay: time.Hour})
	if err != nil || b.Done != 1 {
		t.Errorf("a replay of one id, named twice, gives %+v, %v, want 1 done", b, err)
	}
	live(t, s, "q")
	send(t, s, "c")
	live(t, s, "q") // counts it as ready
	refused, err := s.Reschedule(t.Context(), "q", []string{"c", "c"}, store.Due{Delay: 2 * time.Hour})
	if err != nil || errors.Join(refused...) != nil {
		t.Errorf("a reschedule of one id, named twice, gives %v, %v", refused, err)
	}
	got := live(t, s, "q")
	if got["a"] != store.StateScheduled || got["c"] != store.StateScheduled || got["b"] != store.StateDead {
		t.Errorf("afterwards there is %v", got)
	}
	twice.IDs = []string{"b", "b"}
	if b, err = s.Purge(t.Context(), "q", twice); err != nil || b.Done != 1 {
		t.Errorf("a purge of one id, named twice, gives %+v, %v, want 1 done", b, err)
	}
	live(t, s, "q")
	wantSound(t, s)
}

func TestIDThatIsRememberedAgainIsNotForgottenEarly(t *testing.T) {
	clock := newManualClock()
	s := openOn(t, vfs.NewMem(), clock)
	defer s.Close()
	send(t, s, "other")
	execute(t, s, func(tx *tx) {
		q := s.queue("q")
		tx.remember(q, "a", tx.now+time.Minute.Milliseconds())
		tx.remember(q, "a", tx.now+time.Hour.Milliseconds())
	})
	clock.Advance(2 * time.Minute)
	send(t, s, "more") // forgets
	r, err := s.Send(t.Context(), "q", []store.Outgoing{plain("a")})
	if err != nil || !r[0].Duplicate {
		t.Errorf("a send within the second window gives %v, %v, want a duplicate", r, err)
	}
}

// syncs counts the fsyncs of a file.
type syncs struct {
	vfs.File
	n int
}

func (f *syncs) SyncData() error {
	f.n++
	return nil
}

func (f *syncs) Close() error { return nil }

func TestLazyLogThatIsClosedIsNotSyncedAgain(t *testing.T) {
	file := &syncs{}
	log := &lazyLog{File: file}
	try(t, log.Sync())
	try(t, log.Close())
	try(t, log.Sync())
	try(t, log.syncNow()) // by a sync that began before the close
	if file.n != 1 {
		t.Errorf("the file was synced %d times, want once", file.n)
	}
}

func TestNothingIsAppliedAfterTheStoreStopped(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	failure := s.fail(errors.New("the disk is on fire"))
	s.guards.Wait() // the database is closed
	tx := &tx{reader: reader{s: s, src: s.db}}
	if err := tx.apply(pebble.Sync); !errors.Is(err, failure) {
		t.Errorf("apply gives %v, want %v", err, failure)
	}
	s.Close()
}

func TestLeaseThatNamesNoMemberIsDamaged(t *testing.T) {
	l := &lease{id: "l", deadline: 1}
	l.members = []*member{{lease: l, id: "m"}}
	stored := appendLease(nil, l)
	for _, position := range []byte{1, 9} {
		_, err := parseLease("l", append(stored[:len(stored):len(stored)], 0, position))
		if !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("a lease that member %d of one has left gives %v, want ErrCorrupt", position, err)
		}
	}
	if _, err := parseLease("l", append(stored[:len(stored):len(stored)], 0, 0)); err != nil {
		t.Error(err)
	}
}
