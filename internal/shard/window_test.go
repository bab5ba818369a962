package shard

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// windowed has a queue with an order, one shard and 21 messages of a key that leaves it: k/0 is due now, and each other
// one ten seconds after the one before. Its change to two shards has moved the first window.
func windowed(t *testing.T) (w *world, s forwarder, r *route, key string) {
	w = newWorld(t)
	s, _ = w.process()
	Windows(s, 3, time.Second)
	w.ok(s.SetFlow(t.Context(), "q", ordered, nil))
	key = moves(1, 0, 2, 1)
	var msgs []store.Outgoing
	for i := range 21 {
		msgs = append(msgs, store.Outgoing{Message: store.Message{ID: fmt.Sprint(key, "/", i), Key: key, MaxAttempts: 3},
			Due: store.Due{Delay: time.Duration(i) * 10 * time.Second}})
	}
	results, err := s.Send(t.Context(), "q", msgs)
	w.ok(err)
	w.ok(store.SendError(results))
	for range 10 {
		w.step(s, 2)
		if r = routeOf(t, s, "q"); r.Phase == moving && r.Claims != fromNone {
			return w, s, r, key
		}
	}
	t.Fatalf("no message can be claimed: %s", r.text)
	return nil, s, nil, ""
}

// waiting returns the number of messages in a shard that are scheduled or ready.
func (w *world) waiting(r *route, shard int) int64 {
	w.Helper()
	stats, err := w.engine.Stats(w.Context(), r.names[shard])
	w.ok(err)
	return stats.Scheduled + stats.Ready
}

func TestMessagesStartWhileLaterOnesMove(t *testing.T) {
	w, s, r, key := windowed(t)
	if w.waiting(r, 0) == 0 || r.Until == 0 {
		t.Fatalf("all messages have moved: %s", r.text)
	}
	next := func(i int) {
		t.Helper()
		got := w.claim(s)
		if len(got) != 1 || got[0].ID != fmt.Sprint(key, "/", i) {
			t.Fatalf("claimed %+v, want message %d", got, i)
		}
		w.settle(s, got[0], store.Ack)
	}
	next(0)
	// No process moves messages any more: the ones that have moved start, and no others.
	i := 1
	for end := time.UnixMilli(r.Until); w.clock.Now().Add(10 * time.Second).Before(end); i++ {
		w.clock.Advance(10 * time.Second)
		next(i)
	}
	w.clock.Advance(time.Hour)
	if got := w.claim(s); len(got) != 0 {
		t.Errorf("claimed after the end of the window: %+v", got)
	}
	if !s.consumer("q").isOver(r) {
		t.Error("a process that waits does not know that claims have ended")
	}
	for ; i < 21; i++ {
		for w.waiting(r, 1) == 0 {
			w.step(s, 2)
		}
		next(i)
	}
	w.steps(s, 2)
}

// A message that becomes due earlier moves first, so that it does not start in its former shard.
func TestAMessageThatIsRescheduledMoves(t *testing.T) {
	w, s, r, key := windowed(t)
	last := fmt.Sprint(key, "/20")
	errs, err := s.Reschedule(t.Context(), "q", []string{last, key + "/none"}, store.Due{})
	w.ok(err)
	if w.ok(errs[0]); !errors.Is(errs[1], store.ErrNotFound) {
		t.Errorf("rescheduled what does not exist: %v", errs[1])
	}
	infos, err := w.engine.Get(t.Context(), r.names[1], []string{last})
	w.ok(err)
	if infos[0] == nil || infos[0].State != store.StateReady {
		t.Errorf("in the new shard: %+v", infos[0])
	}
	first := w.claim(s)
	if len(first) != 1 || first[0].ID != key+"/0" {
		t.Fatalf("claimed %+v", first)
	}
	if errs, err = s.Reschedule(t.Context(), "q", []string{first[0].ID}, store.Due{}); err != nil ||
		!errors.Is(errs[0], store.ErrLeased) {
		t.Errorf("rescheduled a leased message: %v, %v", errs, err)
	}
	w.settle(s, first[0], store.Ack)
	if got := w.claim(s); len(got) != 1 || got[0].ID != last {
		t.Errorf("claimed %+v, want the rescheduled message", got)
	}
}

// A message that was leased before the change holds its key, in the new shard too, until it is acked.
func TestAKeyWaitsForAHolderThatIsDueLater(t *testing.T) {
	w := newWorld(t)
	s, _ := w.process()
	Windows(s, 1, time.Second)
	w.ok(s.SetFlow(t.Context(), "q", ordered, nil))
	key := moves(1, 0, 2, 1)
	w.send(s, key, key+"/a", key+"/b")
	w.send(s, "", "c", "d", "e")
	var held store.Claimed
	for _, m := range w.claim(s) {
		if m.ID == key+"/a" {
			held = m
		}
	}
	nack := store.Settlement{Receipt: held.Receipt, Action: store.Nack, Delay: time.Minute}
	r, err := s.Settle(t.Context(), "q", []store.Settlement{nack})
	w.ok(err)
	w.ok(r[0].Err)
	w.clock.Advance(time.Second)
	for range 20 {
		w.step(s, 2)
		for _, m := range w.claim(s) {
			if m.Key == key {
				t.Fatalf("message %s started, and the holder of its key is due in a minute", m.ID)
			}
			w.settle(s, m, store.Ack)
		}
	}
	w.clock.Advance(time.Minute)
	for _, want := range []string{key + "/a", key + "/b"} {
		var got []store.Claimed
		for range 20 {
			if w.step(s, 2); len(got) == 0 {
				got = w.claim(s)
			}
		}
		if len(got) != 1 || got[0].ID != want {
			t.Fatalf("claimed %+v, want %s", got, want)
		}
		w.settle(s, got[0], store.Ack)
	}
}
