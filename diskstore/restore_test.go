package diskstore

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

func restored(id string, state store.State) store.Info {
	i := store.Info{Message: store.Message{ID: id, Payload: []byte(id)}, State: state, Due: time.UnixMilli(1_000)}
	if state == store.StateDead {
		i.DeadReason, i.DiedAt, i.Attempts, i.LastError, i.Delivered = store.DeadFailed, time.UnixMilli(2_000), 3, "no", true
	}
	return i
}

func TestFullDiskRefusesARestoreAndNotARemoval(t *testing.T) {
	disk := &smallDisk{FS: vfs.NewMem()}
	disk.left.Store(minRoom)
	s := openOn(t, disk, newManualClock())
	defer s.Close()
	a, b := restored("a", store.StateReady), restored("b", store.StateReady)
	if _, err := s.Restore(t.Context(), "q", []store.Info{a}); err != nil {
		t.Fatal(err)
	}
	disk.left.Store(minRoom - 1)
	if _, err := s.Restore(t.Context(), "q", []store.Info{b}); !errors.Is(err, store.ErrFull) {
		t.Errorf("restore gives %v, want ErrFull", err)
	}
	if _, err := s.Restore(t.Context(), "other", []store.Info{b}); !errors.Is(err, store.ErrFull) {
		t.Errorf("restore gives %v, want ErrFull", err)
	}
	if removed, err := s.Remove(t.Context(), "q", []store.Info{a, b}); err != nil || !removed[0] || removed[1] {
		t.Errorf("removed %v, %v", removed, err)
	}
	if names, _, err := s.Queues(t.Context(), ""); err != nil || len(names) != 1 {
		t.Errorf("queues %v, %v", names, err)
	}
}

// Changes that Restore and Remove have confirmed survive the machine's death.
func TestRestoredAndRemovedMessagesSurviveACrash(t *testing.T) {
	for seed := range uint64(10) {
		fs := vfs.NewCrashableMem()
		clock := newManualClock()
		s := openOn(t, fs, clock)
		all := []store.Info{
			restored("ready", store.StateReady),
			restored("dead", store.StateDead),
			restored("gone", store.StateDead),
		}
		all = append(all,
			store.Info{Message: store.Message{ID: "raw"}, State: store.StateReady, Due: time.UnixMilli(1), Raw: []byte("\xff")})
		if _, err := s.Restore(t.Context(), "q", all); err != nil {
			t.Fatal(err)
		}
		if removed, err := s.Remove(t.Context(), "q", all[2:3]); err != nil || !removed[0] {
			t.Fatal(removed, err)
		}
		after := crash(fs, seed)
		s.Close()
		s = openOn(t, after, clock)
		infos, err := s.Get(t.Context(), "q", []string{"ready", "dead", "gone", "raw"})
		if err != nil || infos[2] != nil {
			t.Fatalf("%v, %v", infos, err)
		}
		for i, at := range []int{0, 1, 3} {
			if infos[at] == nil || !infos[at].Same(&all[at]) || infos[at].State != all[at].State {
				t.Errorf("message %d is %+v, want %+v", i, infos[at], all[at])
			}
		}
		st, err := s.Stats(t.Context(), "q")
		if err != nil || st.Ready != 2 || st.Dead != 1 {
			t.Errorf("counted %+v, %v", st, err)
		}
		for state, want := range map[store.State]int{store.StateReady: 2, store.StateDead: 1} {
			if ids := listed(t, s, "q", state); len(ids) != want {
				t.Errorf("%s messages are %v", state, ids)
			}
		}
		s.Close()
	}
}
