package diskstore

import (
	"context"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

func statsOf(t *testing.T, ctx context.Context, s *Store) store.Stats {
	t.Helper()
	stats, err := s.Stats(ctx, "q")
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

// wantStats checks the numbers of scheduled, ready, leased and dead messages.
func wantStats(t *testing.T, what string, s store.Stats, want [4]int64) {
	t.Helper()
	if got := [4]int64{s.Scheduled, s.Ready, s.Leased, s.Dead}; got != want {
		t.Errorf("%s: %v are scheduled, ready, leased and dead, want %v", what, got, want)
	}
}

func TestStatsCountWhatIsThereWhenTheyBeginWhileOtherCallsGoOn(t *testing.T) {
	const messages = 12_000
	clock := newManualClock()
	s := openOn(t, vfs.NewMem(), clock)
	defer s.Close()
	sendMany(t, s, messages, func(m *store.Outgoing) { m.Due.Delay = time.Second })
	uncounted(t, s)
	clock.Advance(time.Minute)
	waited := make(chan store.Stats, 1)
	beside := func() { // in the midst of the count
		if _, err := s.Send(t.Context(), "q", outgoing(5, store.Due{})); err != nil {
			t.Error(err)
		}
		if _, err := s.Send(t.Context(), "q", outgoing(3, store.Due{Delay: time.Hour})); err != nil {
			t.Error(err)
		}
		if _, err := s.Send(t.Context(), "q", outgoing(2, store.Due{At: clock.Now().Add(-2 * time.Minute)})); err != nil {
			t.Error(err)
		}
		settled(t, s, claimed(t, s, 10, time.Hour)[:4], store.Settlement{Action: store.Bury})
		go func() { waited <- statsOf(t, t.Context(), s) }()
	}
	wantStats(t, "counted", statsOf(t, &looking{Context: t.Context(), look: beside}, s), [4]int64{0, messages, 0, 0})
	after := [4]int64{3, messages + 5 + 2 - 10, 6, 4}
	wantStats(t, "waited for", <-waited, after)
	steps(t, s, 2*countAtOnce, "counting again", func() { wantStats(t, "again", statsOf(t, t.Context(), s), after) })
	clock.Advance(-30 * time.Second) // it stands still
	wantStats(t, "standing still", statsOf(t, t.Context(), s), after)
	clock.Advance(-time.Hour) // it is followed, and nothing but the two is due
	after[0], after[1] = 3+messages+5-8, 0
	wantStats(t, "followed", statsOf(t, t.Context(), s), after)
}

func TestStatsThatAreGivenUpLeaveTheCountToTheNext(t *testing.T) {
	const messages = 12_000
	clock := newManualClock()
	s := openOn(t, vfs.NewMem(), clock)
	defer s.Close()
	sendMany(t, s, messages, func(m *store.Outgoing) { m.Due.Delay = time.Second })
	uncounted(t, s)
	clock.Advance(time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := s.Stats(&looking{Context: ctx, look: cancel}, "q"); err == nil {
		t.Error("stats were given though their context had ended")
	}
	settled(t, s, claimed(t, s, 10, time.Hour), store.Settlement{Action: store.Ack})
	wantStats(t, "counted", statsOf(t, t.Context(), s), [4]int64{0, messages - 10, 0, 0})
	clock.Advance(time.Millisecond)
	steps(t, s, 2*countAtOnce, "counting again", func() {
		wantStats(t, "again", statsOf(t, t.Context(), s), [4]int64{0, messages - 10, 0, 0})
	})
}
