package shard

import (
	"errors"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// While a shard is known not to answer, messages that may get another id are sent to others, and other calls fail.
func TestSendsGoToShardsThatAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ctx := t.Context()
		s, engine := newHooked(t)
		if err := s.SetShards(ctx, "q", 3); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if _, err := s.Stats(ctx, "q"); err != nil {
			t.Fatal(err)
		}
		r := routeOf(t, s, "q")
		engine.set(func(_, name string) error {
			if name == r.names[1] {
				return store.Errorf(store.ErrUnavailable, "the server is down")
			}
			return nil
		})
		id := func(anyID bool, key string) store.Outgoing {
			home := moves(1, 0, 3, 1)
			if key != "" {
				key = home
			}
			return store.Outgoing{Message: store.Message{ID: new(store.IDs).New(home), Key: key}, AnyID: anyID}
		}
		chosen, keyed := id(false, ""), id(false, "k")
		// The first call may have been executed.
		if _, err := s.Send(ctx, "q", []store.Outgoing{id(true, "")}); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("the first send: %v", err)
		}
		msgs := []store.Outgoing{id(true, ""), chosen, keyed, id(true, "")}
		results, err := s.Send(ctx, "q", msgs)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range msgs {
			switch first := results[i].First; {
			case !m.AnyID:
				if !errors.Is(results[i].Err, store.ErrUnavailable) || first != nil {
					t.Errorf("message %d: %+v", i, results[i])
				}
			case results[i].Err != nil || first == nil || first.ID == m.ID:
				t.Errorf("message %d: %+v", i, results[i])
			default:
				if infos, err := s.Get(ctx, "q", []string{first.ID}); err != nil || infos[0] == nil {
					t.Errorf("message %s: %v, %v", first.ID, infos, err)
				}
			}
		}
		engine.set(nil)
		time.Sleep(2 * time.Second)
		m := id(true, "")
		if results, err := s.Send(ctx, "q", []store.Outgoing{m}); err != nil || results[0].First != nil {
			t.Errorf("the shard answers again: %+v, %v", results, err)
		}
		s.Close()
	})
}
