package redisstore

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// singles is a queue of messages that are sent one by one, most of them due far ahead.
type singles struct {
	*testing.T
	s    *Store
	left map[string]bool // ids of pending messages
}

func (q *singles) ok(err error) {
	q.Helper()
	if err != nil {
		q.Fatal(err)
	}
}

func (q *singles) send(n, size int) {
	for range n {
		m := store.Message{ID: store.NewID(), Payload: make([]byte, size)}
		_, err := q.s.Send(q.Context(), "q", []store.Outgoing{{Message: m, Due: store.Due{Delay: time.Hour +
			rand.N(20*time.Hour)}}})
		q.ok(err)
		q.left[m.ID] = true
	}
}

func (q *singles) some(n int) (ids []string) {
	for id := range q.left {
		if len(ids) == n {
			break
		}
		ids = append(ids, id)
	}
	return ids
}

// claim handles the messages that are due. It returns the due time of the last one, before which there was none.
func (q *singles) claim(after time.Time) time.Time {
	for {
		c := claim(q.T, q.s, "q", store.MaxBatch, time.Hour)
		var acks []store.Settlement
		for _, m := range c.Messages {
			if m.Due.Before(after) || m.Due.After(c.Now) || !q.left[m.ID] {
				q.Fatalf("message %s, due at %v, was claimed at %v after one due at %v; pending: %v", m.ID, m.Due, c.Now,
					after, q.left[m.ID])
			}
			after = m.Due
			delete(q.left, m.ID)
			acks = append(acks, store.Settlement{Receipt: m.Receipt, Action: store.Ack})
		}
		results, err := q.s.Settle(q.Context(), "q", acks)
		q.ok(err)
		for _, r := range results {
			q.ok(r.Err)
		}
		if !c.More {
			return after
		}
	}
}

// Messages that were sent one by one are packed in calls of their own, whatever happens before and afterwards, except
// long ones. They are delivered in order, on time and once.
func TestMessagesSentOneByOneArePackedLater(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	q := &singles{t, newWith(t, loadScripts(frozenClock, luaConstants), rdb), map[string]bool{}}
	move := func(d time.Duration) { advance(rdb)(t, "q", d) }
	move(0)
	const long = 20
	q.send(long, 20_000)
	var last time.Time
	for range 10 { // 10 min each, with messages that leave their buckets
		for range 3 {
			q.send(100, 100)
			q.s.pack(t.Context(), "q")
		}
		ids := q.some(20)
		results, err := q.s.Cancel(t.Context(), "q", store.CancelRequest{IDs: ids})
		q.ok(err)
		for i, id := range ids {
			if results[i].State != store.StateScheduled {
				t.Errorf("the cancelled message %s was %s", id, results[i].State)
			}
			delete(q.left, id)
		}
		for _, delay := range []time.Duration{time.Minute, 12 * time.Hour} {
			errs, err := q.s.Reschedule(t.Context(), "q", q.some(20), store.Due{Delay: delay})
			q.ok(err)
			for _, err := range errs {
				q.ok(err)
			}
		}
		move(10 * time.Minute)
		last = q.claim(last)
	}
	for range 20 {
		q.s.pack(t.Context(), "q")
	}
	near := rdb.ZCount(t.Context(), "later:{q}:due", "-inf", "+inf").Val()
	packed, err := rdb.HGet(t.Context(), "later:{q}:meta", "packed_messages").Int64()
	q.ok(err)
	if near+packed != int64(len(q.left)) || near > 300 {
		t.Errorf("%d of %d messages are not packed, and %d are", near, len(q.left), packed)
	}
	check := func() {
		q.ok(q.s.Check(t.Context(), store.CheckOptions{}, func(r store.CheckResult) {
			if r.Severity == store.SeverityWarning || r.Severity == store.SeverityError { // a busy machine has slow calls
				t.Errorf("a check found %+v", r)
			}
		}))
	}
	check()
	for range 24 * 6 {
		move(10 * time.Minute)
		last = q.claim(last)
	}
	if len(q.left) > 0 {
		t.Errorf("%d messages never came", len(q.left))
	}
	check()
}

// Processes that send one by one pack about as many messages as they send.
func TestSendsOneByOneCallForPacking(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	constants := maps.Clone(luaConstants)
	constants["PACK_ONE_IN"], constants["MAX_PACKED"] = "8", "10"
	q := &singles{t, newWith(t, loadScripts("", constants), rdb), map[string]bool{}}
	q.send(4000, 100)
	if n := rdb.ZCard(t.Context(), "later:{q}:due").Val(); n > 2000 {
		t.Errorf("%d of 4000 messages are not packed", n)
	}
}
