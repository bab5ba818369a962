package redisstore

import (
	"context"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store/storetest"
)

// frozenClockScripts are the scripts with a clock that a test can freeze and move. The clock is a key with the
// queue's hash tag that no script declares, which a server allows if it is in the same slot.
// They pack each message due far ahead as soon as it is sent.
var frozenClockScripts = func() scripts {
	constants := maps.Clone(luaConstants)
	constants["PACK_ONE_IN"] = "1"
	return loadScripts(frozenClock, constants)
}()

// packing are such scripts that pack every scheduled message into buckets of only a few messages, so that buckets are
// created, filled, partly emptied and deleted all the time. Long messages are not packed.
var packing = func() scripts {
	constants := maps.Clone(luaConstants)
	constants["PACK_AFTER_MS"], constants["PROMOTE_LEAD_MS"], constants["BUCKET_BYTES"] = "0", "5", "100"
	constants["PACK_MAX_ENVELOPE"], constants["CHUNK_BYTES"], constants["BUCKET_LINE_BYTES"] = "60", "200", "20"
	constants["BUCKET_WIDEST_MS"], constants["BUCKET_CLASSES"], constants["PACK_MAX_BUCKETS"] = "16384", "9", "8"
	constants["HISTOGRAM_STEP"], constants["HISTOGRAM_WORK"], constants["PACK_ONE_IN"] = "3", "30", "1"
	return loadScripts(frozenClock, constants)
}()

const frozenClock = `(function()
  local frozen = redis.call('GET', string.match(KEYS[1], '^(.-}:)') .. 'clock')
  return frozen and { math.floor(frozen / 1000000), frozen % 1000000 } or redis.call('TIME')
end)()`

// newFrozenClock returns a store with a clock that tests can move.
func newFrozenClock(t testing.TB, rdb redis.UniversalClient, opts ...Option) *Store {
	return newWith(t, frozenClockScripts, rdb, opts...)
}

func newWith(t testing.TB, scripts scripts, rdb redis.UniversalClient, opts ...Option) *Store {
	s := New(rdb, opts...)
	s.scripts = scripts
	t.Cleanup(func() { s.Close() })
	return s
}

func advance(rdb redis.UniversalClient) func(t testing.TB, queue string, d time.Duration) {
	return func(t testing.TB, queue string, d time.Duration) {
		t.Helper()
		ctx := t.Context()
		tag, _ := keyParts(queue)
		key := DefaultPrefix + "{" + tag + "}:clock"
		now, err := rdb.Get(ctx, key).Int64()
		if err == redis.Nil {
			var server time.Time
			server, err = rdb.Time(ctx).Result()
			now = server.UnixMilli() * 1000
		}
		if err == nil {
			err = rdb.Set(ctx, key, strconv.FormatInt(now+d.Microseconds(), 10), 0).Err()
		}
		if err == nil { // waiters use their own clocks and must be notified
			err = wakeAll(ctx, rdb, queue)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// wakeAll sends a message to every process in the list of a queue.
func wakeAll(ctx context.Context, rdb redis.UniversalClient, queue string) error {
	keys := keyTable{prefix: DefaultPrefix}
	key := keys.key(queue, "wake")
	return rdb.Eval(ctx, `for _, process in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
			redis.call('PUBLISH', process, '0 ' .. KEYS[1])
		end
		return 1`, []string{key}).Err()
}

// engines are the kinds of server that run the conformance suite.
var engines = []struct {
	name   string
	client func(t testing.TB) redis.UniversalClient
}{
	{"alone", func(t testing.TB) redis.UniversalClient { return redistest.Shared(t).Client(t) }},
	{"cluster", func(t testing.TB) redis.UniversalClient { return redistest.SharedCluster(t).Client(t) }},
	{"valkey", func(t testing.TB) redis.UniversalClient { return redistest.SharedValkey(t).Client(t) }},
}

func harness(client func(t testing.TB) redis.UniversalClient) func(t *testing.T) storetest.Harness {
	return harnessOf(frozenClockScripts, client)
}

func harnessOf(scripts scripts, client func(t testing.TB) redis.UniversalClient) func(t *testing.T) storetest.Harness {
	return func(t *testing.T) storetest.Harness {
		rdb := client(t)
		s := newWith(t, scripts, rdb)
		return storetest.Harness{
			Store: s, Peer: newWith(t, scripts, client(t)), Advance: advance(rdb), Exact: true, Back: true,
			Asleep: s.asleep,
		}
	}
}

// asleep returns how many calls of Wait on a queue sleep: none while the process is not in the queue's list.
func (s *Store) asleep(queue string) int {
	s.waker.mu.Lock()
	defer s.waker.mu.Unlock()
	if q := s.waker.queues[queue]; q != nil && q.listing == listed && q.server.listening && !q.notified {
		return len(q.waiters)
	}
	return 0
}
