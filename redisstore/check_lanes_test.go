package redisstore

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

// issues checks the queue, or repairs it, and returns the texts of the issues.
func (q *limitedQueue) issues(repair bool) (texts []string) {
	q.Helper()
	x := &checkRun{s: q.s, repair: repair, report: func(f store.CheckResult) {
		if f.Severity != store.SeverityOK {
			texts = append(texts, f.Text)
		}
	}}
	q.ok(x.queue(q.Context(), q.queue))
	return texts
}

// Each rule of the state of keys is broken in a queue that is sound otherwise. A check reports the rule, a repair keeps
// it again, and then every message is delivered.
func TestCheckFindsAndRepairsBrokenTurns(t *testing.T) {
	do := func(args ...any) func(q *limitedQueue) {
		return func(q *limitedQueue) {
			for i, arg := range args {
				if name, ok := arg.(string); ok && strings.HasPrefix(name, ":") {
					args[i] = q.key(name[1:])
				}
			}
			q.ok(q.rdb.Do(q.Context(), args...).Err())
		}
	}
	for want, spoil := range map[string]func(q *limitedQueue){
		"missing from the lane of their key": func(q *limitedQueue) { do("zpopmin", ":lanes")(q) },
		"entries of lanes cannot be read":    do("zadd", ":lanes", 0, "b"),
		"messages and no turn":               do("del", ":turns"),
		"may start and those that may not":   do("zadd", ":rests", 3e15, "b"),
		"a slot although one is free": func(q *limitedQueue) {
			q.ok(q.rdb.ZRem(q.Context(), q.key("turns"), "b").Err())
			q.ok(q.rdb.ZAdd(q.Context(), q.key("rests"), redis.Z{Score: 1 << 53, Member: "b"}).Err())
		},
		"states of keys cannot be read":        do("hset", ":key_states", "c", "?"),
		"nothing of the keys is left":          do("hset", ":key_states", "gone", "0\t0\t0\t0\t1\t"),
		"limits of single keys cannot be read": do("hset", ":key_flows", "c", "5"),
		"wrong number of messages that count":  do("hset", ":key_states", "a", "7\t0\t0\t0\t1\t"),
	} {
		t.Run(want, func(t *testing.T) {
			q := newLimitedQueue(t, "broken turns", store.Flow{Concurrency: 5, Key: store.KeyFlow{Concurrency: 2}})
			q.sendKeyed("a", store.Due{}, "a1", "a2")
			held := claim(t, q.s, q.queue, 2, time.Minute)
			q.sendKeyed("a", store.Due{}, "a3")
			q.sendKeyed("b", store.Due{}, "b1", "b2", "b3")
			q.sendKeyed("c", store.Due{}, "c1")
			c, err := q.s.Claim(t.Context(), q.queue, store.ClaimRequest{Max: 5, Ahead: 5, Lease: time.Minute})
			if q.ok(err); len(c.Messages) != 0 {
				t.Fatalf("%+v", c)
			}
			if found := q.issues(false); len(found) != 0 {
				t.Fatalf("a sound queue has %q", found)
			}
			spoil(q)
			for _, repair := range []bool{false, true} {
				if found := q.issues(repair); len(found) != 1 || !strings.Contains(found[0], want) {
					t.Errorf("repair %v: found %q", repair, found)
				}
			}
			if found := q.issues(false); len(found) != 0 {
				t.Errorf("after the repair: %q", found)
			}
			all := map[string]bool{}
			for range 8 {
				all[held.Messages[0].ID] = true
				q.ok(q.settle(held.Messages[0].Receipt, store.Ack))
				if held.Messages = held.Messages[1:]; len(held.Messages) == 0 {
					held = claim(t, q.s, q.queue, 5, time.Minute)
				}
				if len(held.Messages) == 0 {
					break
				}
			}
			if len(all) != 7 {
				t.Errorf("delivered %v", all)
			}
			q.sound()
		})
	}
}
