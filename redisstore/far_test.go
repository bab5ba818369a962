package redisstore

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// TestBucketsAreAsWideAsMessagesAreDense: they become narrower where most are full, and wider again where most are nearly empty.
func TestBucketsAreAsWideAsMessagesAreDense(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	send := func(n int, within time.Duration) (ids []string) {
		for range n / store.MaxBatch {
			msgs := make([]store.Outgoing, store.MaxBatch)
			for i := range msgs {
				msgs[i] = store.Outgoing{Message: store.Message{ID: store.NewID()}, Due: store.Due{Delay: 2*time.Hour + rand.N(within)}}
				ids = append(ids, msgs[i].ID)
			}
			if _, err := s.Send(t.Context(), "q", msgs); err != nil {
				t.Fatal(err)
			}
		}
		return ids
	}
	class := func() string {
		text, err := rdb.HGet(t.Context(), "later:{q}:meta", "class").Result()
		if err != nil {
			t.Fatal(err)
		}
		class, _, _ := strings.Cut(text, " ")
		return class
	}
	ids := send(20_000, 24*time.Hour)
	buckets, err := rdb.HGetAll(t.Context(), "later:{q}:far").Result()
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for name, text := range buckets {
		lines += strings.Count(text, "\n") - 1
		if len(text) > 512 {
			t.Errorf("bucket %s has %d bytes", name, len(text))
		}
	}
	if lines != len(ids) || lines < 8*len(buckets) || lines > 25*len(buckets) {
		t.Errorf("%d messages are far, and in %d buckets; want %d, and 8 to 25 in each", lines, len(buckets), len(ids))
	}
	if class() == "0" {
		t.Error("20,000 messages of a day found no bucket of the widest full")
	}
	for ; len(ids) > 0; ids = ids[store.MaxBatch:] {
		if _, err := s.Cancel(t.Context(), "q", ids[:store.MaxBatch]); err != nil {
			t.Fatal(err)
		}
		if len(ids) == store.MaxBatch { // while one is far, the class is kept
			send(10_000, 100*365*24*time.Hour-2*time.Hour)
		}
	}
	if class() != "0" {
		t.Errorf("sends of messages that are years apart begin with class %s", class())
	}
}
