package later

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/report"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// reportSpy records reports, and can have them fail or hang.
type reportSpy struct {
	store.Store
	mu      sync.Mutex
	reports []store.Report
	fail    error
	hang    chan struct{} // reports wait for it if it is not nil, whatever their context
}

func (s *reportSpy) Report(ctx context.Context, reports []store.Report) ([]store.ReportResult, error) {
	s.mu.Lock()
	fail, hang := s.fail, s.hang
	s.reports = append(s.reports, reports...)
	s.mu.Unlock()
	if hang != nil {
		<-hang
	}
	if fail != nil {
		return nil, fail
	}
	return s.Store.Report(ctx, reports)
}

func (s *reportSpy) set(fail error, hang chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail, s.hang = fail, hang
}

// totals returns the number of reports so far, of reports with details, and of counted events of a kind.
func (s *reportSpy) totals(kind EventKind) (reports, detailed int, counted int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.reports {
		if len(r.Events) > 0 {
			detailed++
		}
		counted += r.Counts[kind]
	}
	return len(s.reports), detailed, counted
}

// onSpy runs a test on fake time with a client that records its reports.
func onSpy(t *testing.T, f func(t *testing.T, c *Client, s *reportSpy)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &reportSpy{Store: memstore.New()}
		f(t, newClientOn(t, s), s)
	})
}

func TestReporterCountsWhatWatchersMissWhileReportsFail(t *testing.T) {
	onSpy(t, func(t *testing.T, c *Client, s *reportSpy) {
		q := c.Queue("q")
		mustSend(t, q, "", In(time.Hour))
		time.Sleep(5 * time.Second)
		w := mustWatch(t, newClientOn(t, s.Store), "q")
		const sent = 5000
		for i := range sent {
			switch i {
			case 100: // for several reports
				s.set(errors.New("connection was cut"), nil)
			case 4900:
				s.set(nil, nil)
			}
			mustSend(t, q, "", In(time.Hour))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		received, missed := 0, 0
		for received+missed < sent {
			e := nextEvent(t, w)
			if missed += e.Missed; e.Kind == EventSent {
				received++
			}
		}
		if received+missed != sent || received == 0 || missed == 0 {
			t.Errorf("%d events were received and %d missed of %d", received, missed, sent)
		}
		before, _, _ := s.totals(EventSent)
		time.Sleep(time.Hour)
		if after, _, _ := s.totals(EventSent); after != before {
			t.Errorf("%d reports while nothing happened", after-before)
		}
	})
}

func TestReporterOfIdleClientMakesNoCalls(t *testing.T) {
	onSpy(t, func(t *testing.T, c *Client, s *reportSpy) {
		q := c.Queue("q")
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", ignore)
		start(t, w)
		time.Sleep(time.Hour)
		if n, _, _ := s.totals(EventSent); n != 0 {
			t.Errorf("%d reports before anything happened", n)
		}
		mustSend(t, q, "")
		time.Sleep(3 * time.Second)
		before, _, sent := s.totals(EventSent)
		time.Sleep(time.Hour)
		if after, _, _ := s.totals(EventSent); sent != 1 || after != before {
			t.Errorf("%d reports after one message, and %d while idle; %d counted as sent", before, after-before, sent)
		}
	})
}

func TestReporterReportsActiveQueueOnceASecond(t *testing.T) {
	onSpy(t, func(t *testing.T, c *Client, s *reportSpy) {
		q := c.Queue("q")
		const seconds = 20
		for range seconds * 100 {
			mustSend(t, q, "", In(time.Hour))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		reports, detailed, sent := s.totals(EventSent)
		if reports < seconds || reports > seconds+2 {
			t.Errorf("%d reports in %d seconds", reports, seconds)
		}
		if detailed > 2 {
			t.Errorf("%d reports have details, though nobody watches; want those of the first moment at most", detailed)
		}
		if sent != seconds*100 {
			t.Errorf("%d are counted as sent, want %d", sent, seconds*100)
		}
	})
}

func TestEventsThatNobodyWatchesCostNoAllocation(t *testing.T) {
	onSpy(t, func(t *testing.T, c *Client, _ *reportSpy) {
		q := c.Queue("q")
		d := &Delivery{Message: &Message{ID: "id"}, queue: q}
		mustSend(t, q, "", In(time.Hour))
		time.Sleep(report.Every / 2) // the first report said that there are no watchers, and the queue is still active
		failure := errors.New("boom")
		if n := testing.AllocsPerRun(100, func() {
			q.event(t.Context(), EventSent, "id")
			d.event(t.Context(), EventNacked, failure)
		}); n != 0 {
			t.Errorf("%v allocations; want 0", n)
		}
		if q.activity.WantsDetails() {
			t.Error("details are collected")
		}
	})
}

func TestReporterFailureIsNoFailureOfTheQueue(t *testing.T) {
	onSpy(t, func(t *testing.T, c *Client, s *reportSpy) {
		s.set(ErrUnavailable, nil)
		q := c.Queue("q")
		for range 100 {
			mustSend(t, q, "", In(time.Hour))
			time.Sleep(100 * time.Millisecond)
		}
		if n, _, _ := s.totals(EventSent); n < 10 || n > 15 {
			t.Errorf("%d reports in ten seconds of failures", n)
		}
		s.set(nil, nil)
		time.Sleep(2 * time.Second)
		mustSend(t, q, "", In(time.Hour))
		time.Sleep(2 * time.Second)
		a, err := q.Activity(t.Context())
		if err != nil || a.Day.Counts[EventSent] == 0 {
			t.Errorf("activity %+v, %v", a.Day, err)
		}
	})
}

func TestReporterThatHangsDelaysNobody(t *testing.T) {
	onSpy(t, func(t *testing.T, c *Client, s *reportSpy) {
		hang := make(chan struct{})
		s.set(nil, hang)
		q := c.Queue("q")
		var handled log[string]
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", func(_ context.Context, m *Message) error {
			handled.add(m.ID)
			return nil
		})
		stop := start(t, w)
		began := time.Now()
		for i := range 10_000 { // far more than are collected
			mustSend(t, q, "", WithID(fmt.Sprint(i)))
		}
		synctest.Wait()
		if n := len(handled.list()); n != 10_000 || time.Since(began) > time.Second {
			t.Errorf("%d messages were handled in %v while a report hangs", n, time.Since(began))
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		// Close does not wait long, but for the goroutine, which the end of the call ends.
		time.AfterFunc(time.Second, func() { close(hang) })
		began = time.Now()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("Close took %v", d)
		}
	})
}

func TestReporterReportsBeforeClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c := mustNew(t, s, quiet)
		q := c.Queue("q")
		for range 10 {
			mustSend(t, q, "", In(time.Hour))
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		a, err := s.Activity(t.Context(), "q")
		if err != nil || a.Minute.Counts[EventSent] != 10 {
			t.Errorf("activity %v, %v; want 10 sent", a.Minute.Counts, err)
		}
	})
}

func TestReporterWithoutActivity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &reportSpy{Store: memstore.New()}
		seen := 0
		c := newClientOn(t, s, WithoutActivity(), WithObserver(func(Event) { seen++ }))
		mustSend(t, c.Queue("q"), "")
		time.Sleep(time.Minute)
		if n, _, _ := s.totals(EventSent); n != 0 || seen != 1 {
			t.Errorf("%d reports, and %d events for the observer; want 0 and 1", n, seen)
		}
	})
}

// TestReporterCountsEachKindOnce takes messages through all transitions.
func TestReporterCountsEachKindOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q, ctx := c.Queue("q"), t.Context()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		receive := func(id string, opts ...SendOption) *Delivery {
			t.Helper()
			mustSend(t, q, "", append(opts, WithID(id))...)
			return mustReceive(t, q, 1)[0]
		}
		must(receive("acked").Ack(ctx))
		must(receive("nacked").Nack(ctx, time.Hour, nil))
		must(receive("snoozed").Snooze(ctx, time.Hour))
		must(receive("buried").Bury(ctx, nil))
		d := receive("released")
		must(d.Release(ctx))
		must(mustReceive(t, q, 1)[0].Ack(ctx))
		must(receive("failed", MaxAttempts(1)).Nack(ctx, 0, nil))
		lost := receive("lost")
		must(second(q.Cancel(ctx, "lost")))
		wantError(t, lost.Ack(ctx), ErrLeaseLost)
		mustSend(t, q, "", WithID("expired"), ExpireAfter(time.Second))
		time.Sleep(2 * time.Second)
		mustSend(t, q, "", WithID("after"))
		must(mustReceive(t, q, 1)[0].Ack(ctx))
		wantError(t, second(q.Send(ctx, nil, WithID("nacked"))), ErrDuplicate)
		must(q.RunNow(ctx, "snoozed"))
		must(q.Pause(ctx))
		must(q.Resume(ctx))
		must(second(q.Replay(ctx, In(time.Hour), "failed")))
		must(second(q.PurgeDead(ctx)))
		time.Sleep(2 * time.Second)
		a, err := q.Activity(ctx)
		must(err)
		want := map[EventKind]int64{
			EventSent: 9, EventDuplicate: 1, EventClaimed: 9, EventAcked: 3, EventNacked: 2, EventSnoozed: 1, EventBuried: 1,
			EventReleased: 1, EventDied: 3, EventExpired: 1, EventLeaseLost: 1, EventCancelled: 1, EventRescheduled: 1,
			EventPaused: 1, EventResumed: 1, EventReplayed: 1, EventPurged: 2,
		}
		if !maps.Equal(a.Minute.Counts, want) {
			t.Errorf("counts are %v, want %v", a.Minute.Counts, want)
		}
	})
}
