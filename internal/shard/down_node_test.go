package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// While a node is down, the keys of the other shards of a queue with limits go on, with the shares of these shards,
// for as long as that lasts. This also holds if the node has the directory, and for a process that has SetFlow fail.
func TestKeysOfOtherShardsGoOnWhileANodeIsDown(t *testing.T) {
	for down := range 2 {
		inBubble(t, func(t *testing.T) {
			ctx := t.Context()
			s := newSlow(t)
			defer s.forwarder.Close()
			flow := store.Flow{Concurrency: 4, Rate: store.Rate{N: 4, Per: time.Second, Burst: 2}, Key: store.KeyFlow{
				Order: store.OrderHalt,
			}}
			if err := s.forwarder.SetFlow(ctx, "q", flow, nil); err != nil {
				t.Fatal(err)
			}
			live := 1 - down
			s.set(func(call, name string) error {
				if name != s.r.names[down] && (down > 0 || name != "q") {
					return nil
				}
				if time.Sleep(askAgain); call != "Stats" {
					time.Sleep(9 * askAgain)
				}
				return store.Errorf(store.ErrUnavailable, "the node is down")
			})
			key := moves(1, 0, 2, live)
			id := func(i int) string { return fmt.Sprint(key, "/", i) }
			message := func(i int) store.Outgoing {
				return store.Outgoing{Message: store.Message{ID: id(i), Key: key, MaxAttempts: 3}}
			}
			flow.Concurrency = 6
			if err := s.forwarder.SetFlow(ctx, "q", flow, nil); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("SetFlow: %v", err)
			}
			for i := range 20 {
				s.send(t, message(2*i), message(2*i+1))
				for k := range 2 {
					var claim store.Claim
					for try := 0; len(claim.Messages) == 0 && try < 20; try++ { // the rate of the shard is 2 in a second
						time.Sleep(500 * time.Millisecond)
						claim, _ = s.claim(t)
					}
					if len(claim.Messages) != 1 || claim.Messages[0].ID != id(2*i+k) {
						t.Fatalf("after %d messages: claimed %+v, want %s", 2*i+k, claim.Messages, id(2*i+k))
					}
					ack := store.Settlement{Receipt: claim.Messages[0].Receipt, Action: store.Ack}
					results, err := s.forwarder.Settle(ctx, "q", []store.Settlement{ack})
					if err != nil || results[0].Err != nil {
						t.Fatalf("ack: %+v, %v", results, err)
					}
				}
				time.Sleep(30 * time.Second)
			}
		})
	}
}

// A change does not begin while a node is down that has one of the shards, or gets one. Otherwise no call of the queue
// would be executed until the node is back.
func TestAChangeDoesNotBeginWhileANodeIsDown(t *testing.T) {
	for _, n := range []int{1, 2, 3} { // shards before
		inBubble(t, func(t *testing.T) {
			ctx := t.Context()
			s, engine := newHooked(t)
			defer s.Close()
			if err := s.SetShards(ctx, "q", n); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Minute)
			m := store.Outgoing{Message: store.Message{ID: idOf(n, 0, 4, 0)}}
			if _, err := s.Send(ctx, "q", []store.Outgoing{m}); err != nil {
				t.Fatal(err)
			}
			engine.set(func(call, name string) error {
				if _, _, salt, ok := store.CutSubQueue(name); ok && salt == "1" {
					return store.Errorf(store.ErrUnavailable, "the node is down")
				}
				return nil
			})
			if err := s.SetShards(ctx, "q", 4); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("SetShards with %d shards: %v", n, err)
			}
			infos, err := s.Get(ctx, "q", []string{m.ID})
			if err != nil || infos[0] == nil {
				t.Errorf("a message of another shard: %v, %v", infos, err)
			}
			engine.set(nil)
			if err := s.SetShards(ctx, "q", 4); err != nil {
				t.Errorf("SetShards when the node is back: %v", err)
			}
		})
	}
}

// partlyDown is an engine with a sub-queue that does not answer.
type partlyDown struct {
	*memstore.Store
	down string
}

func (e *partlyDown) refuse(name string) error {
	if name == e.down {
		return store.Errorf(store.ErrUnavailable, "the node is down")
	}
	return nil
}

// Stats is repeated for a minute.
func (e *partlyDown) Stats(ctx context.Context, name string) (store.Stats, error) {
	if err := e.refuse(name); err != nil {
		_ = pause(ctx, time.Minute)
		return store.Stats{}, err
	}
	return e.Store.Stats(ctx, name)
}

func (e *partlyDown) Arrive(ctx context.Context, p *store.Parcel) error {
	if err := e.refuse(p.To); err != nil {
		return err
	}
	return e.Store.Arrive(ctx, p)
}

func (e *partlyDown) Send(ctx context.Context, name string, msgs []store.Outgoing) ([]store.SendResult, error) {
	if err := e.refuse(name); err != nil {
		return nil, err
	}
	return e.Store.Send(ctx, name, msgs)
}

// A node with one of two new shards goes down during a change. The messages for the other one move, and calls for them
// go on.
func TestOtherMessagesMoveWhileANewShardIsDown(t *testing.T) {
	inBubble(t, otherMessagesMove)
}

func otherMessagesMove(t *testing.T) {
	w := newWorld(t)
	e := &partlyDown{Store: w.engine}
	s := New(e, slog.New(slog.DiscardHandler)).(forwarder)
	Stepwise(s)
	lost, moved := idOf(4, 3, 2, 0), idOf(4, 2, 2, 0) // both leave the first shard
	for i := range 20 {
		w.send(s, "", fmt.Sprint(lost, "/", i), fmt.Sprint(moved, "/", i))
	}
	w.steps(s, 2)
	w.step(s, 4)
	w.step(s, 4)
	r := routeOf(t, s, "q")
	if r.Phase != moving {
		t.Fatalf("the directory is %s", r.text)
	}
	e.down = r.names[3]
	began := time.Now()
	for range 2 {
		if _, err := Step(t.Context(), s, "q", 4); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("a pass: %v", err)
		}
	}
	if took := time.Since(began); took > 3*askAgain {
		t.Errorf("two passes have taken %v", took)
	}
	if n := w.waiting(r, 2); n != 20 {
		t.Errorf("%d messages have moved to the shard that answers, want 20", n)
	}
	w.send(s, "", moved+"/new")
	for _, id := range []string{moved + "/1", lost + "/1"} { // the second one is in its former shard
		if got, err := s.Cancel(t.Context(), "q", store.CancelRequest{IDs: []string{id}}); err != nil || got[0].Err != nil {
			t.Errorf("cancel of %s: %+v, %v", id, got, err)
		}
	}
	e.down = ""
	w.steps(s, 4)
	if n := w.waiting(r, 3); n != 19 {
		t.Errorf("%d messages have moved to the shard that was down, want 19", n)
	}
}
