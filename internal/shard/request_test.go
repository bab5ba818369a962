package shard_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/shard"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// remembering is an engine that fails a test if two calls of one request differ: an engine that remembers requests
// would not execute the second one.
type remembering struct {
	shard.Engine
	store.Forwarder
	t      *testing.T
	mu     sync.Mutex
	calls  map[store.Request]string
	number int64
}

func (e *remembering) note(ctx context.Context, call, name string, args any) {
	r, ok := store.RequestOf(ctx)
	if !ok {
		return
	}
	text := fmt.Sprintf("%s %s %+v", call, name, args)
	e.mu.Lock()
	defer e.mu.Unlock()
	if first, ok := e.calls[r]; ok && first != text {
		e.t.Errorf("request %d of session %q is two calls:\n%.300s\n%.300s", r.Number, r.Session, first, text)
	}
	e.calls[r] = text
}

// request returns the context of another call.
func (e *remembering) request() context.Context {
	e.number++
	return store.WithRequest(e.t.Context(), store.Request{Session: "s", Number: e.number})
}

func (e *remembering) Send(ctx context.Context, name string, msgs []store.Outgoing) ([]store.SendResult, error) {
	e.note(ctx, "Send", name, idsOf(msgs))
	return e.Engine.Send(ctx, name, msgs)
}

func (e *remembering) SendKnown(ctx context.Context, name string, msgs []store.Outgoing) ([]store.SendResult, error) {
	e.note(ctx, "SendKnown", name, idsOf(msgs))
	return e.Engine.SendKnown(ctx, name, msgs)
}

func (e *remembering) Claim(ctx context.Context, name string, req store.ClaimRequest) (store.Claim, error) {
	e.note(ctx, "Claim", name, req)
	return e.Engine.Claim(ctx, name, req)
}

func (e *remembering) Settle(
	ctx context.Context, name string, settlements []store.Settlement,
) ([]store.SettleResult, error) {
	e.note(ctx, "Settle", name, settlements)
	return e.Engine.Settle(ctx, name, settlements)
}

func (e *remembering) Cancel(
	ctx context.Context, name string, req store.CancelRequest,
) ([]store.CancelResult, error) {
	e.note(ctx, "Cancel", name, req)
	return e.Engine.Cancel(ctx, name, req)
}

func (e *remembering) Reschedule(ctx context.Context, name string, ids []string, due store.Due) ([]error, error) {
	e.note(ctx, "Reschedule", name, ids)
	return e.Engine.Reschedule(ctx, name, ids, due)
}

func idsOf(msgs []store.Outgoing) (ids []string) {
	for _, m := range msgs {
		ids = append(ids, m.ID)
	}
	return ids
}

// batch returns messages with ids of all slots.
func batch(prefix string, n int) []store.Outgoing {
	msgs := make([]store.Outgoing, n)
	for i := range msgs {
		msgs[i] = store.Outgoing{Message: store.Message{ID: fmt.Sprint(prefix, i), MaxAttempts: 1}}
	}
	return msgs
}

// TestEachCallOfARequestHasASessionOfItsOwn changes the number of shards while calls with ids of all shards are made.
func TestEachCallOfARequestHasASessionOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memstore.New()
		e := &remembering{Engine: engine, Forwarder: engine, t: t, calls: map[store.Request]string{}}
		s := shard.New(e, slog.New(slog.DiscardHandler))
		defer s.Close()
		const n = 100
		for _, to := range []int{1, 4, 2, 3} {
			if err := store.SetShards(t.Context(), s, "q", to); err != nil {
				t.Fatal(err)
			}
			prefix := fmt.Sprint(to, "/")
			var got int
			for round := range 2 { // in the second one there are leased messages
				msgs := batch(fmt.Sprint(prefix, round, "/"), n)
				results, err := s.Send(e.request(), "q", append(msgs, batch(prefix+"0/", n)...))
				if err == nil {
					err = store.SendError(results[:n])
				}
				if err != nil || round == 1 && !results[2*n-1].Duplicate {
					t.Fatalf("send: %v, %+v", err, results[2*n-1])
				}
				if round > 0 {
					break
				}
				for got < n/2 {
					claim, err := s.Claim(e.request(), "q", store.ClaimRequest{Max: 10, Lease: time.Minute})
					if err != nil || len(claim.Messages) == 0 {
						t.Fatalf("claim: %v, %d messages", err, len(claim.Messages))
					}
					var acks []store.Settlement
					for _, m := range claim.Messages {
						then := []store.FollowUp{{Queue: "a", Message: batch("a"+m.ID, 1)[0]},
							{Queue: "b", Message: batch("b"+m.ID, 1)[0]}, {Queue: "q", Message: batch("q"+m.ID, 1)[0]}}
						acks = append(acks, store.Settlement{Receipt: m.Receipt, Action: store.Ack, Then: then})
						got++
					}
					settled, err := s.Settle(e.request(), "q", acks)
					for _, r := range settled {
						err = errors.Join(err, r.Err)
					}
					if err != nil {
						t.Fatalf("settle: %v", err)
					}
				}
			}
			if claim, err := s.Claim(e.request(), "q", store.ClaimRequest{Max: 10, Lease: time.Hour}); err != nil ||
				len(claim.Messages) == 0 {
				t.Fatalf("claim: %v", err)
			}
			forward(t, s, e)
			ids := idsOf(batch(prefix+"1/", n))
			if _, err := s.Reschedule(e.request(), "q", ids, store.Due{Delay: time.Hour}); err != nil {
				t.Error(err)
			}
			cancelled, err := s.Cancel(e.request(), "q", store.CancelRequest{IDs: ids})
			if err != nil || len(cancelled) != n {
				t.Errorf("cancel: %v, %d results", err, len(cancelled))
			}
			for _, queue := range []string{"a", "b"} {
				if stats, err := s.Stats(t.Context(), queue); err != nil || stats.Ready < int64(got) {
					t.Errorf("queue %q has %d of %d follow-ups, %v", queue, stats.Ready, got, err)
				}
			}
			if _, err := s.Purge(e.request(), "q", store.Selection{}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Hour)
		}
	})
}

// forward moves messages from q, which has shards, to another queue.
func forward(t *testing.T, s store.Store, e *remembering) {
	to := store.Target{Kind: store.TargetQueue, Name: "to"}
	got, err := s.(store.Forwarder).Forward(e.request(), "q", store.ForwardRequest{To: to, Max: 20})
	if err != nil || got.Count == 0 {
		t.Errorf("forward: %v, %d messages", err, got.Count)
	}
}
