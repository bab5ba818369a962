package diskstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	client "github.com/laterq/later"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/migrate"
	"github.com/laterq/later/store"
)

// removals is a store that calls removing before each removal.
type removals struct {
	store.Store
	removing func()
}

func (r *removals) Remove(ctx context.Context, queue string, msgs []store.Info) ([]bool, error) {
	r.removing()
	return r.Store.Remove(ctx, queue, msgs)
}

func TestSyncMakesDurableWhatWasAcknowledgedBefore(t *testing.T) {
	fs, clock := vfs.NewCrashableMem(), newManualClock()
	s := openOn(t, fs, clock, SyncEvery(time.Hour))
	defer s.Close()
	send(t, s, "a")
	before := fs.CrashClone(vfs.CrashCloneCfg{})
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := fs.CrashClone(vfs.CrashCloneCfg{})
	for _, test := range []struct {
		fs   *vfs.MemFS
		want bool
	}{{before, false}, {after, true}} {
		s := openOn(t, test.fs, clock)
		infos, err := s.Get(t.Context(), "q", []string{"a"})
		if err != nil || (infos[0] != nil) != test.want {
			t.Errorf("the message is there: %v, want %v; %v", infos[0] != nil, test.want, err)
		}
		s.Close()
	}
	s.Close()
	if err := s.Sync(t.Context()); err != store.ErrClosed {
		t.Errorf("Sync of a closed store returns %v", err)
	}
}

// A power cut between a durable removal from the source and the fsync of a target with ?sync=… must not lose the
// message from both stores.
func TestMoveLosesNothingWhenTheTargetsPowerFails(t *testing.T) {
	for _, present := range []bool{false, true} { // at the target, unsynced, before the move
		t.Run(fmt.Sprint("present=", present), func(t *testing.T) {
			fs, clock := vfs.NewCrashableMem(), newManualClock()
			target := openOn(t, fs, clock, SyncEvery(time.Hour))
			defer target.Close()
			var crashes []*vfs.MemFS
			source := &removals{Store: memstore.New(), removing: func() {
				crashes = append(crashes, fs.CrashClone(vfs.CrashCloneCfg{}))
			}}
			const n = 2*store.MaxBatch + 7
			msgs, ids := make([]store.Outgoing, n), make([]string, n)
			for i := range msgs {
				ids[i] = fmt.Sprintf("m%04d", i)
				msgs[i] = store.Outgoing{Message: store.Message{ID: ids[i], Payload: []byte("x")}}
				msgs[i].Due.At = time.UnixMilli(int64(1000 + i))
			}
			for start := 0; start < n; start += store.MaxBatch {
				if _, err := source.Send(t.Context(), "q", msgs[start:min(n, start+store.MaxBatch)]); err != nil {
					t.Fatal(err)
				}
			}
			from, err := client.New(source)
			if err != nil {
				t.Fatal(err)
			}
			to, err := client.New(target)
			if err != nil {
				t.Fatal(err)
			}
			defer from.Close()
			defer to.Close()
			if present {
				if _, err := migrate.Copy(t.Context(), to, from, migrate.CopyConfig{}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := migrate.Copy(t.Context(), to, from, migrate.CopyConfig{Move: true}); err != nil {
				t.Fatal(err)
			}
			if len(crashes) != 3 {
				t.Fatalf("%d removals, want 3", len(crashes))
			}
			for i, crash := range crashes {
				after := openOn(t, crash, clock)
				removed := ids[:min(n, (i+1)*store.MaxBatch)]
				infos, err := after.Get(t.Context(), "q", removed)
				if err != nil {
					t.Fatal(err)
				}
				for k, info := range infos {
					if info == nil {
						t.Fatalf("removal %d: message %s is in neither store", i, removed[k])
					}
				}
				after.Close()
			}
		})
	}
}
