package shard

import (
	"context"
	"errors"
	"github.com/laterq/later/memstore"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"weak"

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
	return store.Outgoing{Message: store.Message{ID: new(store.IDs).New(moves(1, 0, 2, shard))}, AnyID: anyID}
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
			if got += len(claim.Messages); took > usualPatience {
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
		if len(claim.Messages) != 1 || claim.Messages[0].ID == m.ID || took > usualPatience {
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
		time.Sleep(2 * usualPatience)
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
		time.Sleep(2 * usualPatience)
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

// A Claim that ends before one of its claims does not keep the buffer of its caller.
func TestALateClaimKeepsNoBuffer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSlow(t)
		defer s.forwarder.Close()
		s.hooked.set(func(call, name string) error {
			if call == "Claim" && name == s.r.names[1] {
				time.Sleep(2 * usualPatience)
			}
			return nil
		})
		var buffers []weak.Pointer[[100]store.Claimed]
		for range 3 {
			b := new([100]store.Claimed)
			buffers = append(buffers, weak.Make(b))
			_, err := s.forwarder.Claim(t.Context(), "q", store.ClaimRequest{Max: 10, Lease: time.Minute, Buffer: b[:]})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		runtime.GC()
		for i, b := range buffers {
			if b.Value() != nil {
				t.Errorf("buffer %d is kept", i)
			}
		}
	})
}

// deadlines is an engine that, as go-redis, ends a call at the deadline of its context, and not when it is cancelled.
type deadlines struct{ hooked }

func (d deadlines) Claim(ctx context.Context, name string, req store.ClaimRequest) (store.Claim, error) {
	until, ok := ctx.Deadline()
	if !ok || time.Until(until) > 3*time.Second {
		until = time.Now().Add(3 * time.Second)
	}
	time.Sleep(time.Until(until))
	return store.Claim{}, store.Errorf(store.ErrUnavailable, "i/o timeout")
}

func TestAClaimEndsAtItsDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		engine := deadlines{hooked{memstore.New(), &hooks{}}}
		defer engine.Store.Close()
		over := New(engine, slog.New(slog.DiscardHandler)).(forwarder)
		defer over.Close()
		if err := over.SetShards(t.Context(), "q", 2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := over.Claim(ctx, "q", store.ClaimRequest{Max: 1, Lease: time.Minute})
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("a claim with a deadline of 100ms took %v: %v", took, err)
		}
	})
}

// A change of the number of shards begins while a claim is under way. Its messages are released, although the
// shard has another name then.
func TestALateClaimMeetsAChange(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSlow(t)
		defer s.forwarder.Close()
		m := s.message(1, false)
		s.send(t, m)
		time.Sleep(2 * time.Second)
		s.send(t, s.message(0, false))
		proceed := make(chan struct{})
		late := s.r.names[1]
		s.hooked.set(func(call, name string) error {
			if call == "Settle" && name == late {
				<-proceed
			}
			if call == "Claim" && name == late {
				time.Sleep(2 * usualPatience)
			}
			return nil
		})
		for range 2 {
			c, err := s.forwarder.Claim(t.Context(), "q", store.ClaimRequest{Max: 10, Lease: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Messages) > 0 && c.Messages[0].ID == m.ID {
				t.Fatal("not late")
			}
		}
		time.Sleep(3 * usualPatience) // the late claim has leased its message, and its release is on its way
		if err := s.forwarder.SetShards(t.Context(), "q", 3); err != nil {
			t.Fatal(err)
		}
		if _, err := s.forwarder.Stats(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		close(proceed)
		time.Sleep(10 * time.Minute)
		infos, err := s.forwarder.Get(t.Context(), "q", []string{m.ID})
		if err != nil || infos[0] == nil || infos[0].State != store.StateReady {
			t.Errorf("ten minutes later the message of the late claim: %+v, %v", infos[0], err)
		}
	})
}

// A send that may be repeated does not go elsewhere while its shard is slow: the process may die before it has told
// that, and the next one repeats the request and finds no shard slow.
func TestARepeatedSendIsNotDoubled(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSlow(t)
		defer s.forwarder.Close()
		ctx := store.WithRequest(t.Context(), store.Request{Session: "s", Number: 7})
		m := s.message(1, true)
		s.doubt(s.r, 1) // as after a call that took 250 ms
		first, err := s.forwarder.Send(ctx, "q", []store.Outgoing{m})
		if err != nil {
			t.Fatal(err)
		}
		next := New(s.hooked, slog.New(slog.DiscardHandler)).(forwarder)
		defer next.Close()
		again, err := next.Send(ctx, "q", []store.Outgoing{m})
		if err != nil {
			t.Fatal(err)
		}
		stats, err := next.Stats(t.Context(), "q")
		if err != nil {
			t.Fatal(err)
		}
		if stats.Ready != 1 {
			t.Errorf("one send that was repeated under its request: %d messages; %+v, %+v", stats.Ready, first, again)
		}
	})
}

// A Wait that begins while all shards are only doubted returns when it is certain that none answers.
func TestAWaitEndsWhenAllShardsAreDown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSlow(t)
		defer s.forwarder.Close()
		s.hooked.set(func(call, name string) error {
			time.Sleep(100 * time.Millisecond)
			return store.Errorf(store.ErrUnavailable, "down")
		})
		s.doubt(s.r, 0)
		s.doubt(s.r, 1)
		done := make(chan error, 1)
		go func() { done <- s.forwarder.Wait(t.Context(), "q") }()
		time.Sleep(time.Minute)
		select {
		case err := <-done:
			t.Log(err)
		default:
			t.Errorf("a minute later Wait has not returned; all down: %v", s.consumer("q").allDown(s.r))
			s.hooked.set(nil)
			<-done
		}
	})
}
