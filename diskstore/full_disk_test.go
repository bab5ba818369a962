package diskstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// volume is a file system with a size, once it is set. Before that, it has just enough room.
type volume struct {
	vfs.FS
	dir  string
	size atomic.Uint64
}

func (v *volume) GetDiskUsage(string) (vfs.DiskUsage, error) {
	size := v.size.Load()
	if size == 0 {
		return vfs.DiskUsage{AvailBytes: minRoom}, nil
	}
	return vfs.DiskUsage{AvailBytes: size - min(size, v.used())}, nil
}

func (v *volume) used() (sum uint64) {
	names, _ := v.List(v.dir)
	for _, name := range names {
		if info, err := v.Stat(v.PathJoin(v.dir, name)); err == nil && !info.IsDir() {
			sum += uint64(info.Size())
		}
	}
	return sum
}

// Acks write next to nothing, so Pebble does not free the space of acked messages until the store asks it to.
func TestAcksMakeRoomOnAFullDisk(t *testing.T) {
	disk := &volume{FS: vfs.NewMem()}
	s := openOn(t, disk, newManualClock())
	defer s.Close()
	disk.dir = s.dir
	before := disk.used()
	random := rand.NewChaCha8([32]byte{})
	for i := range 8 {
		m := plain(fmt.Sprint(i))
		m.Payload = make([]byte, store.MaxPayload)
		random.Read(m.Payload)
		if _, err := s.Send(t.Context(), "q", []store.Outgoing{m}); err != nil {
			t.Fatal(err)
		}
	}
	for acked := 0; acked < 8; {
		c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: store.MaxBatch, Lease: time.Hour})
		if err != nil || len(c.Messages) == 0 {
			t.Fatal(c, err)
		}
		var acks []store.Settlement
		for _, m := range c.Messages {
			acks = append(acks, store.Settlement{Receipt: m.Receipt, Action: store.Ack})
		}
		if _, err := s.Settle(t.Context(), "q", acks); err != nil {
			t.Fatal(err)
		}
		acked += len(acks)
	}
	disk.size.Store(before + 4<<20 + minRoom)
	send := func() error {
		_, err := s.Send(t.Context(), "q", []store.Outgoing{plain("after")})
		if err != nil && !errors.Is(err, store.ErrFull) {
			t.Fatal(err)
		}
		return err
	}
	if send() == nil {
		t.Error("the disk was not full")
	}
	for begin := time.Now(); send() != nil; runtime.Gosched() {
		if time.Since(begin) > 20*time.Second {
			t.Fatal("the acks made no room")
		}
	}
}

// A purge of all messages of a queue writes one range whatever their number, since there may be no room to do more.
func TestPurgeOnAFullDiskDropsAllAtOnce(t *testing.T) {
	const all = store.MaxBatch + 100
	for name, test := range map[string]struct {
		sel  store.Selection
		held bool // one message
		dead bool // one message
		done int  // of the first call
	}{
		"all":                   {done: all},
		"ready":                 {sel: store.Selection{State: store.StateReady}, done: all},
		"one is held":           {held: true, done: store.MaxBatch},
		"dead beside others":    {sel: store.Selection{State: store.StateDead}, dead: true, done: 1},
		"ready beside dead":     {sel: store.Selection{State: store.StateReady}, dead: true, done: store.MaxBatch},
		"all, one of them dead": {dead: true, done: all},
	} {
		t.Run(name, func(t *testing.T) {
			disk := &smallDisk{FS: vfs.NewMem()}
			disk.left.Store(minRoom)
			s := openOn(t, disk, newManualClock())
			defer s.Close()
			for left := all; left > 0; left -= store.MaxBatch {
				if _, err := s.Send(t.Context(), "q", outgoing(min(left, store.MaxBatch), store.Due{})); err != nil {
					t.Fatal(err)
				}
			}
			if test.held || test.dead {
				c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				bury := []store.Settlement{{Receipt: c.Messages[0].Receipt, Action: store.Bury}}
				if test.dead {
					_, err = s.Settle(t.Context(), "q", bury)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			before := len(live(t, s, "q"))
			disk.left.Store(minRoom - 1)
			bulk, err := s.Purge(t.Context(), "q", test.sel)
			if err != nil || bulk.Done != test.done {
				t.Errorf("purged %+v, %v, want %d", bulk, err, test.done)
			}
			if after := len(live(t, s, "q")); after != before-bulk.Done {
				t.Errorf("%d messages are left of %d, and %d were purged", after, before, bulk.Done)
			}
			disk.left.Store(minRoom)
			send(t, s, "after")
		})
	}
}
