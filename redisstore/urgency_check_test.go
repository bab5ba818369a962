package redisstore

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

// Each rule of the turns of urgencies is broken in a queue that is sound otherwise. A check reports the rule, a repair
// keeps it again, and then every message is delivered.
func TestCheckFindsAndRepairsBrokenUrgencies(t *testing.T) {
	for name, c := range map[string]struct {
		want  string
		spoil func(q *limitedQueue)
	}{
		"no lane": {"missing from the lane of their key", func(q *limitedQueue) {
			n, err := q.rdb.ZRemRangeByLex(q.Context(), q.key("lanes"), "[a\x01", "(a\x02").Result()
			if q.ok(err); n != 1 {
				q.Fatalf("%d entries were removed", n)
			}
		}},
		"unknown class": {"entries of lanes cannot be read", func(q *limitedQueue) {
			q.ok(q.rdb.ZAdd(q.Context(), q.key("lanes"), redis.Z{Member: "a\x0300000000000001000id"}).Err())
			page, err := q.s.Keys(q.Context(), q.queue, store.KeysRequest{Limit: 10})
			if q.ok(err); len(page) != 3 {
				q.Errorf("a page with %d keys, want 3", len(page))
			}
		}},
		"no turn": {"messages and no turn", func(q *limitedQueue) {
			q.ok(q.rdb.ZRem(q.Context(), q.key("turns_low"), "a").Err())
		}},
		"no turn at all": {"messages and no turn", func(q *limitedQueue) {
			q.ok(q.rdb.Del(q.Context(), q.key("turns_high")).Err())
		}},
		"no pass": {"messages and no turn", func(q *limitedQueue) {
			state, err := q.rdb.HGet(q.Context(), q.key("key_states"), "full").Result()
			q.ok(err)
			pass := strings.Split(state, "\t")[4]
			state = strings.Replace(state, pass, ";;"+pass[strings.LastIndex(pass, ";")+1:], 1)
			q.ok(q.rdb.HSet(q.Context(), q.key("key_states"), "full", state).Err())
		}},
		"twice": {"may start and those that may not", func(q *limitedQueue) {
			q.ok(q.rdb.ZAdd(q.Context(), q.key("rests"), redis.Z{Score: 3e15, Member: "high"}).Err())
		}},
		"state": {"states of keys cannot be read", func(q *limitedQueue) {
			q.ok(q.rdb.HSet(q.Context(), q.key("key_states"), "a", "0\t0\t0\t0\ta;b;c\t").Err())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			q := newLimitedQueue(t, "broken urgency "+name, store.Flow{Urgency: true, Key: store.KeyFlow{Concurrency: 1}})
			q.sendAs(store.UrgencyNormal, "full", "f0")
			held := claim(t, q.s, q.queue, 1, time.Minute).Messages
			for _, u := range urgencies {
				q.sendAs(u, "a", "a"+string(u))
				q.sendAs(u, "full", "f"+string(u))
			}
			q.sendAs(store.UrgencyHigh, "high", "h")
			q.sortReady()
			q.turns([]string{"a"}, []string{"a", "high"}, []string{"a"})
			c.spoil(q)
			for _, repair := range []bool{false, true} {
				found := q.issues(repair)
				if len(found) != 1 || !strings.Contains(found[0], c.want) {
					t.Errorf("repair %v: found %q", repair, found)
				}
			}
			q.noIssues()
			delivered := 0
			for range 12 {
				delivered += len(held)
				q.ack(held)
				held = claim(t, q.s, q.queue, 10, time.Minute).Messages
			}
			if delivered != 8 {
				t.Errorf("%d messages were delivered, want 8", delivered)
			}
			q.empty()
		})
	}
}

// A queue that never had Urgency has no other class than normal.
func TestCheckFindsAndRepairsUrgenciesInAQueueWithout(t *testing.T) {
	q := newLimitedQueue(t, "no urgency", store.Flow{Fair: true})
	q.sendMany(1, "a")
	q.sortReady()
	q.ok(q.rdb.ZAdd(t.Context(), q.key("turns_high"), redis.Z{Member: "a"}).Err())
	q.ok(q.rdb.ZAdd(t.Context(), q.key("lanes"), redis.Z{Member: "a\x0100000000000001000id"}).Err())
	for _, repair := range []bool{false, true} {
		found := strings.Join(q.issues(repair), "\n")
		if !strings.Contains(found, "do not take turns in it") || !strings.Contains(found, "lanes cannot be read") {
			t.Errorf("repair %v: found %q", repair, found)
		}
	}
	q.turns([]string{"a"}, nil, nil)
	q.ack(claim(t, q.s, q.queue, 5, time.Minute).Messages)
	q.empty()
}
