package e2e

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/laterq/later"
	_ "github.com/laterq/later/diskstore"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// TestSeriesIsMovedAndCancelledInEveryStore moves a series to a moment that makes one message due, which is delivered
// once, and cancels the rest.
func TestSeriesIsMovedAndCancelledInEveryStore(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"memory":   "mem://" + store.NewID(),
		"embedded": "file://" + filepath.ToSlash(t.TempDir()) + "/store",
		"redis":    redistest.Shared(t).URL(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := bounded(t)
			q := open(t, url).Queue(newQueueName(t))
			now := time.Now().Truncate(time.Millisecond)
			s := later.Series{
				Until:   now.Add(72 * time.Hour),
				Offsets: []time.Duration{-24 * time.Hour, -time.Hour, -10 * time.Minute},
			}
			if r, err := q.SendSeries(ctx, []byte("x"), s, later.WithID("a")); r.Sent != 3 || err != nil {
				t.Fatalf("SendSeries returned %+v, %v", r, err)
			}
			r, err := q.SendSeries(ctx, []byte("x"), s, later.WithID("a"))
			if r.Duplicates != 3 || !errors.Is(err, later.ErrDuplicate) {
				t.Errorf("SendSeries again returned %+v, %v", r, err)
			}

			until := now.Add(12 * time.Hour)
			moved, err := q.MoveSeries(ctx, "a", until, later.SendPast)
			if want := (later.SeriesMove{Moved: 3}); moved != want || err != nil {
				t.Fatalf("MoveSeries returned %+v, %v", moved, err)
			}
			d := receive(t, q, 3)
			want := later.SeriesPart{ID: "a", Until: until.UTC(), Offset: -24 * time.Hour, Index: 1, Count: 3}
			if part, _ := later.SeriesOf(d[0].Message); len(d) != 1 || part != want {
				t.Errorf("received %d, the first of which is %+v; want only %+v", len(d), part, want)
			}
			if err := d[0].Ack(ctx); err != nil {
				t.Fatal(err)
			}
			all, err := q.ListSeries(ctx, "a")
			if err != nil || len(all) != 2 || !all[0].Due.Equal(until.Add(-time.Hour)) ||
				!all[1].Due.Equal(until.Add(-10*time.Minute)) {
				t.Errorf("remaining: %+v, %v", all, err)
			}
			cancelled, err := q.CancelSeries(ctx, "a", later.KeepID())
			if cancelled.Total() != 2 || err != nil {
				t.Errorf("CancelSeries returned %+v, %v", cancelled, err)
			}
			s.Past = later.SendPast
			r, err = q.SendSeries(ctx, []byte("x"), s, later.WithID("a"))
			if r.Duplicates != 3 || !errors.Is(err, later.ErrDuplicate) {
				t.Errorf("SendSeries after the cancel returned %+v, %v", r, err)
			}
		})
	}
}
