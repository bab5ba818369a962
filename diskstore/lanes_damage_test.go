package diskstore

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/internal/codec"
	"github.com/laterq/later/internal/gcra"
	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

func TestRecoverKeepsLimitsOfKeys(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	limit(t, s, store.Flow{Key: store.KeyFlow{Concurrency: 5, Rate: store.Rate{N: 1, Per: time.Hour, Burst: 2}}})
	weight := 7
	override(t, s, "b", store.KeyOverride{Weight: &weight})
	sendKey(t, s, "a", clock.Now(), upTo(5)...)
	wantClaimed(t, s, 2)
	before := keyState(t, s, "a")
	s.Close()
	s = recoveredStore(t, fs, clock)
	defer s.Close()
	if got := keyState(t, s, "a"); !got.Next.Equal(before.Next) || got.Leased != 0 {
		t.Errorf("the recovered key is %+v, was %+v", got, before)
	}
	if got := keyState(t, s, "b"); got.Weight != 7 {
		t.Errorf("the recovered key is %+v", got)
	}
	wantClaimed(t, s, 0)
	wantSound(t, s)
}

func TestCheckFindsWrongLimitsOfKeys(t *testing.T) {
	for name, c := range map[string]struct {
		live, loaded string // the issue while the store is open, and after a reopen
		check        string // of the issue, if it is not counters
		damage       func(r raw)
	}{
		"leased": {"leased of key \"a\" is 3 instead of 2", "", "", func(r raw) {
			execute(r.t, r.s, func(t *tx) { t.s.queues["q"].lanes.order.Hold(t.micros, "a", 1) })
		}},
		"sorted": {"sorted and to be sorted is 6 instead of 5", "", "", func(r raw) {
			execute(r.t, r.s, func(t *tx) { t.s.queues["q"].lanes.ahead.n++ })
		}},
		"override": {"overrides of keys is 1 instead of 0", "", "", func(r raw) { r.remove(r.id(kindKeyFlow, "b")) }},
		"rate":     {"states of keys is 1 instead of 0", "", "", func(r raw) { r.remove(r.id(kindKeyState, "a")) }},
		"override that cannot be": {"limits of keys", "limits of keys", "limits", func(r raw) {
			r.set(r.id(kindKeyFlow, "b"), []byte{4})
		}},
		"rate that cannot be": {"limits of keys", "limits of keys", "limits", func(r raw) {
			r.set(r.id(kindKeyState, "a"), codec.Append(nil, &turns.State{Starts: gcra.State{Part: 5}, N: 3}))
		}},
		"mark of leases": {"the limits are", "", "", func(r raw) { r.meta(func(m *meta) { m.Flow.Keyed++ }) }},
		"limits of keys that cannot be": {"cannot be read", "cannot be read", "counters", func(r raw) {
			r.meta(func(m *meta) { m.Flow.Key.Weight = store.MaxWeight + 1 })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			fs, clock := vfs.NewMem(), newManualClock()
			s := openOn(t, fs, clock)
			defer func() { s.Close() }()
			limit(t, s, store.Flow{Key: store.KeyFlow{Rate: store.Rate{N: 3, Per: time.Hour, Burst: 2}}})
			weight := 2
			override(t, s, "b", store.KeyOverride{Weight: &weight})
			sendKey(t, s, "a", clock.Now(), upTo(7)...)
			wantClaimed(t, s, 2)
			wantSound(t, s)
			c.damage(raw{t, s, s.queues["q"].number})
			check := cmp.Or(c.check, "counters")
			wantIssue(t, s, check, c.live)
			s.Close()
			s = openOn(t, fs, clock)
			wantIssue(t, s, check, c.loaded)
			_, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Hour})
			if errors.Is(err, store.ErrCorrupt) != (c.loaded != "") {
				t.Errorf("claim returns %v", err)
			}
			s.Close()
			s = recoveredStore(t, fs, clock)
			wantSound(t, s)
		})
	}
}

// A message that does not exist or cannot be read leaves its lane when its turn has come, and is not charged.
func TestDamagedMessagesLeaveTheirLanes(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	defer func() { s.Close() }()
	limit(t, s, store.Flow{Key: store.KeyFlow{Rate: store.Rate{N: 1, Per: time.Hour, Burst: 2}}})
	sendKey(t, s, "a", clock.Now(), upTo(9)...)
	r := raw{t, s, s.queues["q"].number}
	r.set(r.id(kindMessage, "a-0000001"), nil)
	c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Ahead: 1, Lease: time.Hour})
	if err != nil || c.Unsorted || len(c.Messages) > 0 {
		t.Fatal(c, err)
	}
	wantIDs(t, c.Died, "a-0000001") // as one without a key
	r.remove(r.id(kindMessage, "a-0000000"))
	r.set(r.id(kindMessage, "a-0000002"), []byte("0123456\xff"))
	c, err = s.Claim(t.Context(), "q", store.ClaimRequest{Max: 9, Lease: time.Hour})
	if err != nil || c.More {
		t.Fatal(c, err)
	}
	wantIDs(t, c.Died, "a-0000002")
	var got []string
	for _, m := range c.Messages {
		got = append(got, m.ID)
	}
	wantIDs(t, got, "a-0000003", "a-0000004")
	wantSound(t, s)
}

// A damaged block of a table stops the claims of a Fair queue at its first message, and changes nothing.
func TestTurnsUpToADamagedBlock(t *testing.T) {
	h := newHarmed(t)
	s := openOn(t, h.fs, h.clock)
	number := s.queues["a"].number
	s.Close()
	first, d := "", directory{"later", h.fs}
	tables, err := d.readTables(&readOnlyFS{FS: h.fs, logs: map[string]bool{}})
	try(t, err)
	for _, name := range tables {
		r, err := d.openTable(name)
		try(t, err)
		var at uint64
		err = eachBlock(r, func(b block.Handle, from, _ []byte) {
			q, kind, _ := splitKey(from)
			id := string(from[min(prefixLength, len(from)):])
			if first == "" && q == number && kind == kindMessage && id > "a0400" {
				first, at = strings.TrimRight(id, "\x00"), b.Offset
			}
		})
		try(t, err)
		try(t, r.Close())
		if at > 0 {
			h.change(t, h.fs.PathJoin("later", name), flip(int(at)+20))
		}
	}
	s = openOn(t, h.fs, h.clock)
	defer s.Close()
	try(t, s.SetFlow(t.Context(), "a", store.Flow{Fair: true}, nil))
	last, n := "", 0
	for ; err == nil; n++ {
		var c store.Claim
		if c, err = s.Claim(t.Context(), "a", store.ClaimRequest{Max: 7, Lease: time.Hour}); err == nil {
			last = c.Messages[len(c.Messages)-1].ID
		}
	}
	if !errors.Is(err, store.ErrCorrupt) || last > first || n < 10 {
		t.Errorf("claim %d gives %v, the last message was %s, and the block is damaged from %s on", n, err, last, first)
	}
	for range 2 {
		_, again := s.Claim(t.Context(), "a", store.ClaimRequest{Max: 7, Lease: time.Hour})
		if fmt.Sprint(again) != fmt.Sprint(err) {
			t.Errorf("claim gives %v, and before %v", again, err)
		}
	}
	execute(t, s, func(tx *tx) {
		q := s.queues["a"]
		if m := q.lanes.inMemory(q, tx.micros); m.messages != q.due.n {
			t.Errorf("%d messages are sorted or to be sorted, of %d", m.messages, q.due.n)
		}
	})
}
