package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// TestKeysInUseDoNotExpire checks that each call that uses a key with a TTL renews the TTL, even if it adds nothing.
// Redis' own clock decides when a key expires, so the test shortens the time that is left.
func TestKeysInUseDoNotExpire(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	ctx := t.Context()
	const waiting = "later:wake:process"
	keeps := func(script string, args ...any) func() error {
		return func() error {
			c := s.newCall(script, "q", len(args))
			c.add(args...)
			_, err := s.run(ctx, "q", c)
			return err
		}
	}
	claims := func() error { return keeps("claim", "session", 1, "0", 2, 1000, newLease(), waiting)() }
	send(t, s, "busy", "m", store.Due{})
	for _, c := range []struct {
		name, key string
		use       func() error
	}{
		{"claim of a queue that does not exist", "later:{q}:wake", claims},
		{"claim of an empty queue", "later:{q}:wake", func() error {
			if err := rdb.HSet(ctx, "later:{q}:meta", "format", layoutFormat).Err(); err != nil {
				return err
			}
			return claims()
		}},
		{"claim of fewer messages than requested", "later:{q}:wake", func() error {
			send(t, s, "q", "m", store.Due{})
			return claims()
		}},
		{"forward", "later:{q}:wake", func() error {
			c := s.newCall("forward", "q", 6)
			c.addKey("list")
			c.add(2, waiting, "list", "RPUSH", "", "0")
			_, err := s.run(ctx, "q", c)
			return err
		}},
		{"look", "later:{q}:wake", keeps("look", waiting)},
		{"beat", "later:processes", func() error {
			_, err := s.do(ctx, s.newServerCall("beat", "later:processes", waiting))
			return err
		}},
		{"report", "later:{busy}:activity", func() error {
			_, err := s.Report(ctx, []store.Report{{Queue: "busy", Counts: map[store.EventKind]int64{"sent": 1}}})
			return err
		}},
	} {
		if err := c.use(); err != nil { // now it adds nothing
			t.Fatal(c.name, err)
		}
		full := rdb.PTTL(ctx, c.key).Val()
		if err := rdb.PExpire(ctx, c.key, full/3).Err(); err != nil {
			t.Fatal(err)
		}
		members := rdb.ZCard(ctx, c.key).Val()
		if err := c.use(); err != nil {
			t.Fatal(c.name, err)
		}
		if left := rdb.PTTL(ctx, c.key).Val(); full < 24*time.Hour-time.Minute || left < full/2 {
			t.Errorf("%s: %s expires in %v, and after another one in %v", c.name, c.key, full, left)
		}
		if n := rdb.ZCard(ctx, c.key).Val(); n != members {
			t.Errorf("%s added %d members", c.name, n-members)
		}
	}
}

// Ended dedup windows are deleted from a queue that always has ready messages, some with each claim.
func TestEndedDedupWindowsAreDeletedFromBusyQueue(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newStore(t, rdb)
	const queue = "busy-dedup"
	ended := make([]redis.Z, store.MaxBatch+1)
	for i := range ended {
		ended[i] = redis.Z{Score: 1, Member: i}
	}
	dedup := s.keys.key(queue, "dedup")
	if err := rdb.ZAdd(t.Context(), dedup, ended...).Err(); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{1, 0} {
		send(t, s, queue, fmt.Sprint("a", i), store.Due{})
		send(t, s, queue, fmt.Sprint("b", i), store.Due{})
		if c := claim(t, s, queue, 1, time.Minute); !c.More {
			t.Fatal("the queue is idle")
		}
		if n := rdb.ZCard(t.Context(), dedup).Val(); n != want {
			t.Errorf("%d ended dedup windows are left, want %d", n, want)
		}
	}
}
