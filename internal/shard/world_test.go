package shard

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// spied is the engine of one process. A test acts before and after its calls.
type spied struct {
	*memstore.Store
	before, after func(call, name string) error
	run           string // of the server
}

func (e *spied) Close() error { return nil }

func spy[T any](e *spied, call, name string, do func() (T, error)) (result T, err error) {
	if f := e.before; f != nil {
		if err := f(call, name); err != nil {
			return result, err
		}
	}
	if result, err = do(); err == nil && e.after != nil {
		err = e.after(call, name)
	}
	return result, err
}

func (e *spied) Depart(ctx context.Context, name string, d store.Departure) (store.Departed, error) {
	return spy(e, "Depart", name, func() (store.Departed, error) { return e.Store.Depart(ctx, name, d) })
}

func (e *spied) Stats(ctx context.Context, name string) (store.Stats, error) {
	return spy(e, "Stats", name, func() (store.Stats, error) { return e.Store.Stats(ctx, name) })
}

func (e *spied) SetFlow(ctx context.Context, name string, f store.Flow, former *store.Flow) error {
	_, err := spy(e, "SetFlow", name, func() (any, error) { return nil, e.Store.SetFlow(ctx, name, f, former) })
	return err
}

func (e *spied) SetSign(ctx context.Context, name, sign, former string) error {
	_, err := spy(e, "SetSign", name, func() (any, error) { return nil, e.Store.SetSign(ctx, name, sign, former) })
	return err
}

func (e *spied) Create(ctx context.Context, name string, s store.Settings) error {
	_, err := spy(e, "Create", name, func() (any, error) { return nil, e.Store.Create(ctx, name, s) })
	return err
}

func (e *spied) Rename(ctx context.Context, from, to, sign, former string) error {
	_, err := spy(e, "Rename", from, func() (any, error) { return nil, e.Store.Rename(ctx, from, to, sign, former) })
	return err
}

// world is an engine that several processes use.
type world struct {
	*testing.T
	engine *memstore.Store
	clock  *memstore.ManualClock
}

func newWorld(t *testing.T) *world {
	clock := memstore.NewManualClock(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	w := &world{t, memstore.New(memstore.WithClock(clock)), clock}
	t.Cleanup(func() { w.engine.Close() })
	return w
}

// sharing returns a world with a queue of n shards that share limits, and a process that has set both.
func sharing(t *testing.T, f store.Flow, n int) (w *world, s forwarder) {
	t.Helper()
	w = newWorld(t)
	s, _ = w.process()
	w.ok(s.SetFlow(t.Context(), "q", f, nil))
	w.steps(s, n)
	return w, s
}

// process returns the store of another process.
func (w *world) process() (forwarder, *spied) {
	e := &spied{Store: w.engine}
	over := New(e, slog.New(slog.DiscardHandler)).(forwarder)
	Stepwise(over)
	return over, e
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) step(s forwarder, n int) (ended bool) {
	w.Helper()
	ended, err := Step(w.Context(), s, "q", n)
	w.ok(err)
	return ended
}

// steps changes the number of shards.
func (w *world) steps(s forwarder, n int) {
	w.Helper()
	for range 50 {
		w.clock.Advance(time.Second)
		if w.step(s, n) {
			return
		}
	}
	w.Fatal("the change does not end")
}

func (w *world) send(s store.Store, key string, ids ...string) {
	w.Helper()
	var msgs []store.Outgoing
	for _, id := range ids {
		msgs = append(msgs, store.Outgoing{Message: store.Message{ID: id, Key: key, MaxAttempts: 3}})
	}
	results, err := s.Send(w.Context(), "q", msgs)
	if err == nil {
		err = store.SendError(results)
	}
	w.ok(err)
}

func (w *world) claim(s forwarder) []store.Claimed {
	w.Helper()
	_, err := s.read(w.Context(), "q")
	w.ok(err)
	c, err := s.Claim(w.Context(), "q", store.ClaimRequest{Max: 10, Lease: time.Hour})
	w.ok(err)
	return c.Messages
}

func (w *world) settle(s forwarder, m store.Claimed, a store.Action) {
	w.Helper()
	r, err := s.Settle(w.Context(), "q", []store.Settlement{{Receipt: m.Receipt, Action: a}})
	w.ok(err)
	w.ok(r[0].Err)
}

// moves returns a key that moves from a shard of n to one of m.
func moves(n, at, m, to int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("k", i); Of(store.KeySlot(key), n) == at && Of(store.KeySlot(key), m) == to {
			return key
		}
	}
}

var ordered = store.Flow{Key: store.KeyFlow{Order: store.OrderHalt}}

// lose has the server of a sub-queue lose all data.
func (w *world) lose(name string) {
	w.ok(w.engine.Retire(w.Context(), name, gone))
	w.ok(w.engine.SetSign(w.Context(), name, "", gone))
}

func (e *spied) Scan(ctx context.Context, name, cursor string) (store.Scanned, error) {
	page, err := spy(e, "Scan", name, func() (store.Scanned, error) { return e.Store.Scan(ctx, name, cursor) })
	page.Run = e.run
	return page, err
}
