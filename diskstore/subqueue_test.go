package diskstore

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

const subA, subB = "q{g}a", "q{g}b"

// twoSubQueues creates two sub-queues, and sends messages to the first.
func twoSubQueues(t *testing.T, s *Store, ids ...string) {
	t.Helper()
	for _, name := range []string{subA, subB} {
		try(t, s.Create(t.Context(), name, store.Settings{}))
	}
	sendAll(t, s, subA, ids...)
}

func sendAll(t *testing.T, s *Store, queue string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		r, err := s.Send(t.Context(), queue, []store.Outgoing{plain(id)})
		if err != nil || r[0].Err != nil || r[0].Duplicate {
			t.Fatal(err, r)
		}
	}
}

func departs(t *testing.T, s *Store, ids ...string) *store.Parcel {
	t.Helper()
	d, err := s.Depart(t.Context(), subA, store.Departure{To: subB, IDs: ids})
	if err != nil || d.Parcel == nil || d.Before {
		t.Fatalf("departed is %+v, %v", d, err)
	}
	return d.Parcel
}

// move does what is left of a move of all messages of the first sub-queue, as a process does it that finds the store.
func move(t *testing.T, s *Store) {
	t.Helper()
	for {
		p, err := s.Outbox(t.Context(), subA)
		try(t, err)
		if p == nil {
			all, err := s.Scan(t.Context(), subA, "")
			try(t, err)
			if len(all.IDs) == 0 {
				return
			}
			p = departs(t, s, all.IDs[:min(2, len(all.IDs))]...)
		}
		try(t, s.Arrive(t.Context(), p))
		try(t, s.Empty(t.Context(), subA, p.Number))
	}
}

func wantLive(t *testing.T, s *Store, queue string, want ...string) {
	t.Helper()
	got := slices.Sorted(maps.Keys(live(t, s, queue)))
	if !slices.Equal(got, want) {
		t.Errorf("queue %s has %v, want %v", queue, got, want)
	}
}

func wantMoved(t *testing.T, err error, sign string) {
	t.Helper()
	if moved, ok := errors.AsType[*store.Moved](err); !ok || moved.Sign != sign {
		t.Errorf("the call returns %v, want that the queue has moved, with sign %q", err, sign)
	}
}

// TestCallsOfSubQueuesAreConfirmed cuts the power after each call, with a sync an hour away. What the call has written
// is there, and so is what it has read.

func TestCallsOfSubQueuesAreConfirmed(t *testing.T) {
	fs, clock := vfs.NewCrashableMem(), newManualClock()
	s := openOn(t, fs, clock, SyncEvery(time.Hour))
	defer s.Close()
	left := func(look func(s *Store)) {
		t.Helper()
		after := openOn(t, synced(fs), clock)
		defer after.Close()
		look(after)
		wantSound(t, after)
	}
	twoSubQueues(t, s)
	left(func(s *Store) { wantLive(t, s, subB) })
	sendAll(t, s, subA, "w")
	left(func(s *Store) { wantLive(t, s, subA) }) // it is not synced
	_, err := s.Scan(t.Context(), subA, "")
	try(t, err)
	left(func(s *Store) { wantLive(t, s, subA, "w") })
	sendAll(t, s, subA, "x")
	_, err = s.SendKnown(t.Context(), subA, []store.Outgoing{plain("x")})
	try(t, err)
	left(func(s *Store) { wantLive(t, s, subA, "w", "x") })
	sendAll(t, s, subA, "y")
	p, err := s.Outbox(t.Context(), subA)
	if try(t, err); p != nil {
		t.Errorf("the outbox has %v", p)
	}
	left(func(s *Store) { wantLive(t, s, subA, "w", "x", "y") })
	sendAll(t, s, subA, "z")
	_, err = s.Sign(t.Context(), "any")
	try(t, err)
	left(func(s *Store) { wantLive(t, s, subA, "w", "x", "y", "z") })

	p = departs(t, s, "w", "x")
	left(func(s *Store) {
		wantLive(t, s, subA, "y", "z")
		kept, err := s.Outbox(t.Context(), subA)
		try(t, err)
		if fmt.Sprint(kept) != fmt.Sprint(p) {
			t.Errorf("the outbox has %v, want %v", kept, p)
		}
	})
	try(t, s.Arrive(t.Context(), p))
	left(func(s *Store) {
		wantLive(t, s, subB, "w", "x")
		try(t, s.Arrive(t.Context(), p))
		wantLive(t, s, subB, "w", "x")
	})
	try(t, s.Empty(t.Context(), subA, 1))
	left(func(s *Store) {
		if p := departs(t, s, "y"); p.Number != 2 {
			t.Errorf("the number of the next parcel is %d", p.Number)
		}
	})
	try(t, s.Rename(t.Context(), subB, "q", "moved", ""))
	left(func(s *Store) {
		wantLive(t, s, "q", "w", "x")
		_, err := s.Stats(t.Context(), subB)
		wantMoved(t, err, "moved")
	})
	try(t, s.SetSign(t.Context(), subB, "again", "moved"))
	left(func(s *Store) {
		_, err := s.Stats(t.Context(), subB)
		wantMoved(t, err, "again")
	})
	try(t, s.Retire(t.Context(), subA, "over"))
	left(func(s *Store) {
		_, err := s.Stats(t.Context(), subA)
		wantMoved(t, err, "over")
	})
}

// TestCrashAtAnyPointOfAMove cuts the power at any write of a move and a rename. The next process goes on, and every
// message is in one place.

func TestCrashAtAnyPointOfAMove(t *testing.T) {
	ids := []string{"u", "v", "w", "x", "y", "z"}
	for _, every := range []time.Duration{0, time.Hour} {
		clock := newManualClock()
		c := newCrashPoints(vfs.NewCrashableMem())
		s := openOn(t, c, clock, SyncEvery(every))
		twoSubQueues(t, s, ids...)
		try(t, s.Sync(t.Context()))
		c.take(func() {
			move(t, s)
			try(t, s.Rename(t.Context(), subB, "q", "moved", ""))
		})
		s.Close()
		if len(c.left) < 20 {
			t.Errorf("%d points of a crash, want more", len(c.left))
		}
		for i, fs := range c.left {
			s := openOn(t, fs, clock, SyncEvery(every))
			wantSound(t, s)
			if sign, err := s.Sign(t.Context(), subB); err != nil || sign == "" {
				move(t, s)
				try(t, s.Rename(t.Context(), subB, "q", "moved", ""))
			}
			if got := slices.Sorted(maps.Keys(live(t, s, "q"))); !slices.Equal(got, ids) {
				t.Errorf("sync every %v, crash before %s: %v", every, c.ops[i], got)
			}
			wantSound(t, s)
			s.Close()
		}
	}
}

func TestBackupsAndRecoveredStoresHaveSignsAndParcels(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	twoSubQueues(t, s, "w", "x", "y", "z")
	p := departs(t, s, "w", "x")
	try(t, s.Arrive(t.Context(), p))
	try(t, s.Retire(t.Context(), "q", "sign"))
	wantSound(t, s)
	try(t, s.Backup(t.Context(), "backup"))
	s.Close()
	backup, err := Open("backup", withFS(fs), WithClock(clock))
	try(t, err)
	for _, s := range []*Store{backup, recoveredStore(t, fs, clock)} {
		wantSound(t, s)
		sign, err := s.Sign(t.Context(), "q")
		if err != nil || sign != "sign" {
			t.Errorf("the sign is %q, %v", sign, err)
		}
		move(t, s)
		wantLive(t, s, subA)
		wantLive(t, s, subB, "w", "x", "y", "z")
		s.Close()
	}
}

// TestRecoverOfADamagedOutbox: messages of it that can be read are back in their queue, and the next parcel has a
// number that none has that has arrived.

// TestWhatIsThereStaysWhenAParcelArrives: neither a message with the same id nor a longer window is replaced.

// TestDamagedMessagesMove: a message that nobody can read moves as it is, and one whose place cannot be read stays.

// TestParcelsOfFairQueuesAreSound moves messages of keys with an order, whose lanes are in memory.

// TestRequestsDoNotRememberMoves: a call on messages may have to move some first, as the same request.

func TestDeletedSubQueueLetsItsWaitersGo(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	twoSubQueues(t, s)
	waits := make(chan error)
	for range 3 {
		go func() { waits <- s.Wait(t.Context(), subA) }()
	}
	for s.asleep(subA) < 3 {
		time.Sleep(time.Millisecond)
	}
	try(t, s.Delete(t.Context(), subA))
	for range 3 {
		wantMoved(t, <-waits, "")
	}
	if len(s.notifiers) > 0 || s.waiters.Load() != 0 {
		t.Error("waiters are kept")
	}
}

func TestListingOfManySigns(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	var want []string
	execute(t, s, func(t *tx) {
		for i := range store.MaxBatch {
			plain, signed := fmt.Sprintf("q%04d", 2*i), fmt.Sprintf("q%04d", 2*i+1)
			t.create(plain)
			t.create(store.SubQueue(signed, "g", ""))
			t.setSign(signed, "sign")
			want = append(want, plain, signed)
		}
	})
	var got []string
	for cursor := ""; ; {
		page, next, err := s.Queues(t.Context(), cursor)
		try(t, err)
		if got, cursor = append(got, page...), next; cursor == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d names are listed, want %d", len(got), len(want))
	}
}

// TestMovesOnAFullDisk: nothing departs where sends are refused, and what is on its way arrives.

// TestFormerNameOfARenamedQueueThatIsThereAgain has lost the removal of the name to damage.

func TestFormerNameOfARenamedQueueThatIsThereAgain(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	sendAll(t, s, "q", "x")
	try(t, s.Rename(t.Context(), "q", subA, "sign", ""))
	r := raw{t, s, s.queues[subA].number}
	r.set(appendIDKey(nil, 0, kindName, "q"), numberKey(r.number))
	for range 2 {
		wantIssues(t, issuesOf(checked(t, s)), "names")
		_, err := s.Stats(t.Context(), "q")
		wantMoved(t, err, "sign")
		wantLive(t, s, subA, "x")
		s.Close()
		s = openOn(t, fs, clock)
	}
	s.Close()
	s = recoveredStore(t, fs, clock)
	defer s.Close()
	wantSound(t, s)
	_, err := s.Stats(t.Context(), "q")
	wantMoved(t, err, "sign")
	wantLive(t, s, subA, "x")
}

// TestRenamedQueueForgetsWhatHasArrived: it would keep the numbers for ever. A parcel to the former name is refused.
