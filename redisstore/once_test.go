package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

func TestSendsWithKeysAreForgottenWithoutASearch(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newFrozenClock(t, rdb)
	move := advance(rdb)
	for i := range 12 {
		m := store.Outgoing{Message: store.Message{ID: fmt.Sprint(i)}}
		if _, err := s.Send(t.Context(), "q", onceEach([]store.Outgoing{m})); err != nil {
			t.Fatal(err)
		}
		known := int64(0)
		for _, name := range []string{onceKey, oldOnceKey} {
			key := s.keys.key("q", name)
			if n := rdb.HLen(t.Context(), key).Val(); n > 0 {
				known += n - 1 // since when
				if left := rdb.PTTL(t.Context(), key).Val(); left < store.OnceWindow || left > 2*store.OnceWindow {
					t.Errorf("after %d sends %s expires in %v", i+1, key, left)
				}
			}
		}
		if want := int64(min(i+1, 3)); known < want || known > 6 {
			t.Errorf("after %d sends %d are known, want %d to 6", i+1, known, want)
		}
		move(t, "q", 8*time.Hour)
	}
}

// BenchmarkOnceMemory measures the memory of the server for the key of a send, beyond the id of its message.
func BenchmarkOnceMemory(b *testing.B) {
	rdb := redistest.Shared(b).Client(b)
	s := newStore(b, rdb)
	sizes := []int{400, 100_000}
	queue := func(n int) string { return fmt.Sprint("once", n) }
	for b.Loop() {
		for _, n := range sizes {
			for range n / 50 {
				msgs := make([]store.Outgoing, 50)
				for i := range msgs {
					msgs[i] = store.Outgoing{Message: store.Message{ID: store.NewID()}}
				}
				if _, err := s.Send(b.Context(), queue(n), onceEach(msgs)); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	for _, n := range sizes {
		used := rdb.MemoryUsage(b.Context(), s.keys.key(queue(n), onceKey), 0).Val()
		known := rdb.HLen(b.Context(), s.keys.key(queue(n), onceKey)).Val() - 1
		b.ReportMetric(float64(used)/float64(known)-float64(len(store.NewID())), fmt.Sprintf("B/key_of_%d", n))
	}
}
