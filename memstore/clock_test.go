package memstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// TestAdvanceOfAStoreKeepsLeases compares the store's Advance, which moves leases with the clock, with the clock's own.
func TestAdvanceOfAStoreKeepsLeases(t *testing.T) {
	clock := memstore.NewManualClock(time.UnixMilli(1_000_000))
	s := memstore.New(memstore.WithClock(clock))
	defer s.Close()
	send(t, s, "held", 0)
	send(t, s, "later", time.Hour)
	claim, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: 30 * time.Second})
	if err != nil || len(claim.Messages) != 1 {
		t.Fatalf("claim: %+v, %v", claim, err)
	}
	for range 3 {
		if err := s.Advance(20*time.Minute + 500*time.Microsecond); err != nil {
			t.Fatal(err)
		}
	}
	infos, err := s.Get(t.Context(), "q", []string{"held", "later"})
	if err != nil || infos[0].State != store.StateLeased || infos[1].State != store.StateReady {
		t.Errorf("after an hour: %+v, %v", infos, err)
	}
	wantDeadline := clock.Now().Add(30 * time.Second).Truncate(time.Millisecond)
	if got := infos[0].LeaseDeadline; !got.Equal(wantDeadline) {
		t.Errorf("the lease ends at %v, want %v", got, wantDeadline)
	}
	extension := []store.Extension{{Lease: claim.Messages[0].Receipt.Lease, For: time.Second}}
	extended, err := s.Extend(t.Context(), "q", extension)
	if err != nil || extended[0].Err != nil {
		t.Errorf("extend: %+v, %v", extended, err)
	}
	clock.Advance(time.Second)
	ack := []store.Settlement{{Receipt: claim.Messages[0].Receipt, Action: store.Ack}}
	if settled, err := s.Settle(t.Context(), "q", ack); err != nil || !errors.Is(settled[0].Err, store.ErrLeaseLost) {
		t.Errorf("settle after the clock's own Advance: %+v, %v; want ErrLeaseLost", settled, err)
	}
}

func TestAdvanceOfAStoreNeedsAManualClock(t *testing.T) {
	s := memstore.New()
	defer s.Close()
	if err := s.Advance(time.Second); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("Advance: %v, want ErrUnsupported", err)
	}
}
