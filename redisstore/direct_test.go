package redisstore

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

// A claim lets ready messages of keys that do not wait start without sorting them. Those that are left are sorted.
func TestMessagesOfKeysThatDoNotWaitStartDirectly(t *testing.T) {
	q := newLimitedQueue(t, "direct", store.Flow{Key: store.KeyFlow{Concurrency: 1}})
	q.sendMany(2, "b", "a", "")
	q.advance(time.Millisecond)
	held := q.claim(10, "000", "a000", "b000", "001")
	if lanes, rests := q.entries("lanes"), q.entries("rests"); lanes != 2 || rests != 2 {
		t.Errorf("%d entries in lanes and %d in rests, want those of a001 and b001", lanes, rests)
	}
	q.turns(nil, nil, nil)
	q.ok(q.settle(held[1], store.Ack))
	q.claim(10, "a001")
	q.set(store.Flow{Fair: true})
	q.send("c", "d")
	q.advance(time.Millisecond)
	if c := claim(q, q.s, q.queue, 10, time.Minute); len(c.Messages) != 3 || c.More || c.Unsorted {
		t.Errorf("a claim that starts all of them returned %+v", c)
	}
	if found := q.issues(false); len(found) > 0 {
		t.Error(found)
	}
}

// Messages that die in the claim that finds them hide no ready message that it has left.
func TestExpiredMessagesHideNoReadyOne(t *testing.T) {
	q := newLimitedQueue(t, "expired and direct", store.Flow{Fair: true})
	var msgs []store.Outgoing
	for i := range 251 {
		m := store.Message{ID: fmt.Sprintf("%03d", i), Key: fmt.Sprint("key", i%7), ExpireAfter: time.Millisecond}
		if i == 250 {
			m.ExpireAfter = 0
		}
		msgs = append(msgs, store.Outgoing{Message: m})
	}
	_, err := q.s.Send(t.Context(), q.queue, msgs)
	q.ok(err)
	q.advance(time.Second)
	claimed := 0
	for range 10 {
		c := claim(q, q.s, q.queue, store.MaxBatch, time.Minute)
		if claimed += len(c.Messages); claimed == 0 && !c.Unsorted {
			t.Fatalf("a claim without messages does not say that ready messages are left: %+v", c)
		}
	}
	if claimed != 1 {
		t.Errorf("%d messages were claimed, want 1", claimed)
	}
}

// A due time before 1970 has the place of 1970.
func TestMessagesDueBefore1970AreSorted(t *testing.T) {
	q := newLimitedQueue(t, "before 1970", store.Flow{Key: store.KeyFlow{Concurrency: 1}})
	var msgs []store.Outgoing
	for _, id := range []string{"a", "b"} {
		due := store.Due{At: time.UnixMilli(-5000)}
		msgs = append(msgs, store.Outgoing{Message: store.Message{ID: id, Key: "k"}, Due: due})
	}
	_, err := q.s.Send(t.Context(), q.queue, msgs)
	q.ok(err)
	for _, id := range []string{"a", "b"} {
		held := q.claim(10, id)
		q.ok(q.settle(held[0], store.Ack))
	}
}

// An entry of no message of the queue is dropped.
func TestADamagedEntryStopsNoClaim(t *testing.T) {
	q := newLimitedQueue(t, "damaged entry", store.Flow{Fair: true})
	q.sendMany(2, "b")
	q.advance(time.Millisecond)
	q.sortReady()
	q.ok(q.rdb.ZAdd(t.Context(), q.key("lanes"), redis.Z{Member: "b\x00x"}).Err())
	q.claim(10, "b000", "b001")
}

// Messages that die use no turn of their key, whether or not they were sorted before.
func TestExpiredMessagesUseNoTurns(t *testing.T) {
	var claims [2][]string
	for i, sorted := range []bool{true, false} {
		q := newLimitedQueue(t, "expired and turns", store.Flow{Fair: true})
		var msgs []store.Outgoing
		add := func(key string, n int, expires time.Duration) {
			for range n {
				id := fmt.Sprintf("%s-%03d", key, len(msgs))
				msgs = append(msgs, store.Outgoing{Message: store.Message{ID: id, Key: key, ExpireAfter: expires}})
			}
		}
		add("A", 60, 0)
		for k := range 9 {
			add(fmt.Sprint("K", k), 10, time.Millisecond)
			add(fmt.Sprint("K", k), 6, 0)
		}
		_, err := q.s.Send(t.Context(), q.queue, msgs)
		q.ok(err)
		q.advance(time.Second)
		if sorted {
			q.sortReady()
		}
		for _, n := range []int{102, 20, 20} {
			for _, m := range claim(q, q.s, q.queue, n, time.Minute).Messages {
				claims[i] = append(claims[i], m.ID)
			}
			q.noIssues()
		}
	}
	if !slices.Equal(claims[0], claims[1]) {
		t.Errorf("claims after sorting\n%q\nand without it\n%q", claims[0], claims[1])
	}
}

// A claim leaves messages that are too long for it, and loses none.
func TestDirectMessagesThatDoNotFitAreLeft(t *testing.T) {
	constants := maps.Clone(luaConstants)
	constants["CLAIM_BYTES"] = "250"
	q := newLimitedQueue(t, "direct and long", store.Flow{Fair: true})
	q.s = newWith(t, loadScripts(frozenClock, constants), q.rdb)
	var msgs []store.Outgoing
	for i := range 12 {
		msgs = append(msgs, store.Outgoing{Message: store.Message{ID: fmt.Sprintf("%02d", i), Key: fmt.Sprint("k", i%5),
			Payload: make([]byte, 100)}})
	}
	_, err := q.s.Send(t.Context(), q.queue, msgs)
	q.ok(err)
	q.advance(time.Millisecond)
	claimed := map[string]bool{}
	for range 12 {
		c := claim(q, q.s, q.queue, 20, time.Minute)
		if len(c.Messages) > 2 {
			t.Errorf("%d messages in a claim", len(c.Messages))
		}
		for _, m := range c.Messages {
			claimed[m.ID] = true
		}
		q.noIssues()
	}
	if len(claimed) != len(msgs) {
		t.Errorf("%d of %d messages were claimed", len(claimed), len(msgs))
	}
}
