package migrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestCopyMoveEmptiesTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := newMem(t), newMem(t)
		mixed(t, from, "q", 1234)
		before := contents(t, from, "q")
		r, err := Copy(t.Context(), to, from, CopyConfig{Move: true})
		wantError(t, err, store.ErrLeased)
		if want := []QueueCopy{{Queue: "q", Total: 1240, Copied: 1238, Leased: 2}}; !slices.Equal(r.Queues, want) {
			t.Errorf("Copy returned %+v", r.Queues)
		}
		wantCounts(t, from.Queue("q"), 0, 0, 2, 0)
		if !mustStats(t, from.Queue("q")).Paused {
			t.Error("the source is not paused")
		}
		time.Sleep(time.Hour) // the leases expire, and a paused queue delivers nothing
		got := mustCopy(t, to, from, CopyConfig{Move: true})
		if want := []QueueCopy{{Queue: "q", Total: 2, Copied: 2, Paused: true}}; !slices.Equal(got, want) {
			t.Errorf("moved again: %+v", got)
		}
		wantCounts(t, from.Queue("q"), 0, 0, 0, 0)
		after := contents(t, to, "q")
		if !strings.Contains(after["k/leased0"].LastError, store.LeaseExpiredText) {
			t.Errorf("the message whose lease expired is %+v", after["k/leased0"])
		}
		for id := range before {
			if strings.HasPrefix(id, "k/leased") {
				before[id] = after[id] // its attempt has failed
			}
		}
		sameMessages(t, after, before)
	})
}

func TestCopyMoveRemovesNothingThatHasChanged(t *testing.T) {
	from, s := newMem(t), &hooked{Store: memstore.New()}
	to, q, ctx := newClient(t, s), from.Queue("q"), t.Context()
	for _, id := range []string{"moved", "rescheduled", "sent again", "cancelled"} {
		mustSend(t, q, "first", later.WithID(id), later.In(time.Hour))
	}
	s.restored = func([]store.Info) error { // between the page's restore and its removal
		s.restored = nil
		_, cancelled := q.Cancel(ctx, "cancelled")
		_, again := q.Cancel(ctx, "sent again")
		mustSend(t, q, "second", later.WithID("sent again"), later.In(time.Hour))
		return errors.Join(cancelled, again, q.Reschedule(ctx, "rescheduled", later.In(5*time.Hour)))
	}
	got := mustCopy(t, to, from, CopyConfig{Move: true})
	if want := []QueueCopy{{Queue: "q", Total: 4, Copied: 4}}; !slices.Equal(got, want) {
		t.Errorf("Copy returned %+v", got)
	}
	wantCounts(t, q, 0, 0, 0, 0)
	wantCounts(t, to.Queue("q"), 4, 0, 0, 0) // includes the cancelled one: another Copy may have moved it
	for id, want := range map[string]string{"moved": "first", "sent again": "second", "rescheduled": "first"} {
		info, err := to.Queue("q").Get(ctx, id)
		if err != nil || string(info.Payload) != want || id == "rescheduled" && time.Until(info.Due) < 4*time.Hour {
			t.Errorf("message %q: %+v, %v", id, info, err)
		}
	}
}

func TestCopyMoveKeepsMessagesThatConflictWithTheTarget(t *testing.T) {
	from, to := newMem(t), newMem(t)
	here, there, ctx := from.Queue("q"), to.Queue("q"), t.Context()
	mustSend(t, there, "x", later.WithID("remembered"), later.DedupWindow(time.Hour))
	if err := mustReceive(t, there, 1)[0].Ack(ctx); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"failed there", "other", "remembered", "rescheduled", "same"} {
		mustSend(t, here, "here", later.WithID(id), later.MaxAttempts(3))
	}
	if err := here.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	mustCopy(t, to, from, CopyConfig{})
	if err := mustReceive(t, there, 1)[0].Nack(ctx, 0, errors.New("no")); err != nil {
		t.Fatal(err)
	}
	if _, err := there.Cancel(ctx, "other"); err != nil {
		t.Fatal(err)
	}
	mustSend(t, there, "there", later.WithID("other"), later.In(time.Hour))
	if err := here.Reschedule(ctx, "rescheduled", later.In(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r, err := Copy(ctx, to, from, CopyConfig{Move: true})
		wantError(t, err, store.ErrDuplicate)
		if q := r.Queues[0]; q.Conflicts != 3 || q.Copied != 0 || q.Duplicates != q.Total-3 {
			t.Errorf("Copy returned %+v", q)
		}
	}
	wantCounts(t, here, 1, 2, 0, 0)
	for _, id := range []string{"other", "remembered", "rescheduled"} {
		if _, err := here.Get(ctx, id); err != nil {
			t.Error(err)
		}
	}
	if info, err := there.Get(ctx, "failed there"); err != nil || info.Attempts != 1 {
		t.Errorf("the message that failed in the target is %+v, %v", info, err)
	}
}

func TestCopyMoveContinuesAfterAFailureWithinAPage(t *testing.T) {
	s := &hooked{Store: memstore.New()}
	from, to := newClient(t, s), newMem(t)
	ids := map[string]int{}
	for i := range 3 * store.MaxBatch {
		ids[mustSend(t, from.Queue("q"), fmt.Sprint(i))] = 0
	}
	calls := 0
	s.removing = func([]store.Info) error {
		if calls++; calls == 2 {
			return store.ErrUnavailable
		}
		return nil
	}
	_, err := Copy(t.Context(), to, from, CopyConfig{Move: true})
	wantError(t, err, store.ErrUnavailable)
	if !strings.Contains(err.Error(), "source") {
		t.Errorf("%v does not name the store", err)
	}
	wantCounts(t, from.Queue("q"), 0, 2*store.MaxBatch, 0, 0)
	wantCounts(t, to.Queue("q"), 0, 2*store.MaxBatch, 0, 0)
	held := mustReceive(t, to.Queue("q"), store.MaxBatch) // the target's workers are running
	for i, d := range held {
		if i%2 == 0 {
			err = d.Nack(t.Context(), 0, errors.New("no"))
		} else {
			err = d.Snooze(t.Context(), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got := mustCopy(t, to, from, CopyConfig{Move: true})[0]
	if got.Copied != store.MaxBatch || got.Duplicates != store.MaxBatch {
		t.Errorf("Copy returned %+v", got)
	}
	wantCounts(t, from.Queue("q"), 0, 0, 0, 0)
	for id := range contents(t, to, "q") {
		ids[id]++
	}
	for id, n := range ids {
		if n != 1 {
			t.Errorf("message %q was found %d times; want once", id, n)
		}
	}
}

func TestCopyMoveFindsMessagesThatArriveDuringIt(t *testing.T) {
	from, to := newMem(t), newMem(t)
	q := from.Queue("q")
	mixed(t, from, "q", store.MaxBatch)
	sent := 0
	got := mustErr(t, store.ErrLeased, func() (CopyResult, error) {
		return Copy(t.Context(), to, from, CopyConfig{Move: true, Progress: func(QueueCopy) {
			if sent < 3 {
				sent++
				mustSend(t, q, "meanwhile", later.WithID(fmt.Sprint("meanwhile", sent)), later.In(time.Minute)) // behind the cursor
			}
		}})
	})
	if got.Queues[0].Copied != store.MaxBatch+4+3 {
		t.Errorf("Copy returned %+v", got.Queues)
	}
	wantCounts(t, q, 0, 0, 2, 0)

	// Sending that never stops is reported.
	other := from.Queue("other")
	mustSend(t, other, "x")
	cfg := CopyConfig{Queues: []string{"other"}, Move: true, Progress: func(QueueCopy) { mustSend(t, other, "x") }}
	r, err := Copy(t.Context(), to, from, cfg)
	if err == nil || !strings.Contains(err.Error(), "arrived in the source") || r.Queues[0].Copied < maxPasses {
		t.Errorf("Copy returned %+v, %v", r.Queues, err)
	}
}

func mustErr[T any](t *testing.T, kind error, f func() (T, error)) T {
	t.Helper()
	result, err := f()
	wantError(t, err, kind)
	return result
}

func TestCopyMoveRunConcurrentlyLosesNothing(t *testing.T) {
	from, to := memstore.New(), memstore.New()
	c := newClient(t, from)
	mixed(t, c, "q", 10*store.MaxBatch)
	before := contents(t, c, "q")
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			_, err := Copy(t.Context(), newClient(t, to), newClient(t, from), CopyConfig{Move: true})
			wantError(t, err, store.ErrLeased)
		})
	}
	group.Wait()
	maps.DeleteFunc(before, func(id string, _ store.Info) bool { return strings.HasPrefix(id, "k/leased") }) // they stay
	sameMessages(t, contents(t, newClient(t, to), "q"), before)
	wantCounts(t, c.Queue("q"), 0, 0, 2, 0)
}

// syncing is a target that acknowledges messages before they are on its disk.
type syncing struct {
	hooked
	syncs int
	err   error
}

func (s *syncing) Sync(context.Context) error {
	s.syncs++
	return s.err
}

func TestCopyMoveRemovesNothingBeforeTheTargetIsSynced(t *testing.T) {
	target := &syncing{hooked: hooked{Store: memstore.New()}, err: store.ErrUnavailable}
	from, to := newMem(t), newClient(t, target)
	mustSend(t, from.Queue("q"), "x")
	mustCopy(t, to, from, CopyConfig{})
	if target.syncs > 0 {
		t.Error("a plain copy synced the target")
	}
	_, err := Copy(t.Context(), to, from, CopyConfig{Move: true}) // the target already has the message
	wantError(t, err, store.ErrUnavailable)
	if target.syncs != 1 || !strings.Contains(err.Error(), "target") {
		t.Errorf("%d syncs; %v", target.syncs, err)
	}
	wantCounts(t, from.Queue("q"), 0, 1, 0, 0)
	target.err = nil
	mustCopy(t, to, from, CopyConfig{Move: true})
	wantCounts(t, from.Queue("q"), 0, 0, 0, 0)
}
