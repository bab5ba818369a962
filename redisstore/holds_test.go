package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

var (
	continues = store.Flow{Key: store.KeyFlow{Order: store.OrderContinue}}
	halts     = store.Flow{Key: store.KeyFlow{Order: store.OrderHalt}}
)

// hold has n messages, each with a key of its own, come back from a lease by an action.
func (q *limitedQueue) hold(prefix string, n int, a store.Action) {
	q.Helper()
	q.holdAs(store.UrgencyNormal, prefix, n, a)
}

// holdAs is hold for messages with an urgency.
func (q *limitedQueue) holdAs(u store.Urgency, prefix string, n int, a store.Action) {
	q.Helper()
	var msgs []store.Outgoing
	for _, key := range numbered(prefix, n) {
		msgs = append(msgs, store.Outgoing{Message: store.Message{ID: "of-" + key, Key: key, Urgency: u}})
	}
	for len(msgs) > 0 {
		part := msgs[:min(len(msgs), store.MaxBatch/2)]
		_, err := q.s.Send(q.Context(), q.queue, part)
		q.ok(err)
		msgs = msgs[len(part):]
	}
	for n > 0 {
		c := claim(q, q.s, q.queue, store.MaxBatch/2, time.Minute)
		if len(c.Messages) == 0 && !c.More {
			q.Fatalf("%d messages do not start", n)
		}
		n -= len(c.Messages)
		back := make([]store.Settlement, len(c.Messages))
		for i, m := range c.Messages {
			back[i] = store.Settlement{Receipt: m.Receipt, Action: a, Reason: "boom", Delay: time.Hour}
		}
		if len(back) == 0 {
			continue
		}
		results, err := q.s.Settle(q.Context(), q.queue, back)
		q.ok(err)
		for _, r := range results {
			q.ok(r.Err)
		}
	}
}

// setInSteps sets a flow without the steps that finish the change.
func (q *limitedQueue) setInSteps(f store.Flow) {
	q.Helper()
	c := q.s.newCall("set_flow", q.queue, 14)
	q.s.sessions.release(q.s.stampRequest(q.Context(), c))
	c.add("0")
	c.addFlow(f)
	_, err := q.s.run(q.Context(), q.queue, c)
	q.ok(err)
}

func (q *limitedQueue) holders() int64 { return q.rdb.HLen(q.Context(), q.key("holders")).Val() }

// noIssues checks that the state of keys is sound.
func (q *limitedQueue) noIssues() {
	q.Helper()
	if found := q.issues(false); len(found) > 0 {
		q.Errorf("issues: %q", found)
	}
}

func TestHoldsEndInStepsWhenTheOrderIsRemoved(t *testing.T) {
	q := newLimitedQueue(t, "holds end", continues)
	q.hold("k", 1200, store.Snooze)
	q.advance(time.Hour)
	for q.sortReady().Unsorted { // the holders are ready and in no lane
	}
	if n := q.entries("lanes"); n != 0 || q.holders() != 1200 {
		t.Fatalf("%d entries of lanes, %d holders", n, q.holders())
	}
	q.noIssues()
	q.setInSteps(store.Flow{Fair: true})
	for _, want := range []int64{700, 200, 0} {
		if n := q.holders(); n != want {
			t.Errorf("%d messages hold keys, want %d", n, want)
		}
		q.sortReady()
	}
	for q.sortReady().Unsorted {
	}
	q.noIssues()
	started := map[string]bool{}
	for {
		c := claim(t, q.s, q.queue, store.MaxBatch, time.Minute)
		if len(c.Messages) == 0 && !c.More {
			break
		}
		for _, m := range c.Messages {
			started[m.ID] = true
		}
		q.ack(c.Messages)
	}
	if len(started) != 1200 {
		t.Errorf("%d messages start, want 1200", len(started))
	}
	q.empty()
}

// An order is not set again before the holds of the former one have ended, and no hold outlives the turns.
func TestHoldsEndBeforeAnotherOrderIsSet(t *testing.T) {
	q := newLimitedQueue(t, "holds before", halts)
	q.hold("k", 1200, store.Bury)
	q.setInSteps(continues)
	if n := q.entries("halted"); n != 700 || q.holders() != 700 {
		t.Errorf("%d keys are halted, %d messages hold keys after a step", n, q.holders())
	}
	if f := q.flow(); f.Keys.Halted != 0 {
		t.Errorf("%+v", f.Keys)
	}
	q.set(halts)
	if n := q.entries("halted"); n != 0 || q.holders() != 0 {
		t.Errorf("%d keys are halted, %d messages hold keys", n, q.holders())
	}
	q.noIssues()
	q.send("plain")
	q.hold("k", 3, store.Release)
	q.set(store.Flow{Concurrency: 3})
	if n := q.holders(); n != 0 {
		t.Errorf("%d messages hold keys", n)
	}
	q.noIssues()
}

// The time of a halt is that of the death, also if a ms passes while the script runs.
func TestHaltsHaveTheTimesOfDeaths(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	q := &limitedQueue{t, newStore(t, rdb), rdb, "times of halts"}
	q.ok(q.s.Delete(t.Context(), q.queue))
	q.set(halts)
	q.hold("k", store.MaxBatch, store.Bury)
	dead, err := rdb.ZRangeWithScores(t.Context(), q.key("dead"), 0, -1).Result()
	q.ok(err)
	died := map[any]float64{}
	for _, z := range dead {
		died["k"+strings.TrimPrefix(z.Member.(string), "of-k")] = z.Score
	}
	halted, err := rdb.ZRangeWithScores(t.Context(), q.key("halted"), 0, -1).Result()
	q.ok(err)
	if len(halted) != store.MaxBatch {
		t.Errorf("%d keys are halted", len(halted))
	}
	for _, z := range halted {
		if died[z.Member] != z.Score {
			t.Fatalf("key %v is halted since %.0f, its message dead since %.0f", z.Member, z.Score, died[z.Member])
		}
	}
}

func TestRetentionSkipsMessagesThatHaltKeys(t *testing.T) {
	for name, r := range map[string]store.Retention{"count": {MaxCount: 5}, "age": {MaxAge: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			q := newLimitedQueue(t, "halts kept "+name, halts)
			q.hold("k", 1200, store.Bury)
			for i := range 10 {
				q.advance(time.Second)
				q.send(fmt.Sprint("plain", i))
				for _, r := range q.claim(1, fmt.Sprint("plain", i)) {
					q.ok(q.settle(r, store.Bury))
				}
			}
			q.ok(q.s.SetDeadRetention(t.Context(), q.queue, r, nil))
			want := 1205
			if r.MaxAge > 0 {
				q.advance(2 * time.Hour)
				want = 1200
			}
			q.sortReady()
			st, err := q.s.Stats(t.Context(), q.queue)
			if q.ok(err); st.Dead != int64(want) || st.Flow.Keys.Halted != 1200 {
				t.Errorf("%d messages are dead, want %d; %+v", st.Dead, want, st.Flow.Keys)
			}
			q.noIssues()
		})
	}
}

func TestPurgeOfManyHaltedKeysTakesSteps(t *testing.T) {
	q := newLimitedQueue(t, "purge halted", halts)
	q.hold("k", 2300, store.Bury)
	q.hold("s", 100, store.Snooze)
	q.sendKeyed("last", store.Due{}, "leased")
	held := q.claim(1, "leased")
	resumed, steps := map[string]bool{}, 0
	for sel := (store.Selection{}); ; steps++ {
		b, err := q.s.Purge(t.Context(), q.queue, sel)
		q.ok(err)
		for _, key := range b.Resumed {
			resumed[key] = true
		}
		if sel.Before = b.Before; !b.More {
			break
		}
	}
	if len(resumed) != 2300 || steps != 1 {
		t.Errorf("%d keys were resumed in %d steps", len(resumed), steps)
	}
	if n := q.entries("halted"); n != 0 || q.holders() != 0 {
		t.Errorf("%d keys are halted, %d messages hold keys", n, q.holders())
	}
	q.noIssues()
	q.sendKeyed("last", store.Due{}, "next")
	q.claim(1)
	if err := q.settle(held[0], store.Ack); !errors.Is(err, store.ErrLeaseLost) {
		t.Error(err)
	}
	q.claim(1, "next")
}

// Keys that wait with nothing but their holder are in no lane.
func TestPagesOfKeysHaveTheReadyHolders(t *testing.T) {
	q := newLimitedQueue(t, "pages of holders", continues)
	q.hold("k", 30, store.Snooze)
	q.advance(time.Hour)
	q.sendKeyed("k00007", store.Due{}, "behind")
	q.sendKeyed("a", store.Due{}, "a")
	q.sendKeyed("z", store.Due{}, "z")
	q.send("plain")
	q.sortReady()
	var got []string
	for after := ""; ; {
		page, err := q.s.Keys(t.Context(), q.queue, store.KeysRequest{Limit: 7, After: after})
		if q.ok(err); len(page) == 0 {
			break
		}
		for _, k := range page {
			got = append(got, k.Key)
			if after = k.Key; strings.HasPrefix(k.Key, "k") && (k.Holder != "of-"+k.Key || k.Held || k.Halted) {
				t.Errorf("%+v", k)
			}
			if want := map[string]int64{"k00007": 2}[k.Key]; k.Waiting != max(1, want) {
				t.Errorf("%+v", k)
			}
		}
	}
	want := append(append([]string{"", "a"}, numbered("k", 30)...), "z")
	if !slices.Equal(got, want) {
		t.Errorf("keys %q, want %q", got, want)
	}
	if f := q.flow(); f.Keys != (store.KeyCounts{Waiting: 33}) {
		t.Errorf("%+v", f.Keys)
	}
}

// While many keys are held, a purge of everything removes holders first, also packed ones. The rates of keys remain.
func TestPurgeOfManyHeldKeysKeepsTheirRates(t *testing.T) {
	hourly := store.KeyFlow{Order: store.OrderContinue, Rate: store.Rate{N: 1, Per: 2 * time.Hour, Burst: 1}}
	q := newLimitedQueue(t, "purge held", store.Flow{Key: hourly})
	q.hold("k", 2300, store.Snooze)
	q.s.pack(t.Context(), q.queue)
	if n := q.entries("due"); n == 2300 {
		t.Fatal("no holder is packed")
	}
	purgeAll(q)
	q.noIssues()
	q.sendKeyed("k00007", store.Due{}, "again")
	q.sendKeyed("new", store.Due{}, "first")
	q.ok(q.settle(q.claim(9, "first")[0], store.Ack))
	q.advance(2 * time.Hour)
	q.claim(9, "again")
	q.noIssues()
}

// purgeAll removes all messages, in steps.
func purgeAll(q *limitedQueue) {
	q.Helper()
	for sel, more := (store.Selection{}), true; more; {
		b, err := q.s.Purge(q.Context(), q.queue, sel)
		q.ok(err)
		sel.Before, more = b.Before, b.More
	}
}

// A held key waits for nothing after a purge, also if claims have to place keys from before a change of limits.
func TestAKeyThatWasHeldStartsAfterALargePurge(t *testing.T) {
	q := newLimitedQueue(t, "purge placed", continues)
	q.sendKeyed("h", store.Due{}, "a", "b")
	q.ok(q.settle(q.claimOne("a").Receipt, store.Snooze))
	q.sendMany(1, numbered("key", 2100)...)
	q.ok(q.rdb.ZAdd(t.Context(), q.key("old_rests"), redis.Z{Score: 5, Member: "unfinished"}).Err())
	if n := q.entries("rests"); n != 1 {
		t.Fatalf("%d keys rest", n)
	}
	purgeAll(q)
	q.sendKeyed("h", store.Due{}, "new")
	for range 30 { // claims find out in steps that the other keys have no messages
		if c := claim(t, q.s, q.queue, 9, time.Minute); len(c.Messages) > 0 {
			return
		}
	}
	t.Error("the key does not start")
}
