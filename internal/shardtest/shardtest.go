// Package shardtest runs the conformance suite and the state machine of package storetest over the shards of an engine.
// Start reading at Run and RunStateMachine. It is for tests.
package shardtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/shard"
	"github.com/laterq/later/store"
	"github.com/laterq/later/store/storetest"
)

// Engine is an engine under test.
type Engine struct {
	storetest.Harness // Store and Peer are each a shard.Engine
	// Sync sets the clock of a sub-queue to that of its queue. It is nil if an engine has one clock.
	Sync func(t testing.TB, queue, name string)
}

var opened atomic.Int64

// clocks keeps the clocks of all sub-queues alike.
type clocks struct {
	shard.Engine
	t    testing.TB
	of   Engine
	mu   *sync.Mutex
	subs map[string][]string // by queue
}

// Unwrap implements store.Wrapper.
func (c clocks) Unwrap() store.Store { return c.Engine }

// Create implements store.SubQueues.
func (c clocks) Create(ctx context.Context, name string, s store.Settings) error {
	queue, _, _, _ := store.CutSubQueue(name)
	c.mu.Lock()
	c.subs[queue] = append(c.subs[queue], name)
	c.mu.Unlock()
	c.of.Sync(c.t, queue, name)
	return c.Engine.Create(ctx, name, s)
}

func (c clocks) advance(t testing.TB, queue string, d time.Duration) {
	c.of.Advance(t, queue, d)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range c.subs[queue] {
		c.of.Sync(t, queue, name)
	}
}

// open returns a harness of shards over an engine. before is called before the calls on a queue, with the store that
// has shards.
func open(
	t *testing.T, e Engine, over func(shard.Engine) shard.Engine, before func(s store.Store, call, queue string),
) storetest.Harness {
	h := storetest.Harness{Exact: e.Exact, Sharded: true, Advance: e.Advance}
	c := clocks{t: t, of: e, mu: &sync.Mutex{}, subs: map[string][]string{}}
	if e.Sync != nil {
		h.Advance = c.advance
	}
	prefix := fmt.Sprint("p", opened.Add(1))
	with := func(engine store.Store) store.Store {
		forwards, _ := engine.(store.Forwarder)
		below := engine.(shard.Engine)
		if e.Sync != nil {
			own := c
			own.Engine = below
			below = own
		}
		below = over(below)
		if forwards != nil {
			below = forwardingEngine{below, forwards}
		}
		s := shard.New(below, slog.New(slog.DiscardHandler))
		shard.AnyID(s)
		shard.Patience(s, time.Minute) // no shard is down, however busy the machine is
		t.Cleanup(func() { shard.Stop(s) })
		p := prefixed{s, prefix, func(call, queue string) { before(s, call, queue) }}
		if forwards != nil {
			return forwarding{p}
		}
		return p
	}
	h.Store = with(e.Store)
	if h.Peer = h.Store; e.Peer != e.Store {
		h.Peer = with(e.Peer)
	}
	return h
}

type forwardingEngine struct {
	shard.Engine
	store.Forwarder
}

// Unwrap implements store.Wrapper.
func (f forwardingEngine) Unwrap() store.Store { return f.Engine }

// Run runs the conformance suite over queues that have n shards from their first message on.
func Run(t *testing.T, n int, engine func(t *testing.T) Engine) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		var known sync.Map
		h := open(t, engine(t), func(e shard.Engine) shard.Engine { return e }, func(s store.Store, call, queue string) {
			prefix, _ := reserved.Cut(queue)
			if call != "Send" || prefix != "" || store.CheckNewQueue(queue) != nil {
				return
			}
			if _, ok := known.LoadOrStore(queue, true); ok {
				return
			}
			err := store.SetShards(t.Context(), s, queue, n)
			if err == nil {
				_, err = shard.Gather(t.Context(), s, queue)
			}
			if err != nil && !errors.Is(err, store.ErrUnsupported) && t.Context().Err() == nil { // it has a flow
				t.Error(err)
			}
		})
		h.Sharded = n > 1
		return h
	})
}

// RunStateMachine runs the state machine over queues while their number of shards changes again and again, up to 5, in
// parts that may be interrupted at any call of the engine.
func RunStateMachine(t *testing.T, engine func(t *testing.T) Engine) {
	changes := 0
	storetest.RunStateMachine(t, func(t *testing.T) storetest.Harness {
		pcg := rand.NewPCG(1, 1)
		rnd := rand.New(pcg)
		var faults []*faulty
		last := ""
		h := open(t, engine(t), func(e shard.Engine) shard.Engine {
			f := &faulty{Engine: e, rnd: rnd, steps: -1}
			faults = append(faults, f)
			return f
		}, func(s store.Store, _, queue string) {
			if queue != last { // another history, which can be repeated
				last = queue
				pcg.Seed(1, 1)
			}
			if rnd.IntN(2) == 0 {
				return
			}
			steps := rnd.IntN(12)
			for _, f := range faults {
				f.steps = steps
			}
			ended, err := shard.Step(moving(t.Context()), s, queue, 1+rnd.IntN(5))
			for _, f := range faults {
				f.steps = -1
			}
			if err != nil && !errors.Is(err, errFaulty) {
				t.Error(err)
			}
			if ended {
				changes++
			}
		})
		h.Store = gather(h.Store)
		h.Peer = gather(h.Peer)
		return h
	})
	if t.Logf("%d changes", changes); changes == 0 && !t.Failed() {
		t.Error("no change has come to its end")
	}
}
