package diskstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

func TestCellsCountAsAListDoes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	c := cells{known: true}
	times := map[int64]int64{}
	total := int64(0)
	sorted := func() []int64 {
		var all []int64
		for at, n := range times {
			for range n {
				all = append(all, at)
			}
		}
		slices.Sort(all)
		return all
	}
	for round := range 40 {
		width := int64(1) << random.IntN(30)
		for range 500 {
			at := 1_000_000 + random.Int64N(width)
			if removed := random.IntN(3) == 0; !removed {
				times[at]++
				total++
				c.note(at, false)
			} else if times[at] > 0 {
				times[at]--
				total--
				c.note(at, true)
			}
		}
		c.fold(total)
		if !c.known || len(c.all) > cellLimit(total) {
			t.Fatalf("round %d: known %v, %d cells of %d messages", round, c.known, len(c.all), total)
		}
		all := sorted()
		check := cellCheck{all: c.all}
		for _, at := range all {
			check.add(at)
		}
		if !check.end() {
			t.Fatalf("round %d: the cells do not count what they should", round)
		}
		parsed, err := parseCells(appendCells(nil, c.all), total)
		if err != nil || !slices.Equal(parsed, c.all) {
			t.Fatalf("round %d: stored and parsed: %v", round, err)
		}
		b := cellBuilder{most: mergedCount(total)}
		for _, at := range all {
			b.add(at)
		}
		if built := b.end(); len(built) > cellLimit(total) || b.n != total {
			t.Errorf("round %d: built %d cells of %d messages", round, len(built), b.n)
		}
	}
	for at, n := range times { // all leave
		for range n {
			c.note(at, true)
		}
	}
	if c.fold(0); !c.known || len(c.all) > 0 {
		t.Errorf("%d cells are left of no message", len(c.all))
	}
	c.note(5, true)
	if c.fold(0); c.known {
		t.Error("a count below zero is believed")
	}
}

func TestCellsThatCannotBeReadAreRefused(t *testing.T) {
	good := appendCells(nil, []cell{{5, 3, 10}, {9, 0, 1}})
	if _, err := parseCells(good, 11); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"cut":     good[:len(good)-1],
		"touch":   appendCells(nil, []cell{{5, 3, 10}, {8, 0, 1}}),
		"empty":   appendCells(nil, []cell{{5, 3, 11}, {9, 0, 0}}),
		"other n": appendCells(nil, []cell{{5, 3, 10}}),
		"late":    appendCells(nil, []cell{{lastTime, 3, 11}}),
	} {
		if _, err := parseCells(b, 11); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// histogramOf returns a histogram, and checks it against one that reads every entry.
func histogramOf(t *testing.T, s *Store, from, to time.Time, buckets int) []int64 {
	t.Helper()
	got, err := s.Histogram(t.Context(), "q", store.HistogramBounds(from, to, buckets))
	if err != nil {
		t.Fatal(err)
	}
	want, err := read(t.Context(), s, "q", nil, func(v *view) ([]int64, error) {
		counts, bucket, bounds := make([]int64, buckets), 0, store.BoundMillis(store.HistogramBounds(from, to, buckets))
		err := v.each(v.due, entry{at: bounds[0]}, bounds[buckets]-1, func(e entry, _ []byte) (bool, error) {
			for e.at >= bounds[bucket+1] {
				bucket++
			}
			counts[bucket]++
			return true, nil
		})
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

// spreadOut sends messages over a year, then many over ten minutes within it, so that cells are merged and split.
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

// wantKnown checks that the cells are known and neither too many nor too crowded.
func wantKnown(t *testing.T, s *Store) {
	t.Helper()
	execute(t, s, func(*tx) {
		q := s.queues["q"]
		q.cells.fold(q.due.n)
		crowded := slices.ContainsFunc(q.cells.all, func(x cell) bool { return x.isCrowded(2 * crowd) })
		if !q.cells.known || len(q.cells.all) > 2*cellLimit(q.due.n) || crowded {
			t.Errorf("known %v, %d cells, crowded %v", q.cells.known, len(q.cells.all), crowded)
		}
	})
}

func TestHistogramReadsFewEntriesOfManyMessages(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	defer func() { s.Close() }()
	from := spreadOut(t, s)
	look := func(what string) {
		t.Helper()
		wantKnown(t, s)
		wantSound(t, s)
		steps(t, s, 4*crowd, what, func() {
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
	steps(t, s, 4*crowd, "stats", func() { statsOf(t, t.Context(), s) })
	settled(t, s, claimed(t, s, 500, time.Hour), store.Settlement{Action: store.Ack})
	if _, err := s.Purge(t.Context(), "q", store.Selection{State: store.StateScheduled}); err != nil {
		t.Fatal(err)
	}
	look("after a drain")
	s.Close()
	s = openOn(t, fs, clock)
	look("opened again")
}

func TestHistogramAfterACrashHasTheQueueCounted(t *testing.T) {
	fs, clock := vfs.NewCrashableMem(), newManualClock()
	s := openOn(t, fs, clock)
	from := spreadOut(t, s)
	s.Close()
	s = openOn(t, fs, clock) // with stored cells, which its first change removes
	if _, err := s.Send(t.Context(), "q", outgoing(1, store.Due{Delay: 2 * time.Hour})); err != nil {
		t.Fatal(err)
	}
	left := same(fs)
	s.Close()
	s = openOn(t, left, clock)
	defer s.Close()
	execute(t, s, func(*tx) {
		if s.queues["q"].cells.known {
			t.Error("the cells of before the last change are believed")
		}
	})
	histogramOf(t, s, from, from.Add(400*24*time.Hour), 100)
	wantKnown(t, s)
	histogramOf(t, s, from, from.Add(400*24*time.Hour), 100)
	wantSound(t, s)
}

func TestCellsHaveWhatChangesWhileTheyAreCounted(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	spreadOut(t, s)
	uncounted(t, s)
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for range 20 { // more would make a cell crowded before it is split
			select {
			case <-stop:
				return
			default:
			}
			if _, err := s.Send(t.Context(), "q", outgoing(20, store.Due{Delay: time.Hour})); err != nil {
				t.Error(err)
				return
			}
			if _, err := s.Send(t.Context(), "q", outgoing(5, store.Due{})); err != nil {
				t.Error(err)
				return
			}
			settled(t, s, claimed(t, s, 5, time.Hour), store.Settlement{Action: store.Ack})
		}
	})
	if _, err := s.Histogram(t.Context(), "q", store.HistogramBounds(time.Unix(0, 0), time.Unix(1, 0), 1)); err != nil {
		t.Error(err)
	}
	close(stop)
	group.Wait()
	wantKnown(t, s)
	wantSound(t, s)
}

func TestCheckFindsWrongCountsThatWereStored(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	from := spreadOut(t, s)
	s.Close()
	s = openOn(t, fs, clock)
	defer func() { s.Close() }()
	var wrong []byte
	execute(t, s, func(*tx) {
		all := slices.Clone(s.queues["q"].cells.all)
		all[3].n, all[4].n = all[3].n+1, all[4].n-1
		wrong = appendCells(nil, slices.DeleteFunc(all, func(x cell) bool { return x.n == 0 }))
	})
	raw{t, s, s.queues["q"].number}.set(appendKey(nil, s.queues["q"].number, kindCells), wrong)
	s.Close()
	s = openOn(t, fs, clock)
	wantIssues(t, issuesOf(checked(t, s)), "counts")
	s.Close()
	s = recoveredStore(t, fs, clock)
	wantSound(t, s)
	histogramOf(t, s, from, from.Add(400*24*time.Hour), 100)
}
