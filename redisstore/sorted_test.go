package redisstore

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

const sortedScore float64 = 1 << 50

func (q *limitedQueue) key(name string) string { return q.s.keys.key(q.queue, name) }

func (q *limitedQueue) sendKeyed(key string, due store.Due, ids ...string) {
	q.Helper()
	var msgs []store.Outgoing
	for _, id := range ids {
		msgs = append(msgs, store.Outgoing{Message: store.Message{ID: id, Key: key, Payload: []byte(id)}, Due: due})
	}
	_, err := q.s.Send(q.Context(), q.queue, msgs)
	q.ok(err)
}

// sort sorts ready messages of a key as a claim does.
func (q *limitedQueue) sort(key string, ids ...string) {
	q.Helper()
	for some := range slices.Chunk(ids, 500) {
		scores, err := q.rdb.ZMScore(q.Context(), q.key("due"), some...).Result()
		q.ok(err)
		var due, lanes []redis.Z
		for i, id := range some {
			due = append(due, redis.Z{Member: id, Score: scores[i] + sortedScore})
			lanes = append(lanes, redis.Z{Member: fmt.Sprintf("%s\x00%014.0f000%s", key, scores[i], id)})
		}
		q.ok(q.rdb.ZAdd(q.Context(), q.key("due"), due...).Err())
		q.ok(q.rdb.ZAdd(q.Context(), q.key("lanes"), lanes...).Err())
		q.ok(q.rdb.ZAddNX(q.Context(), q.key("turns"), redis.Z{Member: key}).Err())
	}
}

// sorted returns how many messages are sorted.
func (q *limitedQueue) sorted() int64 {
	q.Helper()
	n, err := q.rdb.ZCount(q.Context(), q.key("due"), fmt.Sprintf("%.0f", sortedScore), "+inf").Result()
	q.ok(err)
	return n
}

func (q *limitedQueue) meta(field string) string {
	q.Helper()
	text, err := q.rdb.HGet(q.Context(), q.key("meta"), field).Result()
	if err != redis.Nil {
		q.ok(err)
	}
	return text
}

// Two queues get the same messages and calls. In one of them some messages are sorted, which no reply shows.
func TestSortedMessagesAreReadyMessagesToEveryCall(t *testing.T) {
	plain := newLimitedQueue(t, "nothing sorted", store.Flow{Fair: true})
	sorted := newLimitedQueue(t, "some sorted", store.Flow{Fair: true})
	queues := []*limitedQueue{plain, sorted}
	var now time.Time
	for _, q := range queues {
		st, err := q.s.Stats(t.Context(), q.queue)
		q.ok(err)
		if now.IsZero() {
			now = st.Now.Truncate(time.Millisecond)
		}
		q.advance(now.Sub(st.Now))
		var ids []string
		for i := range 12 {
			ids = append(ids, fmt.Sprint("m", i))
			q.sendKeyed("k", store.Due{At: now.Add(time.Duration(i/3-5) * time.Minute)}, ids[i])
		}
		q.sendKeyed("k", store.Due{Delay: time.Minute}, "soon")
		q.sendKeyed("k", store.Due{Delay: 5 * time.Hour}, "packed")
		if q == sorted {
			q.sort("k", "m0", "m1", "m4", "m5", "m7", "m8", "m11")
		}
	}
	same := func(what string, do func(q *limitedQueue) (any, error)) {
		t.Helper()
		want, err := do(plain)
		plain.ok(err)
		got, err := do(sorted)
		sorted.ok(err)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v\nwant %+v", what, got, want)
		}
	}
	look := func(after string) {
		t.Helper()
		same("stats "+after, func(q *limitedQueue) (any, error) {
			st, err := q.s.Stats(t.Context(), q.queue)
			st.Flow.Keys, st.Flow.Now, st.Now = store.KeyCounts{}, time.Time{}, time.Time{}
			return st, err
		})
		same("messages "+after, func(q *limitedQueue) (any, error) {
			var all []string
			for _, id := range []string{"m0", "m2", "m4", "m5", "m7", "m8", "m11", "soon", "packed"} {
				infos, err := q.s.Get(t.Context(), q.queue, []string{id})
				q.ok(err)
				if infos[0] != nil {
					all = append(all, fmt.Sprint(id, infos[0].State, infos[0].Due.UnixMilli()))
				}
			}
			return all, nil
		})
		same("histogram "+after, func(q *limitedQueue) (any, error) {
			var bounds []time.Time
			for i := range 30 {
				bounds = append(bounds, now.Add(time.Duration(i)*20*time.Second-5*time.Minute))
			}
			return q.s.Histogram(t.Context(), q.queue, bounds)
		})
		for _, limit := range []int{1, 2, 5, 50} {
			for _, state := range []store.State{store.StateReady, store.StateScheduled} {
				same(fmt.Sprint("list ", state, limit, after), func(q *limitedQueue) (any, error) {
					var all []string
					req := store.ListRequest{State: state, Limit: limit, From: now.Add(-4 * time.Minute)}
					for {
						page, err := q.s.List(t.Context(), q.queue, req)
						q.ok(err)
						for _, in := range page.Messages {
							all = append(all, fmt.Sprint(in.ID, in.Due.UnixMilli()))
						}
						if req.Cursor = page.Next; req.Cursor == "" {
							return all, nil
						}
					}
				})
			}
		}
	}
	look("at first")
	same("cancel", func(q *limitedQueue) (any, error) {
		return q.s.Cancel(t.Context(), q.queue, store.CancelRequest{IDs: []string{"m0", "m2", "soon"}})
	})
	look("after cancels")
	same("reschedule", func(q *limitedQueue) (any, error) {
		return q.s.Reschedule(t.Context(), q.queue, []string{"m1", "m4"}, store.Due{Delay: time.Minute})
	})
	look("after reschedules")
	same("replace", func(q *limitedQueue) (any, error) {
		return q.s.Send(t.Context(), q.queue, []store.Outgoing{
			{Message: store.Message{ID: "m5", Key: "other", Payload: []byte("new")},
				OnDuplicate: store.OnDuplicate{Mode: store.DuplicateReplace, KeepDue: true}}})
	})
	look("after a replacement")
	same("purge", func(q *limitedQueue) (any, error) {
		return q.s.Purge(t.Context(), q.queue, store.Selection{State: store.StateReady,
			Before: now.Add(-3 * time.Minute)})
	})
	look("after a purge of ready messages")
	same("purge all", func(q *limitedQueue) (any, error) {
		b, err := q.s.Purge(t.Context(), q.queue, store.Selection{})
		return b.Done, err
	})
	if f := sorted.flow(); f.Keys != (store.KeyCounts{}) {
		t.Errorf("after a purge of everything %+v wait", f.Keys)
	}
	if n := sorted.rdb.Exists(t.Context(), sorted.key("lanes"), sorted.key("turns")).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

func numbered(prefix string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s%05d", prefix, i))
	}
	return ids
}

// The process that ends the turns of a queue dies after its first step. Then the next change does the rest, in steps.
func TestEndOfTurnsIsFinishedInSteps(t *testing.T) {
	for _, next := range []store.Flow{{}, {Concurrency: 3}, {Fair: true}} {
		q := newLimitedQueue(t, "end of turns", store.Flow{Fair: true, Key: store.KeyFlow{Concurrency: 1}})
		ids := numbered("m", 2000)
		for some := range slices.Chunk(ids, 500) {
			q.sendKeyed("k", store.Due{}, some...)
		}
		q.ok(q.s.SetKeyFlow(t.Context(), q.queue, "k", store.KeyOverride{Concurrency: new(int)}))
		q.sort("k", ids...)
		c := q.s.newCall("set_flow", q.queue, 13)
		q.s.sessions.release(q.s.stampRequest(t.Context(), c))
		c.add("0")
		c.addFlow(store.Flow{})
		reply, err := q.s.run(t.Context(), q.queue, c)
		if q.ok(err); reply != any(int64(replyUnfinished)) || q.sorted() != 1500 {
			t.Fatalf("the first step replied %v and left %d messages sorted", reply, q.sorted())
		}
		if f := q.flow(); f != (store.FlowState{}) {
			t.Errorf("the flow is %+v", f)
		}
		if q.meta("format") != fmt.Sprint(flowFormat) {
			t.Error("programs that do not know sorted messages could open the queue")
		}
		st, err := q.s.Stats(t.Context(), q.queue)
		if q.ok(err); st.Ready != 2000 || st.Scheduled != 0 {
			t.Errorf("%d are ready and %d scheduled", st.Ready, st.Scheduled)
		}
		if next.Limited() {
			q.set(next)
		} else {
			for reply = any(int64(1)); reply != any(int64(0)); {
				before := q.sorted()
				reply, err = q.s.run(t.Context(), q.queue, q.s.newCall("finish_flow", q.queue, 0))
				if q.ok(err); before-q.sorted() > 500 {
					t.Errorf("a step changed %d messages", before-q.sorted())
				}
			}
		}
		if q.sorted() != 0 || q.meta("flow_unsorting") != "" {
			t.Errorf("%d messages are sorted, unsorting %q", q.sorted(), q.meta("flow_unsorting"))
		}
		if plain := q.meta("format") == fmt.Sprint(layoutFormat); plain == next.Limited() {
			t.Errorf("format is %s", q.meta("format"))
		}
		if f := q.flow(); f.Flow != next.Normal() {
			t.Errorf("flow is %+v", f)
		}
		if keys, err := q.s.Keys(t.Context(), q.queue, store.KeysRequest{Overridden: true, Limit: 9}); err != nil ||
			len(keys) != 0 {
			t.Errorf("overrides %+v, %v", keys, err)
		}
		for _, name := range flowKeyNames {
			if n := q.rdb.Exists(t.Context(), q.key(name)).Val(); n != 0 {
				t.Errorf("key %s is left", name)
			}
		}
		for field := range q.rdb.HGetAll(t.Context(), q.key("meta")).Val() {
			if strings.HasPrefix(field, "flow_") && !next.Limited() {
				t.Errorf("field %s is left", field)
			}
		}
	}
}

// So do claims, of any process.
func TestClaimsFinishTheEndOfTurns(t *testing.T) {
	q := newLimitedQueue(t, "end of turns by claims", store.Flow{Fair: true})
	ids := numbered("m", 1200)
	for some := range slices.Chunk(ids, 400) {
		q.sendKeyed("k", store.Due{}, some...)
	}
	q.sort("k", ids...)
	c := q.s.newCall("set_flow", q.queue, 13)
	q.s.sessions.release(q.s.stampRequest(t.Context(), c))
	c.add("0")
	c.addFlow(store.Flow{})
	_, err := q.s.run(t.Context(), q.queue, c)
	q.ok(err)
	if q.sorted() != 700 {
		t.Fatalf("%d messages are sorted", q.sorted())
	}
	q.sound()
	q.ok(q.s.Wait(t.Context(), q.queue)) // returns at once
	other, seen := newFrozenClock(t, q.rdb), map[string]bool{}
	for range 20 {
		before := q.sorted()
		c := claim(q, other, q.queue, 100, time.Hour)
		if before-q.sorted() > 500 {
			t.Errorf("a claim changed %d messages", before-q.sorted())
		}
		for _, m := range c.Messages {
			seen[m.ID] = true
		}
	}
	if len(seen) != 1200 || q.meta("format") != fmt.Sprint(layoutFormat) {
		t.Errorf("%d messages were claimed, format %s", len(seen), q.meta("format"))
	}
	q.sound()
}

// Keys that rested under former limits are looked at again, in steps.
func TestRestsAreLookedAtAfterAChangeOfLimits(t *testing.T) {
	q := newLimitedQueue(t, "looked at", store.Flow{Key: store.KeyFlow{Concurrency: 1}})
	var rests []redis.Z
	for i, key := range numbered("k", 1000) {
		rests = append(rests, redis.Z{Member: key, Score: []float64{1 << 53, 1e15}[i%2]})
	}
	q.ok(q.rdb.ZAdd(t.Context(), q.key("rests"), rests...).Err())
	q.ok(q.rdb.HSet(t.Context(), q.key("key_states"), "k00000", "1\t0\t0\t0\t7.5\t").Err())
	c := q.s.newCall("set_flow", q.queue, 13)
	q.s.sessions.release(q.s.stampRequest(t.Context(), c))
	c.add("0")
	c.addFlow(store.Flow{Key: store.KeyFlow{Concurrency: 2}})
	_, err := q.s.run(t.Context(), q.queue, c)
	q.ok(err)
	if n := q.rdb.ZCard(t.Context(), q.key("old_rests")).Val(); n != 750 {
		t.Errorf("%d keys are left after the first step", n)
	}
	if f := q.flow(); f.Keys.Waiting != 1000 {
		t.Errorf("%+v", f.Keys)
	}
	q.set(store.Flow{Key: store.KeyFlow{Concurrency: 3}})
	if f := q.flow(); f.Keys != (store.KeyCounts{Waiting: 1000}) {
		t.Errorf("%+v", f.Keys)
	}
	if pass := q.rdb.ZScore(t.Context(), q.key("turns"), "k00000").Val(); pass != 7.5 {
		t.Errorf("a key lost its pass: %v", pass)
	}
	q.ok(q.rdb.ZAdd(t.Context(), q.key("rests"), redis.Z{Member: "full", Score: 1 << 53},
		redis.Z{Member: "rests", Score: 1e15}).Err())
	if f := q.flow(); f.Keys != (store.KeyCounts{Waiting: 1002, Full: 1, Resting: 1}) {
		t.Errorf("%+v", f.Keys)
	}
	two := 2
	q.ok(q.s.SetKeyFlow(t.Context(), q.queue, "full", store.KeyOverride{Concurrency: &two}))
	if f := q.flow(); f.Keys != (store.KeyCounts{Waiting: 1002, Resting: 1}) {
		t.Errorf("%+v", f.Keys)
	}
}

// The times of the next starts under a rate that was removed do not count under a later one.
func TestRateOfKeysBeginsWithItsBurst(t *testing.T) {
	rate := store.Rate{N: 3, Per: time.Hour, Burst: 1}
	q := newLimitedQueue(t, "burst of keys", store.Flow{Key: store.KeyFlow{Rate: rate}})
	next := func(key string) time.Time {
		t.Helper()
		keys, err := q.s.Keys(t.Context(), q.queue, store.KeysRequest{Key: key, Limit: 1})
		q.ok(err)
		if keys[0].Next.Equal(keys[0].Now) {
			return time.Time{}
		}
		return keys[0].Next
	}
	at := q.flow().Now.Add(time.Hour / 3).UnixMicro()
	for _, key := range append(numbered("k", 600), "own") {
		q.ok(q.rdb.HSet(t.Context(), q.key("key_states"), key, fmt.Sprintf("1\t%d\t1\t3\t0.5\t", at)).Err())
	}
	q.ok(q.s.SetKeyFlow(t.Context(), q.queue, "own", store.KeyOverride{Rate: &store.Rate{N: 3, Per: time.Hour}}))
	if got := next("k00123"); got.UnixMicro() < at-int64(time.Hour/time.Microsecond) || got.IsZero() {
		t.Errorf("next start at %v", got)
	}
	own := next("own")
	q.set(store.Flow{Fair: true})
	if q.meta("flow_end_rates") != "" {
		t.Error("the end of the rates is not finished")
	}
	q.set(store.Flow{Key: store.KeyFlow{Rate: rate}})
	for _, key := range []string{"k00000", "k00123", "k00599"} {
		if got := next(key); !got.IsZero() {
			t.Errorf("key %s starts at %v", key, got)
		}
	}
	if got := next("own"); !got.Equal(own) {
		t.Errorf("the key with its own rate starts at %v, want %v", got, own)
	}
	q.ok(q.s.SetKeyFlow(t.Context(), q.queue, "own", store.KeyOverride{Rate: &store.Rate{}}))
	q.ok(q.s.SetKeyFlow(t.Context(), q.queue, "own", store.KeyOverride{}))
	if got := next("own"); !got.IsZero() {
		t.Errorf("the key that had no rate in between starts at %v", got)
	}
}

// Pages of keys leave out keys with messages that have gone, and count the others.
func TestKeysSkipsMessagesThatHaveGone(t *testing.T) {
	q := newLimitedQueue(t, "pages of keys", store.Flow{Fair: true})
	var all []string
	for i, key := range numbered("k", 300) {
		ids := numbered(key+"-", 1+i%3)
		q.sendKeyed(key, store.Due{}, ids...)
		q.sort(key, ids...)
		if i%10 == 0 || i > 100 && i < 200 {
			_, err := q.s.Cancel(t.Context(), q.queue, store.CancelRequest{IDs: ids})
			q.ok(err)
		} else {
			all = append(all, fmt.Sprint(key, len(ids)))
		}
	}
	for _, limit := range []int{1, 7, 500} {
		var got []string
		for after := ""; ; {
			page, err := q.s.Keys(t.Context(), q.queue, store.KeysRequest{After: after, Limit: limit})
			q.ok(err)
			if len(page) == 0 {
				break
			}
			for _, k := range page {
				got = append(got, fmt.Sprint(k.Key, k.Waiting))
				after = k.Key
			}
		}
		if !slices.Equal(got, all) {
			t.Errorf("limit %d: %v", limit, got)
		}
	}
	q.sendKeyed("", store.Due{}, numbered("x", 400)...)
	q.sort("", numbered("x", 400)...)
	page, err := q.s.Keys(t.Context(), q.queue, store.KeysRequest{Limit: 1})
	if q.ok(err); len(page) != 2 || page[1].Key == "" || page[0].Key != "" || page[0].Waiting != 400 ||
		page[0].Since.IsZero() || page[0].Weight != 1 {
		t.Errorf("%+v", page)
	}
}
