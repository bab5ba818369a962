package undo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laterq/later/internal/undo"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// interfering is a store in which others change messages just before each change of this process.
type interfering struct {
	store.Store
	before func()
}

func (s *interfering) interfere() {
	if before := s.before; before != nil {
		s.before = nil
		before()
	}
}

func (s *interfering) Remove(ctx context.Context, queue string, msgs []store.Info) ([]bool, error) {
	s.interfere()
	return s.Store.Remove(ctx, queue, msgs)
}

func (s *interfering) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	s.interfere()
	return s.Store.Send(ctx, queue, msgs)
}

var due = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// fill sends messages with the ids 0 to n-1, due at a time.
func fill(t *testing.T, n, payload int) *interfering {
	t.Helper()
	s := &interfering{Store: memstore.New()}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := range n {
		_, err := s.Send(t.Context(), "q", []store.Outgoing{{Due: store.Due{At: due},
			Message: store.Message{ID: fmt.Sprint(i), Payload: bytes.Repeat([]byte("x"), payload)}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func ids(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

// move moves a message as another process does.
func (s *interfering) move(t *testing.T, id string, at time.Time) {
	t.Helper()
	if errs, err := s.Reschedule(t.Context(), "q", []string{id}, store.Due{At: at}); err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
}

func TestCopiesAreOfTheMessagesThatWereRemoved(t *testing.T) {
	s := fill(t, 3, 1)
	log := &undo.Log{}
	s.before = func() {
		s.move(t, "0", due.Add(time.Hour)) // after it was read
		if _, err := s.Cancel(t.Context(), "q", store.CancelRequest{IDs: []string{"1"}}); err != nil {
			t.Fatal(err)
		}
	}
	results, err := undo.Cancel(undo.WithLog(t.Context(), log), s, "q", store.CancelRequest{IDs: ids(4)})
	if err != nil || results[0].State != store.StateScheduled || results[2].State != store.StateScheduled ||
		!errors.Is(results[1].Err, store.ErrNotFound) || !errors.Is(results[3].Err, store.ErrNotFound) {
		t.Errorf("%+v, %v", results, err)
	}
	got := map[string]time.Time{}
	for _, m := range log.Copies {
		got[m.ID] = m.Due
	}
	if len(got) != 2 || !got["0"].Equal(due.Add(time.Hour)) || !got["2"].Equal(due) {
		t.Errorf("copies %v", got)
	}
}

func TestMovesAreFromTheDueTimesThatTheyReplaced(t *testing.T) {
	s := fill(t, 3, 1)
	log := &undo.Log{}
	other, to := due.Add(time.Hour), due.Add(2*time.Hour)
	s.before = func() { s.move(t, "1", other) }
	errs, err := undo.Reschedule(undo.WithLog(t.Context(), log), s, "q", ids(4), store.Due{At: to})
	if err != nil || errors.Join(errs[:3]...) != nil || !errors.Is(errs[3], store.ErrNotFound) {
		t.Errorf("%v, %v", errs, err)
	}
	from := map[string]int64{"0": due.UnixMilli(), "1": other.UnixMilli(), "2": due.UnixMilli()}
	for _, m := range log.Moves {
		if m.From != from[m.ID] || m.To != to.UnixMilli() {
			t.Errorf("%+v, want from %d", m, from[m.ID])
		}
	}
	if len(log.Moves) != 3 {
		t.Errorf("%+v", log.Moves)
	}
}

func TestMessagesThatMovedSinceAreNotMovedBack(t *testing.T) {
	s := fill(t, 2, 1)
	back := due.Add(-time.Hour)
	s.before = func() { s.move(t, "1", due.Add(time.Hour)) }
	ctx := undo.WithDue(t.Context(), func(m *store.Info) (time.Time, bool) { return back, m.Due.Equal(due) })
	errs, err := undo.Reschedule(ctx, s, "q", ids(2), store.Due{})
	if err != nil || errs[0] != nil || !errors.Is(errs[1], store.ErrConflict) {
		t.Errorf("%v, %v", errs, err)
	}
	infos, err := s.Get(t.Context(), "q", ids(2))
	if err != nil || !infos[0].Due.Equal(back) || !infos[1].Due.Equal(due.Add(time.Hour)) {
		t.Errorf("%+v, %v", infos, err)
	}
}

func TestLogWithoutRoomChangesAllTheSame(t *testing.T) {
	s := fill(t, 100, 1)
	room := 50
	log := &undo.Log{Room: func(copies, _, moves int) bool {
		room -= copies + moves
		return room >= 0
	}}
	ctx := undo.WithLog(t.Context(), log)
	to := due.Add(time.Hour)
	if errs, err := undo.Reschedule(ctx, s, "q", ids(100), store.Due{At: to}); err != nil || errors.Join(errs...) != nil {
		t.Fatal(errs, err)
	}
	if !log.Full {
		t.Error("the log is not full")
	}
	results, err := undo.Cancel(ctx, s, "q", store.CancelRequest{IDs: ids(100)})
	if err != nil || len(log.Copies) != 0 {
		t.Fatal(results, err)
	}
	for i, r := range results {
		if r.Err != nil {
			t.Errorf("%d: %v", i, r.Err)
		}
	}
}

func TestLargeMessagesAreRestoredInPartsThatFit(t *testing.T) {
	s := fill(t, 12, store.MaxPayload)
	log := &undo.Log{}
	if _, err := undo.Cancel(undo.WithLog(t.Context(), log), s, "q", store.CancelRequest{IDs: ids(12)}); err != nil {
		t.Fatal(err)
	}
	added, next, err := undo.Restore(t.Context(), s, "q", "session", 1, log.Copies)
	if err != nil || len(added) != 12 || next < 4 {
		t.Errorf("%v, %d, %v", added, next, err)
	}
	again, _, err := undo.Restore(t.Context(), s, "q", "session", next, log.Copies)
	if err != nil {
		t.Fatal(err)
	}
	for i := range added {
		if !added[i] || again[i] {
			t.Errorf("%d: added %v, and again %v", i, added[i], again[i])
		}
	}
}
