package server

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// histogramsOf counts the histograms of each queue.
type histogramsOf struct {
	store.Store
	mu    sync.Mutex
	calls map[string]int
}

func (s *histogramsOf) Histogram(ctx context.Context, queue string, bounds []time.Time) ([]int64, error) {
	s.mu.Lock()
	s.calls[queue]++
	s.mu.Unlock()
	return s.Store.Histogram(ctx, queue, bounds)
}

// take returns the queues since the last call, and how many histograms there were.
func (s *histogramsOf) take() (calls map[string]int, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls, s.calls = s.calls, map[string]int{}
	for _, of := range calls {
		n += of
	}
	return calls, n
}

func TestReadingsOfManyQueuesTakeTurnsWithDetails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &histogramsOf{Store: memstore.New(), calls: map[string]int{}}
		a := newBubbleAPI(t, s)
		const queues = 3*maxDetailed - 10
		name := func(i int) string { return fmt.Sprintf("q%03d", i) }
		now := time.Now()
		for i := range queues {
			a.sendDue(name(i), now.Add(time.Hour))
		}
		var kept keptDetails
		read := func() *Overview {
			o, err := a.server.readOverview(t.Context(), &overviewRequest{}, &kept, nil)
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
		if got, want := read().describe(), fmt.Sprintf("day/46 0: %d", queues); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if _, n := s.take(); n != queues {
			t.Errorf("the first reading counts the bands of %d queues, want all %d", n, queues)
		}
		a.sendDue("new", now.Add(25*time.Hour))
		a.sendDue(name(queues-1), now.Add(25*time.Hour))
		o := read()
		if got, want := o.describe(), fmt.Sprintf("day/46 0: %d, month/60 0: 2", queues); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		calls, n := s.take()
		if calls["new"] != 1 || calls[name(queues-1)] != 1 || n != maxDetailed+1 {
			t.Errorf("the second one counts those of %d queues: %v", n, calls)
		}
		for range 2 {
			read()
		}
		more, n := s.take()
		for i := range queues {
			if calls[name(i)]+more[name(i)] == 0 {
				t.Errorf("%s is not counted again", name(i))
			}
		}
		if n != 2*maxDetailed {
			t.Errorf("two more count those of %d queues", n)
		}
		if o := a.overviewOf(t.Context(), ""); len(o.Queues) != queues+1 {
			t.Errorf("%d queues", len(o.Queues))
		}
		if _, n = s.take(); n != queues+1 {
			t.Errorf("an overview that nobody watches counts the bands of %d queues", n)
		}
	})
}

// A queue that changes all the time delays the details of other queues, but not for ever.
func TestDetailsOfQuietQueuesAreReadBesidesBusyOnes(t *testing.T) {
	var kept keptDetails
	read := map[string]int{}
	const queues, readings = 2 * maxDetailed, 10 * changedFirst
	for reading := range readings {
		all := make([]*readQueue, queues)
		for i := range all {
			all[i] = &readQueue{shown: OverviewQueue{QueueStats: wire.QueueStats{Queue: fmt.Sprint(i)}}}
			if i < queues*3/4 {
				all[i].Scheduled = int64(reading)
			}
		}
		for _, q := range kept.choose(all) {
			q.details = &queueDetails{stats: q.Stats, reading: kept.reading}
			read[q.shown.Queue]++
		}
		kept.keep(all)
	}
	if busy, quiet := read["0"], read[fmt.Sprint(queues-1)]; busy < readings/2 || quiet < readings/(2*changedFirst) {
		t.Errorf("in %d readings a busy queue is read %d times, and a quiet one %d times", readings, busy, quiet)
	}
}

// The parts of the bands begin at round times, however late in them it is.
func TestBandsHaveRoundParts(t *testing.T) {
	now := time.Date(2030, 1, 15, 12, 34, 56, 789e6, time.UTC)
	r := &overviewReader{overviewRequest: &overviewRequest{}, now: now}
	bounds := r.newBounds()
	at := 1 // overdue ends at now
	for i, b := range r.newBands()[1:5] {
		step := nearBands[i].step
		if n := int((nearBands[i].to-nearBands[i].from)/step) + 1; len(b.Counts) != n || time.Duration(b.Step) != step {
			t.Errorf("%s has %d parts of %v, want %d of %v", b.Name, len(b.Counts), time.Duration(b.Step), n, step)
		}
		if from := wire.FormatTime(bounds[at]); from != b.From {
			t.Errorf("%s begins at %s, want %s", b.Name, from, b.From)
		}
		for _, bound := range bounds[at+1 : at+len(b.Counts)] {
			if bound.UnixMilli()%step.Milliseconds() != 0 {
				t.Errorf("a part of %s begins at %v", b.Name, bound)
			}
		}
		at += len(b.Counts)
		if to := wire.FormatTime(bounds[at]); to != b.To {
			t.Errorf("%s ends at %s, want %s", b.Name, to, b.To)
		}
	}
	if at != len(bounds)-1 {
		t.Errorf("%d bounds, want %d", len(bounds), at+1)
	}
}

// Counts of an earlier reading come closer with the time that has passed.
func TestCountsOfAnEarlierReadingMoveToTheirTimes(t *testing.T) {
	at := func(seconds ...int) (bounds []time.Time) {
		for _, s := range seconds {
			bounds = append(bounds, time.Unix(int64(s), 0))
		}
		return bounds
	}
	d := &queueDetails{counts: []int64{1, 2, 4, 8, 16}, bounds: at(0, 100, 102, 104, 106, 108)}
	for _, c := range []struct {
		bounds []time.Time
		want   []int64
	}{
		{at(0, 100, 102, 104, 106, 108), []int64{1, 2, 4, 8, 16}},
		{at(0, 101, 102, 104, 106, 108, 109), []int64{3, 0, 4, 8, 16, 0}},
		{at(0, 103, 104, 106, 108, 110), []int64{7, 0, 8, 16, 0}},
		{at(0, 105, 107, 109), []int64{15, 16, 0}},
	} {
		if got := d.countsIn(c.bounds); !slices.Equal(got, c.want) {
			t.Errorf("%v: got %v, want %v", c.bounds, got, c.want)
		}
	}
}
