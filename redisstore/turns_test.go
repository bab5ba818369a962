package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// sortReady makes a claim that only sorts.
func (q *limitedQueue) sortReady() store.Claim {
	q.Helper()
	c, err := q.s.Claim(q.Context(), q.queue, store.ClaimRequest{Max: 10, Ahead: 10, Lease: time.Minute})
	q.ok(err)
	if len(c.Messages) > 0 {
		q.Fatalf("a claim for no handler has %d messages", len(c.Messages))
	}
	return c
}

// entries returns how many entries a sorted set or hash has.
func (q *limitedQueue) entries(name string) int64 {
	q.Helper()
	count := q.rdb.ZCard
	if name == "key_states" || name == "key_flows" || name == "holders" {
		count = q.rdb.HLen
	}
	n, err := count(q.Context(), q.key(name)).Result()
	q.ok(err)
	return n
}

// sendMany sends n messages of each key, one after the other.
func (q *limitedQueue) sendMany(n int, keys ...string) {
	q.Helper()
	var msgs []store.Outgoing
	for i := range n {
		for _, key := range keys {
			msgs = append(msgs, store.Outgoing{Message: store.Message{ID: fmt.Sprintf("%s%03d", key, i), Key: key}})
		}
	}
	for len(msgs) > 0 {
		part := msgs[:min(len(msgs), store.MaxBatch)]
		_, err := q.s.Send(q.Context(), q.queue, part)
		q.ok(err)
		msgs = msgs[len(part):]
	}
}

func (q *limitedQueue) ack(msgs []store.Claimed) {
	q.Helper()
	acks := make([]store.Settlement, len(msgs))
	for i, m := range msgs {
		acks[i] = store.Settlement{Receipt: m.Receipt, Action: store.Ack}
	}
	if len(acks) == 0 {
		return
	}
	results, err := q.s.Settle(q.Context(), q.queue, acks)
	q.ok(err)
	for _, r := range results {
		q.ok(r.Err)
	}
}

func TestAClaimSortsABoundedNumberOfMessages(t *testing.T) {
	q := newLimitedQueue(t, "sort bounded", store.Flow{Fair: true})
	q.sendMany(300, "a", "b")
	for _, want := range []int64{250, 500, 600} {
		c := q.sortReady()
		if n := q.entries("lanes"); n != want || c.Unsorted != (want < 600) {
			t.Errorf("%d messages are sorted, want %d; unsorted: %v", n, want, c.Unsorted)
		}
	}
	if found := q.issues(false); len(found) > 0 {
		t.Errorf("issues: %q", found)
	}
}

func TestAClaimLooksAtABoundedNumberOfKeys(t *testing.T) {
	q := newLimitedQueue(t, "keys bounded", store.Flow{Fair: true})
	var keys []string
	for i := range 600 {
		keys = append(keys, fmt.Sprintf("k%03d-", i))
	}
	q.sendMany(1, keys...)
	for q.sortReady().Unsorted {
	}
	for _, want := range []int{250, 250, 100} {
		c := claim(t, q.s, q.queue, 500, time.Minute)
		if len(c.Messages) != want || c.More != (want == 250) {
			t.Errorf("claimed %d messages, want %d; more: %v", len(c.Messages), want, c.More)
		}
		q.ack(c.Messages)
	}
	q.empty()
}

// empty checks that nothing is left of messages and keys that have gone, after some claims.
func (q *limitedQueue) empty() {
	q.Helper()
	for range 10 {
		q.advance(store.MaxPeriod / 10)
		q.sortReady()
	}
	for _, name := range flowKeyNames {
		if n := q.entries(name); n != 0 && name != "key_flows" {
			q.Errorf("%d entries of %s are left", n, name)
		}
	}
}

// A purge of ready messages leaves their entries in the lanes.
func TestEntriesOfMessagesThatHaveGoneAreDroppedInSteps(t *testing.T) {
	q := newLimitedQueue(t, "stale", store.Flow{Fair: true})
	q.sendMany(700, "a", "b")
	for q.sortReady().Unsorted {
	}
	for i := range 695 {
		for _, key := range []string{"a", "b"} {
			id := fmt.Sprintf("%s%03d", key, i)
			q.ok(q.rdb.ZRem(t.Context(), q.key("due"), id).Err())
			q.ok(q.rdb.HDel(t.Context(), q.key("messages"), id).Err())
		}
	}
	left, taken := q.entries("lanes"), 0
	if left != 1400 {
		t.Fatalf("%d entries, want 1400", left)
	}
	for taken < 10 {
		c := claim(t, q.s, q.queue, 500, time.Minute)
		n := q.entries("lanes")
		if left-n > 1500 || left == n || taken+len(c.Messages) < 10 && !c.More {
			t.Fatalf("a claim of %d messages dropped %d entries; more: %v", len(c.Messages), left-n, c.More)
		}
		left, taken = n, taken+len(c.Messages)
		q.ack(c.Messages)
	}
	q.empty()
}

// While other keys wait, a key that does not wait has a state only for its slots and its rate.
func TestKeysWithoutARateLeaveNoStates(t *testing.T) {
	q := newLimitedQueue(t, "no states", store.Flow{Fair: true})
	q.sendMany(50, "old")
	for i := range 20 {
		q.sendMany(1, fmt.Sprint("new", i))
		q.ack(claim(t, q.s, q.queue, 2, time.Minute).Messages)
		if states, forgotten := q.entries("key_states"), q.entries("forget"); states+forgotten != 0 {
			t.Fatalf("%d states are kept, %d are looked at later", states, forgotten)
		}
	}
}

func TestStatesOfKeysAreForgotten(t *testing.T) {
	limits := store.KeyFlow{Concurrency: 3, Rate: store.Rate{N: 1, Per: time.Minute, Burst: 2}, Weight: 3}
	q := newLimitedQueue(t, "forgotten", store.Flow{Concurrency: 8, Key: limits})
	q.sendMany(5, "a", "b", "c", "d", "")
	for left := 25; left > 0; q.advance(time.Minute) {
		c := claim(t, q.s, q.queue, 7, time.Hour)
		left -= len(c.Messages)
		q.ack(c.Messages)
	}
	if q.entries("key_states") == 0 {
		t.Error("the rates of keys are forgotten at once")
	}
	q.empty()
}

// The acks of adjacent messages cut their lines out of the text of a lease.
func TestPartsOfALeaseFreeTheSlotsOfTheirKeys(t *testing.T) {
	parts := map[string][][]int{
		"whole":  {{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		"thirds": {{3, 4, 5}, {0, 1, 2}, {6, 7, 8}},
		"ends":   {{0}, {8}, {1, 2, 3, 5, 6, 7}, {4}},
		"odd":    {{1, 3, 5, 7}, {0, 2, 4, 6, 8}},
		"runs":   {{0, 1, 4, 5, 7, 8}, {2, 3}, {6}},
	}
	for name, part := range parts {
		t.Run(name, func(t *testing.T) {
			q := newLimitedQueue(t, "parts of keys "+name,
				store.Flow{Concurrency: 20, Key: store.KeyFlow{Concurrency: 9}})
			q.sendMany(3, "a", "b", "")
			c := claim(t, q.s, q.queue, 10, time.Minute)
			if len(c.Messages) != 9 {
				t.Fatalf("claimed %d messages, want 9", len(c.Messages))
			}
			for _, indexes := range part {
				var some []store.Claimed
				for _, i := range indexes {
					some = append(some, c.Messages[i])
				}
				q.ack(some)
				if found := q.issues(false); len(found) > 0 {
					t.Errorf("after the acks of %v: %q", indexes, found)
				}
			}
			q.leased(0)
			q.empty()
		})
	}
}

// Keys rest until a time that is too late after the clock was set back, also behind one with a slow rate.
func TestMixedKeysDoNotRestLongerAfterTheClockWasSetBack(t *testing.T) {
	q := newLimitedQueue(t, "mixed keys set back",
		store.Flow{Key: store.KeyFlow{Rate: store.Rate{N: 1, Per: time.Second}}})
	slow := store.Rate{N: 1, Per: 24 * time.Hour}
	q.ok(q.s.SetKeyFlow(t.Context(), q.queue, "slow", store.KeyOverride{Rate: &slow}))
	q.sendMany(2, "slow")
	q.ack(claim(t, q.s, q.queue, 10, time.Minute).Messages)
	q.advance(24*time.Hour - time.Second/2)
	q.sendMany(2, "b")
	q.sendMany(2, "a")
	q.ack(claim(t, q.s, q.queue, 10, time.Minute).Messages)
	q.advance(-time.Hour)
	q.sortReady()
	q.advance(time.Second)
	for range 3 {
		c := claim(t, q.s, q.queue, 10, time.Minute)
		if q.ack(c.Messages); len(c.Messages) == 2 {
			return
		}
	}
	t.Errorf("a second later, messages still rest: %v", q.rdb.ZRangeWithScores(t.Context(), q.key("rests"), 0, -1))
}

// The same for keys with one rate.
func TestKeysDoNotRestLongerAfterTheClockWasSetBack(t *testing.T) {
	q := newLimitedQueue(t, "keys set back", store.Flow{Key: store.KeyFlow{Rate: store.Rate{N: 1, Per: time.Minute}}})
	q.advance(2 * time.Hour)
	q.sendMany(2, "a", "b")
	q.ack(claim(t, q.s, q.queue, 10, time.Minute).Messages)
	q.advance(-time.Hour)
	q.sortReady()
	q.advance(time.Minute)
	for range 3 {
		c := claim(t, q.s, q.queue, 10, time.Minute)
		if q.ack(c.Messages); len(c.Messages) == 2 {
			return
		}
	}
	t.Errorf("an interval later, messages still rest: %v", q.rdb.ZRangeWithScores(t.Context(), q.key("rests"), 0, -1))
}

// An id without a message, which a check repairs, does not stop the queue, whether it is sorted or not.
func TestMissingMessagesDoNotStopTheTurns(t *testing.T) {
	q := newLimitedQueue(t, "missing turns", store.Flow{Key: store.KeyFlow{Concurrency: 1}})
	q.sendKeyed("a", store.Due{}, "a1", "a2", "a3")
	q.ok(q.rdb.HDel(t.Context(), q.key("messages"), "a1").Err())
	q.sortReady()
	q.ok(q.rdb.HDel(t.Context(), q.key("messages"), "a2").Err())
	q.issues(false)
	for range 5 {
		c := claim(t, q.s, q.queue, 1, time.Minute)
		if len(c.Messages) == 0 {
			continue
		}
		if q.ack(c.Messages); c.Messages[0].ID == "a3" {
			q.leased(0)
			return
		}
	}
	t.Error("a3 does not start")
}

// A full key drops the entries of messages that are replaced, rescheduled or cancelled, and does not wait without any.
func TestFullKeysDropTheEntriesOfChangedMessages(t *testing.T) {
	q := newLimitedQueue(t, "full dropped", store.Flow{Key: store.KeyFlow{Concurrency: 1}})
	q.sendKeyed("a", store.Due{}, "a0")
	held := q.claim(1, "a0")
	replace := store.Outgoing{Message: store.Message{ID: "a2", Key: "a"}}
	replace.OnDuplicate.Mode = store.DuplicateReplace
	state := func(want int64) {
		t.Helper()
		keys, err := q.s.Keys(t.Context(), q.queue, store.KeysRequest{Limit: 10})
		q.ok(err)
		var waiting int64
		for _, k := range keys {
			waiting += k.Waiting
		}
		if n, c := q.entries("lanes"), q.flow().Keys; n != want || waiting != want || c.Waiting != min(want, 1) {
			t.Fatalf("%d entries, %d messages wait, %+v; want %d", n, waiting, c, want)
		}
	}
	for range 500 {
		q.advance(time.Millisecond)
		_, err := q.s.Send(t.Context(), q.queue, []store.Outgoing{replace})
		q.ok(err)
		q.sortReady()
	}
	state(1)
	q.sendKeyed("a", store.Due{}, "a3", "a4")
	q.sortReady()
	state(3)
	_, err := q.s.Reschedule(t.Context(), q.queue, []string{"a2", "a2", "none"}, store.Due{Delay: time.Hour})
	q.ok(err)
	state(2)
	_, err = q.s.Cancel(t.Context(), q.queue, store.CancelRequest{IDs: []string{"a3", "a3"}})
	q.ok(err)
	state(1)
	infos, err := q.s.Get(t.Context(), q.queue, []string{"a4"})
	q.ok(err)
	_, err = q.s.Remove(t.Context(), q.queue, []store.Info{*infos[0]})
	q.ok(err)
	state(0)
	q.ok(q.settle(held[0], store.Ack))
	q.advance(time.Hour)
	held = q.claim(1, "a2")
	q.ok(q.settle(held[0], store.Ack))
	q.empty()
}

// A page of keys is read in a bounded number of calls, although most keys have no messages any more.
func TestKeysWithoutMessagesCostFewCalls(t *testing.T) {
	q := newLimitedQueue(t, "keys without", store.Flow{Fair: true})
	var keys []string
	for i := range 600 {
		keys = append(keys, fmt.Sprintf("k%03d", i))
	}
	q.sendMany(1, keys...)
	q.send("plain")
	for q.sortReady().Unsorted {
	}
	for range 2 {
		_, err := q.s.Purge(t.Context(), q.queue, store.Selection{State: store.StateReady})
		q.ok(err)
	}
	q.advance(time.Millisecond)
	q.sendKeyed("k599", store.Due{}, "last")
	q.send("plain")
	q.sortReady()
	read, err := q.s.readKeys(t.Context(), q.queue, "waiting", "-", 1)
	page, next := read.page, read.next
	q.ok(err)
	if len(page) != 2 || page[0].Key != "" || page[1].Key != "k599" {
		t.Errorf("the first call returns %+v, and to go on at %q", page, next)
	}
	whole, err := q.s.Keys(t.Context(), q.queue, store.KeysRequest{Limit: 1})
	if q.ok(err); !slices.EqualFunc(whole, page, func(a, b store.KeyState) bool { return a.Key == b.Key }) {
		t.Errorf("the page is %+v", whole)
	}
}

// Lanes are in order of digits, which have no sign. Packages in front of a store refuse such a due time.
func TestTurnsTakeMessagesFromBefore1970(t *testing.T) {
	q := newLimitedQueue(t, "old", store.Flow{Fair: true})
	old := store.Outgoing{Message: store.Message{ID: "old", Key: "k"}, Due: store.Due{At: time.UnixMilli(-5000)}}
	_, err := q.s.Send(t.Context(), q.queue, []store.Outgoing{{Message: store.Message{ID: "new", Key: "k"}}, old})
	q.ok(err)
	c, err := q.s.Claim(t.Context(), q.queue, store.ClaimRequest{Max: 5, Lease: time.Minute})
	if err != nil || len(c.Messages) != 2 || c.Messages[0].ID != "old" {
		t.Errorf("claimed %+v, %v", c.Messages, err)
	}
}

// A purge of so many leased messages that they count no more frees the slots of keys, and keeps their rates.
func TestKeysKeepTheirRatesInALargePurge(t *testing.T) {
	rate := store.Rate{N: 2400, Per: time.Hour, Burst: 2400}
	q := newLimitedQueue(t, "large purge", store.Flow{Key: store.KeyFlow{Rate: rate, Concurrency: 2400}})
	q.sendMany(2400, "a")
	for n := 0; n < 2400; {
		n += len(claim(t, q.s, q.queue, 500, time.Hour).Messages)
	}
	_, err := q.s.Purge(t.Context(), q.queue, store.Selection{})
	q.ok(err)
	q.leased(0)
	q.sendKeyed("a", store.Due{}, "last")
	q.claim(1)
	if found := q.issues(false); len(found) > 0 {
		t.Errorf("issues: %q", found)
	}
	q.advance(2 * time.Second)
	held := q.claim(1, "last")
	q.ok(q.settle(held[0], store.Ack))
	q.empty()
}

func TestOverridesOfAQueueAreLimited(t *testing.T) {
	q := newLimitedQueue(t, "overrides", store.Flow{Fair: true})
	var fields []any
	for i := range store.MaxKeyFlows - 1 {
		fields = append(fields, i, "\t\t\t\t2")
	}
	q.ok(q.rdb.HSet(t.Context(), q.key("key_flows"), fields...).Err())
	weight := 3
	set := func(key string) error {
		return q.s.SetKeyFlow(t.Context(), q.queue, key, store.KeyOverride{Weight: &weight})
	}
	q.ok(set("last"))
	if err := set("more"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("one override too many: %v", err)
	}
	q.ok(set("7")) // a key that has one
	q.ok(q.s.SetKeyFlow(t.Context(), q.queue, "7", store.KeyOverride{}))
	q.ok(set("more"))
}
