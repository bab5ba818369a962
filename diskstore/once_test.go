package diskstore

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// sendOnce sends a message with a key, and returns whether it repeats an earlier send.
func sendOnce(t *testing.T, s *Store, id string) (repeats bool) {
	t.Helper()
	m := plain(id)
	m.Once = store.NewOnce([]byte("k"), nil)
	r, err := s.Send(t.Context(), "q", []store.Outgoing{m})
	if err != nil || r[0].Err != nil || r[0].First == nil {
		t.Fatal(r, err)
	}
	return r[0].Duplicate && r[0].First.ID == "first"
}

func TestSendWithAKeyIsRememberedAfterAReopenAndInABackup(t *testing.T) {
	clock, dir := newManualClock(), t.TempDir()
	open := func(name string) *Store {
		s, err := Open(filepath.Join(dir, name), WithClock(clock))
		try(t, err)
		t.Cleanup(func() { s.Close() })
		return s
	}
	s := open("store")
	if sendOnce(t, s, "first") {
		t.Error("the first send repeats another")
	}
	ack := store.Settlement{Receipt: claimOne(t, s).Receipt, Action: store.Ack}
	_, err := s.Settle(t.Context(), "q", []store.Settlement{ack})
	try(t, err)
	try(t, s.Backup(t.Context(), filepath.Join(dir, "backup")))
	s.Close()
	for _, name := range []string{"store", "backup"} {
		s := open(name)
		if !sendOnce(t, s, "again") {
			t.Errorf("%s: the request sends again", name)
		}
		wantSound(t, s)
		try(t, s.Close())
	}
	clock.Advance(store.OnceWindow)
	s = open("store")
	if sendOnce(t, s, "first") {
		t.Error("a day later the request is a repetition")
	}
	clock.Advance(store.OnceWindow + time.Millisecond)
	send(t, s, "other") // makes the store forget ids after their windows
	execute(t, s, func(*tx) {
		if n := s.queues["q"].forget.n; n != 0 {
			t.Errorf("%d are remembered after all have ended", n)
		}
	})
	wantSound(t, s)
}

func TestCrashDuringASendWithAKeyLeavesItOrNothing(t *testing.T) {
	c := newCrashPoints(vfs.NewCrashableMem())
	s := openOn(t, c, newManualClock())
	send(t, s, "before")
	c.take(func() { sendOnce(t, s, "first") })
	try(t, s.Close())
	outcomes := map[bool]int{}
	for i, fs := range c.left {
		s := openOn(t, fs, newManualClock())
		repeats := sendOnce(t, s, "again")
		got := live(t, s, "q")
		if _, first := got["first"]; len(got) != 2 || first != repeats {
			t.Errorf("crash before %s: %v, and the send repeats another: %v", c.ops[i], got, repeats)
		}
		outcomes[repeats]++
		try(t, s.Close())
	}
	if outcomes[true] == 0 || outcomes[false] == 0 {
		t.Errorf("outcomes of %d crashes: %v", len(c.left), outcomes)
	}
}
