package later

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/laterq/later/internal/series"
	"github.com/laterq/later/store"
)

// Series is a reminder series: messages with the same payload at several distances from one moment, such as a day and
// an hour before an appointment. Queue.SendSeries sends it.
type Series struct {
	// Until is the moment, rounded up to a millisecond. It is required.
	Until time.Time
	// Offsets are the distances from the moment, below zero for before: 1 to store.MaxBatch different ones, in whole
	// milliseconds and up to store.MaxDelay. Their order does not matter.
	Offsets []time.Duration
	// Past is the treatment of messages that are past their time. Default: SkipPast.
	Past PastPolicy
}

// PastPolicy is the treatment of a message of a series when its time has passed on the store's clock.
type PastPolicy = series.Past

const (
	// SkipPast leaves the message out.
	SkipPast = series.Skip
	// SendPast makes the message due at once.
	SendPast = series.Send
)

// SeriesResult is the result of a SendSeries.
type SeriesResult struct {
	ID string // of the series
	// Sent counts the messages that were sent, Skipped the messages that were left out because their time had passed,
	// and Duplicates the messages that were there already, or were acked or skipped by a move within their dedup
	// window.
	Sent, Skipped, Duplicates int
}

// SendSeries sends the messages of a series:
//
//	result, err := q.SendSeries(ctx, payload, later.Series{
//		Until:   appointment,
//		Offsets: []time.Duration{-24 * time.Hour, -time.Hour, -10 * time.Minute},
//	}, later.WithID("appointment-7"))
//
// WithID sets the id of the series, up to 96 bytes; without it, one is generated. CancelSeries, MoveSeries and
// ListSeries take it. The ids of the messages derive from it and their offsets, so a SendSeries can safely be repeated:
// it sends the missing ones and returns ErrDuplicate if there are none. A series that was moved stays where it is then.
// DedupWindow sets for how long a message that was acked is not sent again. Default: 24 hours.
//
// Other options apply to each message. In and At are refused, because each message is due at the moment plus its
// offset, and Group is, because the messages are in the group "series:" + id. SeriesOf returns which
// message a handler has.
//
// The messages are sent like a batch: all are checked first, and messages that fit into one call are sent whole or not
// all. After an error the result counts the messages that were sent.
func (q *Queue) SendSeries(ctx context.Context, payload []byte, s Series, opts ...SendOption) (SeriesResult, error) {
	var common Outgoing
	if err := common.apply(payload, opts); err != nil {
		return SeriesResult{}, err
	}
	return q.SendSeriesMessage(ctx, common, s)
}

// SendSeriesMessage is SendSeries with the fields of a message in place of options, such as ID for WithID.
func (q *Queue) SendSeriesMessage(ctx context.Context, common Outgoing, s Series) (SeriesResult, error) {
	if err := s.check(&common); err != nil {
		return SeriesResult{}, err
	}
	if common.ID == "" {
		common.ID = store.NewID()
	}
	result := SeriesResult{ID: common.ID}
	stats, err := q.Stats(ctx)
	if err != nil {
		return result, err
	}
	msgs, err := s.messages(common, stats.Now)
	if err != nil {
		return result, err
	}
	result.Skipped = len(s.Offsets) - len(msgs)
	sent, err := q.SendBatch(ctx, msgs)
	for _, one := range sent {
		switch {
		case one.Duplicate:
			result.Duplicates++
		case one.Err == nil || errors.Is(one.Err, ErrNotDurable):
			result.Sent++
		}
	}
	if err == nil && result.Sent == 0 && result.Duplicates > 0 {
		err = fmt.Errorf("series %q is already in queue %q: %w", common.ID, q.name, ErrDuplicate)
	}
	return result, err
}

// check returns an error for a series, or for options of its messages, that are not allowed.
func (s *Series) check(common *Outgoing) error {
	switch {
	case common.When.kind != 0:
		return store.Invalid("the series has a due time: leave it out; each message is due at the moment plus its offset")
	case common.OnDuplicate != DuplicateMode{}:
		return store.Invalid("the series has OnDuplicate: leave it out; messages that are there are kept")
	case common.Once != nil:
		return store.Invalid("the series has Once: leave it out; messages that are there are kept")
	case common.Group != "":
		return store.Invalid("the series has the group %q: leave it out; its messages are in a group of their own",
			common.Group)
	}
	return (*series.Series)(s).Check(common.ID)
}

// messages returns the messages of a series that are to be sent at now.
func (s *Series) messages(common Outgoing, now time.Time) (msgs []Outgoing, err error) {
	common.Group = series.GroupPrefix + common.ID
	common.DedupWindow = cmp.Or(common.DedupWindow, series.Window)
	for _, m := range (*series.Series)(s).Messages(common.ID, now) {
		o := common
		o.ID, o.When, o.Headers = m.ID, At(m.Due), maps.Clone(common.Headers)
		for _, h := range m.Headers {
			if err := o.addHeader(h[0], h[1]); err != nil {
				return nil, fmt.Errorf("a series sets this header itself: %w", err)
			}
		}
		msgs = append(msgs, o)
	}
	return msgs, nil
}

// SendSeries sends a series of messages with a value, like Queue.SendSeries. It returns ErrInvalid for a value that
// cannot be encoded.
func (t Typed[T]) SendSeries(ctx context.Context, value T, s Series, opts ...SendOption) (SeriesResult, error) {
	payload, err := t.encode(value)
	if err != nil {
		return SeriesResult{}, err
	}
	return t.Queue.SendSeries(ctx, payload, s, t.withType(opts)...)
}

// SeriesPart is the place of a message in its series.
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
	part, ok := series.PartOf(m.Headers, m.Due, m.Attempt-1)
	return SeriesPart(part), ok
}

// SeriesMessage is a live message of a series.
type SeriesMessage struct {
	*Info
	Part SeriesPart
}

// ListSeries returns the messages of a series that remain: all that were not acked, in any state and in order of their
// offsets. It returns none if all were acked or cancelled, or if the series does not exist.
func (q *Queue) ListSeries(ctx context.Context, id string) ([]SeriesMessage, error) {
	if err := series.CheckID(id); err != nil {
		return nil, err
	}
	var remaining []SeriesMessage
	for info, err := range q.All(ctx, ListOptions{Group: series.GroupPrefix + id}) {
		if err != nil {
			return nil, err
		}
		// Others can be in the group too: anyone may name it.
		if part, ok := series.PartOf(info.Headers, info.Due, info.Attempts); ok && part.ID == id {
			remaining = append(remaining, SeriesMessage{info, SeriesPart(part)})
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
	if err := series.CheckID(id); err != nil {
		return GroupCancel{}, err
	}
	return q.CancelGroup(ctx, series.GroupPrefix+id, opts...)
}

// SeriesMove is the result of a MoveSeries.
type SeriesMove struct {
	Moved   int // messages with a new due time; with SendPast, including messages that are due at once
	Skipped int // messages that were cancelled because their new time has passed, with SkipPast
	// Left counts the messages that were left as they were: a worker held them, they were dead, or they had fallen due
	// already and their new time has passed as well.
	Left int
}

// MoveSeries moves the remaining messages of a series to their times before or after another moment, and counts them.
// Messages that were delivered and acked are not sent again, and offsets that were skipped stay so: to have these,
// cancel the series and send it again. past decides about a message with a new time that has passed. SkipPast cancels
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
	if err := past.Check(); err != nil {
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
		case !errors.Is(err, ErrNotFound): // else it was removed during the call
			return count, err
		}
	}
	return count, nil
}

// hasFallenDue reports whether the message is ready, or waits for a retry.
func (m *SeriesMessage) hasFallenDue() bool {
	return m.State == StateReady || m.Attempts > 0 || m.Delivered
}
