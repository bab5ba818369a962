package diskstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// A scan steps over removed entries once, and later scans skip them. The tests count the steps of iterators; a
// tombstone takes two.

const manyMessages = 8 * store.MaxBatch

// sendMany sends messages with ids in order.
func sendMany(t *testing.T, s *Store, n int, change func(*store.Outgoing)) (ids []string) {
	t.Helper()
	msgs := make([]store.Outgoing, n)
	for i := range msgs {
		msgs[i].ID = fmt.Sprintf("%08d", i)
		change(&msgs[i])
		ids = append(ids, msgs[i].ID)
	}
	for some := range slices.Chunk(msgs, store.MaxBatch) {
		if _, err := s.Send(t.Context(), "q", some); err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

func claimed(t *testing.T, s *Store, n int, lease time.Duration) []store.Claimed {
	t.Helper()
	c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: n, Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	return c.Messages
}

func settled(t *testing.T, s *Store, messages []store.Claimed, as store.Settlement) {
	t.Helper()
	var all []store.Settlement
	for _, m := range messages {
		as.Receipt = m.Receipt
		all = append(all, as)
	}
	if _, err := s.Settle(t.Context(), "q", all); err != nil {
		t.Fatal(err)
	}
}

// settleAll settles all that is ready.
func settleAll(t *testing.T, s *Store, as store.Settlement) {
	t.Helper()
	for {
		some := claimed(t, s, store.MaxBatch, time.Minute)
		if len(some) == 0 {
			return
		}
		settled(t, s, some, as)
	}
}

// steps checks how many steps f takes.
func steps(t *testing.T, s *Store, most int, what string, f func()) {
	t.Helper()
	before := s.steps.Load()
	f()
	if n := s.steps.Load() - before; n > int64(most) {
		t.Errorf("%s takes %d steps, want %d at most", what, n, most)
	}
}

func TestBulkCallsWalkOverAMessageOnce(t *testing.T) {
	later := func(m *store.Outgoing) { m.Due.Delay = time.Hour }
	now := func(*store.Outgoing) {}
	bury := func(t *testing.T, s *Store) { settleAll(t, s, store.Settlement{Action: store.Bury}) }
	for name, c := range map[string]struct {
		change  func(*store.Outgoing)
		prepare func(*testing.T, *Store)
		replay  bool
		state   store.State
	}{
		"purge of all":       {change: later},
		"purge of scheduled": {change: later, state: store.StateScheduled},
		"purge of scheduled behind ready ones": {change: later, state: store.StateScheduled,
			prepare: func(t *testing.T, s *Store) {
				if _, err := s.Send(t.Context(), "q", outgoing(10, store.Due{})); err != nil {
					t.Fatal(err)
				}
			}},
		"purge of ready":  {change: now, state: store.StateReady},
		"purge of dead":   {change: now, state: store.StateDead, prepare: bury},
		"replay of dead":  {change: now, state: store.StateDead, prepare: bury, replay: true},
		"purge after all": {change: now, prepare: bury},
	} {
		t.Run(name, func(t *testing.T) {
			clock := newManualClock()
			s := openOn(t, vfs.NewMem(), clock)
			defer s.Close()
			sendMany(t, s, manyMessages, c.change)
			if c.prepare != nil {
				c.prepare(t, s)
			}
			done := 0
			steps(t, s, 3*manyMessages, name, func() {
				sel := store.Selection{State: c.state}
				for more := true; more; {
					b, err := store.Bulk{}, error(nil)
					if c.replay {
						b, err = s.Replay(t.Context(), "q", sel, store.Due{Delay: time.Minute})
					} else {
						b, err = s.Purge(t.Context(), "q", sel)
					}
					if err != nil {
						t.Fatal(err)
					}
					done += b.Done
					sel.Before, more = b.Before, b.More
					clock.Advance(time.Millisecond)
				}
			})
			if done != manyMessages {
				t.Errorf("%d messages are done, want %d", done, manyMessages)
			}
		})
	}
}

func TestClaimDoesNotWalkOverWhatWasCancelledBehindIt(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	ids := sendMany(t, s, manyMessages, func(m *store.Outgoing) { m.Due.Delay = time.Hour })
	for some := range slices.Chunk(ids, store.MaxBatch) {
		if _, err := s.Cancel(t.Context(), "q", store.CancelRequest{IDs: some}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Send(t.Context(), "q", outgoing(1, store.Due{Delay: 2 * time.Hour})); err != nil {
		t.Fatal(err)
	}
	steps(t, s, 3*manyMessages, "claiming 20 messages one by one", func() {
		for i := range 20 {
			send(t, s, strconv.Itoa(i))
			if got := claimed(t, s, 1, time.Hour); len(got) != 1 || got[0].ID != strconv.Itoa(i) {
				t.Fatalf("claimed %v, want message %d", got, i)
			}
		}
	})
}

func TestClaimOfAnOldMessageDoesNotWalkOverWhatWasClaimedSince(t *testing.T) {
	clock := newManualClock()
	s := openOn(t, vfs.NewMem(), clock)
	defer s.Close()
	send(t, s, "old")
	old := claimed(t, s, 1, 24*time.Hour)
	clock.Advance(time.Millisecond)
	sendMany(t, s, manyMessages, func(*store.Outgoing) {})
	settleAll(t, s, store.Settlement{Action: store.Ack})
	clock.Advance(time.Millisecond)
	send(t, s, "next")
	steps(t, s, 3*manyMessages, "claiming an old message 20 times", func() {
		for range 20 {
			settled(t, s, old, store.Settlement{Action: store.Release})
			if old = claimed(t, s, 1, 24*time.Hour); len(old) != 1 || old[0].ID != "old" {
				t.Fatalf("claimed %v, want the old message", old)
			}
		}
	})
}

func TestListDoesNotWalkAgainOverWhatWasPurged(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	sendMany(t, s, manyMessages, func(*store.Outgoing) {})
	settleAll(t, s, store.Settlement{Action: store.Bury})
	for more, sel := true, (store.Selection{State: store.StateDead}); more; {
		b, err := s.Purge(t.Context(), "q", sel)
		if err != nil {
			t.Fatal(err)
		}
		more, sel.Before = b.More, b.Before
	}
	send(t, s, "dead")
	settleAll(t, s, store.Settlement{Action: store.Bury})
	steps(t, s, manyMessages/10, "listing the dead message 20 times", func() {
		for range 20 {
			if got := listed(t, s, "q", store.StateDead); !slices.Equal(got, []string{"dead"}) {
				t.Fatalf("listed %v", got)
			}
		}
	})
}

func TestListLearnsWhereNothingIs(t *testing.T) {
	for name, c := range map[string]struct {
		state  store.State
		change func(*store.Outgoing)
		bury   bool
	}{
		"scheduled": {store.StateScheduled, func(m *store.Outgoing) { m.Due.Delay = time.Hour }, false},
		"dead":      {store.StateDead, func(*store.Outgoing) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := openOn(t, vfs.NewMem(), newManualClock())
			defer s.Close()
			ids := sendMany(t, s, manyMessages, c.change)
			if c.bury {
				settleAll(t, s, store.Settlement{Action: store.Bury})
			}
			var kept, gone []string
			for i, id := range ids {
				if i%1000 == 500 {
					kept = append(kept, id)
				} else {
					gone = append(gone, id)
				}
			}
			rand.Shuffle(len(gone), func(i, j int) { gone[i], gone[j] = gone[j], gone[i] })
			for some := range slices.Chunk(gone, store.MaxBatch) {
				if _, err := s.Cancel(t.Context(), "q", store.CancelRequest{IDs: some}); err != nil {
					t.Fatal(err)
				}
			}
			steps(t, s, 3*manyMessages, "listing what is left 20 times, while more comes", func() {
				for i := range 20 {
					if got := listed(t, s, "q", c.state); !slices.Equal(got, kept) {
						t.Fatalf("listed %v, want %v", got, kept)
					}
					id := fmt.Sprintf("%08d-%d", manyMessages*9/10, i) // in an empty range, found in the next round
					if c.bury {
						continue
					}
					m := store.Outgoing{Message: store.Message{ID: id}, Due: store.Due{Delay: time.Hour}}
					if _, err := s.Send(t.Context(), "q", []store.Outgoing{m}); err != nil {
						t.Fatal(err)
					}
					kept = append(kept, id)
					slices.Sort(kept)
				}
			})
		})
	}
}

// A gap that a view found may be filled before the index learns it.
func TestIndexDoesNotLearnAGapThatWasFilledMeanwhile(t *testing.T) {
	x := newIndex(kindDue)
	x.add(entry{0, "m"})
	x.add(entry{900, "m"})
	found := []gap{{entry{0, "m"}.behind(), entry{900, "m"}, 1000}}
	v := x.view()
	v.found = found
	x.add(entry{450, "new"})
	if x.learnFrom(v); len(x.gaps) != 0 {
		t.Errorf("the index has learned %v", x.gaps)
	}
	x.remove(entry{450, "new"})
	v = x.view()
	v.found = found
	if x.learnFrom(v); len(x.gaps) != 1 {
		t.Errorf("the index has learned %v, want a gap", x.gaps)
	}
}

func TestForgettingWalksOverAnIDOnce(t *testing.T) {
	const rounds = 20
	clock := newManualClock()
	s := openOn(t, vfs.NewMem(), clock)
	defer s.Close()
	steps(t, s, 6*rounds*store.MaxBatch, "remembering and forgetting", func() {
		for range rounds {
			sendMany(t, s, store.MaxBatch, func(*store.Outgoing) {})
			settleAll(t, s, store.Settlement{Action: store.Ack, DedupWindow: time.Millisecond})
			clock.Advance(2 * time.Millisecond)
		}
	})
}

// A gap covers only the range that was seen empty: every message is found, whatever was added and removed around it.
func TestWhatIsAddedInAGapIsFound(t *testing.T) {
	clock := newManualClock()
	s := openOn(t, vfs.NewMem(), clock)
	defer s.Close()
	for i := range 30 { // gaps everywhere, more than are kept
		due := store.Due{Delay: time.Duration(i*7%30) * 5 * time.Minute}
		sendMany(t, s, store.MaxBatch, func(m *store.Outgoing) { m.Due = due })
		if _, err := s.Send(t.Context(), "q", outgoing(1, store.Due{Delay: due.Delay + time.Minute})); err != nil {
			t.Fatal(err)
		}
		p, err := s.List(t.Context(), "q", store.ListRequest{State: store.StateScheduled, Limit: 1})
		if err != nil || len(p.Messages) != 1 {
			t.Fatal(p, err)
		}
		bulk, err := s.Purge(t.Context(), "q",
			store.Selection{State: []store.State{store.StateScheduled, store.StateNone}[i%2]})
		if err != nil || bulk.Done == 0 {
			t.Fatal(bulk, err)
		}
	}
	if _, err := s.Purge(t.Context(), "q", store.Selection{}); err != nil {
		t.Fatal(err)
	}
	if err := s.do(t.Context(), "q", urgent, func(*tx) {
		if len(s.queue("q").due.gaps) == 0 {
			t.Error("there are no gaps")
		}
	}); err != nil {
		t.Fatal(err)
	}
	at := func(minutes int) store.Due {
		return store.Due{At: clock.Now().Add(time.Duration(minutes) * time.Minute)}
	}
	add := func(minutes int) {
		m := store.Outgoing{Message: store.Message{ID: fmt.Sprint("at", minutes)}, Due: at(minutes)}
		if _, err := s.Send(t.Context(), "q", []store.Outgoing{m}); err != nil {
			t.Fatal(err)
		}
	}
	for _, minutes := range []int{100, 10, 50, 70, 20, 60, 5, 1000, 15} {
		add(minutes)
		p, err := s.List(t.Context(), "q", store.ListRequest{State: store.StateScheduled, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		stats, err := s.Stats(t.Context(), "q")
		if err != nil || int64(len(p.Messages)) != stats.Scheduled {
			t.Errorf("after %d: %d messages are listed and %d counted, %v", minutes, len(p.Messages), stats.Scheduled, err)
		}
	}
	var ids []string
	for {
		got := claimed(t, s, 1, 24*time.Hour)
		for _, m := range got {
			ids = append(ids, m.ID)
		}
		if len(got) == 0 {
			if clock.Advance(time.Minute); len(ids) == 9 || clock.Now().Year() > 2030 {
				break
			}
		}
	}
	want := []string{"at5", "at10", "at15", "at20", "at50", "at60", "at70", "at100", "at1000"}
	if !slices.Equal(ids, want) {
		t.Errorf("claimed %v, want %v", ids, want)
	}
}
