package turns_test

import (
	"slices"
	"testing"

	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

var halting = store.KeyFlow{Order: store.OrderHalt}

// next starts the next message, which holds its slot, and returns its id.
func next(o *turns.Order) string {
	o.Wake(start, 1000)
	m, ok := o.Head(start)
	if !ok {
		return ""
	}
	o.Start(start, m, true)
	return m.ID
}

func TestAMessageThatCameBackHoldsItsKeyUntilItStarts(t *testing.T) {
	o := turns.New(halting)
	sort(o, "k", 3)
	if id := next(o); id != "k0" {
		t.Fatal(id)
	}
	o.Free(start, "k", 1)
	o.Keep(start, "k", "k0")
	o.Keep(start, "k", "other") // comes too late
	if key, dead := o.Holds("k0"); key != "k" || dead {
		t.Error(key, dead)
	}
	if key, _ := o.Holds("other"); key != "" {
		t.Error("a second message holds", key)
	}
	if id := next(o); id != "" {
		t.Error(id, "starts before the message that holds its key")
	}
	back := turns.Message{Key: "k", Place: 9, ID: "k0"}
	o.Sort(start, back)
	if state := o.Key(start, "k"); state.Waiting != 3 || state.Holder != "k0" || !o.Has(back) || o.Sorted() != 3 {
		t.Errorf("%+v", state)
	}
	o.Remove(start, back)
	if id := next(o); id != "" || o.Sorted() != 2 || o.Has(back) {
		t.Error(id, "starts, although the message is not due any more")
	}
	o.Sort(start, back)
	if id := next(o); id != "k0" {
		t.Error(id)
	}
	if key, _ := o.Holds("k0"); key != "" {
		t.Error("it has started and holds", key)
	}
	o.Free(start, "k", 1)
	if id := next(o); id != "k1" {
		t.Error(id)
	}
}

func TestAHaltedKeyGoesOnWhenItIsResumedOrItsMessageIsGoneOrRevived(t *testing.T) {
	for name, goOn := range map[string]func(o *turns.Order) bool{
		"resume": func(o *turns.Order) bool { return o.Resume(start, "k") && !o.Resume(start, "k") },
		"drop": func(o *turns.Order) bool {
			key := o.Drop(start, "dead")
			again := o.Drop(start, "dead")
			return key == "k" && again == ""
		},
		"continue": func(o *turns.Order) bool {
			o.SetLimits(start, store.KeyFlow{Order: store.OrderContinue})
			return true
		},
		"no order": func(o *turns.Order) bool { o.SetLimits(start, store.KeyFlow{}); return true },
		"replay": func(o *turns.Order) bool {
			o.Revive(start, "dead")
			o.Sort(start, turns.Message{Key: "k", Place: 9, ID: "dead"})
			return next(o) == "dead" && !o.Resume(start, "k")
		},
	} {
		o := turns.New(halting)
		o.Halt(start, "k", "dead")
		o.Halt(start, "", "without a key")
		sort(o, "k", 1)
		if id := next(o); id != "" || o.Counts(start) != (store.KeyCounts{Waiting: 1, Full: 1, Halted: 1}) {
			t.Fatal(id, o.Counts(start))
		}
		if !goOn(o) || o.Counts(start).Halted != 0 {
			t.Error(name, o.Counts(start))
		}
		o.Free(start, "k", 1)
		if id := next(o); id != "k0" {
			t.Errorf("%s: %q starts", name, id)
		}
	}
}

func TestAHeldKeyIsRestoredAndForgottenWhenItIsFree(t *testing.T) {
	was := turns.New(halting)
	was.Track()
	was.Keep(start, "held", "h")
	was.Halt(start, "halted", "d")
	is, kept := turns.New(halting), 0
	is.Track()
	was.Changes(func(key string, s turns.State) {
		is.Restore(start, key, s)
	})
	for key, id := range map[string]string{"held": "h", "halted": "d"} {
		if s := is.Key(start, key); s.Holder != id || s.Halted != (key == "halted") {
			t.Errorf("%+v", s)
		}
		is.Drop(start, id)
	}
	is.Changes(func(_ string, s turns.State) {
		if s != (turns.State{}) {
			kept++
		}
	})
	if kept != 0 {
		t.Errorf("%d keys are kept", kept)
	}
}

func TestWithoutAnOrderNoKeyIsHeld(t *testing.T) {
	o := turns.New(store.KeyFlow{Concurrency: 1})
	o.Keep(start, "k", "a")
	o.Halt(start, "k", "a")
	o.SetLimits(start, store.KeyFlow{Order: store.OrderContinue})
	o.Halt(start, "k", "a")
	if key, _ := o.Holds("a"); key != "" {
		t.Error("it holds", key)
	}
	o.Keep(start, "k", "b")
	sort(o, "k", 1)
	o.Sort(start, turns.Message{Key: "k", Place: 5, ID: "b"})
	o.SetLimits(start, store.KeyFlow{})
	if ids := []string{next(o), next(o)}; !slices.Equal(ids, []string{"k0", "b"}) || o.Sorted() != 0 {
		t.Error(ids, o.Sorted())
	}
}
