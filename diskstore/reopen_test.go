package diskstore

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

func claimOne(t *testing.T, s *Store) store.Claimed {
	t.Helper()
	c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Hour})
	if err != nil || len(c.Messages) != 1 {
		t.Fatal(c, err)
	}
	return c.Messages[0]
}

func TestDedupWindowHoldsAndEndsAfterAReopen(t *testing.T) {
	const window = time.Minute
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	send(t, s, "m")
	ack := store.Settlement{Receipt: claimOne(t, s).Receipt, Action: store.Ack, DedupWindow: window}
	if r, err := s.Settle(t.Context(), "q", []store.Settlement{ack}); err != nil || r[0].Err != nil {
		t.Fatal(r, err)
	}
	s.Close()
	s = openOn(t, fs, clock)
	defer s.Close()
	again := []store.Outgoing{{Message: store.Message{ID: "m"}}}
	if r, err := s.Send(t.Context(), "q", again); err != nil || !r[0].Duplicate {
		t.Errorf("within its dedup window the id is accepted: %v, %v", r, err)
	}
	clock.Advance(window + time.Millisecond)
	send(t, s, "other") // makes the store forget ids after their windows
	execute(t, s, func(tx *tx) {
		q := s.queues["q"]
		if err := tx.flush(); err != nil {
			t.Error(err)
		}
		has, err := tx.has(appendIDKey(nil, q.number, kindRemembered, "m"))
		if has || err != nil || q.forget.n != 0 {
			t.Errorf("after its dedup window the id is stored: %v, %v; %d ids are remembered", has, err, q.forget.n)
		}
	})
	if r, err := s.Send(t.Context(), "q", again); err != nil || r[0].Duplicate {
		t.Errorf("after its dedup window the id is refused: %v, %v", r, err)
	}
	wantSound(t, s)
}

func TestCancellationOfALeasedMessageIsKeptOverAReopen(t *testing.T) {
	for _, rest := range []int{0, 1} { // messages that stay in the lease
		fs, clock := vfs.NewMem(), newManualClock()
		s := openOn(t, fs, clock)
		send(t, s, []string{"cancelled", "stays"}[:1+rest]...)
		c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 2, Lease: time.Hour})
		if err != nil || len(c.Messages) != 1+rest {
			t.Fatal(c, err)
		}
		if _, err := s.Cancel(t.Context(), "q", store.CancelRequest{IDs: []string{"cancelled"}}); err != nil {
			t.Fatal(err)
		}
		s.Close()
		s = openOn(t, fs, clock)
		lease := c.Messages[0].Receipt.Lease
		r, err := s.Extend(t.Context(), "q", []store.Extension{{Lease: lease, For: time.Hour}})
		if err != nil || len(r[0].Lost) != 1 || r[0].Lost[0].ID != "cancelled" {
			t.Errorf("with %d other messages the holder learns of %v, %v", rest, r, err)
		}
		wantSound(t, s)
		s.Close()
	}
}

func TestSuccessorOfALeasedMessageIsKeptOverAReopen(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	defer func() { s.Close() }()
	send(t, s, "m")
	nack := store.Settlement{Receipt: claimOne(t, s).Receipt, Action: store.Nack}
	if r, err := s.Settle(t.Context(), "q", []store.Settlement{nack}); err != nil || r[0].Err != nil {
		t.Fatal(r, err)
	}
	held := claimOne(t, s)
	reopen := func() *store.Info {
		t.Helper()
		wantSound(t, s)
		s.Close()
		s = openOn(t, fs, clock)
		wantSound(t, s)
		infos, err := s.Get(t.Context(), "q", []string{"m"})
		if err != nil || infos[0] == nil {
			t.Fatal(infos, err)
		}
		return infos[0]
	}
	for i := range 2 {
		next := store.Outgoing{Message: store.Message{ID: "m", Payload: []byte{byte(i)}, Group: "g"},
			Due:         store.Due{Delay: time.Duration(i) * time.Minute},
			OnDuplicate: store.OnDuplicate{Mode: store.DuplicateFollow}}
		r, err := s.Send(t.Context(), "q", []store.Outgoing{next})
		if err != nil || !r[0].Follows || r[0].Replaced != (i == 1) {
			t.Fatal(r, err)
		}
		if in := reopen(); in.State != store.StateLeased || !in.Follows || in.Payload[0] != byte(i) || in.Attempts != 0 {
			t.Errorf("after the send of successor %d the message is %+v", i, in)
		}
	}
	ack := store.Settlement{Receipt: held.Receipt, Action: store.Ack}
	if r, err := s.Settle(t.Context(), "q", []store.Settlement{ack}); err != nil || r[0].Err != nil {
		t.Fatal(r, err)
	}
	if in := reopen(); in.State != store.StateScheduled || in.Follows || in.Attempts != 0 || in.LastError != "" {
		t.Errorf("after the ack the successor is %+v", in)
	}
	clock.Advance(time.Minute)
	if c := claimOne(t, s); c.Payload[0] != 1 || c.Attempt != 1 {
		t.Errorf("claimed %+v, want the last successor", c)
	}
}
