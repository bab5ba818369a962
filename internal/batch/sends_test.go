package batch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// outgoing returns a message. Each of the edits changes it.
func outgoing(id string, edits ...func(*store.Outgoing)) store.Outgoing {
	m := store.Outgoing{Message: store.Message{ID: id}}
	for _, edit := range edits {
		edit(&m)
	}
	return m
}

func durable(timeout time.Duration) func(*store.Outgoing) {
	return func(m *store.Outgoing) { m.Durable = store.Durability{Replicas: 1, Timeout: timeout} }
}

func replacing(m *store.Outgoing) { m.OnDuplicate.Mode = store.DuplicateReplace }

// recordedCalls is a SendFunc that records the ids of each call.
type recordedCalls struct{ log[[]string] }

func (c *recordedCalls) send(_ context.Context, msgs []store.Outgoing) ([]store.SendResult, error) {
	var ids []string
	for i := range msgs {
		ids = append(ids, msgs[i].ID)
	}
	c.add(ids)
	return make([]store.SendResult, len(msgs)), nil
}

func TestSendsKeepFewBatchersOfDurabilities(t *testing.T) {
	calls := &recordedCalls{}
	s := NewSends(calls.send, nil, t.Context(), testConfig)
	for i := range 3 * maxDurableBatchers {
		if _, err := s.Do(t.Context(), outgoing("id", durable(time.Second+time.Duration(i)))); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.durable) != maxDurableBatchers || len(calls.list()) != 3*maxDurableBatchers {
		t.Errorf("%d batchers are kept and %d calls were made", len(s.durable), len(calls.list()))
	}
	s.Close()
	for _, m := range []store.Outgoing{
		outgoing("plain"), outgoing("durable", durable(time.Second)), outgoing("new", durable(time.Hour)),
		outgoing("replaces", replacing),
	} {
		_, err := s.Do(t.Context(), m)
		wantError(t, err, store.ErrClosed)
	}
}

// TestSendsWithAnUrgencyDoNotRefuseOthers has a queue without urgency, which refuses whole calls.
func TestSendsWithAnUrgencyDoNotRefuseOthers(t *testing.T) {
	refused := errors.New("refused")
	s := NewSends(func(_ context.Context, msgs []store.Outgoing) ([]store.SendResult, error) {
		runtime.Gosched() // others gather
		if slices.ContainsFunc(msgs, func(m store.Outgoing) bool { return m.Urgency != store.UrgencyNormal }) {
			return nil, refused
		}
		return make([]store.SendResult, len(msgs)), nil
	}, nil, t.Context(), testConfig)
	urgent := func(m *store.Outgoing) { m.Urgency = store.UrgencyHigh }
	for _, edits := range [][]func(*store.Outgoing){{}, {replacing}, {durable(time.Second)}} {
		var sending sync.WaitGroup
		for i := range 64 {
			sending.Go(func() {
				for range 50 {
					m, want := outgoing("id", edits...), error(nil)
					if i%2 == 0 {
						urgent(&m)
						want = refused
					}
					if _, err := s.Do(t.Context(), m); err != want {
						t.Errorf("urgency %q: %v", m.Urgency, err)
						return
					}
				}
			})
		}
		sending.Wait()
	}
	s.Close()
	_, err := s.Do(t.Context(), outgoing("id", urgent))
	wantError(t, err, store.ErrClosed)
}

func TestSendsOfOneDurabilityAreSplitByWhetherTheyGoOneByOne(t *testing.T) {
	calls := &recordedCalls{}
	s := NewSends(calls.send, nil, t.Context(), testConfig)
	defer s.Close()
	d := durable(time.Second)
	part := []store.Outgoing{
		outgoing("a", d), outgoing("b", d), outgoing("c", d, replacing), outgoing("d", d, replacing), outgoing("e", d),
	}
	results, err := s.DoPart(t.Context(), part)
	got := calls.list()
	want := [][]string{{"a", "b"}, {"c", "d"}, {"e"}}
	if err != nil || len(results) != 5 || !slices.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("%d results, %v, calls %q, want %q", len(results), err, got, want)
	}
}

// sendsTo returns Sends to a queue of a store, which is closed when the test ends.
func sendsTo(t *testing.T, s store.Store) *Sends {
	t.Helper()
	sends := NewSends(func(ctx context.Context, msgs []store.Outgoing) ([]store.SendResult, error) {
		return s.Send(ctx, "q", msgs)
	}, nil, t.Context(), testConfig)
	t.Cleanup(func() {
		sends.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return sends
}

// Durable sends of all modes travel together, and each call of the store has only messages that may replace others, or
// none of them.
func TestDurableSendsOfEveryModeAreSplit(t *testing.T) {
	sends := sendsTo(t, memstore.New())
	msgs := make([]store.Outgoing, 5)
	for i, mode := range []store.DuplicateMode{store.DuplicateKeep, store.DuplicateReplace, store.DuplicateReplace,
		store.DuplicateKeep, store.DuplicateReplace} {
		msgs[i].ID, msgs[i].OnDuplicate.Mode = "a", mode
	}
	results, err := sends.mixed(t.Context(), msgs)
	if err != nil {
		t.Fatal(err)
	}
	want := []store.SendResult{{}, {Replaced: true}, {Replaced: true}, {Duplicate: true}, {Replaced: true}}
	if fmt.Sprint(results) != fmt.Sprint(want) {
		t.Errorf("results are %v, want %v", results, want)
	}
}

// partStore fails from a call on.
type partStore struct {
	*memstore.Store
	calls, fails int
}

func (s *partStore) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	if s.calls++; s.calls >= s.fails {
		return nil, store.ErrFull
	}
	return s.Store.Send(ctx, queue, msgs)
}

func TestMixedCallsThatFailSayWhichMessagesWereSent(t *testing.T) {
	message := func(id string, mode store.DuplicateMode) store.Outgoing {
		return store.Outgoing{Message: store.Message{ID: id}, OnDuplicate: store.OnDuplicate{Mode: mode}}
	}
	msgs := []store.Outgoing{message("a", 0), message("b", 0), message("c", store.DuplicateReplace), message("d", 0)}
	s := &partStore{Store: memstore.New(), fails: 2}
	sends := sendsTo(t, s)
	results, err := sends.mixed(t.Context(), msgs)
	if err != nil || len(results) != 4 || !results[0].Added() || !results[1].Added() ||
		results[2].Err != store.ErrFull || results[3].Err != store.ErrFull || s.calls != 2 {
		t.Errorf("%+v, %v after %d calls", results, err, s.calls)
	}
	s = &partStore{Store: memstore.New(), fails: 1}
	if results, err := sendsTo(t, s).mixed(t.Context(), msgs); err != store.ErrFull || results != nil {
		t.Errorf("%+v, %v", results, err)
	}
}

func TestDurableSendsEndWithTheirClient(t *testing.T) {
	confirming, end := context.WithCancelCause(context.Background())
	begun := make(chan struct{})
	s := NewSends(func(ctx context.Context, _ []store.Outgoing) ([]store.SendResult, error) {
		close(begun)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}, nil, confirming, testConfig)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		_, err := s.Do(context.Background(), outgoing("id", durable(time.Minute)))
		wantError(t, err, store.ErrClosed)
	})
	<-begun
	end(store.ErrClosed)
	waiting.Wait()
	s.Close()
}
