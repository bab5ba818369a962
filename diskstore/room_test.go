package diskstore

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// Small disks, and large ones that are nearly full, take messages too.
func TestSendFitsSmallDisks(t *testing.T) {
	for _, disk := range []struct{ total, free int64 }{{64 << 20, 60 << 20}, {1 << 40, 40 << 20}} {
		mem := vfs.NewMem()
		q := &quotaFS{FS: mem, total: disk.total, other: disk.total - disk.free}
		clock := newManualClock()
		s, err := Open("later", withFS(q), WithClock(clock), withReserve(maxReserve))
		if err != nil {
			t.Fatalf("%+v: %v", disk, err)
		}
		sent, refused := 0, error(nil)
		for refused == nil && sent < 1<<20 {
			msgs := outgoing(100, store.Due{})
			for i := range msgs {
				msgs[i].Payload = noise[(sent+i)%60*16_000:][:16_000]
			}
			if _, refused = s.Send(t.Context(), "q", msgs); refused == nil {
				sent += len(msgs)
			}
		}
		if !errors.Is(refused, store.ErrFull) || int64(sent)*16_000 < disk.free/5 {
			t.Errorf("%+v: %d messages of 16 kB were sent, then %v, want a 5th of the free space at least, and ErrFull", disk,
				sent, refused)
		}
		acked := 0
		for begin := time.Now(); acked < 50; clock.Advance(checkFull) { // some wait while tables are merged
			some, err := ackSome(t, s, "q", 50-acked)
			if acked += len(some); err != nil && !errors.Is(err, store.ErrFull) || time.Since(begin) > 20*time.Second {
				t.Fatalf("%+v: %d claims and acks went on, then %v", disk, acked, err)
			}
		}
		if got := len(live(t, s, "q")); got != sent-50 {
			t.Errorf("%+v: %d messages are left, want %d", disk, got, sent-50)
		}
		s.Close()
	}
}
