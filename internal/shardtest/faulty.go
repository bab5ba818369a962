package shardtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/internal/shard"
	"github.com/laterq/later/store"
)

// faulty is an engine that fails steps of changes, before they are executed or afterwards. Only calls with a context of
// moving fail: claims give messages back on other goroutines, and begin to move a queue too.
type faulty struct {
	shard.Engine
	rnd   *rand.Rand
	steps int // that are left until one fails; below zero none does
	// between, if set, acts as another process before a step.
	between func()
}

// Unwrap implements store.Wrapper.
func (f *faulty) Unwrap() store.Store { return f.Engine }

var errFaulty = errors.New("the mover was killed")

type movingKey struct{}

// moving returns a context of calls that may fail.
func moving(ctx context.Context) context.Context { return context.WithValue(ctx, movingKey{}, true) }

// fails reports whether a call may fail.
func (f *faulty) fails(ctx context.Context) bool {
	return ctx.Value(movingKey{}) != nil && f.steps >= 0
}

func (f *faulty) step(ctx context.Context, do func() error) error {
	if !f.fails(ctx) {
		return do()
	}
	if f.between != nil && f.rnd.IntN(4) == 0 {
		f.between()
	}
	if f.steps == 0 {
		if f.rnd.IntN(2) == 0 {
			return errFaulty
		}
		return errors.Join(do(), errFaulty)
	}
	f.steps--
	return do()
}

func (f *faulty) SetSign(ctx context.Context, name, sign, former string) error {
	return f.step(ctx, func() error { return f.Engine.SetSign(ctx, name, sign, former) })
}

func (f *faulty) Create(ctx context.Context, name string, s store.Settings) error {
	return f.step(ctx, func() error { return f.Engine.Create(ctx, name, s) })
}

func (f *faulty) Rename(ctx context.Context, from, to, sign, former string) error {
	return f.step(ctx, func() error { return f.Engine.Rename(ctx, from, to, sign, former) })
}

func (f *faulty) Retire(ctx context.Context, name, sign string) error {
	return f.step(ctx, func() error { return f.Engine.Retire(ctx, name, sign) })
}

func (f *faulty) Depart(ctx context.Context, name string, d store.Departure) (departed store.Departed, err error) {
	more := f.fails(ctx) && len(d.IDs) > 2 && f.rnd.IntN(2) == 0
	if more {
		d.IDs = d.IDs[:2]
	}
	err = f.step(ctx, func() error {
		departed, err = f.Engine.Depart(ctx, name, d)
		departed.More = departed.More || more
		return err
	})
	return departed, err
}

// Scan returns all in order, so that a history can be repeated.
func (f *faulty) Scan(ctx context.Context, name, cursor string) (store.Scanned, error) {
	part, err := f.Engine.Scan(ctx, name, cursor)
	slices.Sort(part.IDs)
	slices.Sort(part.Keys)
	slices.SortFunc(part.Once, func(a, b store.OnceID) int { return strings.Compare(a.Key, b.Key) })
	return part, err
}

func (f *faulty) Arrive(ctx context.Context, p *store.Parcel) error {
	return f.step(ctx, func() error { return f.Engine.Arrive(ctx, p) })
}

func (f *faulty) Expect(ctx context.Context, name string, e store.Expected) (last int64, err error) {
	err = f.step(ctx, func() error {
		last, err = f.Engine.Expect(ctx, name, e)
		return err
	})
	return last, err
}

func (f *faulty) Empty(ctx context.Context, name string, number int64) error {
	return f.step(ctx, func() error { return f.Engine.Empty(ctx, name, number) })
}

// gathering is a store that gathers all messages in one shard for a claim, with the housekeeping of all shards done.
type gathering struct{ prefixed }

// forwardingGathering is one that is a store.Forwarder.
type forwardingGathering struct {
	gathering
	forwards forwarding
}

func (g forwardingGathering) ForwardsTo(queue string, to store.Target) (bool, error) {
	return g.forwards.ForwardsTo(queue, to)
}

func (g forwardingGathering) Deliver(ctx context.Context, to store.Target, msgs []store.Claimed) error {
	return g.forwards.Deliver(ctx, to, msgs)
}

// gather returns a gathering store, and makes its changes step by step.
func gather(s store.Store) store.Store {
	switch s := s.(type) {
	case forwarding:
		shard.Stepwise(s.prefixed.Store)
		return forwardingGathering{gathering(s), s}
	case prefixed:
		shard.Stepwise(s.Store)
		return gathering{s}
	}
	return s
}

// gather does the housekeeping of all shards, and moves all messages to where they belong.
func (g gathering) gather(ctx context.Context, queue string) (kept store.Claim, err error) {
	names, err := shard.Gather(ctx, g.Store, queue)
	if err == nil && len(names) > 1 {
		for _, name := range names {
			if err := g.keepHouse(ctx, name, &kept); err != nil {
				return kept, err
			}
		}
		_, err = shard.Gather(ctx, g.Store, queue)
	}
	kept.Died, kept.Dropped = g.outIDs(kept.Died), g.outIDs(kept.Dropped)
	return kept, err
}

// keepHouse has a claim on a paused sub-queue, which does its housekeeping and nothing else.
func (g gathering) keepHouse(ctx context.Context, name string, kept *store.Claim) error {
	w, _ := g.Store.(store.Wrapper)
	engine := w.Unwrap()
	stats, err := engine.Stats(ctx, name)
	if err == nil {
		err = engine.SetPaused(ctx, name, true)
	}
	if err != nil {
		return err
	}
	claim, err := engine.Claim(ctx, name, store.ClaimRequest{Max: 1, Lease: time.Minute})
	if err != nil {
		return err
	}
	kept.Died, kept.Dropped = append(kept.Died, claim.Died...), append(kept.Dropped, claim.Dropped...)
	return engine.SetPaused(ctx, name, stats.Paused)
}

func (g gathering) Claim(ctx context.Context, queue string, req store.ClaimRequest) (store.Claim, error) {
	kept, err := g.gather(ctx, queue)
	if err != nil {
		return kept, err
	}
	claim, err := g.prefixed.Claim(ctx, queue, req)
	claim.Died, claim.Dropped = append(kept.Died, claim.Died...), append(kept.Dropped, claim.Dropped...)
	return claim, err
}

func (g forwardingGathering) Forward(
	ctx context.Context, queue string, req store.ForwardRequest,
) (store.Forwarded, error) {
	kept, err := g.gather(ctx, queue)
	if err != nil {
		return store.Forwarded{}, err
	}
	f, err := g.forwards.Forward(ctx, queue, req)
	f.Died, f.Dropped = append(kept.Died, f.Died...), append(kept.Dropped, f.Dropped...)
	return f, err
}
