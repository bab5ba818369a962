package shard_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/laterq/later/internal/shard"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// dying is an engine whose process dies after it has written that a change is over.
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
	if err := store.SetShards(ctx, over, "q", 1); err != nil {
		t.Fatal(err)
	}
	names, err := shard.Names(ctx, over, "q")
	if err != nil || len(names) != 3 {
		t.Fatalf("sub-queues %q, error %v", names, err)
	}
	if err := steps(open(dying{engine}), 1); !errors.Is(err, errDied) {
		t.Fatalf("the process did not die: %v", err)
	}
	for _, name := range names[1:] {
		if sign, err := engine.Sign(ctx, name); sign == "" || err != nil {
			t.Errorf("sub-queue %s is left: sign %q, error %v", name, sign, err)
		}
	}
	if left, err := shard.Names(ctx, over, "q"); len(left) != 1 || err != nil {
		t.Errorf("sub-queues %q, error %v", left, err)
	}
}
