package later

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/topic"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// sentStore records the sends to the schedules' queue. It promises any durability.
type sentStore struct {
	store.Store
	sent []store.Outgoing
	runs int // sent by themselves
}

func (s *sentStore) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	if queue == reserved.Schedules {
		s.sent = append(s.sent, msgs...)
	} else {
		s.runs += len(msgs)
	}
	msgs = slices.Clone(msgs)
	for i := range msgs {
		msgs[i].Durable = store.Durability{}
	}
	return s.Store.Send(ctx, queue, msgs)
}

func TestPauseOfAPausedScheduleKeepsItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sentStore{Store: memstore.New()}
		c := newClientOn(t, s)
		put(t, c, everyMinute("a"), PutCreated)
		begun := time.Now()
		for _, note := range []string{"first", "first", "second"} {
			if err := c.Schedules().Pause(t.Context(), "a", note); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if info := getSchedule(t, c, "a"); !info.PausedAt.Equal(begun) || info.PauseNote != "second" {
			t.Errorf("paused at %v with %q, want %v", info.PausedAt, info.PauseNote, begun)
		}
		if len(s.sent) != 3 {
			t.Errorf("%d writes, want one for Put and each note", len(s.sent))
		}
	})
}

func TestScheduleHasTheDurabilityOfTheClient(t *testing.T) {
	s := &sentStore{Store: memstore.New()}
	c := newClientOn(t, s, WithDefaults(Durable(1, time.Second)))
	put(t, c, everyMinute("a"), PutCreated)
	if len(s.sent) != 1 || !s.sent[0].Durable.Asked() {
		t.Errorf("sent %+v", s.sent)
	}
}

func TestWorkersAreToldOfASchedule(t *testing.T) {
	f := &faulty{Store: memstore.New()}
	c := newClientOn(t, f)
	f.set(unavailable("set properties"), nil)
	if _, err := c.Schedules().Put(t.Context(), everyMinute("a")); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Put returned %v", err)
	}
	f.set(nil, nil)
	put(t, c, everyMinute("a"), PutCreated)
	index, err := f.Properties(t.Context(), reserved.TopicIndex)
	if err != nil || index[topic.SchedulesExist] == "" {
		t.Errorf("the index has %v, %v", index, err)
	}
}

func TestDeadScheduleSaysHowToReviveIt(t *testing.T) {
	s := memstore.New()
	c := newClientOn(t, s)
	put(t, c, everyMinute("a"), PutCreated)
	errs, err := s.Reschedule(t.Context(), reserved.Schedules, []string{"a"}, store.Due{})
	if err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
	claim, err := s.Claim(t.Context(), reserved.Schedules, store.ClaimRequest{Max: 1, Lease: time.Minute})
	if err != nil || len(claim.Messages) != 1 {
		t.Fatalf("%+v, %v", claim, err)
	}
	bury := []store.Settlement{{Receipt: claim.Messages[0].Receipt, Action: store.Bury, Reason: "a test"}}
	if _, err := s.Settle(t.Context(), reserved.Schedules, bury); err != nil {
		t.Fatal(err)
	}
	_, err = c.Schedules().Get(t.Context(), "a")
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), `a test; replay it in queue "schedules:"`) {
		t.Errorf("Get returned %v", err)
	}
}

func TestBackfilledRunsAreDueAtOnce(t *testing.T) {
	c := newClientOn(t, memstore.New())
	put(t, c, everyMinute("a"), PutCreated)
	from := time.Now().Add(time.Hour)
	got, err := c.Schedules().Backfill(t.Context(), "a", from, from.Add(3*time.Minute), false)
	if err != nil || got.Sent != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	wantCounts(t, c.Queue("q"), 0, 3, 0, 0)
}

func TestUpcomingHasWhatAWorkerHoldsAndWhatEnds(t *testing.T) {
	s := memstore.New()
	c := newClientOn(t, s)
	ends := everyMinute("ends")
	ends.When.MaxRuns = 2
	put(t, c, ends, PutCreated)
	put(t, c, everyMinute("goes on"), PutCreated)
	errs, err := s.Reschedule(t.Context(), reserved.Schedules, []string{"ends"}, store.Due{})
	if err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
	claim, err := s.Claim(t.Context(), reserved.Schedules, store.ClaimRequest{Max: 1, Lease: time.Minute})
	if err != nil || len(claim.Messages) != 1 {
		t.Fatalf("%+v, %v", claim, err)
	}
	runs, err := c.Schedules().Upcoming(t.Context(), 6)
	n := map[string]int{}
	for _, run := range runs {
		n[run.Schedule]++
	}
	if err != nil || n["ends"] != 2 || n["goes on"] != 4 {
		t.Errorf("%v, %v", n, err)
	}
}

// weakStore keeps messages and says that they are not durable.
type weakStore struct{ store.Store }

func (s weakStore) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	results, err := s.Store.Send(ctx, queue, msgs)
	for i := range results {
		if queue == "q" && results[i].Err == nil {
			results[i].Err = ErrNotDurable
		}
	}
	return results, err
}

func TestBackfillCountsRunsThatAreNotDurable(t *testing.T) {
	c := newClientOn(t, weakStore{memstore.New()})
	put(t, c, everyMinute("a"), PutCreated)
	from := time.Now().Add(time.Hour)
	got, err := c.Schedules().Backfill(t.Context(), "a", from, from.Add(3*time.Minute), false)
	if got.Sent != 3 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestRunThatCannotBeSentIsSentLater has a store that refuses one send to the queue of the runs, in another step than
// the ack of the schedule.
func TestRunThatCannotBeSentIsSentLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, &dyingStore{Store: f, left: 1 << 30})
		start := time.Now()
		put(t, c, everyMinute("a"), PutCreated)
		ran := work(t, c, start, nil)
		time.Sleep(30 * time.Second)
		f.set(unavailable("send"), nil)
		time.Sleep(33 * time.Second)
		ran.want(t)
		f.set(nil, nil)
		time.Sleep(5 * time.Second)
		ran.want(t, "1m0s")
		ran.stop()
	})
}

// TestScheduleThatMiddlewareRefusesKeepsNoOtherFromRunning has two schedules of one queue.
func TestScheduleThatMiddlewareRefusesKeepsNoOtherFromRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := WithSendMiddleware(func(_ context.Context, o *Outgoing) error {
			if o.Headers["schedule"] == "a" {
				return errors.New("no")
			}
			return nil
		})
		c, start := newClientOn(t, memstore.New(), refuse), time.Now()
		put(t, c, everyMinute("a"), PutCreated)
		put(t, c, everyMinute("b"), PutCreated)
		ran := work(t, c, start, nil)
		time.Sleep(61 * time.Second)
		ran.want(t, "1m0s")
		ran.stop()
	})
}

// TestDurableRunsAreSent has runs that cannot be written with the ack, because durability is asked for them.
func TestDurableRunsAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sentStore{Store: memstore.New()}
		linked := &dyingStore{Store: s, linked: true, left: 1 << 30}
		c, start := newClientOn(t, linked, WithDefaults(Durable(1, time.Second))), time.Now()
		put(t, c, everyMinute("a"), PutCreated)
		ran := work(t, c, start, nil)
		time.Sleep(61 * time.Second)
		ran.want(t, "1m0s")
		ran.stop()
		if s.runs != 1 {
			t.Errorf("%d runs were sent by themselves, want 1", s.runs)
		}
	})
}

// listedStore calls a function after a page was listed.
type listedStore struct {
	store.Store
	after func()
}

func (s *listedStore) List(ctx context.Context, queue string, req store.ListRequest) (store.Page, error) {
	page, err := s.Store.List(ctx, queue, req)
	if s.after != nil {
		s.after()
	}
	return page, err
}

// TestPruneOfWhatWasDeletedMeanwhile applies a set and deletes one of its schedules at the same time.
func TestPruneOfWhatWasDeletedMeanwhile(t *testing.T) {
	s := &listedStore{Store: memstore.New()}
	c := newClientOn(t, s)
	o := ApplyOptions{Set: "set", Prune: true}
	if _, err := c.Schedules().Apply(t.Context(), []Schedule{everyMinute("a")}, o); err != nil {
		t.Fatal(err)
	}
	s.after = func() {
		s.after = nil
		if err := c.Schedules().Delete(t.Context(), "a"); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Schedules().Apply(t.Context(), nil, o); err != nil {
		t.Errorf("Apply returned %v", err)
	}
}
