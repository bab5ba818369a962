package shard_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/laterq/later/internal/shard"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// lateExpect is an engine on which calls that expect keys arrive late, or after another call.
type lateExpect struct {
	shard.Engine
	keeps  bool // calls are kept in late
	late   []func() error
	before func() // is called once before a call
}

// Unwrap implements store.Wrapper.
func (l *lateExpect) Unwrap() store.Store { return l.Engine }

func (l *lateExpect) Expect(ctx context.Context, name string, e store.Expected) (int64, error) {
	if len(e.Keys) == 0 || e.None || name == e.From {
		return l.Engine.Expect(ctx, name, e)
	}
	if l.keeps {
		l.late = append(l.late, func() error {
			_, err := l.Engine.Expect(context.Background(), name, e)
			return err
		})
		return 0, errors.New("the mover was stopped")
	}
	if before := l.before; before != nil {
		l.before = nil
		before()
	}
	return l.Engine.Expect(ctx, name, e)
}

// late is a Fair queue that changes from one shard to two.
type late struct {
	*testing.T
	*lateExpect
	over store.Store
	key  string // moves to the second shard
}

func newLate(t *testing.T) late {
	l := late{T: t, lateExpect: &lateExpect{Engine: any(memstore.New()).(shard.Engine)}}
	l.over = shard.New(l.lateExpect, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { shard.Stop(l.over) })
	shard.Stepwise(l.over)
	l.ok(l.over.SetFlow(t.Context(), "q", store.Flow{Fair: true}, nil))
	for i := 0; shard.Of(store.Slot(l.key), 2) != 1; i++ {
		l.key = fmt.Sprint("k", i)
	}
	l.send("1")
	return l
}

func (l *late) ok(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *late) send(id string) {
	l.Helper()
	m := store.Message{ID: l.key + "/" + id, Key: l.key}
	results, err := l.over.Send(l.Context(), "q", []store.Outgoing{{Message: m}})
	l.ok(err)
	l.ok(results[0].Err)
}

func (l *late) claim() store.Claimed {
	l.Helper()
	for range 3 { // shards
		claim, err := l.over.Claim(l.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Hour})
		l.ok(err)
		if len(claim.Messages) == 1 {
			return claim.Messages[0]
		}
	}
	l.Fatal("nothing is claimed")
	return store.Claimed{}
}

// steps makes steps of a change to n shards until one ends it.
func (l *late) steps(n int) {
	l.Helper()
	for range 20 {
		ended, err := shard.Step(l.Context(), l.over, "q", n)
		if l.ok(err); ended {
			return
		}
	}
	directory, _ := shard.Directory(l.Context(), l.over, "q")
	l.Fatalf("the change does not end: %s", directory)
}

func TestAKeyThatIsExpectedTooLateStarts(t *testing.T) {
	l := newLate(t)
	held := l.claim()
	l.keeps = true
	for len(l.lateExpect.late) == 0 {
		_, _ = shard.Step(t.Context(), l.over, "q", 2)
	}
	l.keeps = false
	_, err := l.over.Settle(t.Context(), "q", []store.Settlement{{Receipt: held.Receipt, Action: store.Ack}})
	l.ok(err)
	for range 2 { // the last window, and a pass
		_, err = shard.Step(t.Context(), l.over, "q", 2)
		l.ok(err)
	}
	for _, call := range l.lateExpect.late {
		if err := call(); !errors.Is(err, store.ErrConflict) {
			t.Errorf("a late call returns %v", err)
		}
	}
	l.steps(2)
	l.send("2")
	l.claim()
}

func TestAKeyThatDepartsTooLateHoldsUpNoChange(t *testing.T) {
	l := newLate(t)
	for moved := false; !moved; {
		_, err := shard.Step(t.Context(), l.over, "q", 2)
		l.ok(err)
		shards, err := store.ShardsOf(t.Context(), l.over, "q")
		l.ok(err)
		moved = shards.Number == 2 && !shards.Moving
	}
	names, err := shard.Names(t.Context(), l.over, "q")
	l.ok(err)
	_, err = l.Depart(t.Context(), names[0], store.Departure{To: names[1], Keys: []string{l.key}})
	l.ok(err)
	l.steps(2)
	l.steps(3)
	l.claim()
}

// A parcel arrives between the departure that finds a key busy and the call that expects it.
func TestASendIsNotRefusedWhileItsKeyMoves(t *testing.T) {
	l := newLate(t)
	l.send("2")
	held := l.claim()
	for range 2 { // begins and prepares
		_, err := shard.Step(t.Context(), l.over, "q", 2)
		l.ok(err)
	}
	names, err := shard.Names(t.Context(), l.over, "q")
	l.ok(err)
	l.before = func() {
		d, err := l.Depart(t.Context(), names[0],
			store.Departure{To: names[1], IDs: []string{l.key + "/1", l.key + "/2"}})
		l.ok(err)
		l.ok(l.Arrive(t.Context(), d.Parcel))
		l.ok(l.Empty(t.Context(), names[0], d.Parcel.Number))
	}
	results, err := l.over.Send(t.Context(), "q", []store.Outgoing{{Message: store.Message{ID: held.ID, Key: l.key}}})
	if l.ok(err); !results[0].Duplicate || l.before != nil {
		t.Errorf("the message is held, and a send of its id has the result %+v", results[0])
	}
}

func TestLimitsOfAKeyWaitUntilItHasMoved(t *testing.T) {
	l := newLate(t)
	held := l.claim()
	three := 3
	set := func() error {
		return l.over.SetKeyFlow(t.Context(), "q", l.key, store.KeyOverride{Weight: &three})
	}
	for range 3 {
		_, err := shard.Step(t.Context(), l.over, "q", 2)
		l.ok(err)
	}
	if err := set(); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the limits of a key that moves are set: %v", err)
	}
	if err := l.over.SetFlow(t.Context(), "q", store.Flow{Concurrency: 5}, nil); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("limits are set while messages move: %v", err)
	}
	_, err := l.over.Settle(t.Context(), "q", []store.Settlement{{Receipt: held.Receipt, Action: store.Ack}})
	l.ok(err)
	l.steps(2)
	l.ok(set())
	keys, err := l.over.Keys(t.Context(), "q", store.KeysRequest{Key: l.key, Limit: 1})
	if l.ok(err); len(keys) != 1 || keys[0].Weight != three {
		t.Errorf("the key is %+v", keys)
	}
}
