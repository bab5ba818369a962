package redisstore

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// Buckets become narrower when most are full, and wider again when most are nearly empty.
func TestBucketWidthFollowsMessageDensity(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	send := func(n int, within time.Duration) (ids []string) {
		for range n / store.MaxBatch {
			msgs := make([]store.Outgoing, store.MaxBatch)
			for i := range msgs {
				msgs[i] = store.Outgoing{Message: store.Message{ID: store.NewID()},
					Due: store.Due{Delay: 2*time.Hour + rand.N(within)}}
				ids = append(ids, msgs[i].ID)
			}
			if _, err := s.Send(t.Context(), "q", msgs); err != nil {
				t.Fatal(err)
			}
		}
		return ids
	}
	ids := send(20_000, 24*time.Hour)
	buckets, err := rdb.HGetAll(t.Context(), "later:{q}:buckets").Result()
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for name, text := range buckets {
		lines += strings.Count(text, "\n") - 1
		if len(text) > 2048 {
			t.Errorf("bucket %s has %d bytes", name, len(text))
		}
	}
	if lines != len(ids) || lines < 8*len(buckets) || lines > 50*len(buckets) {
		t.Errorf("%d messages are packed into %d buckets, want %d with 8 to 50 in each on average", lines, len(buckets),
			len(ids))
	}
	for name := range buckets {
		if name[0] == 'a' {
			delete(buckets, name)
		}
	}
	if len(buckets) == 0 {
		t.Error("20,000 messages within a day fit into buckets of the widest class")
	}
	for ; len(ids) > 0; ids = ids[store.MaxBatch:] {
		if _, err := s.Cancel(t.Context(), "q", store.CancelRequest{IDs: ids[:store.MaxBatch]}); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"buckets", "bucket_starts", "bucket_counts"} {
		if n, err := rdb.Exists(t.Context(), "later:{q}:"+key).Result(); err != nil || n > 0 {
			t.Errorf("%s exists with no packed message, %v", key, err)
		}
	}
	send(10_000, 100*365*24*time.Hour-2*time.Hour)
	if buckets, err = rdb.HGetAll(t.Context(), "later:{q}:buckets").Result(); err != nil {
		t.Fatal(err)
	}
	for name := range buckets {
		if name[0] != 'a' {
			t.Fatalf("of messages years apart, some are in bucket %s, which is not of the widest class", name)
		}
	}
}

// sendDueAt sends messages one by one, with due times in ms since 1970.
func sendDueAt(t *testing.T, s *Store, ids map[string]int64) {
	t.Helper()
	for id, at := range ids {
		send(t, s, "q", id, store.Due{At: time.UnixMilli(at)})
	}
}

// 499 buckets have one message each. The 500th has many that are due later than a message in the next bucket.
func TestOverdueBucketsAreClaimedInOrder(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newFrozenClock(t, rdb)
	begins := (time.Now().UnixMilli()/widestBucket + 10) * widestBucket
	ids := map[string]int64{}
	for i := range int64(store.MaxBatch - 1) {
		ids[fmt.Sprint("one", i)] = begins + i*widestBucket + 5
	}
	last := begins + (store.MaxBatch-1)*widestBucket
	for i := range int64(40) {
		ids[fmt.Sprintf("late-%059d", i)] = last + 900_000 + i
	}
	sendDueAt(t, s, ids)
	sendDueAt(t, s, map[string]int64{"early": last + 300_000})
	advance(rdb)(t, "q", 520*widestBucket*time.Millisecond)
	var before time.Time
	for range 2 {
		c := claim(t, s, "q", store.MaxBatch, time.Minute)
		for _, m := range c.Messages {
			if m.Due.Before(before) {
				t.Errorf("%s, due %v, was claimed after a message due %v", m.ID, m.Due, before)
			}
			before = m.Due
		}
	}
}

// The message is in the same bucket as the one that was the earliest.
func TestPackedMessageThatBecomesEarliestNotifies(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	begins := (time.Now().UnixMilli()/widestBucket + 10) * widestBucket
	sendDueAt(t, s, map[string]int64{"a": begins + 1000_000})
	p := newListener(t, rdb, "q", float64(begins+1000_000))
	sendDueAt(t, s, map[string]int64{"b": begins + 500_000})
	if got, want := p.receive(), fmt.Sprint(begins+500_000, " later:{q}:wake"); got != want {
		t.Errorf("received %q; want the due time of b, %q", got, want)
	}
}

// Messages due at one moment do not make the buckets of other messages narrower.
func TestCrowdAtOneDueTimeKeepsOtherBucketsWide(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	crowd := time.Now().Add(5 * time.Hour)
	send := func(due func() store.Due) {
		msgs := make([]store.Outgoing, store.MaxBatch)
		for i := range msgs {
			msgs[i] = store.Outgoing{Message: store.Message{ID: store.NewID()}, Due: due()}
		}
		if _, err := s.Send(t.Context(), "q", msgs); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		send(func() store.Due { return store.Due{Delay: 2*time.Hour + rand.N(24*time.Hour)} })
		send(func() store.Due { return store.Due{At: crowd} })
	}
	buckets, err := rdb.HLen(t.Context(), "later:{q}:buckets").Result()
	if err != nil || buckets > 10_000/6 {
		t.Errorf("10,000 messages within a day are in %d buckets, %v", buckets, err)
	}
}
