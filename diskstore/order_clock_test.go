package diskstore

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// Messages that arrive are ahead of a clock that was set back, and start at once all the same, also after a restart.
func TestArrivalsAreAheadOfAClockThatWasSetBack(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	defer func() { s.Close() }()
	limit(t, s, continues)
	arrive(t, s, "a", 5, 4)
	send := store.Outgoing{Message: store.Message{ID: "later", Key: "b"}, Due: store.Due{Delay: time.Millisecond}}
	_, err := s.Send(t.Context(), "q", []store.Outgoing{send})
	try(t, err)
	clock.Advance(-time.Hour)
	arrive(t, s, "a", 3, 2)
	wantSound(t, s)
	first := claimKey(t, s, "a")
	s.Close()
	s = openOn(t, fs, clock)
	arrive(t, s, "a", 1, 0)
	settled(t, s, []store.Claimed{first}, store.Settlement{Action: store.Ack})
	wantIDs(t, append([]string{first.ID}, startsOf(t, s, "a")...), "a-5", "a-4", "a-3", "a-2", "a-1", "a-0")
	wantIDs(t, claimedIDs(t, s, 5))
	wantSound(t, s)
	clock.Advance(time.Hour + time.Second)
	wantIDs(t, claimedIDs(t, s, 5), "later")
}

// After a restart with the clock set back, claims look for the messages that are ahead of it in bounded steps, and none
// starts before all were looked at: a message that another one follows may be the last.
func TestArrivalsAreFoundInBoundedStepsAfterARestart(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	defer func() { s.Close() }()
	limit(t, s, continues)
	sendKey(t, s, "scheduled", clock.Now().Add(time.Minute), upTo(2*maxPassed)...)
	clock.Advance(time.Hour)
	arrive(t, s, "a", 2, 1)
	sendKey(t, s, "a", clock.Now().Add(-2*time.Hour), 3)
	clock.Advance(-time.Hour)
	s.Close()
	s = openOn(t, fs, clock)
	var got []string
	claims := 0
	for more := true; more; claims++ {
		steps(t, s, 2*maxPassed-1000, "a claim", func() {
			c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 5, Lease: time.Hour})
			try(t, err)
			if more = c.Unsorted; !c.More && c.Unsorted || more && len(c.Messages) > 0 || claims > 9 {
				t.Fatalf("claim %d returns %+v", claims, c)
			}
			for _, m := range c.Messages {
				got = append(got, m.ID)
			}
			settled(t, s, c.Messages, store.Settlement{Action: store.Ack})
		})
	}
	if claims != 3 {
		t.Errorf("%d claims until all was found, want 3", claims)
	}
	wantIDs(t, append(got, startsOf(t, s, "a")...), "a-0000003", "a-2", "a-1")
	wantSound(t, s)
}

// Messages that arrived before a restart and are not sorted yet do not wait when the clock is set back.
func TestArrivalsThatAreNotSortedYetAreAheadOfTheClockToo(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	defer func() { s.Close() }()
	limit(t, s, continues)
	arrive(t, s, "a", upTo(maxSorted+9)...)
	s.Close()
	s = openOn(t, fs, clock)
	wantClaimed(t, s, 0)
	clock.Advance(-time.Hour)
	var got int
	for range 3 {
		got += len(claimUpTo(t, s, 1))
	}
	if n := keyState(t, s, "a").Waiting; got != 1 || n != maxSorted+8 {
		t.Errorf("%d messages started and %d wait, want 1 and %d", got, n, maxSorted+8)
	}
	wantSound(t, s)
}
