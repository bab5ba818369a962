package server

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// slowStore takes a time for the counts of a queue, and twice as long for a histogram.
type slowStore struct {
	store.Store
	takes time.Duration
}

func (s slowStore) Stats(ctx context.Context, queue string) (store.Stats, error) {
	time.Sleep(s.takes)
	return s.Store.Stats(ctx, queue)
}

func (s slowStore) Histogram(ctx context.Context, queue string, bounds []time.Time) ([]int64, error) {
	time.Sleep(2 * s.takes)
	return s.Store.Histogram(ctx, queue, bounds)
}

// A long first reading shows the queues that it has read so far, and a short one does not.
func TestAFirstOverviewComesInParts(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration // the counts of a queue: a reading takes 75 times that
		parts int
	}{"short": {500 * time.Microsecond, 0}, "long": {5 * time.Millisecond, 1}, "very long": {50 * time.Millisecond, 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const queues = 200
				s := &slowStore{Store: memstore.New()}
				a := newBubbleAPI(t, s)
				for i := range queues {
					a.sendDue(fmt.Sprintf("q%03d", i), time.Now().Add(time.Hour))
				}
				time.Sleep(10 * time.Minute) // the sends are history
				s.takes = c.takes
				parts, whole := &overviewStream{}, &overviewStream{}
				defer a.watchOverview(parts, "?changes=true")()
				defer a.watchOverview(whole, "")()
				time.Sleep(firstPart + 6*c.takes)
				synctest.Wait()
				events := parts.take()
				if len(events) != 1 {
					t.Errorf("%d events after %v", len(events), firstPart+6*c.takes)
				}
				time.Sleep(80*c.takes + firstProblems)
				synctest.Wait()
				if events = append(events, parts.take()...); c.parts == 0 {
					events = events[:1]
				}
				if len(events) < c.parts+1 {
					t.Fatalf("%d events, want %d", len(events), c.parts+1)
				}
				var seen seenOverview
				for i, event := range events[:c.parts+1] {
					seen.take(t, event)
					if strings.Contains(event, `"queues_read"`) != (i < c.parts) {
						t.Errorf("event %d of %d: %s", i, len(events), event)
					}
				}
				var bands []OverviewBand
				if err := json.Unmarshal(seen["bands"], &bands); err != nil {
					t.Fatal(err)
				}
				got := (&Overview{Bands: bands}).describe()
				if n := len(seen.queues(t)); n != queues || !strings.HasSuffix(got, fmt.Sprintf(" 49: %d", queues)) {
					t.Errorf("%d queues, %s", n, got)
				}
				for _, event := range whole.take() {
					if strings.Contains(event, `"queues_read"`) {
						t.Errorf("a stream of whole overviews has a part: %s", event)
					}
				}
			})
		})
	}
}
