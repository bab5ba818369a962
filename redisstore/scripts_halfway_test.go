package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// newPopulatedQueue returns a queue in which every script finds something to do: three held messages, one of them with
// a successor; a cancelled one that its lease still lists; an expired lease, also of a message with a successor; a dead
// and a ready message; an id in its dedup window; two packed messages, one of them overdue; and sends with keys in both
// hashes of them. One message in each state is in a group.
func newPopulatedQueue(t *testing.T, rdb redis.UniversalClient, queue string) *populatedQueue {
	t.Helper()
	return populateQueue(t, rdb, queue, store.Flow{})
}

// fullFlow is a flow with as many slots as newPopulatedQueue takes.
var fullFlow = store.Flow{Concurrency: 7, Rate: store.Rate{N: 1000, Per: time.Second, Burst: 1000}}

// fairFlow is one whose keys take turns.
var fairFlow = store.Flow{Concurrency: 7, Fair: true, Key: store.KeyFlow{Rate: fullFlow.Rate}}

// orderedFlow is one whose keys have an order. Then each message has a key of its own.
var orderedFlow = store.Flow{Concurrency: 7, Fair: true, Key: store.KeyFlow{Order: store.OrderHalt}}

// urgentFlow is orderedFlow with urgencies.
var urgentFlow = store.Flow{Concurrency: 7, Urgency: true, Key: store.KeyFlow{Order: store.OrderHalt}}

// send sends messages, with keys if the queue has an order, and with an urgency if it has urgencies.
func (x *populatedQueue) send(ctx context.Context, msgs []store.Outgoing) ([]store.SendResult, error) {
	for i := range msgs {
		if x.ordered {
			msgs[i].Key = msgs[i].ID
		}
		if x.urgent {
			msgs[i].Urgency = urgencies[len(msgs[i].ID)%3]
		}
	}
	return x.s.Send(ctx, x.queue, msgs)
}

// populateQueue is newPopulatedQueue for a queue with a flow.
func populateQueue(t *testing.T, rdb redis.UniversalClient, queue string, flow store.Flow) *populatedQueue {
	t.Helper()
	ctx := t.Context()
	x := &populatedQueue{s: newFrozenClock(t, rdb), queue: queue, flow: flow,
		ordered: flow.Key.Order != store.OrderNone, urgent: flow.Urgency}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	send := func(m store.Outgoing) {
		_, err := x.send(ctx, []store.Outgoing{m})
		must(err)
	}
	claim := func(lease time.Duration) store.Claim {
		c, err := x.s.Claim(ctx, queue, store.ClaimRequest{Max: 10, Lease: lease})
		must(err)
		return c
	}
	settle := func(m store.Claimed, a store.Action, window time.Duration) {
		_, err := x.s.Settle(ctx, queue, []store.Settlement{{Receipt: m.Receipt, Action: a, DedupWindow: window,
			Reason: "boom"}})
		must(err)
	}
	move := advance(rdb)

	if flow != (store.Flow{}) {
		must(x.s.SetFlow(ctx, queue, flow, nil))
	}
	for _, id := range []string{"older", "once"} {
		send(onceEach([]store.Outgoing{{Message: store.Message{ID: id}}})[0])
		_, err := x.s.Cancel(ctx, queue, store.CancelRequest{IDs: []string{id}})
		must(err)
		if id == "older" {
			move(t, queue, store.OnceWindow)
		}
	}
	send(store.Outgoing{Message: store.Message{ID: "late"}, Due: store.Due{Delay: time.Hour}})
	send(store.Outgoing{Message: store.Message{ID: "done"}})
	settle(claim(time.Minute).Messages[0], store.Ack, 3*time.Hour)
	send(store.Outgoing{Message: store.Message{ID: "dead", Group: "g"}})
	settle(claim(time.Minute).Messages[0], store.Bury, 0)
	send(store.Outgoing{Message: store.Message{ID: "stale"}})
	send(store.Outgoing{Message: store.Message{ID: "last", MaxAttempts: 1}})
	send(store.Outgoing{Message: store.Message{ID: "past"}})
	claim(time.Second)
	send(store.Outgoing{Message: store.Message{ID: "held1", Group: "g"}})
	send(store.Outgoing{Message: store.Message{ID: "held2"}})
	send(store.Outgoing{Message: store.Message{ID: "followed"}})
	send(store.Outgoing{Message: store.Message{ID: "gone"}})
	held := claim(3 * time.Hour)
	for _, m := range following(store.Due{}, "past", "followed") {
		send(m)
	}
	_, err := x.s.Cancel(ctx, queue, store.CancelRequest{IDs: []string{"gone"}})
	must(err)
	for _, m := range held.Messages {
		x.held = append(x.held, m.Receipt)
	}
	x.lease = held.Messages[0].Receipt.Lease
	move(t, queue, 2*time.Hour) // expires the lease of stale and last
	send(store.Outgoing{Message: store.Message{ID: "ready", Group: "g"}})
	send(store.Outgoing{Message: store.Message{ID: "expired", ExpireAt: time.UnixMilli(1)}})
	send(store.Outgoing{Message: store.Message{ID: "scheduled", Group: "g"}, Due: store.Due{Delay: time.Hour}})
	must(rdb.HSet(ctx, x.s.keys.of(queue).args[1].(string), "lost", "\x00").Err()) // in no state
	if n, err := rdb.HGet(ctx, DefaultPrefix+"{"+queue+"}:meta", "packed_messages").Int(); err != nil || n != 2 {
		t.Fatalf("%d messages are packed, %v; want late and scheduled", n, err)
	}
	// A claim drops the dead message. Without Close, the store would leave the list at some point.
	must(x.s.SetDeadRetention(ctx, queue, store.Retention{MaxAge: time.Hour}, nil))
	must(x.s.SetProperties(ctx, queue, map[string]string{"old": "1", "kept": "1"}, nil))
	must(x.s.Close())
	x.s = newFrozenClock(t, rdb)
	must(rdb.ZAdd(ctx, x.s.keys.of(queue).wake, redis.Z{Score: 3e15, Member: "later:wake:gone"}).Err())
	infos, err := x.s.Get(ctx, queue, []string{"ready", "scheduled", "dead", "held1"})
	must(err)
	for _, info := range infos {
		x.infos = append(x.infos, *info)
	}
	if flow.Normal().Fair {
		q := &limitedQueue{t, x.s, rdb, queue}
		if !x.ordered { // otherwise the sends have sorted them
			q.sort("", "ready", "expired")
		}
		must(rdb.ZAdd(ctx, q.key("rests"), redis.Z{Score: 3e15, Member: "rests"}).Err())
		must(rdb.ZAdd(ctx, q.key("old_rests"), redis.Z{Score: 3e15, Member: "old"}).Err())
		must(rdb.ZAdd(ctx, q.key("forget"), redis.Z{Score: 1, Member: "forget"}).Err())
		must(rdb.HSet(ctx, q.key("key_states"), "rests", "1\t5\t0\t1000\t3\t").Err())
		must(x.s.SetKeyFlow(ctx, queue, "other", store.KeyOverride{Rate: &store.Rate{}}))
	}
	return x
}

// copyTo copies the queue. The receipts are those of the copy, too.
func (x *populatedQueue) copyTo(t *testing.T, rdb redis.UniversalClient, queue string) *populatedQueue {
	t.Helper()
	_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for _, name := range append([]string{"clock"}, allKeyNames...) {
			p.Copy(t.Context(), DefaultPrefix+"{"+x.queue+"}:"+name, DefaultPrefix+"{"+queue+"}:"+name, 0, true)
		}
		p.SAdd(t.Context(), DefaultPrefix+"queues", queue)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	copied := *x
	copied.s, copied.queue = newFrozenClock(t, rdb), queue
	return &copied
}

// dump returns everything under a queue's hash tag.
func dump(t *testing.T, rdb redis.UniversalClient, queue string) map[string]string {
	t.Helper()
	read := map[string]func() string{}
	types := make([]*redis.StatusCmd, len(allKeyNames))
	_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i, key := range allKeyNames {
			types[i] = p.Type(t.Context(), DefaultPrefix+"{"+queue+"}:"+key)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i, key := range allKeyNames {
			key = DefaultPrefix + "{" + queue + "}:" + key
			if types[i].Val() == "hash" { // DUMP has them in another order when a read has moved some to a larger table
				fields := p.HGetAll(t.Context(), key)
				read[key] = func() string { return fmt.Sprint(fields.Val()) }
				continue
			}
			value := p.Dump(t.Context(), key)
			read[key] = value.Val
		}
		return nil
	})
	if err != nil && err != redis.Nil { // Nil is of a key that does not exist
		t.Fatal(err)
	}
	all := map[string]string{}
	for key, value := range read {
		all[key] = value()
	}
	return all
}

// Runs every call with each key having a wrong type: it either succeeds or changes nothing. With a key missing, it
// never fails.
func TestNoScriptFailsHalfway(t *testing.T) {
	t.Run("plain", func(t *testing.T) { noScriptFailsHalfway(t, store.Flow{}) })
	t.Run("flow", func(t *testing.T) { noScriptFailsHalfway(t, fullFlow) })
	t.Run("fair", func(t *testing.T) { noScriptFailsHalfway(t, fairFlow) })
	t.Run("ordered", func(t *testing.T) { noScriptFailsHalfway(t, orderedFlow) })
	t.Run("urgent", func(t *testing.T) { noScriptFailsHalfway(t, urgentFlow) })
}

// A forward to a queue with an order, each key of which has a wrong type, succeeds or changes neither queue.
func TestNoForwardToAnOrderedQueueFailsHalfway(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	for i, name := range allKeyNames {
		t.Run(name, func(t *testing.T) {
			x := populateQueue(t, rdb, fmt.Sprint("halfway-target-", i), urgentFlow)
			to := x.queue + " forwarded"
			if err := errors.Join(x.s.SetFlow(t.Context(), to, urgentFlow, nil),
				rdb.Set(t.Context(), DefaultPrefix+"{"+to+"}:"+name, "wrong", 0).Err()); err != nil {
				t.Fatal(err)
			}
			before, beforeTo := dump(t, rdb, x.queue), dump(t, rdb, to)
			err := forwards(store.TargetQueue)(t.Context(), x)
			if err == nil {
				return // the call does not use the key
			}
			if store.CodeOf(err) != store.ErrCorrupt.Code {
				t.Errorf("error = %v, want ErrCorrupt", err)
			}
			if !maps.Equal(before, dump(t, rdb, x.queue)) || !maps.Equal(beforeTo, dump(t, rdb, to)) {
				t.Errorf("the script failed (%v) but changed keys", err)
			}
		})
	}
}

func noScriptFailsHalfway(t *testing.T, flow store.Flow) {
	rdb := redistest.Shared(t).Client(t)
	kind := flow.Version()
	names := allKeyNames
	if flow.Normal().Fair {
		names = append([]string{"due", "dead", "records", "messages"}, flowKeyNames[:]...)
	}
	if flow.Key.Order != store.OrderNone {
		names = []string{"due", "lanes", "key_states", "turns", "rests", "holders", "halted"}
	}
	if flow.Urgency {
		names = []string{"lanes", "turns", "turns_high", "turns_low"}
	}
	whole := populateQueue(t, rdb, fmt.Sprintf("halfway-%s", kind), flow)
	for i, c := range everyCall {
		for _, name := range names {
			if !flow.Normal().Fair && slices.Contains(flowKeyNames[:], name) && !strings.Contains(c.name, "flow") {
				continue // only calls about flows look at keys of turns in a queue without them
			}
			t.Run(c.name+"/"+name+" of a wrong type", func(t *testing.T) {
				x := whole.copyTo(t, rdb, fmt.Sprintf("halfway-%s-%d-%s", kind, i, name))
				key := DefaultPrefix + "{" + x.queue + "}:" + name
				if err := rdb.Set(t.Context(), key, "wrong", 0).Err(); err != nil {
					t.Fatal(err)
				}
				before := dump(t, rdb, x.queue)
				err := c.do(t.Context(), x)
				if err == nil {
					return // the call does not use the key
				}
				if store.CodeOf(err) != store.ErrCorrupt.Code {
					t.Errorf("error = %v, want ErrCorrupt", err)
				}
				if after := dump(t, rdb, x.queue); !maps.Equal(before, after) {
					for k := range before {
						if before[k] != after[k] {
							t.Errorf("the script failed (%v) but changed %s", err, k)
						}
					}
				}
			})
			t.Run(c.name+"/"+name+" missing", func(t *testing.T) {
				x := whole.copyTo(t, rdb, fmt.Sprintf("missing-%s-%d-%s", kind, i, name))
				if err := rdb.Del(t.Context(), DefaultPrefix+"{"+x.queue+"}:"+name).Err(); err != nil {
					t.Fatal(err)
				}
				if err := c.do(t.Context(), x); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
