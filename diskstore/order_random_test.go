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
	names []string     // of keys
	flows []store.Flow // one is set now and then
	exact bool         // claims take up to three messages, and their order is compared
	most  int          // how many messages the next claim takes
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

// claim claims all that starts now, or up to b.most messages, and returns their ids.
func (b *both) claim(s store.Store, i int) string {
	var ids []string
	for more := true; more; {
		c, err := s.Claim(b.t.Context(), "q", store.ClaimRequest{Max: b.most, Lease: 10 * time.Second})
		if err != nil {
			return err.Error()
		}
		more = c.More && !b.exact
		for _, m := range c.Messages {
			ids = append(ids, m.ID)
			b.held[i][m.ID] = m
		}
	}
	if !b.exact {
		slices.Sort(ids)
	}
	return fmt.Sprint(ids)
}

// TestOrderIsThatOfTheMemory compares random histories of an ordered queue, in which this engine is opened again, with
// those of the engine in memory. Keys forget their turns then, so it compares the starts without their order.
func TestOrderIsThatOfTheMemory(t *testing.T) {
	withUrgency := halting
	withUrgency.Urgency = true
	b := both{names: []string{"a", "b", ""}, flows: []store.Flow{withUrgency, withUrgency, halting}}
	b.compare(t)
}

// TestUrgencyIsThatOfTheMemory compares the order of starts where all messages have the same key, or none.
func TestUrgencyIsThatOfTheMemory(t *testing.T) {
	for _, flows := range [][]store.Flow{
		{{Urgency: true}, {Fair: true}, {Urgency: true, Concurrency: 3}, {}},
		{{Urgency: true, Key: halting.Key}, halting, {Urgency: true, Key: halting.Key}, {}},
	} {
		for _, key := range []string{"", "a"} {
			b := both{names: []string{key}, exact: true, flows: flows}
			b.compare(t)
		}
	}
}

func (as both) compare(t *testing.T) {
	seeds := uint64(50)
	if os.Getenv("LATER_LONG") != "" {
		seeds = 5000
	}
	for seed := range seeds {
		clock := newManualClock()
		b := as
		b.t, b.r, b.fs, b.clock = t, rand.New(rand.NewPCG(seed, 1)), vfs.NewMem(), clock
		b.held, b.most = [2]map[string]store.Claimed{{}, {}}, 10
		b.disk, b.mem = openOn(t, b.fs, clock), memstore.New(memstore.WithClock(clock))
		ok := b.setFlow(as.flows[0])
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
	id, key := fmt.Sprint("m", b.r.IntN(9)), b.names[b.r.IntN(len(b.names))]
	if b.exact {
		b.most = 1 + b.r.IntN(3)
	}
	seconds := func(n int) time.Duration { return time.Duration(b.r.IntN(n)) * time.Second }
	now := b.clock.Now().Truncate(time.Millisecond)
	dues := []store.Due{{}, {}, {}, {Delay: seconds(3)}, {At: now.Add(-time.Second)}, {At: now.Add(seconds(5))}}
	due := dues[b.r.IntN(len(dues))]
	switch op := b.r.IntN(21); {
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
		return b.do("claim", b.claim) // sorts messages again
	case op < 20:
		return b.setFlow(b.flows[b.r.IntN(len(b.flows))])
	default:
		return b.do("keys", b.keys)
	}
	return true
}

func (b *both) setFlow(f store.Flow) bool {
	return b.do(fmt.Sprintf("flow %+v", f), func(s store.Store, _ int) string {
		return fmt.Sprint(s.SetFlow(b.t.Context(), "q", f, nil))
	})
}

func (b *both) send(id, key string, due store.Due) bool {
	u := urgencies[b.r.IntN(len(urgencies))]
	out := store.Outgoing{Message: store.Message{ID: id, Key: key, MaxAttempts: 2, Urgency: u}, Due: due}
	switch n := b.r.IntN(6); {
	case n == 0:
		out.OnDuplicate.Mode = store.DuplicateFollow
	case n == 1 || b.exact && n < 4:
		out.OnDuplicate = store.OnDuplicate{Mode: store.DuplicateReplace, KeepDue: b.exact || b.r.IntN(2) == 0}
	}
	return b.do(fmt.Sprintf("send %s %q %q %+v %+v", id, key, u, due, out.OnDuplicate), func(s store.Store, _ int) string {
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
	for _, key := range b.names {
		if key == "" {
			continue
		}
		keys, err := s.Keys(b.t.Context(), "q", store.KeysRequest{Key: key, Limit: 1})
		if err != nil {
			return err.Error()
		}
		if len(keys) == 0 {
			continue // the queue is plain
		}
		k := keys[0]
		text += fmt.Sprint(" ", k.Waiting, k.Leased, k.Holder, k.Held, k.Halted)
	}
	return text
}
