package shard

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// slow has a queue with two settled shards. While off is set, the calls on the second one take as long as an engine
// that repeats them, and fail.
type slow struct {
	forwarder
	hooked
	r   *route
	off atomic.Bool
}

func newSlow(t *testing.T) *slow {
	over, engine := newHooked(t)
	s := &slow{forwarder: over, hooked: engine}
	if err := over.SetShards(t.Context(), "q", 2); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Minute)
	if _, err := over.Stats(t.Context(), "q"); err != nil {
		t.Fatal(err)
	}
	if s.r = routeOf(t, over, "q"); s.r.Phase != settled {
		t.Fatalf("phase %v", s.r.Phase)
	}
	engine.set(func(call, name string) error {
		if !s.off.Load() || name != s.r.names[1] {
			return nil
		}
		if time.Sleep(askAgain); call != "Stats" {
			time.Sleep(9 * askAgain)
		}
		return store.Errorf(store.ErrUnavailable, "the server is down")
	})
	return s
}

// message returns a message for a shard.
func (s *slow) message(shard int, anyID bool) store.Outgoing {
	for {
		m := store.Outgoing{Message: store.Message{ID: new(store.IDs).New("")}, AnyID: anyID}
		if at, _ := s.r.home(m.ID); at == shard {
			return m
		}
		time.Sleep(time.Millisecond)
	}
}

// claim claims up to ten messages, and returns how long that took.
func (s *slow) claim(t *testing.T) (claim store.Claim, took time.Duration) {
	t.Helper()
	began := time.Now()
	claim, err := s.forwarder.Claim(t.Context(), "q", store.ClaimRequest{Max: 10, Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return claim, time.Since(began)
}

func (s *slow) send(t *testing.T, msgs ...store.Outgoing) []store.SendResult {
	t.Helper()
	results, err := s.forwarder.Send(t.Context(), "q", msgs)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// Messages of the other shards wait for a shard that goes down no longer than a call does before the shard is asked.
func TestClaimsDoNotWaitForAShardThatGoesDown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSlow(t)
		defer s.forwarder.Close()
		s.send(t, s.message(1, false))
		s.off.Store(true)
		time.Sleep(time.Second) // the message of the second shard is the earliest
		s.send(t, s.message(0, false))
		var got int
		for range 3 {
			claim, took := s.claim(t)
			if got += len(claim.Messages); took > patience {
				t.Errorf("a claim took %v", took)
			}
		}
		if got != 1 {
			t.Errorf("%d messages were claimed, want that of the first shard", got)
		}
		s.off.Store(false)
		time.Sleep(20 * time.Second)
		if claim, took := s.claim(t); len(claim.Messages) != 1 || took != 0 {
			t.Errorf("the shard answers again: %+v after %v", claim, took)
		}
	})
}

// A claim that is executed after its caller has gone on releases its messages, and reports the dead.
func TestALateClaimGivesItsMessagesBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSlow(t)
		defer s.forwarder.Close()
		m, dies := s.message(1, false), s.message(1, false)
		dies.ExpireAfter = time.Second
		s.send(t, m, dies)
		time.Sleep(2 * time.Second)
		s.send(t, s.message(0, false))
		proceed := make(chan struct{})
		s.hooked.set(func(call, name string) error {
			if call == "Claim" && name == s.r.names[1] {
				<-proceed
			}
			return nil
		})
		claim, took := s.claim(t)
		for len(claim.Messages) == 0 { // the first one may be from the other shard by then
			claim, took = s.claim(t)
		}
		if len(claim.Messages) != 1 || claim.Messages[0].ID == m.ID || took > patience {
			t.Errorf("claimed %+v after %v", claim, took)
		}
		close(proceed)
		time.Sleep(time.Second)
		infos, err := s.forwarder.Get(t.Context(), "q", []string{m.ID})
		if err != nil || infos[0] == nil || infos[0].State != store.StateReady || infos[0].Attempts != 0 {
			t.Errorf("the message of the late claim: %+v, %v", infos, err)
		}
		claim, _ = s.claim(t)
		if len(claim.Messages) != 1 || claim.Messages[0].ID != m.ID || claim.Messages[0].Attempt != 1 {
			t.Errorf("claimed %+v", claim)
		}
		if len(claim.Died) != 1 || claim.Died[0] != dies.ID || len(claim.Expired) != 1 {
			t.Errorf("died %v, expired %v", claim.Died, claim.Expired)
		}
	})
}

// A claim that may be repeated under its request waits, because the repetition has the same messages. Others do not.
func TestAClaimThatMayBeRepeatedWaits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSlow(t)
		defer s.forwarder.Close()
		s.claim(t)
		time.Sleep(time.Second)
		s.send(t, s.message(0, false))
		s.claim(t) // the next one begins with the second shard
		s.send(t, s.message(0, false), s.message(0, false))
		s.off.Store(true)
		done := make(chan store.Claim, 1)
		go func() {
			ctx := store.WithRequest(t.Context(), store.Request{Session: "s", Number: 1})
			claim, err := s.forwarder.Claim(ctx, "q", store.ClaimRequest{Max: 1, Lease: time.Minute})
			if err != nil {
				t.Error(err)
			}
			done <- claim
		}()
		time.Sleep(2 * patience)
		if claim, took := s.claim(t); len(claim.Messages) != 2 || took != 0 {
			t.Errorf("%d messages after %v", len(claim.Messages), took)
		}
		select {
		case claim := <-done:
			t.Errorf("the repeatable claim has not waited: %+v", claim)
		default:
		}
		if claim := <-done; len(claim.Messages) != 0 {
			t.Errorf("the repeatable claim: %+v", claim)
		}
	})
}

// A send waits for its shard, and the next ones that may go elsewhere do, before the first one has failed.
func TestSendsDoNotWaitForAShardThatGoesDown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSlow(t)
		defer s.forwarder.Close()
		first, m := s.message(1, true), s.message(1, true)
		s.off.Store(true)
		done := make(chan error, 1)
		go func() {
			_, err := s.forwarder.Send(t.Context(), "q", []store.Outgoing{first})
			done <- err
		}()
		time.Sleep(2 * patience)
		began := time.Now()
		if got := s.send(t, m); got[0].First == nil || time.Since(began) != 0 {
			t.Errorf("%+v after %v", got, time.Since(began))
		}
		if err := <-done; !errors.Is(err, store.ErrUnavailable) { // it may have been executed
			t.Errorf("the first send: %v", err)
		}
		s.off.Store(false)
		time.Sleep(3 * time.Second)
		if got := s.send(t, s.message(1, true)); got[0].First != nil {
			t.Errorf("the shard answers again: %+v", got)
		}
	})
}

// Slow answers of all shards are no error.
func TestAClaimWaitsIfAllShardsAreSlow(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSlow(t)
		defer s.forwarder.Close()
		s.send(t, s.message(0, false))
		s.hooked.set(func(call, _ string) error {
			if call == "Claim" {
				time.Sleep(3 * time.Second)
			}
			return nil
		})
		if claim, took := s.claim(t); len(claim.Messages) != 1 || took > 4*time.Second {
			t.Errorf("%+v after %v", claim, took)
		}
	})
}
