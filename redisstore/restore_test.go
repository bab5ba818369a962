package redisstore

import (
	"slices"
	"testing"
	"time"

	"github.com/laterq/later/diskstore"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
	"github.com/laterq/later/store/storetest"
)

func TestMessagesOfOneEngineRestoreInAnother(t *testing.T) {
	all := map[string]func(t *testing.T) storetest.Harness{
		"memory": func(t *testing.T) storetest.Harness {
			s := memstore.New()
			t.Cleanup(func() { s.Close() })
			return storetest.Harness{Store: s, Peer: s}
		},
		"disk": func(t *testing.T) storetest.Harness {
			s, err := diskstore.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return storetest.Harness{Store: s, Peer: s}
		},
	}
	for _, e := range engines {
		all[e.name] = harness(e.client)
	}
	for from := range all {
		for to := range all {
			t.Run(from+" to "+to, func(t *testing.T) { storetest.RunBetween(t, all[from], all[to]) })
		}
	}
}

// Every call loses its reply once, so each is made twice and must take effect once.
func TestRestoreAndRemoveExecuteOnceWhenReplyIsLost(t *testing.T) {
	s := newStore(t, redistest.Shared(t).Client(t))
	s.preflightDone.Store(true)
	again := newStore(t, &loseEveryReply{UniversalClient: s.rdb})
	again.preflightDone.Store(true)
	ctx, queue := t.Context(), "lost-restore"
	live := store.Info{Message: store.Message{ID: "live"}, State: store.StateReady, Due: time.UnixMilli(1)}
	if _, err := s.Restore(ctx, queue, []store.Info{live}); err != nil {
		t.Fatal(err)
	}
	infos := []store.Info{
		{Message: store.Message{ID: "a", Payload: []byte("x"), SentAt: time.UnixMilli(1)}, State: store.StateReady,
			Due: time.UnixMilli(1)},
		{Message: store.Message{ID: "b", Payload: []byte("x")}, State: store.StateDead, Due: time.UnixMilli(1),
			DeadReason: store.DeadFailed, DiedAt: time.UnixMilli(2)},
		{Message: store.Message{ID: "live", Payload: []byte("another")}, State: store.StateReady,
			Due: time.UnixMilli(1)},
	}
	restored, err := again.Restore(ctx, queue, infos)
	if err != nil || restored[0].Duplicate || restored[1].Duplicate || !restored[2].Duplicate {
		t.Errorf("Restore = %v, %v; want only the third to be a duplicate", restored, err)
	}
	// A message that did not exist when Remove read it is not reported as removed.
	gone := store.Info{Message: store.Message{ID: "gone"}, State: store.StateReady, Due: time.UnixMilli(1)}
	removed, err := again.Remove(ctx, queue, append(infos, gone))
	if want := []bool{true, true, false, false}; err != nil || !slices.Equal(removed, want) {
		t.Errorf("Remove = %v, %v; want %v", removed, err, want)
	}
	if st, err := s.Stats(ctx, queue); err != nil || st.Ready != 1 || st.Dead != 0 {
		t.Errorf("stats = %+v, %v", st, err)
	}
}

func TestFullServerRefusesRestoreButNotRemove(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	s := newStore(t, rdb)
	ctx := t.Context()
	info := store.Info{Message: store.Message{ID: "a", Payload: []byte("x")}, State: store.StateReady,
		Due: time.UnixMilli(1)}
	if _, err := s.Restore(ctx, "q", []store.Info{info}); err != nil {
		t.Fatal(err)
	}
	if err := rdb.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	other := info
	other.ID = "b"
	if _, err := s.Restore(ctx, "q", []store.Info{other}); store.CodeOf(err) != store.ErrFull.Code {
		t.Errorf("restore on a full server: %v", err)
	}
	if removed, err := s.Remove(ctx, "q", []store.Info{info, other}); err != nil || !removed[0] || removed[1] {
		t.Errorf("remove on a full server: %v, %v", removed, err)
	}
}
