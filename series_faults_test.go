package later

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/series"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// movingStore calls a function before each Reschedule.
type movingStore struct {
	store.Store
	before func()
}

func (s *movingStore) Reschedule(ctx context.Context, queue string, ids []string, due store.Due) ([]error, error) {
	if s.before != nil {
		s.before()
	}
	return s.Store.Reschedule(ctx, queue, ids, due)
}

// TestMoveLeavesMessagesThatChangeMeanwhile lets the first message change between the look and its move.
func TestMoveLeavesMessagesThatChangeMeanwhile(t *testing.T) {
	for what, want := range map[string]SeriesMove{
		"claimed": {Moved: 3, Left: 1}, "buried": {Moved: 3, Left: 1}, "acked": {Moved: 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &movingStore{Store: memstore.New()}
			q := newClientOn(t, s).Queue("q")
			wantSent(t, q, reminders(25*time.Hour), SeriesResult{Sent: 4}, nil)
			s.before = func() {
				s.before = nil
				time.Sleep(time.Hour)
				switch d := mustReceive(t, q, 1)[0]; what {
				case "buried":
					wantNoError(t, d.Bury(t.Context(), nil))
				case "acked":
					wantNoError(t, d.Ack(t.Context()))
				}
			}
			wantMoved(t, q, 100*time.Hour, SkipPast, want)
		})
	}
}

// TestMoveLeavesASnoozedMessage has one that was delivered without a failed attempt.
func TestMoveLeavesASnoozedMessage(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		wantSent(t, q, reminders(25*time.Hour), SeriesResult{Sent: 4}, nil)
		time.Sleep(time.Hour)
		wantNoError(t, mustReceive(t, q, 1)[0].Snooze(t.Context(), 3*time.Hour))
		wantMoved(t, q, 23*time.Hour, SkipPast, SeriesMove{Moved: 3, Left: 1})
	})
}

// TestListSeriesLeavesOutOthersOfItsGroup has a message of another series in the group.
func TestListSeriesLeavesOutOthersOfItsGroup(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		wantSent(t, q, Series{Until: time.Now().Add(time.Hour), Offsets: []time.Duration{0}}, SeriesResult{Sent: 1}, nil)
		all, err := q.ListSeries(t.Context(), "a")
		wantNoError(t, err)
		headers := all[0].Headers
		headers["series"] = "b"
		mustSend(t, q, "x", Headers(headers), Group(series.GroupPrefix+"a"), In(time.Hour))
		wantRemaining(t, q, "0s scheduled 1h0m0s")
	})
}

func TestSeriesCountsMessagesThatAreNotDurable(t *testing.T) {
	q := newClientOn(t, weakStore{memstore.New()}).Queue("q")
	got, _ := q.SendSeries(t.Context(), nil, reminders(25*time.Hour))
	if got.Sent != 4 {
		t.Errorf("%+v", got)
	}
}
