package diskstore

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// execute has the writer execute a step.
func execute(t testing.TB, s *Store, run func(*tx)) {
	t.Helper()
	if err := s.do(t.Context(), "q", urgent, run); err != nil {
		t.Fatal(err)
	}
}

// live returns the state of every message of a queue by the listings, which the counters must match.
func live(t *testing.T, s *Store, queue string) map[string]store.State {
	t.Helper()
	states := map[string]store.State{}
	counts := map[store.State]int64{}
	for _, state := range []store.State{store.StateScheduled, store.StateReady, store.StateLeased, store.StateDead} {
		for _, id := range listed(t, s, queue, state) {
			if other, twice := states[id]; twice {
				t.Errorf("%s is %s and %s", id, other, state)
			}
			states[id] = state
			counts[state]++
		}
	}
	stats, err := s.Stats(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	if got := []int64{stats.Scheduled, stats.Ready, stats.Leased, stats.Dead}; !slices.Equal(got,
		[]int64{counts[store.StateScheduled], counts[store.StateReady], counts[store.StateLeased], counts[store.StateDead]}) {
		t.Errorf("the counters are %v, and the listings have %v", got, counts)
	}
	return states
}

// same returns a copy of a file system as it is.
func same(fs *vfs.MemFS) *vfs.MemFS {
	return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
}

// synced returns a copy of a file system as a power failure leaves it that destroys all unsynced data.
func synced(fs *vfs.MemFS) *vfs.MemFS { return fs.CrashClone(vfs.CrashCloneCfg{}) }

// wantSound checks a store by Check.
func wantSound(t testing.TB, s *Store) {
	t.Helper()
	if wrong := issuesOf(checked(t, s)); len(wrong) > 0 {
		t.Errorf("the store has issues: %+v", wrong)
	}
}

// childProcess returns a command that runs one test of this package in another process, with a variable set.
func childProcess(t *testing.T, test, variable, value string) *exec.Cmd {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$")
	child.Env = append(os.Environ(), variable+"="+value)
	return child
}

func plain(id string) store.Outgoing {
	return store.Outgoing{Message: store.Message{ID: id, Payload: []byte("payload of " + id)}}
}

func try(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
