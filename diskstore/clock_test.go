package diskstore

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// A lease that was taken while the clock was wrong lasts as long as was asked, however the clock is corrected.
func TestLeaseSurvivesACorrectionOfTheClock(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for name, correct := range map[string]func(s *Store, fs vfs.FS, clock *manualClock) *Store{
		"while the store is open": func(s *Store, _ vfs.FS, clock *manualClock) *Store {
			clock.Advance(-year)
			return s
		},
		"while it is closed": func(s *Store, fs vfs.FS, clock *manualClock) *Store {
			s.Close()
			clock.Advance(-year)
			return openOn(t, fs, clock)
		},
		"and the store is opened twice since": func(s *Store, fs vfs.FS, clock *manualClock) *Store {
			s.Close()
			clock.Advance(-year)
			s = openOn(t, fs, clock)
			send(t, s, "other") // stores the queue's clock
			s.Close()
			return openOn(t, fs, clock)
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs, clock := vfs.NewMem(), newManualClock()
			s := openOn(t, fs, clock)
			clock.Advance(year)
			send(t, s, "m")
			claimed(t, s, 1, 30*time.Second)
			clock.Advance(10 * time.Second)
			send(t, s, "tick") // the engine reads the clock
			s = correct(s, fs, clock)
			defer func() { s.Close() }()
			send(t, s, "tock") // likewise
			clock.Advance(19 * time.Second)
			if got := leasedAgain(t, s, "m"); got {
				t.Error("the lease ended early")
			}
			clock.Advance(time.Second)
			if got := leasedAgain(t, s, "m"); !got {
				t.Error("the lease did not end")
			}
		})
	}
}

// leasedAgain claims everything and reports whether a message is among it.
func leasedAgain(t *testing.T, s *Store, id string) bool {
	t.Helper()
	for _, m := range claimed(t, s, store.MaxBatch, time.Hour) {
		if m.ID == id {
			return true
		}
	}
	return false
}

// A deadline that no lease can have, from whatever source, is brought back to one that it can.
func TestLeaseDeadlineIsBoundedOnLoad(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	send(t, s, "m")
	claimed(t, s, 1, time.Minute)
	execute(t, s, func(t *tx) {
		for _, l := range t.s.queues["q"].leases {
			l.deadline, l.rewrite = t.now+100*maxLease, true
			t.touchLease(t.s.queues["q"], l)
		}
	})
	s.Close()
	s = openOn(t, fs, clock)
	defer s.Close()
	clock.Advance(store.MaxLease)
	if !leasedAgain(t, s, "m") {
		t.Error("the message stays leased for longer than a lease can last")
	}
}
