package diskstore

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// TestDurableSendOutlivesTheMachineWhateverTheSync: with a sync an hour away, the machine's death undoes plain sends.
// It does not undo a durable send, a send before that, or a send that was repeated as a durable one.
func TestDurableSendOutlivesTheMachineWhateverTheSync(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := openOn(t, fs, newManualClock(), SyncEvery(time.Hour))
	defer s.Close()
	send := func(id string, d store.Durability) bool {
		t.Helper()
		m := store.Outgoing{Message: store.Message{ID: id}, Durable: d}
		r, err := s.Send(t.Context(), "q", []store.Outgoing{m})
		if err != nil || r[0].Err != nil {
			t.Fatal(err, r)
		}
		return r[0].Duplicate
	}
	// left returns the number of messages that are ready after the machine has lost power now and come back.
	left := func() (ready int64) {
		t.Helper()
		after := openOn(t, fs.CrashClone(vfs.CrashCloneCfg{}), newManualClock())
		defer after.Close()
		st, err := after.Stats(t.Context(), "q")
		if err != nil {
			t.Fatal(err)
		}
		return st.Ready
	}
	disk := store.Durability{Timeout: time.Second}
	send("plain", store.Durability{})
	if n := left(); n != 0 {
		t.Fatalf("%d messages outlive the machine before any sync: the test proves nothing", n)
	}
	send("durable", disk)
	if n := left(); n != 2 {
		t.Errorf("after a durable send %d messages outlive the machine, want it and the one before", n)
	}
	send("later", store.Durability{})
	if n := left(); n != 2 {
		t.Fatalf("%d messages outlive the machine, want 2", n)
	}
	if !send("later", disk) {
		t.Error("the repetition is no duplicate")
	}
	if n := left(); n != 3 {
		t.Errorf("after a durable repetition %d messages outlive the machine, want 3", n)
	}
}
