package later

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/laterq/later/store"
)

// SeriesPart says which message of which series a message is.
type SeriesPart struct {
	ID string // of the series
	// Until is the moment, also after MoveSeries: the due time of the message minus Offset, until it is changed in
	// another way. Once an attempt has failed, the due time is that of the retry, and Until is the moment that the
	// series was sent with. RunNow, Reschedule and snoozes change the due time too, and with it Until. So for a moment
	// that must be right, let the payload say where the handler can look it up.
	Until  time.Time
	Offset time.Duration // from Until, below zero for before
	// Index is 1 for the message with the earliest offset, and Count the number of offsets, skipped ones included.
	Index, Count int
}

// SeriesOf returns which message of a series a delivered message is, or false if it belongs to none. The message
// has the headers series (the id), series-until (the moment that the series was sent with), series-offset, such as
// -24h0m0s, series-index and series-count, which other programs can read.
func SeriesOf(m *Message) (SeriesPart, bool) {
	return seriesPart(m.Headers, m.Due, m.Attempt-1)
}

// seriesPart returns the part that the headers describe, for a message with that due time and number of failed
// attempts.
func seriesPart(headers map[string]string, due time.Time, failed int) (SeriesPart, bool) {
	p := SeriesPart{ID: headers[seriesHeader]}
	if p.ID == "" {
		return SeriesPart{}, false
	}
	var errs [4]error
	p.Until, errs[0] = time.Parse(time.RFC3339Nano, headers[seriesUntilHeader])
	p.Offset, errs[1] = time.ParseDuration(headers[seriesOffsetHeader])
	p.Index, errs[2] = strconv.Atoi(headers[seriesIndexHeader])
	p.Count, errs[3] = strconv.Atoi(headers[seriesCountHeader])
	if errors.Join(errs[:]...) != nil {
		return SeriesPart{}, false
	}
	if failed == 0 && !due.IsZero() {
		p.Until = due.Add(-p.Offset).In(p.Until.Location())
	}
	return p, true
}

// SeriesMessage is a live message of a series.
type SeriesMessage struct {
	*Info
	Part SeriesPart
}

// ListSeries returns the messages of a series that remain: those that were not acked, in any state and in order of
// their offsets. There are none if all were acked or cancelled, or if there is no such series.
func (q *Queue) ListSeries(ctx context.Context, id string) ([]SeriesMessage, error) {
	if err := checkSeriesID(id); err != nil {
		return nil, err
	}
	var remaining []SeriesMessage
	for info, err := range q.All(ctx, ListOptions{Group: SeriesGroupPrefix + id}) {
		if err != nil {
			return nil, err
		}
		// Others can be in the group too: anyone may name it.
		if part, ok := seriesPart(info.Headers, info.Due, info.Attempts); ok && part.ID == id {
			remaining = append(remaining, SeriesMessage{info, part})
		}
	}
	slices.SortFunc(remaining, func(a, b SeriesMessage) int { return cmp.Compare(a.Part.Offset, b.Part.Offset) })
	return remaining, nil
}

// CancelSeries cancels the messages of a series that remain, whatever their states, and counts them. It treats leased
// messages as Cancel does. Like CancelGroup it is atomic for each message only, and after an error it can be called
// again.
//
// A cancelled series may be sent again at once, except for its messages that were acked within their dedup window. With
// KeepID no message of it can be for the dedup window.
func (q *Queue) CancelSeries(ctx context.Context, id string, opts ...CancelOption) (GroupCancel, error) {
	if err := checkSeriesID(id); err != nil {
		return GroupCancel{}, err
	}
	return q.CancelGroup(ctx, SeriesGroupPrefix+id, opts...)
}

// SeriesMove is the result of a MoveSeries.
type SeriesMove struct {
	Moved   int // messages with a new due time; with SendPast, those that are due at once are included
	Skipped int // messages that were cancelled because their new time has passed, with SkipPast
	// Left counts the messages that were left as they were: a worker held them, they were dead, or they had fallen due
	// already and their new time has passed as well.
	Left int
}

// MoveSeries moves the remaining messages of a series to their times before or after another moment, and counts them.
// Messages that were delivered and acked are not sent again, and offsets that were skipped stay so: to have these,
// cancel the series and send it again. past says what happens to a message whose new time has passed. SkipPast cancels
// it as with KeepID.
//
// Each message is moved in one atomic step: it is never lost and never early for the moment that it has. If MoveSeries
// fails or its process dies, some messages have the old moment; call it again to move the rest. Of two moves at the
// same time, each message follows one or the other.
func (q *Queue) MoveSeries(ctx context.Context, id string, until time.Time, past PastPolicy) (SeriesMove, error) {
	var count SeriesMove
	if err := At(until).check(); err != nil {
		return count, err
	}
	if err := past.check(); err != nil {
		return count, err
	}
	remaining, err := q.ListSeries(ctx, id)
	if err != nil || len(remaining) == 0 {
		return count, err
	}
	stats, err := q.Stats(ctx)
	if err != nil {
		return count, err
	}
	for i := range remaining {
		m := &remaining[i]
		due := store.Time(store.UnixMillis(until)).Add(m.Part.Offset)
		passed := !due.After(stats.Now)
		switch {
		case m.State == StateLeased, m.State == StateDead, passed && m.hasFallenDue():
			count.Left++
			continue
		case passed && past == SkipPast:
			_, err = q.Cancel(ctx, m.ID, KeepID())
		default:
			err = q.Reschedule(ctx, m.ID, At(due))
		}
		switch {
		case err == nil && passed && past == SkipPast:
			count.Skipped++
		case err == nil:
			count.Moved++
		case errors.Is(err, ErrLeased), errors.Is(err, ErrDead):
			count.Left++
		case !errors.Is(err, ErrNotFound): // else it has gone meanwhile
			return count, err
		}
	}
	return count, nil
}

// hasFallenDue reports whether the message is ready, or waits for a retry.
func (m *SeriesMessage) hasFallenDue() bool {
	return m.State == StateReady || m.Attempts > 0 || m.Delivered
}
