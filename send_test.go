package later

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestSendDeliversWhenDueAndNotBefore(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		begin := time.Now()
		later := mustSend(t, q, "later", In(90*time.Minute))
		at := mustSend(t, q, "at", At(begin.Add(30*time.Minute)))
		now := mustSend(t, q, "now")
		for _, want := range []struct {
			id    string
			after time.Duration
		}{{now, 0}, {at, 30 * time.Minute}, {later, 90 * time.Minute}} {
			d := mustReceive(t, q, 1)[0]
			if d.ID != want.id || time.Since(begin) != want.after || d.Lateness != 0 {
				t.Errorf("got %q (%s) after %v, %v late; want %s after %v",
					d.ID, d.Payload, time.Since(begin), d.Lateness, want.id, want.after)
			}
			if err := d.Ack(t.Context()); err != nil {
				t.Errorf("Ack: %v", err)
			}
		}
	})
}

func TestSendOfALiveIDIsADuplicateAndChangesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("orders")
		mustSend(t, q, "one", WithID("42"), In(time.Hour))
		id, err := q.Send(t.Context(), []byte("two"), WithID("42"))
		wantError(t, err, ErrDuplicate)
		if id != "42" || !strings.Contains(err.Error(), `"42"`) || !strings.Contains(err.Error(), `"orders"`) {
			t.Errorf("id %q, error %q; want both to name id and queue", id, err)
		}
		info, err := q.Get(t.Context(), "42")
		if err != nil || string(info.Payload) != "one" || info.State != StateScheduled {
			t.Errorf("message is %+v, %v", info, err)
		}
	})
}

func TestSendKeepsAllOptions(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		sent := time.Now()
		mustSend(t, q, "payload", WithID("id"), MaxAttempts(3), Timeout(time.Minute), Header("a", "1"),
			Headers(map[string]string{"b": "2"}), ExpireAfter(time.Hour), In(time.Second))
		m := mustReceive(t, q, 1)[0].Message
		if m.ID != "id" || m.Queue != "q" || string(m.Payload) != "payload" || m.Attempt != 1 || m.MaxAttempts != 3 ||
			m.Timeout != time.Minute || len(m.Headers) != 2 || m.Headers["a"] != "1" || m.Headers["b"] != "2" ||
			!m.Due.Equal(sent.Add(time.Second)) || !m.SentAt.Equal(sent) {
			t.Errorf("received %+v", m)
		}
	})
}

func TestSendResolvesDefaults(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := c.Queue("q")
	before := time.Now().Add(-time.Millisecond)
	mustSend(t, q, "")
	m := mustReceive(t, q, 1)[0].Message
	if m.MaxAttempts != store.DefaultMaxAttempts || m.SentAt.Before(before) || m.SentAt.After(time.Now()) {
		t.Errorf("received %+v", m)
	}
}

func TestSendRefusesInvalidOptions(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := c.Queue("q")
	for name, opts := range map[string][]SendOption{
		"due time is given twice":       {In(time.Second), At(time.Now())},
		"due time is the zero time":     {At(time.Time{})},
		"delay is":                      {In(store.MaxDelay + time.Second)},
		"id is given twice":             {WithID("a"), WithID("b")},
		"id is empty":                   {WithID("")},
		"max attempts is given twice":   {MaxAttempts(1), MaxAttempts(2)},
		"max attempts is 0":             {MaxAttempts(0)},
		"max attempts is 65536":         {MaxAttempts(store.MaxAttempts + 1)},
		`header "a" is given twice`:     {Header("a", "1"), Headers(map[string]string{"a": "2"})},
		"header name is empty":          {Header("", "1")},
		"timeout is given twice":        {Timeout(1), Timeout(1)},
		"timeout is 0s":                 {Timeout(0)},
		"timeout is 25h":                {Timeout(25 * time.Hour)},
		"expiry is -1s":                 {ExpireAfter(-time.Second)},
		"expiry is given twice":         {ExpireAt(time.Now()), ExpireAt(time.Now())},
		"expiry is the zero time":       {ExpireAt(time.Time{})},
		"twice, relative and absolute":  {ExpireAfter(time.Hour), ExpireAt(time.Now())},
		"before the message is due, in": {ExpireAt(time.Now().Add(time.Minute)), In(time.Hour)},
		"before the message is due, at": {ExpireAt(time.Now().Add(time.Minute)), At(time.Now().Add(time.Hour))},
		"dedup window is 0s":            {DedupWindow(0)},
	} {
		_, err := q.Send(t.Context(), nil, opts...)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("error is %v; want an ErrInvalid with %q", err, name)
		}
	}
	wantCounts(t, q, 0, 0, 0, 0)
}

func TestSendRefusesATooLargePayload(t *testing.T) {
	c := newClientOn(t, memstore.New())
	_, err := c.Queue("q").Send(t.Context(), make([]byte, store.MaxPayload+1))
	wantError(t, err, ErrTooLarge)
}

func TestQueueWithAnInvalidNameRefusesEveryCall(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q, ctx := c.Queue("a{b}"), t.Context()
	for call, err := range map[string]error{
		"Send":       second(q.Send(ctx, nil)),
		"SendBatch":  second(q.SendBatch(ctx, []Outgoing{{}})),
		"Receive":    second(q.Receive(ctx, 1)),
		"Cancel":     second(q.Cancel(ctx, "id")),
		"Reschedule": q.Reschedule(ctx, "id", In(0)),
		"Get":        second(q.Get(ctx, "id")),
		"List":       second(q.List(ctx, ListOptions{State: StateReady})),
		"Stats":      second(q.Stats(ctx)),
		"Histogram":  second(q.Histogram(ctx, time.Now(), time.Now().Add(time.Hour), 1)),
		"Replay":     second(q.Replay(ctx, In(0))),
		"Purge":      second(q.Purge(ctx)),
		"PurgeDead":  second(q.PurgeDead(ctx)),
		"Pause":      q.Pause(ctx),
		"Delete":     q.Delete(ctx),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v; want ErrInvalid", call, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// colliding is a store that reports the first message of a call as a duplicate, as often as left says.
type colliding struct {
	store.Store
	refused map[string]bool
	left    int
}

func (s *colliding) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	if s.left > 0 {
		s.left--
		s.refused[msgs[0].ID] = true
		if _, err := s.Store.Send(ctx, queue, msgs[1:]); err != nil {
			return nil, err
		}
		results := make([]store.SendResult, len(msgs))
		results[0].Duplicate = true
		return results, nil
	}
	return s.Store.Send(ctx, queue, msgs)
}

func TestSendGeneratesANewIDAfterACollision(t *testing.T) {
	s := &colliding{memstore.New(), map[string]bool{}, 1}
	q := newClientOn(t, s).Queue("q")
	id := mustSend(t, q, "one")
	if s.refused[id] || len(s.refused) != 1 {
		t.Errorf("id %q; refused %v", id, s.refused)
	}
	s.left = 1
	results, err := q.SendBatch(t.Context(), []Outgoing{{}, {}})
	if err != nil || results[0].Duplicate || s.refused[results[0].ID] {
		t.Errorf("results %+v, %v", results, err)
	}
	wantCounts(t, q, 0, 3, 0, 0)
}

func TestSendBatchChecksAllMessagesBeforeItSendsAny(t *testing.T) {
	q := newClientOn(t, memstore.New()).Queue("q")
	results, err := q.SendBatch(t.Context(), []Outgoing{{}, {MaxAttempts: -1}})
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "message 1 of the batch") || results != nil {
		t.Errorf("results %v, error %v", results, err)
	}
	wantCounts(t, q, 0, 0, 0, 0)
}

func TestSendBatchSplitsIntoCallsAndReportsDuplicates(t *testing.T) {
	q := newClientOn(t, memstore.New()).Queue("q")
	mustSend(t, q, "first", WithID("7"))
	msgs := make([]Outgoing, 3*store.MaxBatch+1)
	for i := range msgs {
		msgs[i] = Outgoing{ID: fmt.Sprint(i), When: In(time.Duration(i) * time.Hour)}
	}
	results, err := q.SendBatch(t.Context(), msgs)
	if err != nil || len(results) != len(msgs) {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for i, r := range results {
		if r.ID != fmt.Sprint(i) || r.Err != nil || r.Duplicate != (i == 7) {
			t.Errorf("result %d: %+v", i, r)
		}
	}
	s := mustStats(t, q)
	if total := s.Scheduled + s.Ready; total != int64(len(msgs)) {
		t.Errorf("%d messages in the queue, want %d", total, len(msgs))
	}
}

func TestSendBatchSplitsByBytes(t *testing.T) {
	q := newClientOn(t, memstore.New()).Queue("q")
	msgs := make([]Outgoing, 9)
	for i := range msgs {
		msgs[i].Payload = make([]byte, store.MaxPayload)
	}
	if _, err := q.SendBatch(t.Context(), msgs); err != nil {
		t.Fatal(err)
	}
	wantCounts(t, q, 0, 9, 0, 0)
}

func TestSendBatchReportsWhichMessagesWereNotSent(t *testing.T) {
	f := &faulty{Store: memstore.New()}
	q := newClientOn(t, f).Queue("q")
	calls := 0
	f.set(func(context.Context, string) error {
		if calls++; calls == 2 {
			return store.ErrUnavailable
		}
		return nil
	}, nil)
	results, err := q.SendBatch(t.Context(), make([]Outgoing, 3*store.MaxBatch))
	wantError(t, err, ErrUnavailable)
	for i, r := range results {
		if sent := i < store.MaxBatch; sent != (r.Err == nil) || r.ID == "" {
			t.Fatalf("result %d: %+v", i, r)
		}
	}
	f.set(nil, nil)
	wantCounts(t, q, 0, store.MaxBatch, 0, 0)
}

func TestSendReturnsTheIDWithAnErrorForASafeRetry(t *testing.T) {
	f := &faulty{Store: memstore.New()}
	q := newClientOn(t, f).Queue("q")
	f.set(nil, unavailable("send")) // the reply is lost
	id, err := q.Send(t.Context(), nil)
	wantError(t, err, ErrUnavailable)
	f.set(nil, nil)
	_, err = q.Send(t.Context(), nil, WithID(id))
	wantError(t, err, ErrDuplicate)
	wantCounts(t, q, 0, 1, 0, 0)
}

func TestSendPayloadMayBeReusedAfterSendHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		q := newClientOn(t, f).Queue("q")
		let := make(chan struct{})
		f.set(func(context.Context, string) error { <-let; return nil }, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		payload := []byte("right")
		_, err := q.Send(ctx, payload)
		wantError(t, err, context.DeadlineExceeded)
		copy(payload, "wrong")
		close(let)
		f.set(nil, nil)
		if d := mustReceive(t, q, 1)[0]; string(d.Payload) != "right" {
			t.Errorf("payload is %q", d.Payload)
		}
	})
}

func TestSendWithAnEndedContextSendsNothing(t *testing.T) {
	q := newClientOn(t, memstore.New()).Queue("q")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := q.Send(ctx, nil)
	wantError(t, err, context.Canceled)
	wantCounts(t, q, 0, 0, 0, 0)
}

func TestWhenTime(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		when When
		want time.Time
	}{
		{When{}, time.Time{}}, {In(0), time.Time{}}, {In(-time.Hour), time.Time{}},
		{In(time.Hour), now.Add(time.Hour)}, {At(now.Add(-time.Hour)), now.Add(-time.Hour)},
	} {
		if got := c.when.Time(now); !got.Equal(c.want) {
			t.Errorf("%v is at %v; want %v", c.when, got, c.want)
		}
	}
}

func TestCheckReturnsWhatSendWouldReturn(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		for _, m := range []Outgoing{
			{}, {ID: "a"}, {ID: "a\n"}, {Payload: make([]byte, store.MaxPayload+1)}, {When: At(time.Time{})}, {MaxAttempts: -1},
			{When: In(time.Hour), ExpireAt: time.Now().Add(time.Minute)},
		} {
			_, want := c.Queue("q").SendBatch(t.Context(), []Outgoing{m})
			if got := m.Check(); CodeOf(got) != CodeOf(want) || (got == nil) != (want == nil) {
				t.Errorf("Check of %+v returns %v; a send returns %v", m.ID, got, want)
			}
		}
	})
}

func TestWhenString(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, w := range map[string]When{
		"at once": {}, "in 30m0s": In(30 * time.Minute), "at 2030-01-02T03:04:05Z": At(at),
	} {
		if got := w.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := In(-time.Second).String(); got != "at once" {
		t.Errorf("In with a time in the past: %q", got)
	}
}

func TestSendWithinTheDedupWindowIsADuplicate(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		mustSend(t, q, "", WithID("a"), DedupWindow(time.Hour))
		if err := mustReceive(t, q, 1)[0].Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := q.Send(t.Context(), nil, WithID("a"))
		wantError(t, err, ErrDuplicate)
		time.Sleep(time.Hour)
		mustSend(t, q, "", WithID("a"))
	})
}
