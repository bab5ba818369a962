package diskstore

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
	"github.com/laterq/later/store/storetest"
)

// swapped is a store that is replaced after each crash.
type swapped struct{ store.Store }

// crash returns a file system as a power failure leaves it, with a part of the unsynced data.
func crash(fs *vfs.MemFS, seed uint64) *vfs.MemFS {
	return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(seed, seed))})
}

// openCrashing opens a store on a machine that dies and comes back at some of the moves of the clock.
func openCrashing(t *testing.T) storetest.Harness {
	clock := newManualClock()
	fs := vfs.NewCrashableMem()
	s := openOn(t, fs, clock)
	sw := &swapped{s}
	moves := uint64(0)
	t.Cleanup(func() { sw.Close() })
	return storetest.Harness{
		Store: sw, Peer: sw, Exact: true,
		Advance: func(_ testing.TB, _ string, d time.Duration) {
			clock.Advance(d)
			if moves++; moves%4 == 0 {
				after := crash(fs, moves)
				sw.Close()
				fs = after
				sw.Store = openOn(t, fs, clock)
			}
		},
	}
}

func openOn(t testing.TB, fs vfs.FS, clock Clock, opts ...Option) *Store {
	t.Helper()
	s, err := Open("later", append(opts, withFS(fs), WithClock(clock))...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStateMachineSurvivesCrashes(t *testing.T) {
	checks := "12" // few, since the store is opened again after each crash
	if os.Getenv("LATER_LONG") != "" {
		checks = "500"
	}
	f := flag.Lookup("rapid.checks")
	defer f.Value.Set(f.Value.String())
	f.Value.Set(checks)
	storetest.RunStateMachine(t, openCrashing)
}

// ledger records the calls of a workload and the answers to them. Between a call and its answer either outcome is
// right.
type ledger struct {
	mu    sync.Mutex
	sent  map[string]bool // Send returned nil
	acked map[string]bool // true: Settle returned nil; false: it was called
	tries map[string]int  // nacks that returned nil
	asked map[string]int  // nacks that were called
}

func newLedger() *ledger {
	return &ledger{sent: map[string]bool{}, acked: map[string]bool{}, tries: map[string]int{}, asked: map[string]int{}}
}

func (l *ledger) note(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// copied returns the ledger as it is now.
func (l *ledger) copied() (c *ledger) {
	l.note(func() {
		c = &ledger{
			sent:  maps.Clone(l.sent),
			acked: maps.Clone(l.acked),
			tries: maps.Clone(l.tries),
			asked: maps.Clone(l.asked),
		}
	})
	return c
}

// work sends messages, and settles the messages that it claims, until it is stopped.
func (l *ledger) work(t *testing.T, s *Store, name string, stop <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		if err := l.step(t.Context(), s, name, i); err != nil {
			t.Error(err)
			return
		}
	}
}

func (l *ledger) step(ctx context.Context, s *Store, name string, i int) error {
	id := fmt.Sprintf("%s-%06d", name, i)
	m := store.Outgoing{Message: store.Message{ID: id, Payload: []byte(id), MaxAttempts: 1000}}
	if _, err := s.Send(ctx, name, []store.Outgoing{m}); err != nil {
		return err
	}
	l.note(func() { l.sent[id] = true })
	if i%3 == 0 {
		return nil
	}
	c, err := s.Claim(ctx, name, store.ClaimRequest{Max: 3, Lease: time.Hour})
	if err != nil {
		return err
	}
	for k, m := range c.Messages {
		one := store.Settlement{Receipt: m.Receipt, Action: store.Ack}
		if (i+k)%4 == 0 {
			one.Action = store.Nack
			l.note(func() { l.asked[m.ID]++ })
		} else {
			l.note(func() { l.acked[m.ID] = false })
		}
		r, err := s.Settle(ctx, name, []store.Settlement{one})
		if err != nil {
			return err
		}
		if r[0].Err != nil {
			return r[0].Err
		}
		if one.Action == store.Ack {
			l.note(func() { l.acked[m.ID] = true })
		} else {
			l.note(func() { l.tries[m.ID]++ })
		}
	}
	return nil
}

// check checks a store after a crash: it must show all calls that were acknowledged in l, which was copied before the
// crash, and may show further calls that were made in after, which was read later.
func (l *ledger) check(t *testing.T, s *Store, name string, after *ledger) {
	t.Helper()
	counted := map[store.State]int64{}
	for id := range l.sent {
		infos, err := s.Get(t.Context(), name, []string{id})
		if err != nil {
			t.Fatal(err)
		}
		_, asked := after.acked[id]
		switch info := infos[0]; {
		case info == nil && !asked:
			t.Errorf("%s was sent, never acked, and is lost", id)
		case info != nil && l.acked[id]:
			t.Errorf("%s was acked and is back, %s", id, info.State)
		case info != nil && (info.Attempts < l.tries[id] || info.Attempts > after.asked[id]):
			t.Errorf("%s has %d failed attempts, want %d to %d", id, info.Attempts, l.tries[id], after.asked[id])
		case info != nil && string(info.Payload) != id:
			t.Errorf("%s has the payload %q", id, info.Payload)
		}
	}
	for _, state := range []store.State{store.StateScheduled, store.StateReady, store.StateLeased, store.StateDead} {
		counted[state] = int64(len(listed(t, s, name, state)))
	}
	stats, err := s.Stats(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	got := map[store.State]int64{
		store.StateScheduled: stats.Scheduled, store.StateReady: stats.Ready,
		store.StateLeased: stats.Leased, store.StateDead: stats.Dead,
	}
	if fmt.Sprint(got) != fmt.Sprint(counted) {
		t.Errorf("the counters say %v and the listings have %v", got, counted)
	}
}

// listed returns the ids of all messages in a state, and checks that each of them is live in that state.
func listed(t *testing.T, s *Store, name string, state store.State) []string {
	t.Helper()
	var ids []string
	req := store.ListRequest{State: state, Limit: store.MaxBatch}
	for {
		p, err := s.List(t.Context(), name, req)
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range p.Messages {
			if info.State != state {
				t.Errorf("%s is listed as %s and is %s", info.ID, state, info.State)
			}
			ids = append(ids, info.ID)
		}
		if req.Cursor = p.Next; req.Cursor == "" {
			return ids
		}
	}
}

// look reads all the time, so that reads share groups with changes. It notes the messages that it saw: a message that a
// read has shown is durable.
func (l *ledger) look(t *testing.T, s *Store, name string, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		var next string
		l.note(func() { next = fmt.Sprintf("%s-%06d", name, len(l.sent)) })
		infos, err := s.Get(t.Context(), name, []string{next})
		if err == nil && infos[0] != nil {
			l.note(func() { l.sent[next] = true })
		}
		if err == nil {
			_, err = s.Stats(t.Context(), name)
		}
		if err == nil {
			_, err = s.List(t.Context(), name, store.ListRequest{State: store.StateReady, Limit: 10})
		}
		if err == nil {
			now := s.clock.Now()
			_, err = s.Histogram(t.Context(), name, store.HistogramBounds(now.Add(-time.Hour), now.Add(time.Hour), 10))
		}
		if err == nil {
			_, err = s.Reschedule(t.Context(), name, []string{"none"}, store.Due{}) // a read by the writer
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
}

func TestNothingAcknowledgedIsLostInACrash(t *testing.T) {
	const workers, rounds = 4, 16
	for round := range rounds {
		clock := newManualClock()
		fs := vfs.NewCrashableMem()
		s := openOn(t, fs, clock)
		stop := make(chan struct{})
		var ledgers []*ledger
		var group sync.WaitGroup
		for w := range workers {
			l := newLedger()
			ledgers = append(ledgers, l)
			group.Go(func() { l.work(t, s, fmt.Sprint("q", w), stop) })
			group.Go(func() { l.look(t, s, fmt.Sprint("q", w), stop) })
		}
		for range 10 + 20*round { // calls on one more queue, which time the crash
			if err := s.SetPaused(t.Context(), "beside", true); err != nil {
				t.Fatal(err)
			}
		}
		var before []*ledger
		for _, l := range ledgers {
			before = append(before, l.copied())
		}
		after := synced(fs) // during the work
		if round%2 == 0 {
			after = crash(fs, uint64(round))
		}
		close(stop)
		group.Wait()
		s.Close()
		s = openOn(t, after, clock)
		for w, l := range before {
			l.check(t, s, fmt.Sprint("q", w), ledgers[w])
		}
		s.Close()
	}
}
