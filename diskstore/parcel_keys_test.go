package diskstore

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// fairSubQueues creates two sub-queues with a flow.
func fairSubQueues(t *testing.T, s *Store, f store.Flow) {
	t.Helper()
	twoSubQueues(t, s)
	for _, name := range []string{subA, subB} {
		try(t, s.SetFlow(t.Context(), name, f, nil))
	}
}

// sendOf sends messages of a key without a delay, one after the other.
func sendOf(t *testing.T, s *Store, queue, key string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		m := plain(id)
		m.Key = key
		_, err := s.Send(t.Context(), queue, []store.Outgoing{m})
		try(t, err)
	}
}

func claimIn(t *testing.T, s *Store, queue string) []store.Claimed {
	t.Helper()
	c, err := s.Claim(t.Context(), queue, store.ClaimRequest{Max: 100, Lease: time.Hour})
	try(t, err)
	return c.Messages
}

func settleIn(t *testing.T, s *Store, queue string, m store.Claimed, as store.Settlement) {
	t.Helper()
	as.Receipt = m.Receipt
	r, err := s.Settle(t.Context(), queue, []store.Settlement{as})
	if try(t, err); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
}

// wantStarts claims and acks messages until none starts.
func wantStarts(t *testing.T, s *Store, queue string, want ...string) {
	t.Helper()
	var got []string
	for all := claimIn(t, s, queue); len(all) > 0; all = claimIn(t, s, queue) {
		for _, m := range all {
			got = append(got, m.ID)
			settleIn(t, s, queue, m, store.Settlement{Action: store.Ack})
		}
	}
	wantIDs(t, got, want...)
}

func stateIn(t *testing.T, s *Store, queue, key string) store.KeyState {
	t.Helper()
	keys, err := s.Keys(t.Context(), queue, store.KeysRequest{Key: key, Limit: 1})
	if try(t, err); len(keys) != 1 {
		t.Fatalf("the states are %+v", keys)
	}
	return keys[0]
}

func knownIn(t *testing.T, s *Store, queue string) []string {
	t.Helper()
	part, err := s.Scan(t.Context(), queue, string(kindKeyState))
	try(t, err)
	return part.Keys
}

// moveKeys does what is left of a move of keys without messages.
func moveKeys(t *testing.T, s *Store, keys ...string) {
	t.Helper()
	for {
		p, err := s.Outbox(t.Context(), subA)
		if try(t, err); p == nil {
			if len(keys) == 0 {
				return
			}
			d, err := s.Depart(t.Context(), subA, store.Departure{To: subB, Keys: keys})
			if try(t, err); len(d.Busy) > 0 {
				t.Fatalf("%v stay", d.Busy)
			}
			p, keys = d.Parcel, nil
		}
		try(t, s.Arrive(t.Context(), p))
		try(t, s.Empty(t.Context(), subA, p.Number))
	}
}

func expect(t *testing.T, s *Store, e store.Expected) (last int64) {
	t.Helper()
	last, err := s.Expect(t.Context(), subB, e)
	try(t, err)
	return last
}

// others returns a store in the state of s, by ways in which a store comes to be.
func others(s *Store, fs vfs.FS, clock Clock) map[string]func(t *testing.T) *Store {
	return map[string]func(t *testing.T) *Store{
		"reopened": func(t *testing.T) *Store {
			s.Close()
			return openOn(t, fs, clock)
		},
		"recovered": func(t *testing.T) *Store {
			s.Close()
			return recoveredStore(t, fs, clock)
		},
		"backup": func(t *testing.T) *Store {
			defer s.Close()
			try(t, s.Backup(t.Context(), "backup"))
			b, err := Open("backup", withFS(fs), WithClock(clock))
			try(t, err)
			return b
		},
	}
}

// departsWithKeys has everything depart that can: a held key and a halted one with their messages, and keys with a rate
// and with limits.
func departsWithKeys(t *testing.T, s *Store) store.KeyState {
	t.Helper()
	flow := halting
	flow.Key.Rate = store.Rate{N: 1, Per: time.Hour, Burst: 2}
	fairSubQueues(t, s, flow)
	weight := 7
	try(t, s.SetKeyFlow(t.Context(), subA, "own", store.KeyOverride{Weight: &weight}))
	for _, key := range []string{"held", "halted", "rate"} {
		sendOf(t, s, subA, key, key+"-2", key+"-1")
	}
	for _, m := range claimIn(t, s, subA) {
		settleIn(t, s, subA, m, map[string]store.Settlement{"held": {Action: store.Nack, Delay: time.Minute},
			"halted": {Action: store.Bury}, "rate": {Action: store.Ack}}[m.Key])
	}
	rate := stateIn(t, s, subA, "rate")
	if rate.Next.After(rate.Now) {
		t.Fatalf("the key is %+v, want one more start", rate)
	}
	d, err := s.Depart(t.Context(), subA, store.Departure{To: subB,
		IDs:  []string{"held-1", "held-2", "halted-2", "halted-1", "rate-1"},
		Keys: []string{"held", "halted", "own", "rate", "unknown", "own"}})
	if try(t, err); d.Parcel == nil || d.Busy != nil || d.Leased != nil {
		t.Fatalf("departed is %+v", d)
	}
	wantIDs(t, knownIn(t, s, subA))
	return rate
}

func TestKeysAndHoldsInTheOutboxAreKept(t *testing.T) {
	for _, way := range []string{"reopened", "recovered", "backup"} {
		t.Run(way, func(t *testing.T) {
			fs, clock := vfs.NewMem(), newManualClock()
			s := openOn(t, fs, clock)
			departsWithKeys(t, s)
			wantSound(t, s)
			s = others(s, fs, clock)[way](t)
			defer func() { s.Close() }()
			wantSound(t, s)
			wantIDs(t, knownIn(t, s, subA))
			moveKeys(t, s)
			for range 2 {
				wantSound(t, s)
				wantIDs(t, knownIn(t, s, subB), "halted", "held", "own", "rate")
				if got := stateIn(t, s, subB, "held"); got.Holder != "held-2" || got.Halted {
					t.Errorf("the held key is %+v", got)
				}
				if got := stateIn(t, s, subB, "halted"); got.Holder != "halted-2" || !got.Halted {
					t.Errorf("the halted key is %+v", got)
				}
				if got := stateIn(t, s, subB, "own"); got.Weight != 7 || got.Override == nil {
					t.Errorf("the key with limits is %+v", got)
				}
				dir := s.dir
				s.Close()
				var err error
				s, err = Open(dir, withFS(fs), WithClock(clock))
				try(t, err)
			}
			wantStarts(t, s, subB, "rate-1")
			if got := stateIn(t, s, subB, "rate"); !got.Next.After(got.Now) {
				t.Errorf("the key is %+v, want that it rests", got)
			}
			clock.Advance(time.Hour)
			wantStarts(t, s, subB, "held-2", "held-1")
			wantSound(t, s)
		})
	}
}

func TestDamageOfKeysInAParcel(t *testing.T) {
	change := func(id string, f func(x *item)) func(r raw) {
		return func(r raw) {
			o, err := parseOutbox(r.get(r.id(kindOutbox, "")))
			try(r.t, err)
			all, err := parseItems(o.data)
			try(r.t, err)
			o.data = nil
			for i := range all {
				if all[i].ID == id {
					f(&all[i].item)
				}
				o.data = appendItem(o.data, &all[i].item)
			}
			r.set(r.id(kindOutbox, ""), appendOutbox(nil, &o))
		}
	}
	for name, damage := range map[string]func(r raw){
		"a hold of no key":         change("held-2", func(x *item) { x.Message = x.Message[:timeLength] }),
		"a rate that cannot be":    change("rate", func(x *item) { x.Handover.N = 0 }),
		"parts that cannot be":     change("rate", func(x *item) { x.Handover.Starts.Part = -1 }),
		"limits that cannot be":    change("own", func(x *item) { *x.Handover.Override.Weight = -1 }),
		"a key with a message":     change("own", func(x *item) { x.Message = make([]byte, timeLength) }),
		"a key that is remembered": change("own", func(x *item) { x.Remembered = make([]byte, timeLength) }),
		"a key that cannot be":     change("own", func(x *item) { x.ID = "a/b" }),
		"a remembered id with more": change("unknown", func(x *item) {
			x.Handover, x.Remembered, x.Due = nil, []byte("123456"), []byte{1}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			fs, clock := vfs.NewMem(), newManualClock()
			s := openOn(t, fs, clock)
			departsWithKeys(t, s)
			damage(raw{t, s, s.queues[subA].number})
			wantIssues(t, issuesOf(checked(t, s)), "outbox")
			p, err := s.Outbox(t.Context(), subA)
			try(t, err)
			if err := s.Arrive(t.Context(), p); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("the arrival returns %v", err)
			}
			wantIDs(t, knownIn(t, s, subB))
			s.Close()
			s = recoveredStore(t, fs, clock)
			defer s.Close()
			wantSound(t, s)
			_, err = s.Scan(t.Context(), subA, "")
			try(t, err)
		})
	}
	t.Run("at the end", func(t *testing.T) { // the items before it are back, with their holds
		fs, clock := vfs.NewMem(), newManualClock()
		s := openOn(t, fs, clock)
		departsWithKeys(t, s)
		change("unknown", func(x *item) { x.Handover.N = -1 })(raw{t, s, s.queues[subA].number})
		wantIssues(t, issuesOf(checked(t, s)), "outbox")
		s.Close()
		s = recoveredStore(t, fs, clock)
		defer s.Close()
		wantSound(t, s)
		wantIDs(t, knownIn(t, s, subA), "halted", "held", "own", "rate")
		if got := stateIn(t, s, subA, "held"); got.Holder != "held-2" || got.Halted {
			t.Errorf("the held key is %+v", got)
		}
		if got := stateIn(t, s, subA, "halted"); got.Holder != "halted-2" || !got.Halted {
			t.Errorf("the halted key is %+v", got)
		}
		wantStarts(t, s, subA, "rate-1")
		wantSound(t, s)
	})
}

// TestPlacesAheadOfTheClockMove: a message that was sent at once moves to another sub-queue where the clock is behind
// its place. It starts at once, and before the messages that are sent there.
func TestPlacesAheadOfTheClockMove(t *testing.T) {
	for _, reopens := range []bool{false, true} {
		fs, clock := vfs.NewMem(), newManualClock()
		s := openOn(t, fs, clock)
		fairSubQueues(t, s, halting)
		future := clock.Now().Add(time.Minute).UnixMicro()
		_, err := s.Expect(t.Context(), subA, store.Expected{Last: future})
		try(t, err)
		sendOf(t, s, subA, "k", "x", "a")
		last, err := s.Expect(t.Context(), subA, store.Expected{})
		try(t, err)
		expect(t, s, store.Expected{From: subA, Keys: []string{"k"}, Last: last})
		sendOf(t, s, subB, "k", "b")
		p := departs(t, s, "x", "a")
		try(t, s.Arrive(t.Context(), p))
		try(t, s.Empty(t.Context(), subA, p.Number))
		wantStarts(t, s, subB)
		moveKeys(t, s, "k")
		sendOf(t, s, subB, "k", "0")
		if reopens {
			wantSound(t, s)
			s.Close()
			s = openOn(t, fs, clock)
		}
		wantSound(t, s)
		wantStarts(t, s, subB, "x", "a", "b", "0")
		wantSound(t, s)
		s.Close()
	}
}

// TestCrashAtAnyPointOfAMoveOfKeys cuts the power at any write. The next process goes on, and the key is in one place.
func TestCrashAtAnyPointOfAMoveOfKeys(t *testing.T) {
	for _, every := range []time.Duration{0, time.Hour} {
		clock := newManualClock()
		c := newCrashPoints(vfs.NewCrashableMem())
		s := openOn(t, c, clock, SyncEvery(every))
		fairSubQueues(t, s, store.Flow{Key: store.KeyFlow{Rate: store.Rate{N: 1, Per: time.Hour}}})
		weight := 7
		try(t, s.SetKeyFlow(t.Context(), subA, "k", store.KeyOverride{Weight: &weight}))
		sendOf(t, s, subA, "k", "x")
		wantStarts(t, s, subA, "x")
		want := stateIn(t, s, subA, "k").Next
		try(t, s.Sync(t.Context()))
		c.take(func() {
			expect(t, s, store.Expected{From: subA, Keys: []string{"k"}})
			moveKeys(t, s, "k")
		})
		s.Close()
		if len(c.left) < 8 {
			t.Errorf("%d points of a crash, want more", len(c.left))
		}
		for i, fs := range c.left {
			s := openOn(t, fs, clock, SyncEvery(every))
			wantSound(t, s)
			moveKeys(t, s)
			if known := knownIn(t, s, subA); known != nil {
				wantIDs(t, knownIn(t, s, subB))
				moveKeys(t, s, known...)
			}
			got := stateIn(t, s, subB, "k")
			if !got.Next.Equal(want) || got.Weight != 7 {
				t.Errorf("sync every %v, crash before %s: %+v", every, c.ops[i], got)
			}
			sendOf(t, s, subB, "k", "y")
			wantStarts(t, s, subB)
			wantIDs(t, knownIn(t, s, subA))
			wantSound(t, s)
			s.Close()
		}
	}
}

func TestKeysOfLeasedMessagesAreBusy(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	twoSubQueues(t, s, "none")
	sendOf(t, s, subA, "before", "x")
	if n := len(claimIn(t, s, subA)); n != 2 {
		t.Fatalf("claimed %d messages", n)
	}
	ids := []string{"x", "y", "none"}
	busy := func(want ...string) {
		t.Helper()
		d, err := s.Depart(t.Context(), subA, store.Departure{To: subB, IDs: ids})
		if try(t, err); d.Parcel != nil || !slices.Equal(d.Busy, want) {
			t.Errorf("departed is %+v, want that %v are busy", d, want)
		}
	}
	sendOf(t, s, subA, "leased", "y")
	ids = []string{"x", "none"}
	busy() // the queue is not Fair
	try(t, s.SetFlow(t.Context(), subA, store.Flow{Fair: true}, nil))
	if n := len(claimIn(t, s, subA)); n != 1 {
		t.Fatalf("claimed %d messages", n)
	}
	next := plain("y")
	next.Key, next.OnDuplicate = "next", store.OnDuplicate{Mode: store.DuplicateFollow}
	r, err := s.Send(t.Context(), subA, []store.Outgoing{next})
	if try(t, err); !r[0].Follows {
		t.Fatalf("the send is %+v", r)
	}
	ids = []string{"x", "y", "none"}
	busy("before", "leased", "next")
	wantIDs(t, knownIn(t, s, subA), "leased")
}
