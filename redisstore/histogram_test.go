package redisstore

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// Histograms of crowded and sparse times equal a count of the messages, after sends, cancels, reschedules, promotes
// and purges, and a check agrees with the counts that they are made of.
func TestHistogramEqualsNumberOfMessagesInEachPart(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newFrozenClock(t, rdb)
	move := advance(rdb)
	move(t, "q", 0)
	begin := time.Now()
	dues := map[string]time.Time{}
	crowd := begin.Add(30 * time.Hour).Truncate(time.Hour)
	widths := []time.Duration{0, 300 * time.Millisecond, 20 * time.Second, time.Hour, 30 * 24 * time.Hour,
		40 * 365 * 24 * time.Hour}
	check := func(step string) {
		t.Helper()
		for range 8 {
			from := begin.Add(rand.N(50 * time.Hour))
			if rand.IntN(2) == 0 {
				from = crowd.Add(-rand.N(time.Second))
			}
			to := from.Add(500*time.Millisecond + rand.N(2*widths[1+rand.IntN(len(widths)-1)]))
			parts := 1 + rand.IntN(store.MaxBuckets)
			bounds := store.BoundMillis(store.HistogramBounds(from, to, parts))
			want := make([]int64, parts)
			for _, due := range dues {
				if i, found := slices.BinarySearch(bounds, due.UnixMilli()); found && i < parts {
					want[i]++
				} else if !found && i > 0 && i <= parts {
					want[i-1]++
				}
			}
			got, err := s.Histogram(t.Context(), "q", store.HistogramBounds(from, to, parts))
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("%s: histogram from %v to %v = %v, %v; want %v", step, from, to, got, err, want)
			}
		}
		if issues := findIssues(t, s, false); len(issues) > 0 {
			t.Fatalf("%s: %+v", step, issues)
		}
	}
	rounds := 10
	if os.Getenv("LATER_LONG") != "" {
		rounds = 100
	}
	for range rounds {
		msgs := make([]store.Outgoing, store.MaxBatch)
		width := widths[rand.IntN(len(widths))]
		for i := range msgs {
			due := crowd
			if width > 0 {
				due = due.Add(rand.N(width))
			}
			due = time.UnixMilli(due.UnixMilli())
			msgs[i] = store.Outgoing{Message: store.Message{ID: store.NewID()}, Due: store.Due{At: due}}
			dues[msgs[i].ID] = due
		}
		if _, err := s.Send(t.Context(), "q", msgs); err != nil {
			t.Fatal(err)
		}
	}
	check("sent")
	var cancelled, moved []string
	for id := range dues { // in random order
		if len(cancelled) < 5*store.MaxBatch {
			cancelled = append(cancelled, id)
		} else if len(moved) < store.MaxBatch {
			moved = append(moved, id)
		}
	}
	for part := range slices.Chunk(cancelled, store.MaxBatch) {
		if _, err := s.Cancel(t.Context(), "q", store.CancelRequest{IDs: part}); err != nil {
			t.Fatal(err)
		}
		for _, id := range part {
			delete(dues, id)
		}
	}
	due := time.UnixMilli(crowd.UnixMilli() + 77)
	if _, err := s.Reschedule(t.Context(), "q", moved, store.Due{At: due}); err != nil {
		t.Fatal(err)
	}
	for _, id := range moved {
		dues[id] = due
	}
	check("cancelled and rescheduled")
	move(t, "q", crowd.Sub(begin)+10*time.Second)
	for range 5 {
		for _, m := range claim(t, s, "q", store.MaxBatch, time.Hour).Messages {
			delete(dues, m.ID)
		}
		check("claimed")
	}
	b := store.Bulk{More: true}
	for b.More {
		var err error
		b, err = s.Purge(t.Context(), "q", store.Selection{State: store.StateScheduled, Before: crowd.Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
	}
	server, err := rdb.Get(t.Context(), "later:{q}:clock").Int64()
	if err != nil {
		t.Fatal(err)
	}
	for id, due := range dues {
		if due.UnixMilli() > server/1000 && !due.After(crowd.Add(time.Hour)) {
			delete(dues, id)
		}
	}
	check("purged")
}

// A check finds and repairs a wrong count at every level, and a block that is missing.
func TestWrongCountsOfPackedMessagesAreFoundAtEveryLevel(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	begin := time.Now().Add(30 * time.Hour)
	for range 20 {
		msgs := make([]store.Outgoing, store.MaxBatch)
		for i := range msgs {
			msgs[i] = store.Outgoing{Message: store.Message{ID: store.NewID()},
				Due: store.Due{At: begin.Add(rand.N(time.Second))}}
		}
		if _, err := s.Send(t.Context(), "q", msgs); err != nil {
			t.Fatal(err)
		}
	}
	const key = "later:{q}:bucket_counts"
	blocks, err := rdb.HGetAll(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	levels := map[byte]bool{}
	for name, text := range blocks {
		if levels[name[0]] {
			continue
		}
		levels[name[0]] = true
		wrong := []byte(text)
		wrong[len(wrong)-1]++
		for _, change := range []func() error{
			func() error { return rdb.HSet(t.Context(), key, name, wrong).Err() },
			func() error { return rdb.HSet(t.Context(), key, name, text[:1]).Err() },
			func() error { return rdb.HDel(t.Context(), key, name).Err() },
		} {
			if err := change(); err != nil {
				t.Fatal(err)
			}
			if issues := findIssues(t, s, true); len(issues) == 0 {
				t.Errorf("no issue was found when block %s was wrong", name)
			}
			if issues := findIssues(t, s, false); len(issues) > 0 {
				t.Errorf("after the repair of block %s: %+v", name, issues)
			}
		}
	}
	if len(levels) != 6 {
		t.Errorf("there are blocks of %d levels, want 6", len(levels))
	}
	counts, err := s.Histogram(t.Context(), "q", store.HistogramBounds(begin, begin.Add(time.Second+time.Millisecond),
		1))
	if err != nil || counts[0] != 20*store.MaxBatch {
		t.Errorf("the histogram counts %v, %v; want %d", counts, err, 20*store.MaxBatch)
	}
}
