package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
	"github.com/laterq/later/store/storetest"
)

// faulty is an engine whose steps of changes fail, before they are executed or afterwards.
type faulty struct {
	Engine
	store.Forwarder
	rnd   *rand.Rand
	steps int // that are left until one fails; below zero none does
}

var errFaulty = errors.New("the mover was killed")

func (f *faulty) step(do func() error) error {
	if f.steps < 0 {
		return do()
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
	return f.step(func() error { return f.Engine.SetSign(ctx, name, sign, former) })
}

func (f *faulty) Create(ctx context.Context, name string, s store.Settings) error {
	return f.step(func() error { return f.Engine.Create(ctx, name, s) })
}

func (f *faulty) Rename(ctx context.Context, from, to, sign, former string) error {
	return f.step(func() error { return f.Engine.Rename(ctx, from, to, sign, former) })
}

func (f *faulty) Retire(ctx context.Context, name, sign string) error {
	return f.step(func() error { return f.Engine.Retire(ctx, name, sign) })
}

func (f *faulty) Depart(ctx context.Context, name string, d store.Departure) (departed store.Departed, err error) {
	if f.steps >= 0 && len(d.IDs) > 2 && f.rnd.IntN(2) == 0 {
		d.IDs = d.IDs[:2]
	}
	err = f.step(func() error {
		departed, err = f.Engine.Depart(ctx, name, d)
		return err
	})
	return departed, err
}

// Scan returns all in order, so that a history can be repeated.
func (f *faulty) Scan(ctx context.Context, name, cursor string) (store.Scanned, error) {
	part, err := f.Engine.Scan(ctx, name, cursor)
	slices.Sort(part.IDs)
	slices.SortFunc(part.Once, func(a, b store.OnceID) int { return strings.Compare(a.Key, b.Key) })
	return part, err
}

func (f *faulty) Arrive(ctx context.Context, p *store.Parcel) error {
	return f.step(func() error { return f.Engine.Arrive(ctx, p) })
}

func (f *faulty) Empty(ctx context.Context, name string, number int64) error {
	return f.step(func() error { return f.Engine.Empty(ctx, name, number) })
}

// changer changes the number of shards of queues in small steps, which may fail.
type changer struct {
	s   forwarder
	f   *faulty
	rnd *rand.Rand
	max int
	// changes counts the changes that have come to their end.
	changes int
}

// newChanger returns a store over an engine and its changer. No goroutine of the store makes a change.
func newChanger(engine Engine, seed uint64, most int) *changer {
	rnd := rand.New(rand.NewPCG(seed, seed))
	f := &faulty{Engine: engine, Forwarder: engine.(store.Forwarder), rnd: rnd, steps: -1}
	s := New(f, slog.New(slog.DiscardHandler)).(forwarder)
	s.ended = true
	s.late = 0
	return &changer{s: s, f: f, rnd: rnd, max: most}
}

// step makes a part of a change.
func (c *changer) step(ctx context.Context, queue string) error {
	c.f.steps = c.rnd.IntN(12)
	defer func() { c.f.steps = -1 }()
	r, err := c.s.read(ctx, queue)
	if err == nil {
		err = c.part(ctx, queue, r)
	}
	if errors.Is(err, errFaulty) || errors.Is(err, store.ErrConflict) || isMoved(err) {
		return nil
	}
	return err
}

func (c *changer) part(ctx context.Context, queue string, r *route) (err error) {
	n := 1 + c.rnd.IntN(c.max)
	switch {
	case r == nil:
		if stats, err := c.f.Engine.Stats(ctx, queue); err != nil || !stats.Exists {
			return err
		}
		return c.s.begin(ctx, queue, n)
	case r.Phase == preparing:
		return c.s.prepare(ctx, r)
	case r.Phase == deleting:
		return c.s.finishDelete(ctx, r)
	case r.Phase == settled:
		if c.rnd.IntN(2) == 0 {
			return nil
		}
		return c.s.beginAgain(ctx, r, n)
	case r.Emptied != 0:
		c.changes++
		return c.s.finish(ctx, r)
	}
	_, _, err = c.s.pass(ctx, r)
	return err
}

// gathering is a store whose claims find all messages in one shard, with the housekeeping of all shards done.
type gathering struct {
	prefixed
	c *changer
}

// gather does the housekeeping of all shards, and moves all messages to where they belong.
func (g gathering) gather(ctx context.Context, queue string) (kept store.Claim, err error) {
	err = g.s().with(ctx, queue, func(r *route) error {
		if r == nil {
			return nil
		}
		for _, name := range r.names {
			if err := g.keepHouse(ctx, name, &kept); err != nil {
				return err
			}
		}
		if r.Phase == moving && r.Emptied == 0 {
			if r, err = g.s().read(ctx, queue); err == nil && r.Phase == moving {
				_, _, err = g.s().pass(ctx, r)
			}
			return err
		}
		return nil
	})
	kept.Died, kept.Dropped = g.outIDs(kept.Died), g.outIDs(kept.Dropped)
	return kept, err
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

func (g gathering) Forward(
	ctx context.Context, queue string, req store.ForwardRequest,
) (store.Forwarded, error) {
	kept, err := g.gather(ctx, queue)
	if err != nil {
		return store.Forwarded{}, err
	}
	f, err := g.prefixed.Forward(ctx, queue, req)
	f.Died, f.Dropped = append(kept.Died, f.Died...), append(kept.Dropped, f.Dropped...)
	return f, err
}

func (g gathering) s() *Store { return g.prefixed.Store }

// keepHouse has a claim do its housekeeping and nothing else.
func (g gathering) keepHouse(ctx context.Context, name string, kept *store.Claim) error {
	engine := g.c.f.Engine
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

// openChanging returns a harness of a store in memory whose queues get other numbers of shards all the time.
func openChanging(changes *int) func(t *testing.T) storetest.Harness {
	return func(t *testing.T) storetest.Harness {
		clock := memstore.NewManualClock(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
		c := newChanger(memstore.New(memstore.WithClock(clock)), 1, 5)
		last, pcg := "", rand.NewPCG(1, 1)
		c.rnd = rand.New(pcg)
		c.f.rnd = c.rnd
		p := prefixed{c.s, fmt.Sprint("p", opened.Add(1)), func(_, queue string) {
			if queue != last { // another history, which can be repeated
				last = queue
				pcg.Seed(1, 1)
			}
			if c.rnd.IntN(2) == 0 {
				if err := c.step(t.Context(), queue); err != nil {
					t.Error(err)
				}
			}
			*changes = c.changes
		}}
		g := gathering{p, c}
		return storetest.Harness{Store: g, Peer: g, Exact: true, Sharded: true,
			Advance: func(_ testing.TB, _ string, d time.Duration) { clock.Advance(d) }}
	}
}

func TestStateMachineWhileTheNumberOfShardsChanges(t *testing.T) {
	changes := 0
	storetest.RunStateMachine(t, openChanging(&changes))
	if t.Logf("%d changes", changes); changes == 0 && !t.Failed() {
		t.Error("no change has come to its end")
	}
}
