package diskstore

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// both calls two engines, and compares their results.
type both struct {
	t     *testing.T
	r     *rand.Rand
	fs    *vfs.MemFS
	clock *manualClock
	disk  *Store
	mem   *memstore.Store
	log   []string
	held  [2]map[string]store.Claimed // claimed messages by id
}

// do reports whether both engines have the same result of a call.
func (b *both) do(what string, call func(s store.Store, i int) string) bool {
	b.log = append(b.log, what)
	got, want := call(b.disk, 0), call(b.mem, 1)
	if got != want {
		b.t.Errorf("after %v:\n got %s\nwant %s", b.log, got, want)
		return false
	}
	return true
}

// claim claims all that starts now, and returns its ids.
func (b *both) claim(s store.Store, i int) string {
	var ids []string
	for more := true; more; {
		c, err := s.Claim(b.t.Context(), "q", store.ClaimRequest{Max: 10, Lease: 10 * time.Second})
		if err != nil {
			return err.Error()
		}
		more = c.More
		for _, m := range c.Messages {
			ids = append(ids, m.ID)
			b.held[i][m.ID] = m
		}
	}
	slices.Sort(ids)
	return fmt.Sprint(ids)
}

// TestOrderIsThatOfTheMemory compares random histories of an ordered queue, in which this engine is opened again, with
// those of the engine in memory.
func TestOrderIsThatOfTheMemory(t *testing.T) {
	seeds := uint64(100)
	if os.Getenv("LATER_LONG") != "" {
		seeds = 5000
	}
	for seed := range seeds {
		clock := newManualClock()
		b := &both{t: t, r: rand.New(rand.NewPCG(seed, 1)), fs: vfs.NewMem(), clock: clock,
			held: [2]map[string]store.Claimed{{}, {}}}
		b.disk, b.mem = openOn(t, b.fs, clock), memstore.New(memstore.WithClock(clock))
		ok := b.do("flow", func(s store.Store, _ int) string {
			return fmt.Sprint(s.SetFlow(t.Context(), "q", halting, nil))
		})
		for n := 0; ok && n < 80; n++ {
			if ok = b.step(); n%9 == 0 {
				wantSound(t, b.disk)
			}
			ok = ok && !t.Failed()
		}
		b.disk.Close()
		b.mem.Close()
		if !ok {
			t.Fatalf("seed %d", seed)
		}
	}
}

// step makes a random call, and reports whether both engines had the same result.
func (b *both) step() bool {
	id, key := fmt.Sprint("m", b.r.IntN(9)), []string{"a", "b", ""}[b.r.IntN(3)]
	seconds := func(n int) time.Duration { return time.Duration(b.r.IntN(n)) * time.Second }
	now := b.clock.Now().Truncate(time.Millisecond)
	dues := []store.Due{{}, {}, {}, {Delay: seconds(3)}, {At: now.Add(-time.Second)}, {At: now.Add(seconds(5))}}
	due := dues[b.r.IntN(len(dues))]
	switch op := b.r.IntN(20); {
	case op < 5:
		return b.send(id, key, due)
	case op < 9:
		return b.do("claim", b.claim)
	case op < 14:
		return b.settle(id, seconds(3))
	case op < 17:
		return b.change(id, key, due)
	case op < 18:
		by := []time.Duration{time.Microsecond, 300 * time.Microsecond, time.Second, 11 * time.Second}[b.r.IntN(4)]
		b.log = append(b.log, fmt.Sprint("advance ", by))
		b.clock.Advance(by)
	case op < 19:
		b.log = append(b.log, "reopen")
		b.disk.Close()
		b.disk = openOn(b.t, b.fs, b.clock)
	default:
		return b.do("keys", b.keys)
	}
	return true
}

func (b *both) send(id, key string, due store.Due) bool {
	out := store.Outgoing{Message: store.Message{ID: id, Key: key, MaxAttempts: 2}, Due: due}
	switch b.r.IntN(6) {
	case 0:
		out.OnDuplicate.Mode = store.DuplicateFollow
	case 1:
		out.OnDuplicate = store.OnDuplicate{Mode: store.DuplicateReplace, KeepDue: b.r.IntN(2) == 0}
	}
	return b.do(fmt.Sprintf("send %s %q %+v %+v", id, key, due, out.OnDuplicate), func(s store.Store, _ int) string {
		r, err := s.Send(b.t.Context(), "q", []store.Outgoing{out})
		return fmt.Sprint(r, err)
	})
}

func (b *both) settle(id string, delay time.Duration) bool {
	actions := []store.Action{store.Ack, store.Ack, store.Nack, store.Release, store.Bury, store.Snooze}
	as := store.Settlement{Action: actions[b.r.IntN(len(actions))]}
	if as.Action == store.Nack || as.Action == store.Snooze {
		as.Delay = delay
	}
	return b.do(fmt.Sprint("settle ", id, " ", as.Action, as.Delay), func(s store.Store, i int) string {
		m, ok := b.held[i][id]
		if !ok {
			return ""
		}
		delete(b.held[i], id)
		as := as
		as.Receipt = m.Receipt
		r, err := s.Settle(b.t.Context(), "q", []store.Settlement{as})
		return fmt.Sprint(r, err)
	})
}

func (b *both) change(id, key string, due store.Due) bool {
	switch ctx := b.t.Context(); b.r.IntN(5) {
	case 0, 1:
		return b.do("cancel "+id, func(s store.Store, _ int) string {
			r, err := s.Cancel(ctx, "q", store.CancelRequest{IDs: []string{id}})
			return fmt.Sprint(r, err)
		})
	case 2:
		return b.do(fmt.Sprint("reschedule ", id, due), func(s store.Store, _ int) string {
			r, err := s.Reschedule(ctx, "q", []string{id}, due)
			return fmt.Sprint(r, err)
		})
	case 3:
		return b.do("resume "+key, func(s store.Store, _ int) string {
			return fmt.Sprint(s.ResumeKey(ctx, "q", key))
		})
	default:
		return b.do("replay "+id, func(s store.Store, _ int) string {
			r, err := s.Replay(ctx, "q", store.Selection{State: store.StateDead, IDs: []string{id}}, store.Due{})
			return fmt.Sprint(r.Done, err)
		})
	}
}

// keys returns the states of keys, after a claim that sorts messages after a restart.
func (b *both) keys(s store.Store, i int) string {
	text := b.claim(s, i)
	for _, key := range []string{"a", "b"} {
		keys, err := s.Keys(b.t.Context(), "q", store.KeysRequest{Key: key, Limit: 1})
		if err != nil {
			return err.Error()
		}
		k := keys[0]
		text += fmt.Sprint(" ", k.Waiting, k.Leased, k.Holder, k.Held, k.Halted)
	}
	return text
}
