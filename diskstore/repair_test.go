package diskstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// damageSeveral damages queue q in several ways, and returns where its messages are after a repair.
func damageSeveral(t *testing.T, s *Store) map[string]store.State {
	t.Helper()
	r := raw{t, s, s.queues["q"].number}
	r.remove(r.time(kindDue, r.due("s1"), "s1"))
	r.set(r.time(kindDue, 5, "nobody"), nil)
	r.set(r.id(kindMessage, "r1"), append(appendTime(nil, r.due("r1")), "\xffbytes"...))
	r.set(r.id(kindRecord, "d1"), []byte("x"))
	r.set(r.id('z', "x"), nil)
	id, value := r.lease()
	r.set(r.id(kindLease, id+"too"), value)
	r.remove(r.time(kindForget, readTime(r.get(r.id(kindRemembered, "gone"))), "gone"))
	r.meta(func(m *meta) { m.due += 7 })
	if err := s.db.LogData(nil, nil); err != nil { // syncs
		t.Fatal(err)
	}
	want := placed()
	want["r1"], want["d1"] = store.StateDead, store.StateReady
	return want
}

func TestRepairSurvivesACrashAtAnyPoint(t *testing.T) {
	t.Parallel()
	repairWithCrashes(t, 0, 1)
}

// TestRepairInSeveralStepsSurvivesACrash has so many messages that the index is written in several steps.
func TestRepairInSeveralStepsSurvivesACrash(t *testing.T) {
	t.Parallel()
	every := 20
	if os.Getenv("LATER_LONG") != "" {
		every = 1
	}
	repairWithCrashes(t, 2*maxRebuildBatch/250, every)
}

// repairWithCrashes cuts the power before any write during a repair, and looks at what is left at every nth one.
func repairWithCrashes(t *testing.T, messages, every int) {
	clock := newManualClock()
	c := newCrashPoints(vfs.NewCrashableMem())
	s := openOn(t, c, clock)
	places(t, s)
	var msgs []store.Outgoing
	for i := range messages {
		id := fmt.Sprintf("m%04d%s", i, strings.Repeat("x", store.MaxID-10))
		msgs = append(msgs, store.Outgoing{Message: store.Message{ID: id}, Due: store.Due{Delay: time.Hour}})
	}
	for some := range slices.Chunk(msgs, store.MaxBatch) {
		if _, err := s.Send(t.Context(), "q", some); err != nil {
			t.Fatal(err)
		}
	}
	want := damageSeveral(t, s)
	for _, m := range msgs {
		want[m.ID] = store.StateScheduled
	}
	c.take(func() {
		if all := issuesOf(checked(t, s, true)); len(all) == 0 {
			t.Fatal("nothing was repaired")
		}
	})
	s.Close()
	refused := 0
	for i := 0; i < len(c.left); i += every {
		s := openOn(t, c.left[i], clock)
		_, err := s.Stats(t.Context(), "q")
		if err == nil { // else the repair is not over; before it the two leases of l1 are refused
			if got := live(t, s, "q"); !maps.Equal(got, want) {
				t.Errorf("crash before %s: the queue is served with %d messages, want %d in other states", c.ops[i], len(got),
					len(want))
			}
		}
		if err != nil && strings.Contains(err.Error(), "interrupted: repair it again") {
			refused++
		}
		checked(t, s, true)
		if all := issuesOf(checked(t, s, false)); len(all) > 0 {
			t.Errorf("crash before %s: results after another repair: %+v", c.ops[i], all)
		}
		got := live(t, s, "q")
		if !maps.Equal(got, want) {
			t.Errorf("crash before %s: %d messages are there, want %d in other states", c.ops[i], len(got), len(want))
		}
		if stats, err := s.Stats(t.Context(), "q"); err != nil || stats.Paused {
			t.Errorf("crash before %s: %+v, %v, want a queue that is not paused", c.ops[i], stats, err)
		}
		s.Close()
	}
	if refused == 0 {
		t.Error("no crash interrupted the repair")
	}
}

// interrupting is a context that ends when it is asked for the nth time whether it has.
type interrupting struct {
	context.Context
	cancel context.CancelCauseFunc
	left   int
}

var errEnough = errors.New("enough")

func (c *interrupting) Err() error {
	if c.left--; c.left == 0 {
		c.cancel(errEnough)
	}
	return c.Context.Err()
}

// TestRepairThatIsInterruptedRefusesTheQueueUntilItIsRepaired ends the context at each step.
func TestRepairThatIsInterruptedRefusesTheQueueUntilItIsRepaired(t *testing.T) {
	t.Parallel()
	interrupted := 0
	for n := 1; ; n++ {
		s := openOn(t, vfs.NewMem(), newManualClock())
		places(t, s)
		if err := s.SetPaused(t.Context(), "q", true); err != nil {
			t.Fatal(err)
		}
		want := damageSeveral(t, s)
		ctx, cancel := context.WithCancelCause(t.Context())
		err := s.Check(&interrupting{ctx, cancel, n}, store.CheckOptions{Repair: true}, func(store.CheckResult) {})
		cancel(nil)
		if err == nil {
			s.Close()
			break
		}
		if !errors.Is(err, errEnough) {
			t.Errorf("step %d: Check returns %v, want the cause", n, err)
		}
		if _, err := s.Get(t.Context(), "q", []string{"s1"}); errors.Is(err, store.ErrCorrupt) {
			interrupted++
			if !strings.Contains(err.Error(), `"q"`) || !strings.Contains(err.Error(), "interrupted: repair it again") {
				t.Errorf("step %d: get returns %v", n, err)
			}
		}
		if _, err := s.Stats(t.Context(), "other"); err != nil {
			t.Errorf("step %d: stats of the other queue returns %v", n, err)
		}
		checked(t, s, true)
		if got := live(t, s, "q"); !maps.Equal(got, want) {
			t.Errorf("step %d: the messages are %v, want %v", n, got, want)
		}
		if stats, err := s.Stats(t.Context(), "q"); err != nil || !stats.Paused {
			t.Errorf("step %d: %+v, %v, want a queue that is still paused", n, stats, err)
		}
		s.Close()
	}
	if interrupted == 0 {
		t.Error("no repair was interrupted")
	}
}

func TestRepairWakesWaitersAndKeepsLeases(t *testing.T) {
	t.Parallel()
	clock := newManualClock()
	s := openOn(t, vfs.NewMem(), clock)
	defer s.Close()
	leased := places(t, s)
	c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 10, Lease: time.Hour})
	if err != nil || len(c.Messages) != 2 {
		t.Fatal(err, c)
	}
	damageSeveral(t, s)
	r := raw{t, s, s.queues["q"].number}
	r.set(r.id(kindMessage, "lost"), appendMessage(nil, 1, &store.Message{ID: "lost"})) // ready, and in no index
	waiting := make(chan error, 1)
	go func() { waiting <- s.Wait(t.Context(), "q") }()
	for s.waiters.Load() == 0 {
		if _, err := s.Stats(t.Context(), "other"); err != nil {
			t.Fatal(err)
		}
	}
	checked(t, s, true)
	if err := <-waiting; err != nil {
		t.Errorf("wait returns %v", err)
	}
	c, err = s.Claim(t.Context(), "q", store.ClaimRequest{Max: 10, Lease: time.Hour})
	if err != nil || len(c.Messages) != 2 { // and d1, whose record was lost
		t.Errorf("claimed %+v, %v, want the lost message and d1", c.Messages, err)
	}
	for _, m := range leased.Messages {
		results, err := s.Settle(t.Context(), "q", []store.Settlement{{Receipt: m.Receipt, Action: store.Ack}})
		if err != nil || results[0].Err != nil {
			t.Errorf("ack of %s, leased before the repair: %v, %v", m.ID, results, err)
		}
	}
	if all := issuesOf(checked(t, s, false)); len(all) > 0 {
		t.Errorf("results after the repair: %+v", all)
	}
}

func TestRepairOfANumberWithoutNameLeavesOtherNamesAlone(t *testing.T) {
	t.Parallel()
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	places(t, s)
	name := fmt.Sprintf("recovered-%d", s.queues["q"].number)
	if _, err := s.Send(t.Context(), name, []store.Outgoing{{Message: store.Message{ID: "mine"}}}); err != nil {
		t.Fatal(err)
	}
	raw{t, s, 0}.remove(appendIDKey(nil, 0, kindName, "q"))
	checked(t, s, true)
	if got := live(t, s, name); !maps.Equal(got, map[string]store.State{"mine": store.StateReady}) {
		t.Errorf("queue %s has %v", name, got)
	}
	if got := live(t, s, name+"-again"); !maps.Equal(got, placed()) {
		t.Errorf("queue %s-again has %v", name, got)
	}
	if all := issuesOf(checked(t, s, false)); len(all) > 0 {
		t.Errorf("results after the repair: %+v", all)
	}
}

func TestRepairRefusesToRunTwiceAtATime(t *testing.T) {
	t.Parallel()
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	once := false
	err := s.Check(t.Context(), store.CheckOptions{Repair: true}, func(store.CheckResult) {
		if once {
			return
		}
		once = true
		err := s.Check(t.Context(), store.CheckOptions{Repair: true}, func(store.CheckResult) {})
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("a second repair returns %v, want ErrUnavailable", err)
		}
		checked(t, s, false)
	})
	if err != nil {
		t.Fatal(err)
	}
}
