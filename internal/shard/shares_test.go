package shard

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// A process stops in the middle of a SetFlow. Others end it and set other limits. Then it goes on.
func TestASlowSetFlowUndoesNoLaterOne(t *testing.T) {
	w, s := sharing(t, store.Flow{Concurrency: 10}, 2)
	slow, engine := w.process()
	engine.after = func(call, name string) error {
		if call == "SetSign" { // it has written the directory
			engine.after = nil
			_, err := s.read(t.Context(), "q")
			w.ok(err)
			w.ok(s.SetFlow(t.Context(), "q", store.Flow{Concurrency: 2}, nil))
		}
		return nil
	}
	w.ok(slow.SetFlow(t.Context(), "q", store.Flow{Concurrency: 100}, nil))
	_, err := s.read(t.Context(), "q")
	w.ok(err)
	for i := range 60 {
		w.send(s, "", fmt.Sprint(i))
	}
	n := 0
	for range 10 {
		n += len(w.claim(s))
	}
	stats, err := s.Stats(t.Context(), "q")
	w.ok(err)
	if n > stats.Flow.Concurrency {
		t.Errorf("%d messages are leased, concurrency is %d", n, stats.Flow.Concurrency)
	}
}

// SetFlow begins with four shards, and two are left before it sets the first share.
func TestSharesFollowAChangeThatEndsDuringSetFlow(t *testing.T) {
	w, s := sharing(t, store.Flow{Concurrency: 8}, 4)
	slow, engine := w.process()
	for range 3 {
		w.step(s, 2)
	}
	if r := routeOf(t, s, "q"); r.Emptied == 0 {
		t.Fatal("not emptied")
	}
	engine.before = func(call, name string) error {
		if call == "SetFlow" {
			return nil
		}
		if call == "Stats" { // of its first share
			engine.before = nil
			w.clock.Advance(time.Hour)
			w.steps(s, 2)
			r, err := s.read(t.Context(), "q")
			w.ok(err)
			_, err = s.usable(t.Context(), "q", r) // any call
			w.ok(err)
		}
		return nil
	}
	w.ok(slow.SetFlow(t.Context(), "q", store.Flow{Concurrency: 40}, nil))
	r := routeOf(t, s, "q")
	sum := 0
	for _, name := range r.names {
		stats, err := w.engine.Stats(t.Context(), name)
		w.ok(err)
		sum += stats.Flow.Concurrency
	}
	if sum != 40 {
		t.Errorf("directory %s\nthe shares add up to %d", r.text, sum)
	}
}

func TestAShardLostDuringSetFlowIsCreatedAgain(t *testing.T) {
	w, s := sharing(t, store.Flow{Concurrency: 10}, 2)
	w.lose(routeOf(t, s, "q").names[1])
	if err := s.SetFlow(t.Context(), "q", store.Flow{Concurrency: 20}, nil); err != nil {
		t.Errorf("SetFlow: %v", err)
	}
	other, _ := w.process()
	for i := range 3 {
		w.clock.Advance(time.Hour)
		if _, err := other.Send(t.Context(), "q", []store.Outgoing{{Message: store.Message{ID: fmt.Sprint(i)}}}); err != nil {
			t.Errorf("Send: %v", err)
		}
		if _, err := other.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Hour}); err != nil {
			t.Errorf("Claim: %v", err)
		}
	}
	if err := other.Delete(t.Context(), "q"); err != nil {
		t.Errorf("Delete: %v", err)
	}
}

var errDown = store.Errorf(store.ErrUnavailable, "the node is down")

// While one shard is down, SetFlow fails, and the other shards go on in every process.
func TestShardsGoOnWhileOneDoesNotGetItsShare(t *testing.T) {
	w := newWorld(t)
	s, engine := w.process()
	w.ok(s.SetFlow(t.Context(), "q", store.Flow{Concurrency: 10}, nil))
	w.steps(s, 2)
	down := routeOf(t, s, "q").names[1]
	other, engine2 := w.process()
	for _, e := range []*spied{engine, engine2} {
		e.before = func(_, name string) error {
			if name == down {
				return errDown
			}
			return nil
		}
	}
	id := idOf(2, 0, 2, 0)
	w.send(other, "", id+"/1")
	w.send(s, "", id+"/2")
	t.Logf("SetFlow: %v", s.SetFlow(t.Context(), "q", store.Flow{Concurrency: 20}, nil))
	third, engine3 := w.process()
	engine3.before = engine2.before
	for i, p := range []forwarder{s, third} {
		_, err := p.Send(t.Context(), "q", []store.Outgoing{{Message: store.Message{ID: fmt.Sprint(id, "/a", i)}}})
		if err != nil {
			t.Errorf("process %d, a send to the shard that is up: %v", i, err)
		}
	}
}

// Another process still has the former directory, for ten minutes.
func TestLimitsAreReadAgainBeforeAMessageIsRefused(t *testing.T) {
	w, s := sharing(t, store.Flow{Concurrency: 10}, 2)
	other, _ := w.process()
	w.send(other, "", "a") // it knows the directory
	flow := store.Flow{Concurrency: 4, Urgency: true}
	w.ok(s.SetFlow(t.Context(), "q", flow, nil))
	m := store.Outgoing{Message: store.Message{ID: "b", Urgency: store.UrgencyHigh}}
	results, err := other.Send(t.Context(), "q", []store.Outgoing{m})
	if err == nil {
		err = store.SendError(results)
	}
	if err != nil {
		t.Errorf("urgent message after SetFlow has returned: %v", err)
	}
	stats, err := other.Stats(t.Context(), "q")
	w.ok(err)
	if stats.Flow.Flow != flow.Normal() {
		t.Errorf("Stats.Flow is %+v", stats.Flow.Flow)
	}
}

// Another process sets the last shares.
func TestSetFlowIsNoConflictWithItself(t *testing.T) {
	former := store.Flow{Concurrency: 10}
	w, s := sharing(t, former, 2)
	setter, engine := w.process()
	engine.after = func(call, name string) error {
		if call == "SetSign" { // others go on, and begin a change
			engine.after = nil
			_, err := s.read(t.Context(), "q")
			w.ok(err)
			w.ok(s.SetShards(t.Context(), "q", 3))
			w.step(s, 3)
		}
		return nil
	}
	if err := setter.SetFlow(t.Context(), "q", store.Flow{Concurrency: 20}, &former); err != nil {
		stats, _ := s.Stats(t.Context(), "q")
		t.Errorf("%v; the limits are %+v", err, stats.Flow.Flow)
	}
}

// The error of SetShards says when it can be called.
func TestTheErrorOfAChangeSaysWhenItEnds(t *testing.T) {
	w := newWorld(t)
	s, _ := w.process()
	flow := store.Flow{Rate: store.Rate{N: 4, Per: 10 * time.Hour, Burst: 4}}
	w.ok(s.SetFlow(t.Context(), "q", flow, nil))
	w.clock.Advance(48 * time.Hour)
	for range 60 {
		w.clock.Advance(time.Hour)
		w.step(s, 2)
	}
	for range 3 {
		w.step(s, 1)
	}
	err := s.SetShards(t.Context(), "q", 3)
	r := routeOf(t, s, "q")
	ends := time.UnixMilli(r.Emptied).Add(r.gathers()).UTC().Format(time.TimeOnly)
	if !errors.Is(err, store.ErrConflict) || r.gathers() > 0 && !strings.Contains(err.Error(), ends) {
		t.Errorf("%v; it ends %v after that", err, r.gathers())
	}
}

// A process dies in the middle of a SetFlow. Another one that claims reads the directory within a minute, and goes on.
func TestAnotherProcessGoesOnWithASetFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memstore.New()
		defer engine.Close()
		open := func() (forwarder, *spied) {
			e := &spied{Store: engine}
			over := New(e, slog.New(slog.DiscardHandler)).(forwarder)
			Stepwise(over)
			return over, e
		}
		a, e := open()
		b, _ := open()
		if err := a.SetFlow(t.Context(), "q", store.Flow{Concurrency: 100}, nil); err != nil {
			t.Fatal(err)
		}
		for ended := false; !ended; {
			var err error
			if ended, err = Step(t.Context(), a, "q", 2); err != nil {
				t.Fatal(err)
			}
		}
		sendTo(t, b, "q", "x")
		e.after = func(call, name string) error {
			if call == "SetSign" {
				return errDown
			}
			return nil
		}
		_ = a.SetFlow(t.Context(), "q", store.Flow{Concurrency: 2}, nil)
		began := time.Now()
		for time.Since(began) < 20*time.Minute {
			if _, err := b.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Hour}); err != nil {
				t.Fatal(err)
			}
			stats, _ := engine.Stats(t.Context(), routeOfName(b, "q")[1])
			if stats.Flow.Concurrency == 1 {
				break
			}
			time.Sleep(time.Second)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("the new limits hold after %v, while a process claims", took)
		}
	})
}

func routeOfName(s forwarder, queue string) []string { return s.known(queue).names }

// A process that prepares a change finds the share that another one has set, smaller than the number of shards.
func TestAProcessThatPreparesLateIsNotRefused(t *testing.T) {
	w := newWorld(t)
	s, _ := w.process()
	late, engine := w.process()
	w.ok(s.SetFlow(t.Context(), "q", store.Flow{Concurrency: 6}, nil))
	w.step(s, 4) // begins
	engine.before = func(call, _ string) error {
		if call == "Stats" {
			engine.before = nil
			w.step(s, 4) // prepares
		}
		return nil
	}
	w.send(late, "", "a")
}

// A worker does not prefetch from a queue with limits, also if it has found nothing there.
func TestAClaimThatFindsNothingTellsOfLimits(t *testing.T) {
	w, s := sharing(t, store.Flow{Concurrency: 6}, 3)
	claim, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Minute})
	if w.ok(err); !claim.Limited || len(claim.Messages) > 0 {
		t.Errorf("claimed %+v", claim)
	}
}

// sharesAre fails the test unless the shards have their shares of a concurrency.
func (w *world) sharesAre(s forwarder, concurrency int) {
	w.Helper()
	w.ok(CheckShares(w.Context(), s, "q"))
	if f := routeOf(w.T, s, "q").limits(); f.Concurrency != concurrency {
		w.Errorf("the directory has the concurrency %d, want %d", f.Concurrency, concurrency)
	}
}

// A process is about to end a change, and dies then, while another one sets limits.
func TestLimitsThatAreSetAsAChangeEndsStay(t *testing.T) {
	for _, n := range []int{2, 1} {
		w, s := sharing(t, store.Flow{Concurrency: 12}, 4)
		slow, engine := w.process()
		for range 3 {
			w.step(s, n)
		}
		if r := routeOf(t, s, "q"); r.Emptied == 0 {
			t.Fatal("not emptied")
		}
		w.clock.Advance(time.Hour)
		engine.before = func(call, _ string) error {
			if call == "Stats" { // for the time
				engine.before = nil
				w.ok(s.SetFlow(t.Context(), "q", store.Flow{Concurrency: 4}, nil))
			}
			return nil
		}
		if w.step(slow, n) {
			t.Error("the change has ended with an old directory")
		}
		sum := 0
		for _, name := range routeOf(t, s, "q").names[:n] { // the others may be gone
			stats, err := w.engine.Stats(t.Context(), name)
			w.ok(err)
			sum += stats.Flow.Concurrency
		}
		if sum > 4 {
			t.Errorf("the shares add up to %d", sum)
		}
		w.steps(s, n)
		if stats, err := s.Stats(t.Context(), "q"); err != nil || stats.Flow.Concurrency != 4 {
			t.Errorf("limits %+v, error %v", stats.Flow.Flow, err)
		}
	}
}

// A process that ends a change dies before the shards that stay have got larger shares. The next call gives them.
func TestSharesFollowAChangeWhoseProcessDiesAsItEnds(t *testing.T) {
	for _, n := range []int{2, 1} {
		w, s := sharing(t, store.Flow{Concurrency: 12}, 4)
		dies, engine := w.process()
		for range 3 {
			w.step(s, n)
		}
		w.clock.Advance(time.Hour)
		engine.after = func(call, _ string) error {
			if call == "SetSign" {
				engine.before = func(string, string) error { return errDown }
			}
			return nil
		}
		_, _ = Step(t.Context(), dies, "q", n)
		other, _ := w.process()
		w.send(other, "", "a")
		if r, err := other.read(t.Context(), "q"); err != nil || (n == 1) != (r == nil) {
			t.Errorf("route %v, error %v", r, err)
		}
		if n > 1 {
			w.sharesAre(other, 12)
		} else if stats, err := w.engine.Stats(t.Context(), "q"); err != nil || stats.Flow.Concurrency != 12 {
			t.Errorf("limits %+v, error %v", stats.Flow.Flow, err)
		}
	}
}

// A process is slow to prepare a change that another one has prepared, and sets no share from before.
func TestALatePreparationSetsNoOldShare(t *testing.T) {
	w, s := sharing(t, store.Flow{Concurrency: 12}, 2)
	slow, engine := w.process()
	w.step(s, 4) // the directory says so
	stats := 0
	engine.after = func(call, name string) error {
		if call != "Stats" || name != routeOf(t, s, "q").names[1] {
			return nil
		}
		if stats++; stats == 1 { // it knows the share of a shard, and sets that
			for range 3 {
				w.step(s, 4)
			}
			w.ok(s.SetFlow(t.Context(), "q", store.Flow{Concurrency: 24}, nil)) // with the former share
		}
		return nil
	}
	w.step(slow, 4)
	if stats == 0 {
		t.Fatal("the preparation was not late")
	}
	w.sharesAre(s, 24)
}
