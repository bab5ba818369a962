package server

import (
	"context"
	"time"

	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// band is a part of the time from now on, in equal buckets.
type band struct {
	name     string
	from, to time.Duration // from now
	buckets  int
}

// nearBands are the bands between overdue and later. Their buckets are 2 s, 1 min, 30 min and 12 h long.
var nearBands = []band{
	{"minute", 0, time.Minute, 30},
	{"hour", time.Minute, time.Hour, 59},
	{"day", time.Hour, 24 * time.Hour, 46},
	{"month", 24 * time.Hour, 31 * 24 * time.Hour, 60},
}

// bounds returns the bounds of the buckets of all bands except later.
func (r *overviewReader) bounds() []time.Time {
	if r.buckets > 0 {
		return store.HistogramBounds(r.from, r.to, r.buckets)
	}
	bounds := []time.Time{time.UnixMilli(1), r.now}
	for _, b := range nearBands {
		bounds = append(bounds, store.HistogramBounds(r.now.Add(b.from), r.now.Add(b.to), b.buckets)[1:]...)
	}
	return bounds
}

// readBands counts the messages of a queue in all bands. It makes no call if they must be empty. A message that changes
// between the reading of the queue's counts and that of its bands can be missing or be counted in later.
func (r *overviewReader) readBands(ctx context.Context, q *readQueue, bounds []time.Time) (err error) {
	d := q.details
	d.later = q.Scheduled + q.Ready
	if d.later == 0 || !q.NextDue.Before(bounds[len(bounds)-1]) {
		return nil
	}
	d.counts, err = r.client.Queue(q.shown.Queue).HistogramAt(ctx, bounds)
	for _, n := range d.counts {
		d.later -= n
	}
	return err
}

// newBands returns empty bands.
func (r *overviewReader) newBands() []OverviewBand {
	if r.buckets > 0 {
		return []OverviewBand{newBand("range", r.from, r.to, r.buckets)}
	}
	bands := []OverviewBand{newBand("overdue", time.Time{}, r.now, 1)}
	end := r.now
	for _, b := range nearBands {
		end = r.now.Add(b.to)
		bands = append(bands, newBand(b.name, r.now.Add(b.from), end, b.buckets))
	}
	return append(bands, newBand("later", end, time.Time{}, 1))
}

func newBand(name string, from, to time.Time, buckets int) OverviewBand {
	return OverviewBand{name, wire.FormatTime(from), wire.FormatTime(to), make([]int64, buckets)}
}

// addBands adds the bands of a queue to the sums.
func (o *Overview) addBands(d *queueDetails) {
	counts := d.counts
	for _, band := range o.Bands {
		if band.Name == "later" {
			band.Counts[0] += max(0, d.later)
			continue
		}
		for j := range min(len(counts), len(band.Counts)) {
			band.Counts[j] += counts[j]
		}
		counts = counts[min(len(counts), len(band.Counts)):]
	}
}
