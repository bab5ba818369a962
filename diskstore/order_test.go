package diskstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/internal/codec"
	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

// arrive sends messages of a key without a delay: the key, a dash and a number each.
func arrive(t testing.TB, s *Store, key string, numbers ...int) {
	t.Helper()
	for _, n := range numbers {
		m := store.Message{ID: fmt.Sprintf("%s-%d", key, n), Key: key, MaxAttempts: 2}
		if _, err := s.Send(t.Context(), "q", []store.Outgoing{{Message: m}}); err != nil {
			t.Fatal(err)
		}
	}
}

// claimKey claims the next message of a key, and gives others back.
func claimKey(t *testing.T, s *Store, key string) store.Claimed {
	t.Helper()
	var got store.Claimed
	for _, m := range claimUpTo(t, s, 100) {
		if m.Key == key {
			got = m
		} else {
			settled(t, s, []store.Claimed{m}, store.Settlement{Action: store.Release})
		}
	}
	if got.ID == "" {
		t.Fatalf("no message of key %s starts", key)
	}
	return got
}

// startsOf claims and acks the messages of a key until none starts, and returns their ids.
func startsOf(t *testing.T, s *Store, key string) (ids []string) {
	t.Helper()
	for range 100 {
		for _, m := range claimUpTo(t, s, 100) {
			as := store.Settlement{Action: store.Release}
			if m.Key == key {
				ids, as.Action = append(ids, m.ID), store.Ack
			}
			settled(t, s, []store.Claimed{m}, as)
		}
	}
	return ids
}

var (
	continues = store.Flow{Key: store.KeyFlow{Order: store.OrderContinue}}
	halting   = store.Flow{Key: store.KeyFlow{Order: store.OrderHalt}}
)

func TestOrderIsKeptOverAReopen(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	clock.Advance(567 * time.Microsecond)
	s := openOn(t, fs, clock)
	defer func() { s.Close() }()
	limit(t, s, halting)
	arrive(t, s, "a", 9, 3, 7) // all in the same microsecond
	arrive(t, s, "held", 9, 3)
	arrive(t, s, "halted", 9, 3)
	arrive(t, s, "leased", 9, 3)
	fence := int64(0)
	for _, m := range claimUpTo(t, s, 100) {
		fence = max(fence, m.Fence)
		switch m.Key {
		case "a":
			settled(t, s, []store.Claimed{m}, store.Settlement{Action: store.Release})
		case "held":
			settled(t, s, []store.Claimed{m}, store.Settlement{Action: store.Nack, Delay: time.Minute})
		case "halted":
			settled(t, s, []store.Claimed{m}, store.Settlement{Action: store.Bury})
		}
	}
	if fence == 0 {
		t.Error("no message has a fence")
	}
	reopened := func() {
		t.Helper()
		wantSound(t, s)
		s.Close()
		s = openOn(t, fs, clock)
		wantSound(t, s)
	}
	for range 2 {
		reopened()
		if got := keyState(t, s, "held"); got.Holder != "held-9" || got.Halted {
			t.Errorf("the key is %+v, want it to wait for held-9", got)
		}
		if got := keyState(t, s, "halted"); got.Holder != "halted-9" || !got.Halted {
			t.Errorf("the key is %+v, want it halted by halted-9", got)
		}
		got := claimKey(t, s, "a")
		if got.Fence <= fence {
			t.Errorf("the fence is %d, and was %d before", got.Fence, fence)
		}
		fence = got.Fence
		settled(t, s, []store.Claimed{got}, store.Settlement{Action: store.Release})
	}
	settled(t, s, []store.Claimed{claimKey(t, s, "a")}, store.Settlement{Action: store.Ack})
	reopened()
	arrive(t, s, "a", 1)
	wantIDs(t, startsOf(t, s, "a"), "a-3", "a-7", "a-1")
	reopened()
	_, err := s.Replay(t.Context(), "q", store.Selection{State: store.StateDead, IDs: []string{"halted-9"}},
		store.Due{})
	try(t, err)
	reopened()
	wantIDs(t, startsOf(t, s, "halted"), "halted-9", "halted-3")
	clock.Advance(time.Minute + time.Second)
	wantIDs(t, startsOf(t, s, "held"), "held-9", "held-3")
	wantSound(t, s)
}

// TestOrderIsKeptAfterACrash crashes at every write of a history in which messages come back. From each disk, the
// messages of a key start in order, and fences go on behind those of its leases.
func TestOrderIsKeptAfterACrash(t *testing.T) {
	clock := newManualClock()
	c := newCrashPoints(vfs.NewCrashableMem())
	s := openOn(t, c, clock, withMemTable(64<<10))
	limit(t, s, halting)
	fences := map[string]int64{}  // of the latest claim of each message
	byLease := map[string]int64{} // of each claim
	c.take(func() {
		arrive(t, s, "a", 9, 2, 8, 3, 7)
		arrive(t, s, "b", 5, 6, 4)
		for i := range 12 {
			for _, m := range claimUpTo(t, s, 5) {
				if fences[m.ID] >= m.Fence {
					t.Errorf("the fence of %s is %d, and was %d before", m.ID, m.Fence, fences[m.ID])
				}
				fences[m.ID], byLease[m.Receipt.Lease] = m.Fence, m.Fence
				as := store.Settlement{Action: store.Ack}
				if i%2 == 0 {
					as = store.Settlement{Action: store.Snooze, Delay: time.Duration(i%4) * time.Second}
				}
				settled(t, s, []store.Claimed{m}, as)
			}
			clock.Advance(time.Second)
		}
		arrive(t, s, "c", 2, 1)
		settled(t, s, claimUpTo(t, s, 1), store.Settlement{Action: store.Bury})
	})
	s.Close()
	held, halted, leased := 0, 0, 0
	var wrong []string // leases with a later fence than the stored one
	for i, fs := range c.left {
		s := openOn(t, fs, clock)
		wantSound(t, s)
		execute(t, s, func(t *tx) {
			q := t.s.queues["q"]
			held += len(q.lanes.holds())
			halted += int(q.halted())
			for id := range q.leases {
				if leased++; byLease[id] > int64(q.flow.Fences) {
					wrong = append(wrong, id)
				}
			}
		})
		if _, err := s.Purge(t.Context(), "q", store.Selection{State: store.StateDead}); err != nil {
			t.Fatal(err)
		}
		clock.Advance(2 * time.Hour)
		for key, want := range map[string][]string{
			"a": {"a-9", "a-2", "a-8", "a-3", "a-7"}, "b": {"b-5", "b-6", "b-4"}, "c": {"c-2", "c-1"},
		} {
			if got := startsOf(t, s, key); len(got) > len(want) || !isPart(got, want) {
				t.Errorf("crash before %s: messages start in order %v, want a part of %v", c.ops[i], got, want)
			}
		}
		wantSound(t, s)
		s.Close()
	}
	if len(wrong) > 0 || held < 20 || halted == 0 || leased < 20 {
		t.Errorf("%d held and %d halted keys and %d leases after crashes, want more; leases have later fences: %v", held,
			halted, leased, wrong)
	}
}

// isPart reports whether all of part are in whole, one behind the other.
func isPart(part, whole []string) bool {
	for i := range whole {
		if slices.Equal(part, whole[i:min(len(whole), i+len(part))]) {
			return true
		}
	}
	return len(part) == 0
}

// A scheduled message falls due between many that arrived, and takes its place.
func TestScheduledMessagesBetweenArrivals(t *testing.T) {
	clock := newManualClock()
	s := openOn(t, vfs.NewMem(), clock)
	defer s.Close()
	limit(t, s, continues)
	var want []string
	for i := range 9 {
		id := fmt.Sprint("cancelled-", i)
		for _, m := range []store.Outgoing{
			{Message: store.Message{ID: id, Key: "a"}, Due: store.Due{Delay: time.Millisecond}},
			{Message: store.Message{ID: fmt.Sprint("scheduled-", i), Key: "a"}, Due: store.Due{Delay: time.Second}},
		} {
			_, err := s.Send(t.Context(), "q", []store.Outgoing{m})
			try(t, err)
		}
		clock.Advance(time.Second)
		_, err := s.Cancel(t.Context(), "q", store.CancelRequest{IDs: []string{id}})
		try(t, err)
		clock.Advance(time.Millisecond)
		for j := range 30 {
			arrive(t, s, "a", 1000*i-j)
			want = append(want, fmt.Sprint("a-", 1000*i-j))
		}
		want = slices.Insert(want, len(want)-30, fmt.Sprint("scheduled-", i))
	}
	wantSound(t, s)
	var got []string
	for range len(want) {
		m := claimUpTo(t, s, 5)
		got = append(got, m[0].ID)
		settled(t, s, m, store.Settlement{Action: store.Ack})
	}
	wantIDs(t, got, want...)
	wantSound(t, s)
}

func TestRecoverKeepsTheOrderOfKeys(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	limit(t, s, halting)
	arrive(t, s, "a", 9, 3, 7)
	arrive(t, s, "held", 9, 3)
	arrive(t, s, "halted", 9, 3)
	fence := int64(0)
	for _, m := range claimUpTo(t, s, 100) {
		fence = m.Fence
		switch m.Key {
		case "held":
			settled(t, s, []store.Claimed{m}, store.Settlement{Action: store.Nack, Delay: time.Minute})
		case "halted":
			settled(t, s, []store.Claimed{m}, store.Settlement{Action: store.Bury})
		}
	}
	s.Close()
	s = recoveredStore(t, fs, clock)
	defer s.Close()
	wantSound(t, s)
	for key, want := range map[string]store.KeyState{
		"a": {Holder: "a-9"}, "held": {Holder: "held-9"}, "halted": {Holder: "halted-9", Halted: true},
	} {
		if got := keyState(t, s, key); got.Holder != want.Holder || got.Halted != want.Halted {
			t.Errorf("the recovered key is %+v, want %+v", got, want)
		}
	}
	if got := claimKey(t, s, "a"); got.ID != "a-9" || got.Fence <= fence {
		t.Errorf("claimed %+v, and the fence was %d before", got, fence)
	}
	clock.Advance(2 * time.Hour)
	wantIDs(t, startsOf(t, s, "a"), "a-9", "a-3", "a-7")
	wantIDs(t, startsOf(t, s, "held"), "held-9", "held-3")
	wantSound(t, s)
}

func TestCheckFindsWrongHolds(t *testing.T) {
	state := func(r raw, key string, h hold) {
		r.set(r.id(kindKeyState, key), codec.Append(nil, &turns.State{Holder: h.id, Dead: h.dead}))
	}
	for name, c := range map[string]struct {
		live, loaded string // the checks that fail while the store is open, and after a reopen
		damage       func(r raw)
	}{
		"no such message": {"holds", "holds", func(r raw) { state(r, "held", hold{id: "nobody"}) }},
		"another message": {"holds", "", func(r raw) { state(r, "held", hold{id: "held-3"}) }},
		"a leased one":    {"holds", "holds", func(r raw) { state(r, "held", hold{id: "leased-9"}) }},
		"not dead":        {"holds", "holds", func(r raw) { state(r, "held", hold{"held-9", true}) }},
		"dead":            {"holds", "holds", func(r raw) { state(r, "halted", hold{id: "halted-9"}) }},
		"lost":            {"counters", "", func(r raw) { r.remove(r.id(kindKeyState, "held")) }},
		"no order": {"holds counters", "holds", func(r raw) {
			r.meta(func(m *meta) { m.Flow.Key.Order, m.Flow.Key.Concurrency = store.OrderNone, 1 })
		}},
		"a wrong place": {"keys", "keys", func(r raw) {
			q := r.s.queues["q"]
			r.set(r.time(kindDue, int64(q.flow.Arrivals)/1000, "leased-3"), []byte{dueRanked, 255, 255})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			fs, clock := vfs.NewMem(), newManualClock()
			s := openOn(t, fs, clock)
			limit(t, s, halting)
			for _, key := range []string{"held", "halted", "leased"} {
				arrive(t, s, key, 9, 3)
			}
			for _, m := range claimUpTo(t, s, 100) {
				switch m.Key {
				case "held":
					settled(t, s, []store.Claimed{m}, store.Settlement{Action: store.Nack, Delay: time.Minute})
				case "halted":
					settled(t, s, []store.Claimed{m}, store.Settlement{Action: store.Bury})
				}
			}
			wantSound(t, s)
			c.damage(raw{t, s, s.queues["q"].number})
			wantIssues(t, issuesOf(checked(t, s)), c.live)
			s.Close()
			s = openOn(t, fs, clock)
			wantIssues(t, issuesOf(checked(t, s)), c.loaded)
			s.Close()
			s = recoveredStore(t, fs, clock)
			defer s.Close()
			wantSound(t, s)
			claimUpTo(t, s, 100)
			wantSound(t, s)
		})
	}
}

// A full disk is emptied by the range, and nothing holds a key any more.
func TestHoldsEndWhenAllMessagesAreDropped(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	defer func() { s.Close() }()
	limit(t, s, store.Flow{Key: store.KeyFlow{Order: store.OrderHalt, Rate: store.Rate{N: 1, Per: time.Hour}}})
	for _, key := range []string{"a", "b", "c"} {
		arrive(t, s, key, 9, 3)
		as := store.Settlement{Action: store.Bury}
		if key == "b" {
			as = store.Settlement{Action: store.Nack, Delay: time.Minute}
		}
		settled(t, s, claimUpTo(t, s, 1), as)
	}
	execute(t, s, func(tx *tx) {
		got, err := tx.dropMessages(s.queues["q"], tx.now, nil)
		if err != nil || got.Done != 6 || !slices.Equal(got.Resumed, []string{"a", "c"}) {
			t.Errorf("purge returns %+v, %v", got, err)
		}
	})
	for range 2 {
		wantSound(t, s)
		arrive(t, s, "b", 3)
		wantIDs(t, claimedIDs(t, s, 5))
		if got := keyState(t, s, "b"); got.Holder != "" || !got.Resting() {
			t.Errorf("the key is %+v", got)
		}
		s.Close()
		s = openOn(t, fs, clock)
	}
	clock.Advance(time.Hour)
	wantIDs(t, claimedIDs(t, s, 5), "b-3")
	wantSound(t, s)
}

// A retention passes over dead messages that halt their keys, and looks at each of them once.
func TestRetentionPassesOverHaltingMessagesOnce(t *testing.T) {
	clock := newManualClock()
	s := openOn(t, vfs.NewMem(), clock)
	defer s.Close()
	limit(t, s, halting)
	for i := range 700 {
		arrive(t, s, fmt.Sprint("key", i), 1)
	}
	for range 2 {
		settled(t, s, claimUpTo(t, s, 500), store.Settlement{Action: store.Bury})
	}
	err := s.SetDeadRetention(t.Context(), "q", store.Retention{MaxAge: time.Minute, MaxCount: 1}, nil)
	try(t, err)
	clock.Advance(time.Hour)
	claimUpTo(t, s, 1)
	steps(t, s, 300, "a claim after the first", func() {
		for range 10 {
			claimUpTo(t, s, 1)
		}
	})
	dead := func(want int64) {
		t.Helper()
		stats, err := s.Stats(t.Context(), "q")
		try(t, err)
		if stats.Dead != want {
			t.Errorf("%d messages are dead, want %d", stats.Dead, want)
		}
	}
	dead(700)
	try(t, s.ResumeKey(t.Context(), "q", "key7"))
	claimUpTo(t, s, 1)
	dead(699)
	limit(t, s, continues)
	for range 3 {
		claimUpTo(t, s, 1)
	}
	dead(0)
	wantSound(t, s)
}

// A forward between queues with an order carries the order within a millisecond along, also over a restart, and a
// repeated claim has the same fence then.
func TestForwardsAndRepeatedClaimsKeepTheOrderOverAReopen(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	defer func() { s.Close() }()
	limit(t, s, continues)
	try(t, s.SetFlow(t.Context(), "to", continues, nil))
	arrive(t, s, "a", 9, 3, 7)
	var want []string
	for i, id := range []string{"a-9", "a-3", "a-7"} {
		ctx := store.WithRequest(t.Context(), store.Request{Session: "session", Number: int64(i + 1)})
		req := store.ClaimRequest{Max: 1, Lease: time.Hour}
		c, err := s.Claim(ctx, "q", req)
		try(t, err)
		s.Close()
		s = openOn(t, fs, clock)
		again, err := s.Claim(ctx, "q", req)
		try(t, err)
		m := again.Messages[0]
		if m.ID != id || m.Fence == 0 || m.Fence != c.Messages[0].Fence {
			t.Errorf("a repeated claim returns %+v, and the first one returned %+v", m, c.Messages[0])
		}
		want = append(want, id)
		forwarded := store.Outgoing{Message: m.Message, Due: store.Due{At: m.Due}}
		settled(t, s, again.Messages, store.Settlement{Action: store.Ack,
			Then: []store.FollowUp{{Queue: "to", Message: forwarded}}})
	}
	wantSound(t, s)
	s.Close()
	s = openOn(t, fs, clock)
	var got []string
	for range want {
		c, err := s.Claim(t.Context(), "to", store.ClaimRequest{Max: 5, Lease: time.Hour})
		try(t, err)
		got = append(got, c.Messages[0].ID)
		_, err = s.Settle(t.Context(), "to", []store.Settlement{{Receipt: c.Messages[0].Receipt, Action: store.Ack}})
		try(t, err)
	}
	wantIDs(t, got, want...)
	wantSound(t, s)
}

// A backup has the holds of messages, and the places of the others.
func TestBackupKeepsTheOrderOfKeys(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	limit(t, s, halting)
	arrive(t, s, "held", 9, 3, 7)
	arrive(t, s, "halted", 9, 3)
	for _, m := range claimUpTo(t, s, 100) {
		as := store.Settlement{Action: store.Bury}
		if m.Key == "held" {
			as = store.Settlement{Action: store.Nack, Delay: time.Minute}
		}
		settled(t, s, []store.Claimed{m}, as)
	}
	try(t, s.Backup(t.Context(), "backup"))
	s.Close()
	b, err := Open("backup", withFS(fs), WithClock(clock))
	try(t, err)
	defer b.Close()
	wantSound(t, b)
	wantIDs(t, claimedIDs(t, b, 9))
	if held, halted := keyState(t, b, "held"), keyState(t, b, "halted"); held.Holder != "held-9" || held.Halted ||
		halted.Holder != "halted-9" || !halted.Halted {
		t.Errorf("the keys of the backup are %+v and %+v", held, halted)
	}
	clock.Advance(time.Minute)
	wantIDs(t, startsOf(t, b, "held"), "held-9", "held-3", "held-7")
	wantSound(t, b)
}
