package later

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/internal/series"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// reminders is a series with three messages before and one after a moment that is d from now.
func reminders(d time.Duration) Series {
	return Series{
		Until:   time.Now().Add(d),
		Offsets: []time.Duration{-time.Hour, -24 * time.Hour, -10 * time.Minute, 2 * time.Hour},
	}
}

// wantRemaining checks the messages of the series a: their offsets, states, and distances from now.
func wantRemaining(t *testing.T, q *Queue, want ...string) {
	t.Helper()
	all, err := q.ListSeries(t.Context(), "a")
	wantNoError(t, err)
	var got []string
	for _, m := range all {
		got = append(got, fmt.Sprintf("%v %s %v", m.Part.Offset, m.State, time.Until(m.Due)))
	}
	if !slices.Equal(got, want) {
		t.Errorf("series has\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// wantSent sends the series a and checks the result.
func wantSent(t *testing.T, q *Queue, s Series, want SeriesResult, wantErr error, opts ...SendOption) {
	t.Helper()
	want.ID = "a"
	got, err := q.SendSeries(t.Context(), []byte("x"), s, append(opts, WithID("a"))...)
	wantError(t, err, wantErr)
	if got != want {
		t.Errorf("SendSeries returned %+v, want %+v", got, want)
	}
}

func TestSeriesSendsEachMessageAtItsOffset(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		wantSent(t, q, reminders(48*time.Hour), SeriesResult{Sent: 4}, nil, Header("k", "v"), MaxAttempts(3))
		wantRemaining(t, q, "-24h0m0s scheduled 24h0m0s", "-1h0m0s scheduled 47h0m0s",
			"-10m0s scheduled 47h50m0s", "2h0m0s scheduled 50h0m0s")
		until := time.Now().Add(48 * time.Hour)
		for i, offset := range []time.Duration{-24 * time.Hour, -time.Hour, -10 * time.Minute, 2 * time.Hour} {
			d := mustReceive(t, q, 1)[0]
			part, ok := SeriesOf(d.Message)
			if !ok || !part.Until.Equal(until) {
				t.Errorf("message is part %+v, %v; want the moment %v", part, ok, until)
			}
			part.Until = time.Time{}
			if want := (SeriesPart{ID: "a", Offset: offset, Index: i + 1, Count: 4}); part != want {
				t.Errorf("message is part %+v, want %+v", part, want)
			}
			if !time.Now().Equal(until.Add(offset)) || d.Headers["k"] != "v" || d.MaxAttempts != 3 {
				t.Errorf("received %+v at %v", d.Message, time.Now())
			}
			wantNoError(t, d.Ack(t.Context()))
		}
		wantRemaining(t, q)
	})
}

func TestSeriesSkipsOrSendsWhatHasPassed(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		skipped, sent := c.Queue("skipped"), c.Queue("sent")
		s := reminders(time.Hour) // an hour before is now, which is too late
		wantSent(t, skipped, s, SeriesResult{Sent: 2, Skipped: 2}, nil)
		wantRemaining(t, skipped, "-10m0s scheduled 50m0s", "2h0m0s scheduled 3h0m0s")
		s.Past = SendPast
		wantSent(t, sent, s, SeriesResult{Sent: 4}, nil)
		for i, d := range mustReceive(t, sent, 4) {
			if part, _ := SeriesOf(d.Message); part.Index != i+1 || !part.Until.Equal(s.Until) {
				t.Errorf("received part %+v", part)
			}
		}
		s.Until, s.Past = time.Now().Add(-24*time.Hour), SkipPast
		wantSent(t, c.Queue("all"), s, SeriesResult{Skipped: 4}, nil)
	})
}

func TestSeriesCanBeSentAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q, ctx := c.Queue("q"), t.Context()
		s := reminders(25 * time.Hour)
		wantSent(t, q, s, SeriesResult{Sent: 4}, nil)
		wantSent(t, q, s, SeriesResult{Duplicates: 4}, ErrDuplicate)

		// A part is missing, as if the first call had been cut off.
		if _, err := q.Cancel(ctx, "a/-1h0m0s"); err != nil {
			t.Fatal(err)
		}
		wantSent(t, q, s, SeriesResult{Sent: 1, Duplicates: 3}, nil)

		// A handled message is not sent again, even if the series was moved and SendPast asks for it.
		wantNoError(t, mustReceive(t, q, 1)[0].Ack(ctx))
		wantMoved(t, q, 10*time.Hour, SkipPast, SeriesMove{Moved: 3})
		s.Past = SendPast
		wantSent(t, q, s, SeriesResult{Duplicates: 4}, ErrDuplicate)
		wantRemaining(t, q, "-1h0m0s scheduled 9h0m0s", "-10m0s scheduled 9h50m0s", "2h0m0s scheduled 12h0m0s")
	})
}

// wantMoved moves the series a to d from now and checks the result.
func wantMoved(t *testing.T, q *Queue, d time.Duration, past PastPolicy, want SeriesMove) {
	t.Helper()
	got, err := q.MoveSeries(t.Context(), "a", time.Now().Add(d), past)
	wantNoError(t, err)
	if got != want {
		t.Errorf("MoveSeries returned %+v, want %+v", got, want)
	}
}

func TestMovedSeriesHasTheTimesOfTheNewMoment(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q, ctx := c.Queue("q"), t.Context()
		wantSent(t, q, reminders(25*time.Hour), SeriesResult{Sent: 4}, nil)
		wantNoError(t, mustReceive(t, q, 1)[0].Ack(ctx))
		wantMoved(t, q, 100*time.Hour, SkipPast, SeriesMove{Moved: 3}) // the acked one does not come back
		wantRemaining(t, q, "-1h0m0s scheduled 99h0m0s", "-10m0s scheduled 99h50m0s", "2h0m0s scheduled 102h0m0s")

		wantMoved(t, q, 30*time.Minute, SkipPast, SeriesMove{Moved: 2, Skipped: 1})
		wantRemaining(t, q, "-10m0s scheduled 20m0s", "2h0m0s scheduled 2h30m0s")
		until := time.Now().Add(5 * time.Minute)
		wantMoved(t, q, 5*time.Minute, SendPast, SeriesMove{Moved: 2})
		wantRemaining(t, q, "-10m0s ready -5m0s", "2h0m0s scheduled 2h5m0s")
		for range 2 {
			d := mustReceive(t, q, 1)[0]
			if part, ok := SeriesOf(d.Message); !ok || !part.Until.Equal(until) {
				t.Errorf("message is part %+v, want the moment %v", part, until)
			}
			wantNoError(t, d.Ack(ctx))
		}
		wantMoved(t, q, time.Hour, SkipPast, SeriesMove{})
	})
}

// TestMoveRemembersWhatItSkipped sends a series again, as a program does that was cut off.
func TestMoveRemembersWhatItSkipped(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		series := reminders(25 * time.Hour)
		wantSent(t, q, series, SeriesResult{Sent: 4}, nil, DedupWindow(48*time.Hour))
		wantMoved(t, q, 30*time.Minute, SkipPast, SeriesMove{Moved: 2, Skipped: 2})
		remaining := []string{"-10m0s scheduled 20m0s", "2h0m0s scheduled 2h30m0s"}
		wantSent(t, q, series, SeriesResult{Duplicates: 4}, ErrDuplicate, DedupWindow(48*time.Hour))
		wantRemaining(t, q, remaining...)
		_, err := q.CancelSeries(t.Context(), "a")
		wantNoError(t, err)
		wantSent(t, q, series, SeriesResult{Sent: 2, Duplicates: 2}, nil, DedupWindow(48*time.Hour))
		wantRemaining(t, q, "-10m0s scheduled 24h50m0s", "2h0m0s scheduled 27h0m0s")
	})
}

func TestMovedSeriesLeavesWhatIsUnderWay(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q, ctx := c.Queue("q"), t.Context()
		s := reminders(5 * time.Minute)
		s.Past = SendPast
		wantSent(t, q, s, SeriesResult{Sent: 4}, nil)
		got := mustReceive(t, q, 2, Lease(time.Hour))
		wantNoError(t, got[0].Bury(ctx, nil))
		// The first is dead, the second leased, the third ready: it has fallen due, so that it is not skipped.
		wantMoved(t, q, time.Minute, SkipPast, SeriesMove{Moved: 1, Left: 3})
		wantNoError(t, got[1].Nack(ctx, 10*time.Hour, nil))
		wantMoved(t, q, time.Minute, SendPast, SeriesMove{Moved: 1, Left: 3}) // it waits for a retry
		wantMoved(t, q, 48*time.Hour, SkipPast, SeriesMove{Moved: 3, Left: 1})
		wantRemaining(t, q, "-24h0m0s dead -23h55m0s", "-1h0m0s scheduled 47h0m0s",
			"-10m0s scheduled 47h50m0s", "2h0m0s scheduled 50h0m0s")
	})
}

func TestSeriesOfARetryHasTheMomentThatWasSent(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		s := Series{Until: time.Now().Add(time.Hour), Offsets: []time.Duration{0}}
		wantSent(t, q, s, SeriesResult{Sent: 1}, nil)
		for range 2 {
			d := mustReceive(t, q, 1)[0]
			if part, ok := SeriesOf(d.Message); !ok || !part.Until.Equal(s.Until) {
				t.Errorf("attempt %d is part %+v", d.Attempt, part)
			}
			wantNoError(t, d.Nack(t.Context(), time.Minute, nil))
		}
	})
}

func TestCancelledSeriesIsGone(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q, ctx := c.Queue("q"), t.Context()
		mustSend(t, q, "", WithID("a"), Group("a"))
		mustSend(t, q, "", WithID("named"), Group("series:b"))
		s := reminders(48 * time.Hour)
		for range 2 {
			wantSent(t, q, s, SeriesResult{Sent: 4}, nil)
			n, err := q.CancelSeries(ctx, "a")
			if want := (GroupCancel{Scheduled: 4}); n != want || err != nil {
				t.Errorf("CancelSeries returned %+v, %v", n, err)
			}
		}
		wantSent(t, q, s, SeriesResult{Sent: 4}, nil)
		wantNoError(t, second(q.CancelSeries(ctx, "a", KeepID())))
		wantSent(t, q, s, SeriesResult{Duplicates: 4}, ErrDuplicate)
		wantRemaining(t, q)
		wantCounts(t, q, 0, 2, 0, 0)
		if all, err := q.ListSeries(ctx, "b"); len(all) != 0 || err != nil {
			t.Errorf("series b has %+v, %v, and was never sent", all, err)
		}
	})
}

// cut is a store that fails all reschedules after the first few.
type cut struct {
	store.Store
	left int
}

func (c *cut) Reschedule(ctx context.Context, queue string, ids []string, due store.Due) ([]error, error) {
	if c.left--; c.left < 0 {
		return nil, store.ErrUnavailable
	}
	return c.Store.Reschedule(ctx, queue, ids, due)
}

func TestMoveOfASeriesThatWasCutOffIsCompletedByTheNextOne(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *Client) {
		s := &cut{memstore.New(), 2}
		q := newClientOn(t, s).Queue("q")
		wantSent(t, q, reminders(48*time.Hour), SeriesResult{Sent: 4}, nil)
		n, err := q.MoveSeries(t.Context(), "a", time.Now().Add(60*time.Hour), SkipPast)
		wantError(t, err, ErrUnavailable)
		if n.Moved != 2 {
			t.Errorf("MoveSeries returned %+v", n)
		}
		s.left = 4
		wantMoved(t, q, 60*time.Hour, SkipPast, SeriesMove{Moved: 4})
		wantRemaining(t, q, "-24h0m0s scheduled 36h0m0s", "-1h0m0s scheduled 59h0m0s",
			"-10m0s scheduled 59h50m0s", "2h0m0s scheduled 62h0m0s")
	})
}

func TestSeriesRefusesBadInput(t *testing.T) {
	q, ctx := newClientOn(t, memstore.New()).Queue("q"), t.Context()
	good := reminders(time.Hour)
	with := func(change func(s *Series)) Series {
		s := good
		change(&s)
		return s
	}
	offsets := func(d ...time.Duration) Series { return with(func(s *Series) { s.Offsets = d }) }
	for text, s := range map[string]Series{
		"zero time":     with(func(s *Series) { s.Until = time.Time{} }),
		"no offsets":    offsets(),
		"given twice":   offsets(time.Hour, time.Minute, time.Hour),
		"limit is":      offsets(store.MaxDelay + 1),
		"whole milli":   offsets(time.Microsecond),
		"give SkipPast": with(func(s *Series) { s.Past = 2 }),
	} {
		_, err := q.SendSeries(ctx, nil, s)
		wantError(t, err, ErrInvalid)
		if err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("error is %v, want one with %q", err, text)
		}
	}
	many := offsets(slices.Collect(func(yield func(time.Duration) bool) {
		for i := range store.MaxBatch + 1 {
			if !yield(time.Duration(i) * time.Second) {
				return
			}
		}
	})...)
	wantError(t, second(q.SendSeries(ctx, nil, many)), ErrTooLarge)
	long := strings.Repeat("x", series.MaxID+1)
	for _, opt := range []SendOption{
		In(time.Hour), Group("g"), OnDuplicate(Replace()), Header("series", "x"), WithID(long), nil,
	} {
		wantError(t, second(q.SendSeries(ctx, nil, good, opt)), ErrInvalid)
	}
	for _, id := range []string{"", long, "a\n"} {
		wantError(t, second(q.ListSeries(ctx, id)), ErrInvalid)
		wantError(t, second(q.CancelSeries(ctx, id)), ErrInvalid)
		wantError(t, second(q.MoveSeries(ctx, id, time.Now(), SkipPast)), ErrInvalid)
	}
	wantError(t, second(q.MoveSeries(ctx, "a", time.Time{}, SkipPast)), ErrInvalid)
	wantError(t, second(q.MoveSeries(ctx, "a", time.Now(), 2)), ErrInvalid)
	wantCounts(t, q, 0, 0, 0, 0)
}

func TestSeriesOfNeedsAllHeaders(t *testing.T) {
	headers := map[string]string{
		"series": "a", "series-until": "2030-01-01T00:00:00Z", "series-offset": "-1h0m0s", "series-index": "1",
		"series-count": "3",
	}
	if _, ok := SeriesOf(&Message{Headers: headers}); !ok {
		t.Error("all headers are no series")
	}
	for name := range headers {
		without := maps.Clone(headers)
		delete(without, name)
		if part, ok := SeriesOf(&Message{Headers: without}); ok {
			t.Errorf("without the header %s the part is %+v", name, part)
		}
	}
}

func TestTypedSeriesSendsTheValueUnderAGeneratedID(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := TypedQueue[int](c.Queue("q"))
		result, err := q.SendSeries(t.Context(), 7, reminders(time.Hour))
		wantNoError(t, err)
		all, err := q.ListSeries(t.Context(), result.ID)
		wantNoError(t, err)
		if len(all) != 2 || string(all[0].Payload) != "7" {
			t.Errorf("series %q has %+v", result.ID, all)
		}
	})
}
