package shard

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// A process with a route from before all messages had moved does not set the limits of a key in the former shard, where
// nothing would move or remove them any more.
func TestARemovedOverrideStaysRemoved(t *testing.T) {
	w := newWorld(t)
	s, _ := w.process()
	stale, _ := w.process()
	w.ok(s.SetFlow(t.Context(), "q", store.Flow{Fair: true}, nil))
	w.steps(s, 3)
	key := moves(3, 2, 4, 3)
	w.step(s, 4)
	w.step(s, 4)
	w.send(stale, "", "a") // it knows the directory, for up to five seconds
	for range 3 {
		if routeOf(t, s, "q").Emptied == 0 {
			w.step(s, 4)
		}
	}
	if r := routeOf(t, s, "q"); r.Emptied == 0 || r.Phase != moving {
		t.Fatal("not emptied")
	}
	one := 1
	_, err := s.read(t.Context(), "q")
	w.ok(err)
	w.ok(stale.SetKeyFlow(t.Context(), "q", key, store.KeyOverride{Concurrency: &one}))
	w.steps(s, 4)
	w.ok(s.SetKeyFlow(t.Context(), "q", key, store.KeyOverride{}))
	keys, err := s.Keys(t.Context(), "q", store.KeysRequest{Overridden: true, Limit: 10})
	w.ok(err)
	if len(keys) > 0 {
		t.Errorf("the limits of the key were removed: %+v", keys)
	}
	w.steps(s, 3)
	w.send(s, key, key+"/1", key+"/2")
	n := 0
	for _, m := range w.claim(s) {
		if m.Key == key {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d messages of the key start, want 2: it has no limits", n)
	}
}

// halts has a relayed message with an id die, and thus halt a key in the shard of the id.
func (w *world) halts(s forwarder, key, id string) {
	w.Helper()
	m := store.Outgoing{Message: store.Message{ID: id, Key: key, MaxAttempts: 1}, Relayed: true}
	_, err := s.Send(w.Context(), "q", []store.Outgoing{m})
	w.ok(err)
	w.settle(s, w.claim(s)[0], store.Bury)
}

// A relayed message is in the shard of its id, and halts its key there.
func TestAKeyHaltedByARelayedMessageIsResumed(t *testing.T) {
	w := newWorld(t)
	s, _ := w.process()
	w.ok(s.SetFlow(t.Context(), "q", ordered, nil))
	w.steps(s, 2)
	key, id := moves(2, 1, 2, 1), idOf(2, 0, 2, 0)
	w.halts(s, key, id)
	halted, err := s.Keys(t.Context(), "q", store.KeysRequest{Halted: true, Limit: 10})
	w.ok(err)
	if len(halted) != 1 || halted[0].Key != key {
		t.Fatalf("%+v", halted)
	}
	one, err := s.Keys(t.Context(), "q", store.KeysRequest{Key: key, Limit: 1})
	w.ok(err)
	if len(one) != 1 || !one[0].Halted {
		t.Errorf("Keys lists the key as halted, and by itself as %+v", one)
	}
	if err := s.ResumeKey(t.Context(), "q", key); err != nil {
		t.Errorf("ResumeKey of a key that Keys lists as halted: %v", err)
	}
}

// Its key leaves the shard, and the dead message stays.
func TestADeadRelayedMessageHoldsUpNoChange(t *testing.T) {
	w := newWorld(t)
	s, _ := w.process()
	w.ok(s.SetFlow(t.Context(), "q", ordered, nil))
	w.steps(s, 2)
	key, id := moves(2, 0, 3, 2), idOf(3, 0, 2, 0)
	w.halts(s, key, id)
	for range 200 {
		w.clock.Advance(time.Hour)
		if w.step(s, 3) {
			return
		}
	}
	t.Errorf("the change does not end: %s", routeOf(t, s, "q").text)
}

// A message that takes the place of a leased one is in the former shard. An earlier message of the key is in the new
// one.
func TestASuccessorInItsFormerShardWaitsForItsKey(t *testing.T) {
	for _, how := range []string{"follow", "then"} {
		for _, shards := range []int{1, 2} {
			t.Run(fmt.Sprint(how, shards), func(t *testing.T) {
				w := newWorld(t)
				s, _ := w.process()
				w.ok(s.SetFlow(t.Context(), "q", ordered, nil))
				key := moves(1, 0, 2, 1)
				w.send(s, key, key+"/1", key+"/2")
				c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 10, Lease: time.Hour})
				w.ok(err)
				m := c.Messages[0]
				if m.ID != key+"/1" || len(c.Messages) != 1 {
					t.Fatalf("%+v", c.Messages)
				}
				w.clock.Advance(time.Second)
				if shards > 1 {
					for range 3 {
						w.step(s, shards)
					}
				}
				next := store.Outgoing{Message: store.Message{ID: key + "/1", Key: key, MaxAttempts: 3}}
				ack := store.Settlement{Receipt: m.Receipt, Action: store.Ack}
				if how == "follow" {
					next.OnDuplicate.Mode = store.DuplicateFollow
					r, err := s.Send(t.Context(), "q", []store.Outgoing{next})
					w.ok(err)
					w.ok(r[0].Err)
				} else {
					ack.Then = []store.FollowUp{{Queue: "q", Message: next}}
				}
				r, err := s.Settle(t.Context(), "q", []store.Settlement{ack})
				w.ok(err)
				w.ok(r[0].Err)
				if got := w.claim(s); len(got) == 1 && got[0].ID != key+"/2" {
					t.Errorf("%s starts, and %s/2 was sent before it", got[0].ID, key)
				}
			})
		}
	}
}

// A dead message that is replayed in the former shard is behind the messages of its key in the new one.
func TestAReplayedMessageInItsFormerShardWaitsForItsKey(t *testing.T) {
	for _, shards := range []int{1, 2} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			w := newWorld(t)
			s, _ := w.process()
			w.ok(s.SetFlow(t.Context(), "q", store.Flow{Key: store.KeyFlow{Order: store.OrderContinue}}, nil))
			key := moves(1, 0, 2, 1)
			w.send(s, key, key+"/1", key+"/2")
			m := w.claim(s)[0]
			w.clock.Advance(time.Second)
			if shards > 1 {
				for range 3 {
					w.step(s, shards)
				}
			}
			w.settle(s, m, store.Bury)
			_, err := s.Replay(t.Context(), "q", store.Selection{State: store.StateDead}, store.Due{})
			w.ok(err)
			if got := w.claim(s); len(got) == 1 && got[0].ID != key+"/2" {
				t.Errorf("%s starts, and %s/2 is due before it", got[0].ID, key)
			}
		})
	}
}

// The mover dies while claims are stopped. Other processes wait for its time to end.
func TestAMoverThatDiesStopsClaimsForSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memstore.New()
		defer engine.Close()
		open := func() (forwarder, *spied) {
			e := &spied{Store: engine}
			return New(e, slog.New(slog.DiscardHandler)).(forwarder), e
		}
		a, e := open()
		b, _ := open()
		defer b.Close()
		if err := a.SetFlow(t.Context(), "q", ordered, nil); err != nil {
			t.Fatal(err)
		}
		sendTo(t, a, "q", "x", "y")
		e.before = func(call, name string) error {
			if call == "Depart" {
				<-a.ending.Done() // it hangs, and is killed
				return errDown
			}
			return nil
		}
		id := idOf(2, 1, 1, 0)
		sendTo(t, a, "q", id)
		if err := a.SetShards(t.Context(), "q", 2); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Stats(t.Context(), "q"); err != nil { // prepares, and becomes the mover
			t.Fatal(err)
		}
		synctest.Wait()
		a.Close()
		began := time.Now()
		for {
			c, err := b.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Messages) > 0 {
				break
			}
			if err := b.Wait(t.Context(), "q"); err != nil {
				t.Fatal(err)
			}
			if time.Since(began) > 10*time.Minute {
				t.Fatal("never")
			}
		}
		t.Logf("no message starts for %v", time.Since(began))
		if time.Since(began) > 5*time.Second {
			t.Errorf("no message starts for %v", time.Since(began))
		}
	})
}

// A chosen id of 14 letters and digits looks like one that Later made.
func TestAChosenIDThatLooksMadeIsChecked(t *testing.T) {
	w := newWorld(t)
	s, _ := w.process()
	w.ok(s.SetFlow(t.Context(), "q", ordered, nil))
	key, id := moves(2, 1, 2, 1), ""
	for i := 0; id == "" || Of(store.Slot(id), 2) == 1 || store.FitsKey(id, key); i++ {
		id = fmt.Sprintf("order_%08d", i)
	}
	w.send(s, key, id, key+"/2")
	if err := s.SetShards(t.Context(), "q", 2); errors.Is(err, store.ErrInvalid) {
		return
	}
	w.steps(s, 2)
	if got := append(w.claim(s), w.claim(s)...); len(got) > 1 {
		t.Errorf("%s and %s of %s are leased at once, one at a time may be", got[0].ID, got[1].ID, key)
	}
}
