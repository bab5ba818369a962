package shard

import (
	"errors"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// A process has looked at the directory, and its call that sets a share is executed when that change is over and other
// limits were set, which give the shard the former share. So the call is not refused, and the process repairs that.
func TestAShareThatIsSetTooLateIsSetAgain(t *testing.T) {
	w, s := sharing(t, store.Flow{Concurrency: 12}, 2)
	slow, engine := w.process()
	w.step(s, 4) // the directory says so
	late := false
	engine.before = func(call, name string) error {
		if call == "SetFlow" && !late {
			late = true
			for range 3 {
				w.step(s, 4)
			}
			w.ok(s.SetFlow(t.Context(), "q", store.Flow{Concurrency: 24}, nil)) // with the former share
		}
		return nil
	}
	w.send(slow, "", "a")
	if !late {
		t.Fatal("the preparation was not late")
	}
	w.sharesAre(s, 24)
}

// The same, and the process dies. Stats finds that, whoever calls it.
func TestStatsMendsAShareThatIsWrong(t *testing.T) {
	w, s := sharing(t, store.Flow{Concurrency: 12}, 2)
	name := routeOf(t, s, "q").names[1]
	w.ok(w.engine.SetFlow(t.Context(), name, store.Flow{Concurrency: 40}, nil))
	other, _ := w.process()
	_, err := other.Stats(t.Context(), "q")
	w.ok(err)
	w.sharesAre(s, 12)
}

// A process goes on with a SetFlow, and meanwhile others end it and begin a change. A send of the first one succeeds.
func TestACallGoesOnAfterChangesThatItHelpedWith(t *testing.T) {
	w, s := sharing(t, store.Flow{Concurrency: 12}, 2)
	dies, engine := w.process()
	slow, engine2 := w.process()
	engine.after = func(call, _ string) error {
		if call == "SetSign" {
			return errDown
		}
		return nil
	}
	if err := dies.SetFlow(t.Context(), "q", store.Flow{Concurrency: 24}, nil); !errors.Is(err, errDown) {
		t.Fatal(err)
	}
	engine2.before = func(call, _ string) error {
		if call == "Stats" {
			engine2.before = nil
			_, err := s.read(t.Context(), "q")
			w.ok(err)
			w.step(s, 4)
		}
		return nil
	}
	w.send(slow, "", "a")
}

// The same while it prepares a change, and the others end that and begin another.
func TestACallGoesOnAfterAChangeThatItPrepared(t *testing.T) {
	for _, limits := range []store.Flow{{}, {Concurrency: 12}} {
		w, s := sharing(t, limits, 2)
		slow, engine := w.process()
		w.step(s, 4)
		engine.before = func(call, _ string) error {
			if call == "Create" {
				engine.before = nil
				for !w.step(s, 4) {
					w.clock.Advance(time.Hour)
				}
				w.step(s, 3)
			}
			return nil
		}
		w.send(slow, "", "a")
		if err := slow.SetShards(t.Context(), "q", 3); err != nil {
			t.Error(err)
		}
	}
}

// A queue gets its own name back when its limits are in force and before SetFlow returns.
func TestSetFlowIsNoConflictWithItselfWhenShardsEnd(t *testing.T) {
	former := store.Flow{Concurrency: 12}
	w, s := sharing(t, former, 2)
	setter, engine := w.process()
	for range 3 {
		w.step(s, 1)
	}
	engine.after = func(call, name string) error {
		if call == "SetSign" { // others go on
			engine.after = nil
			_, err := s.read(t.Context(), "q")
			w.ok(err)
			w.clock.Advance(time.Hour)
			w.steps(s, 1)
		}
		return nil
	}
	if err := setter.SetFlow(t.Context(), "q", store.Flow{Concurrency: 20}, &former); err != nil {
		stats, _ := s.Stats(t.Context(), "q")
		t.Errorf("%v; the limits are %+v", err, stats.Flow.Flow)
	}
}

// The last shard of a queue was lost before the queue got its own name back.
func TestAQueueGetsItsNameBackWithoutItsShard(t *testing.T) {
	w := newWorld(t)
	s, _ := w.process()
	dies, engine := w.process()
	w.send(s, "", "a")
	w.steps(s, 2)
	for range 4 {
		w.step(s, 1)
	}
	w.clock.Advance(time.Hour)
	set := false
	engine.before = func(string, string) error {
		if set {
			return errDown
		}
		return nil
	}
	engine.after = func(call, _ string) error {
		set = set || call == "SetSign" && routeOf(t, s, "q").single()
		return nil
	}
	_, _ = Step(t.Context(), dies, "q", 1)
	r := routeOf(t, s, "q")
	if r == nil || !r.single() {
		t.Fatalf("route %+v", r)
	}
	w.lose(r.first())
	other, _ := w.process()
	w.send(other, "", "b")
}
