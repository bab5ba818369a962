package memstore

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// bury sends and claims a message of a key, which then is dead.
func bury(t *testing.T, s *Store, id, key string) {
	t.Helper()
	m := store.Outgoing{Message: store.Message{ID: id, Key: key}, Due: store.Due{At: time.UnixMilli(1)}}
	if _, err := s.Send(t.Context(), "q", []store.Outgoing{m}); err != nil {
		t.Fatal(err)
	}
	c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range c.Messages {
		settlement := store.Settlement{Receipt: m.Receipt, Action: store.Bury}
		if _, err := s.Settle(t.Context(), "q", []store.Settlement{settlement}); err != nil {
			t.Fatal(err)
		}
	}
}

// A retention looks once at a dead message that halts its key, and again after its key went on.
func TestRetentionPassesOverMessagesThatHaltKeys(t *testing.T) {
	clock := NewManualClock(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	s := limited(t, store.Flow{Key: store.KeyFlow{Order: store.OrderHalt}}, 0, WithClock(clock))
	q := s.data.queues["q"]
	try := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	try(s.SetDeadRetention(t.Context(), "q", store.Retention{MaxAge: time.Minute, MaxCount: 3}, nil))
	rnd := rand.New(rand.NewPCG(1, 2))
	passed := 0
	for i := range 3000 {
		id, key := fmt.Sprint(rnd.IntN(50)), fmt.Sprint(rnd.IntN(40))
		switch rnd.IntN(8) {
		case 0:
			_ = s.ResumeKey(t.Context(), "q", key) // which may not be halted
		case 1:
			_, err := s.Replay(t.Context(), "q", store.Selection{State: store.StateDead, IDs: []string{id}}, store.Due{})
			try(err)
		case 2:
			_, err := s.Cancel(t.Context(), "q", store.CancelRequest{IDs: []string{id}})
			try(err)
		case 3:
			clock.Advance(time.Duration(rnd.IntN(40)-10) * time.Second)
		case 4:
			if rnd.IntN(10) == 0 {
				order := []store.Order{store.OrderNone, store.OrderContinue, store.OrderHalt}[rnd.IntN(3)]
				try(s.SetFlow(t.Context(), "q", store.Flow{Fair: true, Key: store.KeyFlow{Order: order}}, nil))
			}
		default:
			bury(t, s, id, key)
		}
		for e := range q.dead.between(start, never) {
			if !q.ordered() || !e.less(q.halts) {
				break
			}
			passed++
			if _, halts := q.flow.keys.Holds(e.id); !halts {
				t.Fatalf("step %d: dead message %v halts no key, and a retention begins at %v", i, e, q.halts)
			}
		}
	}
	if passed == 0 {
		t.Error("no message that halts its key was passed over for good")
	}
}
