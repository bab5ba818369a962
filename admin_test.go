package later

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestQueueCancelReturnsTheStateOfTheMessage(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q, ctx := c.Queue("q"), t.Context()
		mustSend(t, q, "", WithID("dead"))
		if err := mustReceive(t, q, 1)[0].Bury(ctx, nil); err != nil {
			t.Fatal(err)
		}
		mustSend(t, q, "", WithID("leased"))
		mustReceive(t, q, 1)
		mustSend(t, q, "", WithID("ready"))
		mustSend(t, q, "", WithID("scheduled"), In(time.Hour))
		for _, state := range []State{StateDead, StateLeased, StateReady, StateScheduled} {
			if got, err := q.Cancel(ctx, string(state)); got != state || err != nil {
				t.Errorf("Cancel of the %s message returned %q, %v", state, got, err)
			}
			_, err := q.Cancel(ctx, string(state))
			wantError(t, err, ErrNotFound)
			if !strings.Contains(err.Error(), string(state)) || !strings.Contains(err.Error(), `"q"`) {
				t.Errorf("%q does not name id and queue", err)
			}
		}
		wantCounts(t, q, 0, 0, 0, 0)
		_, err := q.Cancel(ctx, "")
		wantError(t, err, ErrInvalid)
	})
}

func TestQueueCancelKeepsTheIDForItsDedupWindow(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		q, err := c.Queue("q").With(DedupWindow(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"kept", "forgotten"} {
			mustSend(t, q, "", WithID(id), In(time.Minute))
		}
		if _, err := q.Cancel(ctx, "kept", KeepID()); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Cancel(ctx, "forgotten"); err != nil {
			t.Fatal(err)
		}
		mustSend(t, q, "", WithID("forgotten"))
		_, err = q.Send(ctx, nil, WithID("kept"))
		wantError(t, err, ErrDuplicate)
		time.Sleep(time.Hour)
		mustSend(t, q, "", WithID("kept"))
	})
}

func TestQueueCancelBatchReturnsAResultForEachID(t *testing.T) {
	q := newClientOn(t, memstore.New()).Queue("q")
	var ids []string
	for i := range 2*store.MaxBatch + 1 {
		ids = append(ids, fmt.Sprint(i))
		if i%2 == 0 {
			mustSend(t, q, "", WithID(ids[i]))
		}
	}
	results, err := q.CancelBatch(t.Context(), ids)
	if err != nil || len(results) != len(ids) {
		t.Fatalf("CancelBatch returned %d results, %v", len(results), err)
	}
	for i, r := range results {
		cancelled, missing := r.Err == nil && r.State == StateReady, errors.Is(r.Err, ErrNotFound)
		if r.ID != ids[i] || cancelled != (i%2 == 0) || missing != (i%2 == 1) {
			t.Errorf("result %d: %+v", i, r)
		}
	}
}

func TestQueueRescheduleChangesTheDueTime(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q, ctx := c.Queue("q"), t.Context()
		begin := time.Now()
		mustSend(t, q, "", WithID("a"), In(time.Hour))
		mustSend(t, q, "", WithID("b"), In(time.Hour))
		if err := q.Reschedule(ctx, "a", In(2*time.Hour)); err != nil {
			t.Fatal(err)
		}
		if err := q.RunNow(ctx, "b"); err != nil {
			t.Fatal(err)
		}
		if d := mustReceive(t, q, 1)[0]; d.ID != "b" || time.Since(begin) != 0 {
			t.Errorf("%q after %v", d.ID, time.Since(begin))
		} else {
			wantError(t, q.RunNow(ctx, "b"), ErrLeased)
			d.Bury(ctx, nil)
			wantError(t, q.RunNow(ctx, "b"), ErrDead)
		}
		if d := mustReceive(t, q, 1)[0]; d.ID != "a" || time.Since(begin) != 2*time.Hour {
			t.Errorf("%q after %v", d.ID, time.Since(begin))
		}
		wantError(t, q.Reschedule(ctx, "none", In(0)), ErrNotFound)
		wantError(t, q.Reschedule(ctx, "a", At(time.Time{})), ErrInvalid)
	})
}

func TestQueueGetOfAnUnknownIDIsNotFound(t *testing.T) {
	q := newClientOn(t, memstore.New()).Queue("q")
	_, err := q.Get(t.Context(), "none")
	wantError(t, err, ErrNotFound)
}

func TestQueueListAndAllReturnEveryMessageOnce(t *testing.T) {
	q := newClientOn(t, memstore.New()).Queue("q")
	base := time.Now()
	var want []string
	for i := range 25 {
		want = append(want, mustSend(t, q, "", At(base.Add(time.Duration(i+1)*time.Hour))))
	}
	o := ListOptions{State: StateScheduled, Limit: 10}
	page, err := q.List(t.Context(), o)
	if err != nil || len(page.Messages) == 0 || len(page.Messages) > 10 || page.Next == "" {
		t.Fatalf("page of %d messages, next %q, %v", len(page.Messages), page.Next, err)
	}
	if got := idsOf(t, q, o); !slices.Equal(got, want) {
		t.Errorf("all: %v, want %v", got, want)
	}
	o.From, o.To = base.Add(3*time.Hour), base.Add(5*time.Hour)
	if got := idsOf(t, q, o); !slices.Equal(got, want[2:4]) {
		t.Errorf("range: %v, want %v", got, want[2:4])
	}
	for range q.All(t.Context(), o) {
		break // stopping early is allowed
	}
}

func idsOf(t *testing.T, q *Queue, o ListOptions) (ids []string) {
	t.Helper()
	for info, err := range q.All(t.Context(), o) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, info.ID)
	}
	return ids
}

func TestQueueListRefusesInvalidOptions(t *testing.T) {
	q := newClientOn(t, memstore.New()).Queue("q")
	for _, o := range []ListOptions{
		{}, {State: "asleep"}, {State: StateDead, Limit: -1}, {State: StateDead, Limit: store.MaxBatch + 1},
	} {
		_, err := q.List(t.Context(), o)
		wantError(t, err, ErrInvalid)
		for info, err := range q.All(t.Context(), o) {
			wantError(t, err, ErrInvalid)
			if info != nil {
				t.Errorf("got message %+v along with an error", info)
			}
		}
	}
}

// deadLetters creates n dead messages and returns their ids.
func deadLetters(t *testing.T, q *Queue, n int) (ids []string) {
	t.Helper()
	if _, err := q.SendBatch(t.Context(), make([]Outgoing, n)); err != nil {
		t.Fatal(err)
	}
	for len(ids) < n {
		for _, d := range mustReceive(t, q, store.MaxBatch) {
			if err := d.Bury(t.Context(), errors.New("bad")); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, d.ID)
		}
	}
	return ids
}

func TestQueueReplayOfAllAndOfSome(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q, ctx := c.Queue("q"), t.Context()
		ids := deadLetters(t, q, 1234)
		if n, err := q.Replay(ctx, In(time.Hour), ids[0], ids[1], "none"); n != 2 || err != nil {
			t.Errorf("Replay returned %d, %v", n, err)
		}
		wantCounts(t, q, 2, 0, 0, 1232)
		if n, err := q.Replay(ctx, In(0)); n != 1232 || err != nil {
			t.Errorf("Replay returned %d, %v", n, err)
		}
		wantCounts(t, q, 2, 1232, 0, 0)
		if d := mustReceive(t, q, 1)[0]; d.Attempt != 1 {
			t.Errorf("attempt is %d; want 1 after a replay", d.Attempt)
		}
		_, err := q.Replay(ctx, In(0), "")
		wantError(t, err, ErrInvalid)
	})
}

func TestQueuePurgeDead(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q, ctx := c.Queue("q"), t.Context()
		ids := deadLetters(t, q, 600)
		mustSend(t, q, "", WithID("living"))
		if n, err := q.PurgeDead(ctx, ids[:501]...); n != 501 || err != nil {
			t.Errorf("PurgeDead returned %d, %v", n, err)
		}
		if n, err := q.PurgeDead(ctx, "living"); n != 0 || err != nil {
			t.Errorf("PurgeDead returned %d, %v", n, err)
		}
		if n, err := q.PurgeDead(ctx); n != 99 || err != nil {
			t.Errorf("PurgeDead returned %d, %v", n, err)
		}
		wantCounts(t, q, 0, 1, 0, 0)
	})
}

func TestQueuePurgeByStateAndOfEverything(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q, ctx := c.Queue("q"), t.Context()
		fill := func() {
			deadLetters(t, q, 3)
			mustSend(t, q, "")
			mustReceive(t, q, 1)
			mustSend(t, q, "")
			mustSend(t, q, "", In(time.Hour))
		}
		fill()
		if n, err := q.Purge(ctx, StateScheduled, StateReady); n != 2 || err != nil {
			t.Errorf("Purge returned %d, %v", n, err)
		}
		wantCounts(t, q, 0, 0, 1, 3)
		if n, err := q.Purge(ctx); n != 4 || err != nil {
			t.Errorf("Purge returned %d, %v", n, err)
		}
		wantCounts(t, q, 0, 0, 0, 0)
		_, err := q.Purge(ctx, StateLeased)
		wantError(t, err, ErrInvalid)
	})
}

func TestQueuePausedDeliversNothingUntilResumed(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		if err := q.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustSend(t, q, "")
		begin := time.Now()
		go func() {
			time.Sleep(time.Hour)
			if err := q.Resume(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		if mustReceive(t, q, 1); time.Since(begin) != time.Hour {
			t.Errorf("delivered after %v; want one hour", time.Since(begin))
		}
	})
}

func TestQueueHistogramCountsDueTimes(t *testing.T) {
	q := newClientOn(t, memstore.New()).Queue("q")
	from := time.Now().Add(time.Hour).Truncate(time.Hour)
	for _, minutes := range []time.Duration{0, 10, 70, 179, 180} {
		mustSend(t, q, "", At(from.Add(minutes*time.Minute)))
	}
	got, err := q.Histogram(t.Context(), from, from.Add(3*time.Hour), 3)
	if err != nil || !slices.Equal(got, []int64{2, 1, 1}) {
		t.Errorf("Histogram returned %v, %v", got, err)
	}
	_, err = q.Histogram(t.Context(), from, from, 3)
	wantError(t, err, ErrInvalid)
}

func TestClientQueuesAndDelete(t *testing.T) {
	c := newClientOn(t, memstore.New())
	var want []string
	for i := range 700 {
		want = append(want, fmt.Sprintf("q%03d", i))
		mustSend(t, c.Queue(want[i]), "")
	}
	if got, err := c.Queues(t.Context()); err != nil || !slices.Equal(got, want) {
		t.Errorf("Queues returned %d names, %v", len(got), err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := c.Queues(ended); got != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("Queues returned %q, %v after its context ended", got, err)
	}
	if err := c.Queue(want[0]).Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Queues(t.Context()); err != nil || !slices.Equal(got, want[1:]) {
		t.Errorf("Queues returned %d names, %v", len(got), err)
	}
}

func TestQueueErrorForAnInvalidIDNamesIt(t *testing.T) {
	q, ctx := newClientOn(t, memstore.New()).Queue("q"), t.Context()
	const empty = "id is empty: give the id of a message, as Send returned it"
	batch := []string{"a", "b", ""}
	for _, c := range []struct {
		err  error
		want string
	}{
		{second(q.Get(ctx, "")), empty},
		{second(q.Cancel(ctx, "")), empty},
		{q.Reschedule(ctx, "", In(0)), empty},
		{q.RunNow(ctx, ""), empty},
		{second(q.CancelBatch(ctx, batch)), "id 2 of 3: " + empty},
		{second(q.Replay(ctx, In(0), batch...)), "id 2 of 3: " + empty},
		{second(q.PurgeDead(ctx, batch...)), "id 2 of 3: " + empty},
		{second(q.PurgeDead(ctx, "a", "\n")), `id 1 of 2: id "\n" holds a control character: leave it out`},
	} {
		if !errors.Is(c.err, ErrInvalid) || c.err.Error() != c.want {
			t.Errorf("error is %v; want %s", c.err, c.want)
		}
	}
}

func TestQueueResumeDoesNotCreateAQueue(t *testing.T) {
	c := newClientOn(t, memstore.New())
	if err := c.Queue("none").Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Queues(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("Queues returned %v, %v", got, err)
	}
}
