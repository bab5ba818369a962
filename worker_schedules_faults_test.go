package later

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/schedule"
	"github.com/laterq/later/internal/topic"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

// stepStore is a store with replaceable calls for the steps of schedules. Each function may be nil.
type stepStore struct {
	store.Store
	linked bool
	get    func(ctx context.Context, queue string) error
	send   func(queue string, msgs []store.Outgoing) error
	settle func(queue string, s []store.Settlement) error
	claim  func(queue string, req store.ClaimRequest)
	stats  func(queue string) error
}

func (s *stepStore) Linked(queue, to string) bool { return s.linked || queue == to }

func (s *stepStore) Get(ctx context.Context, queue string, ids []string) ([]*store.Info, error) {
	if s.get != nil {
		if err := s.get(ctx, queue); err != nil {
			return nil, err
		}
	}
	return s.Store.Get(ctx, queue, ids)
}

func (s *stepStore) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	if s.send != nil {
		if err := s.send(queue, msgs); err != nil {
			return nil, err
		}
	}
	return s.Store.Send(ctx, queue, msgs)
}

func (s *stepStore) Settle(ctx context.Context, q string, all []store.Settlement) ([]store.SettleResult, error) {
	if s.settle != nil {
		if err := s.settle(q, all); err != nil {
			return nil, err
		}
	}
	return s.Store.Settle(ctx, q, all)
}

func (s *stepStore) Claim(ctx context.Context, queue string, req store.ClaimRequest) (store.Claim, error) {
	if s.claim != nil {
		s.claim(queue, req)
	}
	return s.Store.Claim(ctx, queue, req)
}

func (s *stepStore) Stats(ctx context.Context, queue string) (store.Stats, error) {
	if s.stats != nil {
		if err := s.stats(queue); err != nil {
			return store.Stats{}, err
		}
	}
	return s.Store.Stats(ctx, queue)
}

func TestDeadRunIsFinished(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		put(t, c, everyMinute("a"), PutCreated)
		ran := work(t, c, start, func(context.Context, *Message) error { return Bury(errors.New("no")) })
		time.Sleep(2*time.Minute + time.Second)
		ran.want(t, "1m0s", "2m0s")
		ran.stop()
	})
}

// TestScheduleDoesNotGuessWhetherItsRunHasEnded fails to look for the run before.
func TestScheduleDoesNotGuessWhetherItsRunHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing atomic.Bool
		s := &stepStore{Store: memstore.New(), linked: true}
		s.get = func(_ context.Context, queue string) error {
			if queue == "q" && failing.Load() {
				return ErrUnavailable
			}
			return nil
		}
		c, start := newClientOn(t, s), time.Now()
		put(t, c, everyMinute("a"), PutCreated)
		ran := work(t, c, start, func(ctx context.Context, _ *Message) error { return calls.Sleep(ctx, time.Hour) })
		time.Sleep(90 * time.Second)
		failing.Store(true)
		time.Sleep(time.Minute)
		failing.Store(false)
		time.Sleep(10 * time.Second)
		ran.want(t, "1m0s")
		if info := getSchedule(t, c, "a"); info.SkippedRuns != 1 || info.Runs != 1 {
			t.Errorf("the schedule is %+v", info)
		}
		time.Sleep(time.Hour)
		ran.stop()
	})
}

// TestServerThatHangsDelaysOtherQueuesLittle has the queue of one schedule on a server that does not answer.
func TestServerThatHangsDelaysOtherQueuesLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stepStore{Store: memstore.New()}
		s.get = func(ctx context.Context, queue string) error {
			if queue == "away" {
				<-ctx.Done()
				return ErrUnavailable
			}
			return nil
		}
		c, start := newClientOn(t, s), time.Now()
		put(t, c, everyMinute("a"), PutCreated)
		away := everyMinute("away")
		away.Queue = "away"
		put(t, c, away, PutCreated)
		ran := work(t, c, start, func(_ context.Context, m *Message) error {
			if m.Lateness > 2*time.Second {
				t.Errorf("a run of the other queue is %v late", m.Lateness)
			}
			return nil
		})
		time.Sleep(20*time.Minute + 10*time.Second)
		synctest.Wait()
		if got := len(ran.list()); got != 20 {
			t.Errorf("%d runs, want 20", got)
		}
		ran.stop()
	})
}

// TestRunsOfAnotherServerAreSentInBatches has two schedules with more runs than fit into one call.
func TestRunsOfAnotherServerAreSentInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, largest := &stepStore{Store: memstore.New()}, 0
		s.send = func(queue string, msgs []store.Outgoing) error {
			size := 0
			for i := range msgs {
				size += msgs[i].Size()
			}
			if largest = max(largest, len(msgs)); len(msgs) > store.MaxBatch || size > store.MaxBatchBytes {
				t.Errorf("%d messages of %d bytes in a call", len(msgs), size)
			}
			return nil
		}
		c, start := newClientOn(t, s), time.Now()
		for name, payload := range map[string]int{"a": 100, "b": 100, "c": 60_000, "d": 60_000} {
			put(t, c, Schedule{
				Name: name, Queue: "q", When: recurrence.Spec{Every: time.Second, Start: start}, Missed: MissedAll,
				MissedMax: schedule.MaxRuns, Unfinished: UnfinishedAllow, Payload: make([]byte, payload),
			}, PutCreated)
		}
		time.Sleep(10*time.Minute + 500*time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Schedules().Run(ctx) }()
		time.Sleep(300 * time.Millisecond)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		stats, err := c.Queue("q").Stats(t.Context())
		if err != nil || stats.Ready != 4*600 || largest < 100 {
			t.Errorf("%d runs are ready, up to %d in a call: %v", stats.Ready, largest, err)
		}
	})
}

func TestRunThatWasThereIsNotReportedAsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent log[string]
		c := newClientOn(t, &stepStore{Store: memstore.New()}, WithObserver(func(e Event) {
			if e.Kind == EventSent {
				sent.add(e.ID)
			}
		}))
		put(t, c, everyMinute("a"), PutCreated)
		next := getSchedule(t, c, "a").NextRun
		to := next.Nominal.Add(time.Second)
		if _, err := c.Schedules().Backfill(t.Context(), "a", next.Nominal, to, false); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Schedules().Run(ctx) }()
		time.Sleep(61 * time.Second)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := sent.list(); !slices.Equal(got, []string{next.ID}) {
			t.Errorf("sent %q", got)
		}
	})
}

// TestStepThatTheStoreRefusesIsPostponed refuses the step of one schedule for good.
func TestStepThatTheStoreRefusesIsPostponed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stepStore{Store: memstore.New(), linked: true}
		s.settle = func(_ string, all []store.Settlement) error {
			for i := range all {
				if all[i].Action != store.Ack && len(all[i].Then) > 0 {
					t.Errorf("follow-ups of a settlement that is no ack: %+v", all[i])
				}
				for _, f := range all[i].Then {
					if f.Queue == "refused" {
						return store.Invalid("no")
					}
				}
			}
			return nil
		}
		s.claim = func(queue string, req store.ClaimRequest) {
			if queue == reserved.Schedules && req.Lease != 5*time.Second {
				t.Errorf("a lease of %v", req.Lease)
			}
		}
		c, start := newClientOn(t, s), time.Now()
		put(t, c, everyMinute("a"), PutCreated)
		refused := everyMinute("refused")
		refused.Queue = "refused"
		put(t, c, refused, PutCreated)
		ran := work(t, c, start, nil)
		time.Sleep(62 * time.Second)
		ran.want(t, "1m0s")
		infos, err := s.Store.Get(t.Context(), reserved.Schedules, []string{"refused"})
		if err != nil || infos[0] == nil || infos[0].State != store.StateScheduled {
			t.Errorf("the schedule is %+v, %v", infos, err)
		}
		ran.stop()
	})
}

// TestImportedSchedulesAreNoticedAfterAFailure has a store that fails when the worker looks for the first time.
func TestImportedSchedulesAreNoticedAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, looks := &stepStore{Store: memstore.New(), linked: true}, 0
		c, start := newClientOn(t, s), time.Now()
		put(t, c, everyMinute("a"), PutCreated)
		unknown := map[string]string{topic.SchedulesExist: ""}
		if err := s.SetProperties(t.Context(), reserved.TopicIndex, unknown, nil); err != nil {
			t.Fatal(err)
		}
		s.stats = func(queue string) error {
			if looks++; queue == reserved.Schedules && looks < 3 {
				return ErrUnavailable
			}
			return nil
		}
		ran := work(t, c, start, nil)
		time.Sleep(61 * time.Second)
		ran.want(t, "1m0s")
		ran.stop()
	})
}
