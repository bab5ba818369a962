package diskstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// checked returns the results of a Check.
func checked(t testing.TB, s *Store) (all []store.CheckResult) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // also while the test is cleaned up
	err := s.Check(ctx, store.CheckOptions{}, func(r store.CheckResult) { all = append(all, r) })
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// issuesOf returns the results that are issues.
func issuesOf(all []store.CheckResult) []store.CheckResult {
	return slices.DeleteFunc(slices.Clone(all), func(r store.CheckResult) bool { return !r.IsIssue() })
}

// places puts messages of queue q in all states, and returns the leased ones: s1, s2 scheduled; r1, r2 ready; l1, l2
// leased; d1, d2 dead; n1 tried before and scheduled; "gone" was acked and is remembered. d2, l2, r2 and s2 are in a
// group.
func places(t *testing.T, s *Store) store.Claim {
	t.Helper()
	ctx := t.Context()
	add := func(id string, due store.Due, m store.Message) {
		m.ID, m.Payload = id, []byte("payload of "+id)
		if _, err := s.Send(ctx, "q", []store.Outgoing{{Message: m, Due: due}}); err != nil {
			t.Fatal(err)
		}
	}
	take := func(n int) store.Claim {
		c, err := s.Claim(ctx, "q", store.ClaimRequest{Max: n, Lease: time.Hour})
		if err != nil || len(c.Messages) != n {
			t.Fatalf("claimed %d, %v", len(c.Messages), err)
		}
		return c
	}
	settle := func(c store.Claim, action store.Action, delay, window time.Duration) {
		for _, m := range c.Messages {
			r, err := s.Settle(ctx, "q",
				[]store.Settlement{{Receipt: m.Receipt, Action: action, Delay: delay, Reason: "no", DedupWindow: window}})
			if err != nil || r[0].Err != nil {
				t.Fatal(err, r)
			}
		}
	}
	add("d1", store.Due{}, store.Message{})
	add("d2", store.Due{}, store.Message{Group: "g"})
	settle(take(2), store.Bury, 0, 0)
	add("n1", store.Due{}, store.Message{})
	settle(take(1), store.Nack, time.Hour, 0)
	add("gone", store.Due{}, store.Message{})
	settle(take(1), store.Ack, 0, time.Hour)
	add("l1", store.Due{}, store.Message{})
	add("l2", store.Due{}, store.Message{Group: "g"})
	leased := take(2)
	add("s1", store.Due{Delay: time.Hour}, store.Message{})
	add("s2", store.Due{Delay: 2 * time.Hour}, store.Message{Group: "g"})
	add("r1", store.Due{}, store.Message{})
	add("r2", store.Due{}, store.Message{Group: "g"})
	if _, err := s.Send(ctx, "other", []store.Outgoing{{Message: store.Message{ID: "m"}}}); err != nil {
		t.Fatal(err)
	}
	return leased
}

// placed returns where places puts them.
func placed() map[string]store.State {
	return map[string]store.State{"s1": store.StateScheduled, "s2": store.StateScheduled, "n1": store.StateScheduled,
		"r1": store.StateReady, "r2": store.StateReady, "l1": store.StateLeased, "l2": store.StateLeased,
		"d1": store.StateDead, "d2": store.StateDead}
}

// recoveredStore recovers a store that is closed, and opens the new one.
func recoveredStore(t *testing.T, fs vfs.FS, clock Clock) *Store {
	t.Helper()
	report := func(r store.CheckResult) {
		if r.Severity == store.SeverityError && !r.Repaired {
			t.Errorf("recover reports %+v", r)
		}
	}
	if err := recoverStore(t.Context(), directory{"later", fs}, directory{"new", fs}, report); err != nil {
		t.Fatal(err)
	}
	s, err := Open("new", withFS(fs), WithClock(clock))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCheckFindsEveryKindOfDamageAndRecoverMakesUpForIt(t *testing.T) {
	t.Parallel()
	for _, d := range damages {
		for _, live := range []bool{false, true} { // damaged while it is open, or before
			t.Run(fmt.Sprintf("%s/live=%v", d.name, live), func(t *testing.T) {
				fs, clock := vfs.NewMem(), newManualClock()
				s := openOn(t, fs, clock)
				places(t, s)
				wantSound(t, s)
				d.damage(raw{t, s, s.queues["q"].number})
				if !live {
					s.Close()
					s = openOn(t, fs, clock)
				}
				for range 2 { // a check changes nothing
					wantIssues(t, issuesOf(checked(t, s)), d.checks)
				}
				if _, err := s.Stats(t.Context(), "other"); err != nil {
					t.Errorf("a call on the other queue returns %v", err)
				}
				s.Close()
				s = recoveredStore(t, fs, clock)
				defer s.Close()
				wantSound(t, s)
				wantPlaces(t, s, d.queue, d.states)
				wantDeliveries(t, s, clock, d.queue, d.states)
				wantSound(t, s)
			})
		}
	}
}

func wantIssues(t *testing.T, all []store.CheckResult, checks string) {
	t.Helper()
	var got []string
	for _, f := range all {
		got = append(got, f.Check)
		if f.Severity != store.SeverityError || f.Repaired || !strings.Contains(f.Advice, "--recover") || f.Count == 0 ||
			f.Text == "" {
			t.Errorf("result %+v", f)
		}
	}
	if got := strings.Join(got, " "); got != checks {
		t.Errorf("found %q in %+v, want %q", got, all, checks)
	}
}

func wantPlaces(t *testing.T, s *Store, queue string, changed map[string]string) {
	t.Helper()
	if queue == "" {
		queue = "q"
	}
	want := placed()
	for id, state := range changed {
		if want[id] = store.State(state); state == "" {
			delete(want, id)
		}
	}
	for id, state := range want {
		if state == store.StateLeased { // leases are not recovered
			want[id] = store.StateReady
		}
	}
	if got := live(t, s, queue); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the messages are %v, want %v", got, want)
	}
}

// wantDeliveries checks that every message that is not dead is delivered once, in the course of time.
func wantDeliveries(t *testing.T, s *Store, clock *manualClock, queue string, changed map[string]string) {
	t.Helper()
	if queue == "" {
		queue = "q"
	}
	if err := s.SetPaused(t.Context(), queue, false); err != nil {
		t.Fatal(err)
	}
	clock.Advance(24 * time.Hour)
	var got []string
	for {
		c, err := s.Claim(t.Context(), queue, store.ClaimRequest{Max: 3, Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range c.Messages {
			if string(m.Payload) != "payload of "+m.ID {
				t.Errorf("%s has the payload %q", m.ID, m.Payload)
			}
			got = append(got, m.ID)
			if r, err := s.Settle(t.Context(), queue, []store.Settlement{{Receipt: m.Receipt, Action: store.Ack}}); err != nil ||
				r[0].Err != nil {
				t.Fatal(err, r)
			}
		}
		if len(c.Messages) == 0 {
			break
		}
	}
	var want []string
	for id, state := range placed() {
		if other, ok := changed[id]; ok {
			state = store.State(other)
		}
		if state != store.StateDead && state != store.StateNone {
			want = append(want, id)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("delivered %v, want %v", got, want)
	}
	if stats, err := s.Stats(t.Context(), queue); err != nil || stats.Ready+stats.Scheduled+stats.Leased != 0 {
		t.Errorf("at the end there are %+v, %v", stats, err)
	}
}

func TestOpenRefusesADamagedQueueAndServesOthers(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	places(t, s)
	raw{t, s, s.queues["q"].number}.remove(appendKey(nil, s.queues["q"].number, kindMeta))
	s.Close()
	s = openOn(t, fs, clock)
	defer func() { s.Close() }()
	_, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Minute})
	if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "--recover") ||
		!strings.Contains(err.Error(), `"q"`) {
		t.Errorf("claim returns %v, want ErrCorrupt with the queue and what to do", err)
	}
	if c, err := s.Claim(t.Context(), "other", store.ClaimRequest{Max: 1, Lease: time.Minute}); err != nil ||
		len(c.Messages) != 1 {
		t.Errorf("the other queue returns %v, %v", c, err)
	}
	if err := s.Delete(t.Context(), "q"); err != nil {
		t.Errorf("a damaged queue cannot be deleted: %v", err)
	}
	if all := issuesOf(checked(t, s)); len(all) > 0 {
		t.Errorf("results after the deletion: %+v", all)
	}
}

func TestCheckReportsNothingOfAQueueThatIsDeletedMeanwhile(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	places(t, s)
	err := s.Check(context.WithoutCancel(t.Context()), store.CheckOptions{}, func(f store.CheckResult) {
		if f.Check == "names" {
			if err := s.Delete(t.Context(), "q"); err != nil {
				t.Fatal(err)
			}
		}
		if f.Severity == store.SeverityError || f.Queue == "q" {
			t.Errorf("result %+v", f)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// TestCheckBesideOtherCalls damages messages that no worker claims, while others are worked on.
func TestCheckBesideOtherCalls(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	const n = 500
	var far []store.Outgoing
	for i := range n {
		far = append(far,
			store.Outgoing{Message: store.Message{ID: fmt.Sprintf("far%03d", i)}, Due: store.Due{Delay: time.Hour}})
	}
	for _, queue := range []string{"q0", "q1"} {
		if _, err := s.Send(t.Context(), queue, far[:store.MaxBatch]); err != nil {
			t.Fatal(err)
		}
	}
	stop := make(chan struct{})
	var ledgers []*ledger
	var group sync.WaitGroup
	for _, queue := range []string{"q0", "q1"} {
		l := newLedger()
		ledgers = append(ledgers, l)
		group.Go(func() { l.work(t, s, queue, stop) })
	}
	for round := range 5 {
		wantSound(t, s)
		r := raw{t, s, 1}
		var restore []func()
		for i := round * 10; i < round*10+10; i++ {
			id := far[i].ID
			key, other := r.time(kindDue, r.due(id), id), r.time(kindDue, r.due(id)+1, id)
			r.set(other, nil)
			r.remove(key)
			restore = append(restore, func() { r.set(key, nil); r.remove(other) })
		}
		wantIssues(t, issuesOf(checked(t, s)), "indexes")
		for _, f := range restore {
			f()
		}
	}
	close(stop)
	group.Wait()
	wantSound(t, s)
	for i, queue := range []string{"q0", "q1"} {
		ledgers[i].check(t, s, queue, ledgers[i])
		scheduled := listed(t, s, queue, store.StateScheduled)
		if got := len(slices.DeleteFunc(scheduled,
			func(id string) bool { return !strings.HasPrefix(id, "far") })); got != store.MaxBatch {
			t.Errorf("%d of the messages that nobody worked on are there, want %d", got, store.MaxBatch)
		}
	}
}

func TestCheckEndsWithItsContextAndWithTheStore(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	places(t, s)
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := s.Check(ctx, store.CheckOptions{}, func(store.CheckResult) { cancel(enough) })
	if !errors.Is(err, enough) {
		t.Errorf("Check returns %v, want the cause", err)
	}
	closing := make(chan error, 1)
	err = s.Check(t.Context(), store.CheckOptions{}, func(f store.CheckResult) {
		if f.Check == "format" {
			go func() { closing <- s.Close() }()
			<-s.closed
		}
	})
	if !errors.Is(err, store.ErrClosed) {
		t.Errorf("Check returns %v, want ErrClosed", err)
	}
	if err := <-closing; err != nil {
		t.Error(err)
	}
	if err := s.Check(context.WithoutCancel(t.Context()), store.CheckOptions{}, nil); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Check of a closed store returns %v, want ErrClosed", err)
	}
}

// A dead message that the retention drops leaves its group.
func TestDroppedMessageLeavesGroup(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	infos := make([]store.Info, 2)
	for i := range infos {
		infos[i] = store.Info{Message: store.Message{ID: fmt.Sprint(i), Group: "g"}, State: store.StateDead,
			DeadReason: store.DeadBuried, DiedAt: time.UnixMilli(int64(i + 1))}
	}
	if _, err := s.Restore(t.Context(), "q", infos); err != nil {
		t.Fatal(err)
	}
	if err := s.SetDeadRetention(t.Context(), "q", store.Retention{MaxCount: 1}, nil); err != nil {
		t.Fatal(err)
	}
	c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Minute})
	if err != nil || len(c.Dropped) != 1 {
		t.Fatalf("dropped %q, %v; want one", c.Dropped, err)
	}
	if issues := issuesOf(checked(t, s)); len(issues) > 0 {
		t.Errorf("issues after a drop: %+v", issues)
	}
}
