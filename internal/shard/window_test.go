package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// A follow-up with the id of a message that has moved starts in the new shard.
func TestAFollowUpWithTheIDOfItsMessageStarts(t *testing.T) {
	w, s, _, key := windowed(t)
	first := w.claim(s)
	if len(first) != 1 {
		t.Fatalf("claimed %+v", first)
	}
	next := store.Outgoing{Message: store.Message{ID: first[0].ID, Key: key, MaxAttempts: 3}}
	r, err := s.Settle(t.Context(), "q", []store.Settlement{{Receipt: first[0].Receipt, Action: store.Ack,
		Then: []store.FollowUp{{Queue: "q", Message: next}}}})
	w.ok(err)
	w.ok(r[0].Err)
	if got := w.claim(s); len(got) != 1 || got[0].ID != next.ID {
		t.Errorf("claimed %+v, want the follow-up", got)
	}
}

// A message that becomes due earlier moves first, so that it does not start in its former shard.
func TestAMessageThatIsRescheduledMoves(t *testing.T) {
	w, s, r, key := windowed(t)
	last := fmt.Sprint(key, "/20")
	errs, err := s.Reschedule(t.Context(), "q", []string{last, key + "/none"}, store.Due{})
	w.ok(err)
	if w.ok(errs[0]); !errors.Is(errs[1], store.ErrNotFound) {
		t.Errorf("rescheduled an id that does not exist: %v", errs[1])
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

// A leased message without a key (or of another key) gets a successor with the key, in the former shard, while the key
// is open in the new one.
func TestASuccessorWithAnotherKeyWaitsForThat(t *testing.T) {
	for _, how := range []string{"follow", "then"} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t)
			s, _ := w.process()
			Windows(s, 1, time.Second)
			w.ok(s.SetFlow(t.Context(), "q", ordered, nil))
			key := moves(1, 0, 2, 1)
			w.send(s, "", key+"/1")
			m := w.claim(s)[0]
			w.send(s, key, key+"/2", key+"/3")
			w.clock.Advance(time.Second)
			for range 6 {
				w.step(s, 2)
			}
			got := w.claim(s)
			if len(got) != 1 || got[0].ID != key+"/2" {
				t.Fatalf("%+v", got)
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
			for _, again := range append(w.claim(s), w.claim(s)...) {
				t.Errorf("%s of key %s starts while %s is leased; %s", again.ID, again.Key, got[0].ID, routeOf(t, s, "q").text)
			}
		})
	}
}

// A failover between the lists of a window and its end undoes a cancel that was not confirmed. The window
// begins again.
func TestAWindowBeginsAgainAfterAFailover(t *testing.T) {
	w := newWorld(t)
	s, e := w.process()
	Windows(s, 1, time.Minute)
	w.ok(s.SetFlow(t.Context(), "q", ordered, nil))
	key, stay := moves(1, 0, 2, 1), moves(1, 0, 2, 0)
	w.send(s, key, key+"/1", key+"/2")
	later := store.Due{Delay: time.Hour}
	_, err := s.Send(t.Context(), "q", []store.Outgoing{
		{Message: store.Message{ID: stay + "/l1", MaxAttempts: 3}, Due: later},
		{Message: store.Message{ID: stay + "/l2", MaxAttempts: 3}, Due: later}})
	w.ok(err)
	for w.step(s, 2); routeOf(t, s, "q").Phase != moving; {
		w.step(s, 2)
	}
	r := routeOf(t, s, "q")
	c, err := s.Cancel(t.Context(), "q", store.CancelRequest{IDs: []string{key + "/1"}}) // no replica has it
	w.ok(err)
	w.ok(c[0].Err)
	scans := 0
	e.before = func(call, name string) error {
		if call != "Scan" || name != r.names[0] {
			return nil
		}
		if scans++; scans == 2 { // the lists are complete
			e.run = "the replica"
			back := store.Outgoing{Message: store.Message{ID: key + "/1", Key: key, MaxAttempts: 3}}
			_, err := w.engine.Send(t.Context(), name, []store.Outgoing{back})
			w.ok(err)
		}
		return nil
	}
	if _, err := Step(t.Context(), s, "q", 2); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the window ends with %v", err)
	}
	if now := routeOf(t, s, "q"); now.Claims != fromNone {
		t.Fatalf("claims go on: %s", now.text)
	}
	w.step(s, 2)
	w.clock.Advance(time.Second)
	if got := append(w.claim(s), w.claim(s)...); len(got) != 1 {
		t.Errorf("%d messages of a key are leased: %+v", len(got), got)
	}
}

// counted counts the messages that are listed.
type counted struct {
	*spied
	listed *int
}

func (c counted) List(ctx context.Context, name string, req store.ListRequest) (store.Page, error) {
	p, err := c.spied.List(ctx, name, req)
	*c.listed += len(p.Messages)
	return p, err
}

// Each message that is due later is listed once, however many windows there are.
func TestEachMessageIsInOneWindow(t *testing.T) {
	for _, n := range []int{100, 1000} {
		w := newWorld(t)
		listed := 0
		s := New(counted{&spied{Store: w.engine}, &listed}, slog.New(slog.DiscardHandler)).(forwarder)
		Stepwise(s)
		Windows(s, 20, time.Second)
		w.ok(s.SetFlow(t.Context(), "q", ordered, nil))
		for i := range n {
			k := fmt.Sprint("k", i)
			m := store.Outgoing{Message: store.Message{ID: k + "/1", Key: k, MaxAttempts: 3},
				Due: store.Due{Delay: time.Minute + time.Duration(i)*time.Second}}
			r, err := s.Send(t.Context(), "q", []store.Outgoing{m})
			w.ok(err)
			w.ok(r[0].Err)
		}
		for w.step(s, 2); routeOf(t, s, "q").Emptied == 0; {
			w.step(s, 2)
		}
		if listed > n {
			t.Errorf("of %d messages %d are listed", n, listed)
		}
	}
}
