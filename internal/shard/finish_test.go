package shard_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/internal/shard"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// dying is the engine of a process that dies after it has written that a change is over.
type dying struct{ shard.Engine }

var errDied = errors.New("the process has died")

func (d dying) SetSign(ctx context.Context, name, sign, former string) error {
	err := d.Engine.SetSign(ctx, name, sign, former)
	if err == nil && strings.Contains(sign, "settled") {
		return errDied
	}
	return err
}

func TestNoSubQueueIsLeftByAProcessThatDiesAsAChangeEnds(t *testing.T) {
	ctx, engine := t.Context(), any(memstore.New()).(shard.Engine)
	open := func(e shard.Engine) store.Store {
		over := shard.New(e, slog.New(slog.DiscardHandler))
		t.Cleanup(func() { shard.Stop(over) })
		shard.Stepwise(over)
		return over
	}
	steps := func(over store.Store, n int) (err error) {
		for ended := false; err == nil && !ended; {
			ended, err = shard.Step(ctx, over, "q", n)
		}
		return err
	}
	over := open(engine)
	msgs := []store.Outgoing{{Message: store.Message{ID: "a"}}, {Message: store.Message{ID: "b"}}}
	if _, err := over.Send(ctx, "q", msgs); err != nil {
		t.Fatal(err)
	}
	if err := steps(over, 3); err != nil {
		t.Fatal(err)
	}
	if err := store.SetShards(ctx, over, "q", 2); err != nil {
		t.Fatal(err)
	}
	names, err := shard.Names(ctx, over, "q")
	if err != nil || len(names) != 3 {
		t.Fatalf("sub-queues %q, error %v", names, err)
	}
	if err := steps(open(dying{engine}), 2); !errors.Is(err, errDied) {
		t.Fatalf("the process did not die: %v", err)
	}
	for _, name := range names[2:] {
		if sign, err := engine.Sign(ctx, name); sign == "" || err != nil {
			t.Errorf("sub-queue %s is left: sign %q, error %v", name, sign, err)
		}
	}
	if left, err := shard.Names(ctx, over, "q"); len(left) != 2 || err != nil {
		t.Errorf("sub-queues %q, error %v", left, err)
	}
}

// Another process need not wait for the turn of a mover that has ended.
func TestAProcessThatEndsIsNotTheMoverAnyMore(t *testing.T) {
	ctx, engine := t.Context(), memstore.New()
	over := shard.New(engine, slog.New(slog.DiscardHandler))
	if _, err := over.Send(ctx, "q", []store.Outgoing{{Message: store.Message{ID: "held"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := over.Claim(ctx, "q", store.ClaimRequest{Max: 1, Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for n := 2; ; n++ { // in which the message moves
		if shard.Of(store.Slot("held"), n) > 0 {
			if err := store.SetShards(ctx, over, "q", n); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	mover := func() string {
		name, err := shard.Mover(ctx, over, "q")
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	for mover() == "" {
		runtime.Gosched()
	}
	shard.Stop(over)
	if name := mover(); name != "" {
		t.Errorf("the mover is %q", name)
	}
}

// A queue that has one shard again has its own name, and everything that a queue without shards can have.
func TestAQueueWithOneShardAgainIsAsBefore(t *testing.T) {
	ctx, engine := t.Context(), any(memstore.New()).(shard.Engine)
	over := shard.New(engine, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { shard.Stop(over) })
	shard.Stepwise(over)
	steps := func(n int) {
		t.Helper()
		for ended := false; !ended; {
			var err error
			if ended, err = shard.Step(ctx, over, "q", n); err != nil {
				t.Fatal(err)
			}
		}
	}
	var msgs []store.Outgoing
	for i := range 9 {
		msgs = append(msgs, store.Outgoing{Message: store.Message{ID: string(rune('a' + i))}})
	}
	if _, err := over.Send(ctx, "q", msgs); err != nil {
		t.Fatal(err)
	}
	steps(3)
	flow := store.Flow{Concurrency: 2}
	if err := over.SetFlow(ctx, "q", flow, nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("limits with three shards: %v", err)
	}
	var held []store.Claimed
	for len(held) == 0 || held[0].Receipt.Lease[len(held[0].Receipt.Lease)-2:] != "00" { // of the first shard
		claim, err := over.Claim(ctx, "q", store.ClaimRequest{Max: 1, Lease: time.Hour})
		if err != nil || len(claim.Messages) != 1 {
			t.Fatalf("%+v, %v", claim, err)
		}
		if held = claim.Messages; held[0].Receipt.Lease[len(held[0].Receipt.Lease)-2:] != "00" {
			release := []store.Settlement{{Receipt: held[0].Receipt, Action: store.Snooze, Delay: time.Hour}}
			if _, err := over.Settle(ctx, "q", release); err != nil {
				t.Fatal(err)
			}
		}
	}
	steps(1)
	if sign, err := engine.Sign(ctx, "q"); sign != "" || err != nil {
		t.Errorf("sign %q, error %v", sign, err)
	}
	if err := over.SetFlow(ctx, "q", flow, nil); err != nil {
		t.Error(err)
	}
	lease := held[0].Receipt.Lease
	extended, err := over.Extend(ctx, "q", []store.Extension{{Lease: lease, For: time.Hour}})
	if err != nil || extended[0].Err != nil {
		t.Errorf("extend: %+v, %v", extended, err)
	}
	settled, err := over.Settle(ctx, "q", []store.Settlement{{Receipt: held[0].Receipt, Action: store.Ack}})
	if err != nil || settled[0].Err != nil {
		t.Errorf("settle: %+v, %v", settled, err)
	}
	if stats, err := over.Stats(ctx, "q"); stats.Scheduled+stats.Ready != 8 || stats.Leased != 0 || err != nil {
		t.Errorf("%+v, %v", stats, err)
	}
}

// A process sets the limits of a key, and has not heard that all messages have moved. The former shard of the key does
// not keep them, so they do not come back after they were removed.
func TestNoLimitsOfAKeyAreLeftWhereTheKeyWas(t *testing.T) {
	ctx, engine := t.Context(), any(memstore.New()).(shard.Engine)
	open := func() store.Store {
		over := shard.New(engine, slog.New(slog.DiscardHandler))
		t.Cleanup(func() { shard.Stop(over) })
		shard.Stepwise(over)
		return over
	}
	over, late := open(), open()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	directory := func() string {
		t.Helper()
		text, err := shard.Directory(ctx, over, "q")
		do(err)
		return text
	}
	key := "a"
	for i := 0; shard.Of(store.KeySlot(key), 2) != 1; i++ {
		key = fmt.Sprint(i)
	}
	overrides := func() int {
		t.Helper()
		keys, err := over.Keys(ctx, "q", store.KeysRequest{Overridden: true, Limit: 9})
		do(err)
		return len(keys)
	}
	// to steps until a directory has a text.
	to := func(n int, text string) {
		t.Helper()
		for range 20 {
			_, err := shard.Step(ctx, over, "q", n)
			do(err)
			if strings.Contains(directory(), text) {
				return
			}
		}
		t.Fatalf("the directory is %s", directory())
	}
	do(over.SetFlow(ctx, "q", store.Flow{Fair: true}, nil))
	to(2, "moving")
	_, err := shard.Names(ctx, late, "q")
	do(err)
	to(2, "emptied")
	do(late.SetKeyFlow(ctx, "q", key, store.KeyOverride{Rate: &store.Rate{}}))
	to(2, "settled")
	names, err := shard.Names(ctx, over, "q")
	do(err)
	for i, name := range names {
		keys, err := engine.Keys(ctx, name, store.KeysRequest{Overridden: true, Limit: 9})
		if err != nil || len(keys) != i {
			t.Errorf("shard %d has limits of keys %v, error %v", i, keys, err)
		}
	}
	do(over.SetKeyFlow(ctx, "q", key, store.KeyOverride{}))
	for ended := false; !ended; {
		ended, err = shard.Step(ctx, over, "q", 1)
		do(err)
	}
	if n := overrides(); n != 0 {
		t.Errorf("limits of %d keys have come back", n)
	}
}
