package redisstore

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

// Each rule of the holds of keys is broken in a queue that is sound otherwise. A check reports the rule, a repair keeps
// it again, and then every message that is not dead is delivered.
func TestCheckFindsAndRepairsBrokenHolds(t *testing.T) {
	const ready, waits, halted = "ready00000", "waits00000", "halts00000"
	for name, c := range map[string]struct {
		want  string
		spoil func(q *limitedQueue)
	}{
		"not indexed": {"missing from the index", func(q *limitedQueue) {
			q.ok(q.rdb.HDel(q.Context(), q.key("holders"), "of-"+waits).Err())
		}},
		"halt not indexed": {"missing from the index", func(q *limitedQueue) {
			q.ok(q.rdb.ZRem(q.Context(), q.key("halted"), halted).Err())
		}},
		"holder of no state": {"have no hold", func(q *limitedQueue) {
			q.ok(q.rdb.HSet(q.Context(), q.key("holders"), "behind "+waits, waits).Err())
		}},
		"halt of no state": {"have no hold", func(q *limitedQueue) {
			q.ok(q.rdb.ZAdd(q.Context(), q.key("halted"), redis.Z{Score: 7, Member: waits}).Err())
		}},
		"missing message": {"cannot hold them", func(q *limitedQueue) {
			q.ok(q.rdb.HDel(q.Context(), q.key("messages"), "of-"+waits).Err())
			q.ok(q.rdb.ZRem(q.Context(), q.key("due"), "of-"+waits).Err())
			q.ok(q.rdb.HDel(q.Context(), q.key("records"), "of-"+waits).Err())
		}},
		"not dead": {"not in its state", func(q *limitedQueue) {
			q.ok(q.rdb.ZRem(q.Context(), q.key("dead"), "of-"+halted).Err())
			q.ok(q.rdb.ZAdd(q.Context(), q.key("due"), redis.Z{Score: 1, Member: "of-" + halted}).Err())
		}},
		"not sorted": {"not in its state", func(q *limitedQueue) {
			q.ok(q.rdb.ZAdd(q.Context(), q.key("due"), redis.Z{Score: 1, Member: "of-" + ready}).Err())
		}},
		"no turn": {"messages and no turn", func(q *limitedQueue) {
			q.ok(q.rdb.ZRem(q.Context(), q.key("turns"), ready).Err())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			q := newLimitedQueue(t, "broken holds", halts)
			q.hold("ready", 1, store.Snooze)
			q.advance(time.Hour / 2)
			q.hold("halts", 1, store.Bury)
			q.hold("waits", 1, store.Snooze)
			q.advance(time.Hour / 2)
			q.sortReady()
			for _, key := range []string{waits, halted} {
				q.sendKeyed(key, store.Due{}, "behind "+key)
			}
			q.noIssues()
			c.spoil(q)
			for _, repair := range []bool{false, true} {
				if found := q.issues(repair); len(found) != 1 || !strings.Contains(found[0], c.want) {
					t.Errorf("repair %v: found %q", repair, found)
				}
			}
			q.noIssues()
			q.ok(q.s.SetFlow(t.Context(), q.queue, continues, nil))
			q.advance(time.Hour)
			delivered := 0
			for range 6 {
				msgs := claim(t, q.s, q.queue, 10, time.Minute).Messages
				delivered += len(msgs)
				q.ack(msgs)
			}
			st, err := q.s.Stats(t.Context(), q.queue)
			if q.ok(err); delivered < 3 || st.Ready+st.Scheduled+st.Leased != 0 {
				t.Errorf("%d messages were delivered; %+v", delivered, st)
			}
			q.noIssues()
		})
	}
}
