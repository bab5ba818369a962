package server

import (
	"context"
	"slices"
	"time"

	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// band is a part of the time from now on, in buckets that begin at multiples of a step since 1970, in UTC. So they have
// round clock times, and messages stay in their bucket while it comes closer. The first and the last can be shorter.
type band struct {
	name           string
	from, to, step time.Duration // from and to are counted from now
}

// nearBands are the bands between overdue and later.
var nearBands = []band{
	{"minute", 0, time.Minute, 2 * time.Second},
	{"hour", time.Minute, time.Hour, time.Minute},
	{"day", time.Hour, 24 * time.Hour, 30 * time.Minute},
	{"month", 24 * time.Hour, 31 * 24 * time.Hour, 12 * time.Hour},
}

// appendBounds appends the bounds of the buckets of a band, except the first one.
func (b *band) appendBounds(bounds []time.Time, now time.Time) []time.Time {
	step, end := b.step.Milliseconds(), now.Add(b.to)
	for at := (now.Add(b.from).UnixMilli()/step + 1) * step; at < end.UnixMilli(); at += step {
		bounds = append(bounds, time.UnixMilli(at))
	}
	return append(bounds, end)
}

// newBounds returns the bounds of the buckets of all bands except later.
func (r *overviewReader) newBounds() []time.Time {
	if r.buckets > 0 {
		return store.HistogramBounds(r.from, r.to, r.buckets)
	}
	bounds := []time.Time{time.UnixMilli(1), r.now}
	for _, b := range nearBands {
		bounds = b.appendBounds(bounds, r.now)
	}
	return bounds
}

// readBands counts the messages of a queue in all bands. It makes no call if they must be empty. A message that changes
// between the reading of the queue's counts and that of its bands can be missing or be counted in later.
func (r *overviewReader) readBands(ctx context.Context, q *readQueue) (err error) {
	d := q.details
	d.later, d.bounds = q.Scheduled+q.Ready, r.bounds
	if d.later == 0 || !q.NextDue.Before(r.bounds[len(r.bounds)-1]) {
		return nil
	}
	d.counts, err = r.client.Queue(q.shown.Queue).HistogramAt(ctx, r.bounds)
	for _, n := range d.counts {
		d.later -= n
	}
	return err
}

// newBands returns empty bands.
func (r *overviewReader) newBands() []OverviewBand {
	if r.buckets > 0 {
		return []OverviewBand{newBand("range", r.from, r.to, 0, r.buckets)}
	}
	bands := []OverviewBand{newBand("overdue", time.Time{}, r.now, 0, 1)}
	end := r.now
	for _, b := range nearBands {
		from := end
		end = r.now.Add(b.to)
		bands = append(bands, newBand(b.name, from, end, b.step, len(b.appendBounds(nil, r.now))))
	}
	return append(bands, newBand("later", end, time.Time{}, 0, 1))
}

func newBand(name string, from, to time.Time, step time.Duration, buckets int) OverviewBand {
	return OverviewBand{name, wire.FormatTime(from), wire.FormatTime(to), wire.Duration(step), make([]int64, buckets)}
}

// addBands adds the bands of a queue to the sums.
func (o *Overview) addBands(d *queueDetails, bounds []time.Time) {
	counts := d.countsIn(bounds)
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

// countsIn returns the counts of a queue in buckets with these bounds. Counts of an earlier reading move to the buckets
// in which theirs began.
func (d *queueDetails) countsIn(bounds []time.Time) []int64 {
	if len(d.counts) == 0 || slices.Equal(d.bounds, bounds) {
		return d.counts
	}
	moved := make([]int64, len(bounds)-1)
	for i, n := range d.counts {
		if n > 0 {
			after, _ := slices.BinarySearchFunc(bounds, d.bounds[i].Add(1), time.Time.Compare)
			moved[min(max(after-1, 0), len(moved)-1)] += n
		}
	}
	return moved
}
