package diskstore

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// histogramOf returns a histogram, and checks it against one that reads every entry.
func histogramOf(t *testing.T, s *Store, from, to time.Time, buckets int) []int64 {
	t.Helper()
	got, err := s.Histogram(t.Context(), "q", store.HistogramBounds(from, to, buckets))
	if err != nil {
		t.Fatal(err)
	}
	want, err := read(t.Context(), s, "q", nil, func(v *view) ([]int64, error) {
		counts, bucket, bounds := make([]int64, buckets), 0, store.BoundMillis(store.HistogramBounds(from, to, buckets))
		var err error
		for e := range v.each(&err, v.due, entry{at: bounds[0]}, bounds[buckets]-1) {
			for e.at >= bounds[bucket+1] {
				bucket++
			}
			counts[bucket]++
		}
		return counts, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d buckets: got %v, want %v", buckets, got, want)
	}
	return got
}

// spreadOut sends messages over a year, then many over ten minutes within it.
func spreadOut(t *testing.T, s *Store) (from time.Time) {
	t.Helper()
	from = s.clock.Now()
	random := rand.New(rand.NewPCG(1, 1))
	for part, within := range []time.Duration{365 * 24 * time.Hour, 10 * time.Minute} {
		for range 12 {
			msgs := make([]store.Outgoing, store.MaxBatch)
			for i := range msgs {
				msgs[i].ID = fmt.Sprintf("%d-%d", part, random.Uint64())
				msgs[i].Due.At = from.Add(time.Hour + time.Duration(random.Int64N(int64(within))))
			}
			if _, err := s.Send(t.Context(), "q", msgs); err != nil {
				t.Fatal(err)
			}
		}
	}
	return from
}

// fewSteps is for the long slots of the 24,000 messages of spreadOut, which are half of a year's, and for the short
// slots and entries that two bounds divide.
const fewSteps = 6000

func TestHistogramReadsFewEntriesOfManyMessages(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	defer func() { s.Close() }()
	from := spreadOut(t, s)
	look := func(what string) {
		t.Helper()
		wantSound(t, s)
		steps(t, s, fewSteps, what, func() {
			if _, err := s.Histogram(t.Context(), "q", store.HistogramBounds(from, from.Add(365*24*time.Hour), 2)); err != nil {
				t.Error(err)
			}
		})
		for _, buckets := range []int{1, 7, store.MaxBuckets} {
			histogramOf(t, s, from, from.Add(400*24*time.Hour), buckets)
			histogramOf(t, s, from.Add(time.Hour), from.Add(70*time.Minute), buckets)
			histogramOf(t, s, from.Add(time.Hour+time.Second), from.Add(time.Hour+time.Second+501*time.Millisecond), buckets)
		}
	}
	look("sent")
	clock.Advance(time.Hour + 5*time.Minute)
	steps(t, s, fewSteps, "stats", func() { statsOf(t, t.Context(), s) })
	settled(t, s, claimed(t, s, 500, time.Hour), store.Settlement{Action: store.Ack})
	if _, err := s.Purge(t.Context(), "q", store.Selection{State: store.StateScheduled}); err != nil {
		t.Fatal(err)
	}
	look("after a drain")
	s.Close()
	s = openOn(t, fs, clock)
	look("opened again")
}

func TestCountsAreThereAfterACrash(t *testing.T) {
	fs, clock := vfs.NewCrashableMem(), newManualClock()
	s := openOn(t, fs, clock)
	from := spreadOut(t, s)
	clock.Advance(time.Hour + 5*time.Minute)
	settled(t, s, claimed(t, s, 500, time.Hour), store.Settlement{Action: store.Ack})
	for range 2 {
		left := synced(fs)
		s.Close()
		s, fs = openOn(t, left, clock), left
		histogramOf(t, s, from, from.Add(400*24*time.Hour), 100)
		wantSound(t, s)
	}
	s.Close()
}

func TestCountsOfThePastAreRemoved(t *testing.T) {
	clock := newManualClock()
	s := openOn(t, vfs.NewMem(), clock)
	defer s.Close()
	counts := func() (n int) {
		t.Helper()
		_, err := read(t.Context(), s, "q", nil, func(v *view) (struct{}, error) {
			it, err := v.iterate(appendKey(nil, v.number, kindCount), appendKey(nil, v.number, kindCount+1))
			if err != nil {
				return struct{}{}, err
			}
			for valid := it.First(); valid; valid = it.Next() {
				n++
			}
			return struct{}{}, v.end(it, nil)
		})
		try(t, err)
		return n
	}
	spreadOut(t, s)
	before := counts()
	for more := true; more; {
		b, err := s.Purge(t.Context(), "q", store.Selection{})
		try(t, err)
		more = b.More
	}
	clock.Advance(366 * 24 * time.Hour)
	send(t, s, "m")
	if n := counts(); before < 1000 || n != len(slotBits) {
		t.Errorf("there were %d counts, and for one message %d are left, want one of each level", before, n)
	}
	wantSound(t, s)
}

func TestCheckFindsWrongCounts(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	from := spreadOut(t, s)
	r := raw{t, s, s.queues["q"].number}
	key := appendSlotKey(nil, r.number, 1, from.Add(time.Hour+time.Minute).UnixMilli())
	r.set(key, binary.AppendVarint(nil, 1))
	wantIssues(t, issuesOf(checked(t, s)), "counts")
	s.Close()
	s = recoveredStore(t, fs, clock)
	defer s.Close()
	wantSound(t, s)
	histogramOf(t, s, from, from.Add(400*24*time.Hour), 100)
}
