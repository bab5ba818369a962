package later

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/schedule"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

// dyingStore is how a process that is killed sees its store: a number of calls succeed, the next one has an effect or
// not, and then none comes through any more.
type dyingStore struct {
	store.Store
	linked bool
	left   int  // calls that come through
	effect bool // the last call has an effect, but its reply is lost
	calls  log[string]
}

var errKilled = fmt.Errorf("the process was killed: %w", ErrUnavailable)

func (d *dyingStore) Linked(queue, to string) bool { return d.linked || queue == to }

// call makes a call that schedules need, or does not.
func (d *dyingStore) call(name string, f func() error) error {
	d.calls.add(name)
	switch n := len(d.calls.list()); {
	case n <= d.left:
		return f()
	case n == d.left+1 && d.effect:
		f()
	}
	return errKilled
}

func (d *dyingStore) Claim(ctx context.Context, q string, req store.ClaimRequest) (c store.Claim, err error) {
	err = d.call("claim", func() error { c, err = d.Store.Claim(ctx, q, req); return err })
	if err != nil {
		c = store.Claim{}
	}
	return c, err
}

func (d *dyingStore) Get(ctx context.Context, q string, ids []string) (infos []*store.Info, err error) {
	err = d.call("get", func() error { infos, err = d.Store.Get(ctx, q, ids); return err })
	return infos, err
}

func (d *dyingStore) Send(ctx context.Context, q string, msgs []store.Outgoing) (r []store.SendResult, err error) {
	err = d.call("send", func() error { r, err = d.Store.Send(ctx, q, msgs); return err })
	return r, err
}

func (d *dyingStore) Settle(ctx context.Context, q string, s []store.Settlement) (r []store.SettleResult, err error) {
	err = d.call("settle", func() error { r, err = d.Store.Settle(ctx, q, s); return err })
	return r, err
}

// TestScheduleSurvivesAKillAtEveryCall kills the process that sends the runs at each of its calls to the store, before
// and after the call has an effect. Another one goes on.
func TestScheduleSurvivesAKillAtEveryCall(t *testing.T) {
	for _, linked := range []bool{true, false} {
		for _, effect := range []bool{false, true} {
			most := 0
			for kill := 0; kill <= most; kill++ {
				t.Run(fmt.Sprintf("linked=%v/effect=%v/%d", linked, effect, kill), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						calls := killedSchedule(t, linked, effect, kill)
						if kill == 0 {
							most = calls + 12 // enough for the calls of three more runs
						}
					})
				})
			}
			if most < 12 {
				t.Errorf("the first process made %d calls", most)
			}
		}
	}
}

// killedSchedule runs a schedule, kills its first process, and checks that each run is there once. It returns the
// number of calls that the first process made.
func killedSchedule(t *testing.T, linked, effect bool, kill int) int {
	s := memstore.New()
	start := time.Now()
	healthy := func() store.Store { return &dyingStore{Store: s, linked: linked, left: 1 << 30} }
	dying := &dyingStore{Store: s, linked: linked, left: kill, effect: effect}
	admin := newClientOn(t, healthy())
	for _, name := range []string{"a", "b"} {
		schedule := everyMinute(name)
		schedule.Missed, schedule.Unfinished = MissedAll, UnfinishedAllow
		if name == "b" {
			schedule.Unfinished, schedule.Missed = UnfinishedSkip, MissedOne
			schedule.Queue = "other"
		}
		put(t, admin, schedule, PutCreated)
	}
	for i, processStore := range []store.Store{dying, healthy()} {
		c := newClientOn(t, processStore)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Schedules().Run(ctx) }()
		time.Sleep(3*time.Minute + 30*time.Second)
		for { // the runs of the other queue are finished at once
			claim, err := s.Claim(t.Context(), "other", store.ClaimRequest{Max: 10, Lease: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			if len(claim.Messages) == 0 {
				break
			}
			for _, m := range claim.Messages {
				ack := store.Settlement{Receipt: m.Receipt, Action: store.Ack, DedupWindow: m.DedupWindow}
				if _, err := s.Settle(t.Context(), "other", []store.Settlement{ack}); err != nil {
					t.Fatal(err)
				}
			}
		}
		cancel()
		if err := <-done; err != nil && (i > 0 || !errors.Is(err, ErrUnavailable)) {
			t.Error(err)
		}
		time.Sleep(time.Until(start.Add(time.Duration(i+1) * 4 * time.Minute)))
	}
	page, err := s.List(t.Context(), "q", store.ListRequest{State: store.StateReady, Limit: store.MaxBatch})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range page.Messages {
		run, ok := RunOf(&Message{ID: m.ID, Headers: m.Headers, Due: m.Due})
		if !ok || !run.Due.Equal(run.Nominal) {
			t.Errorf("message %+v is no run", m)
		}
		got = append(got, run.Nominal.Sub(start).String())
	}
	slices.SortFunc(got, byMinute)
	want := []string{"1m0s", "2m0s", "3m0s", "4m0s", "5m0s", "6m0s", "7m0s"}
	if !slices.Equal(got, want) {
		t.Errorf("the runs were %q, want %q", got, want)
	}
	if info := getSchedule(t, admin, "a"); info.Runs != int64(len(want)) || info.MissedRuns+info.SkippedRuns != 0 {
		t.Errorf("%d runs, %d missed and %d skipped", info.Runs, info.MissedRuns, info.SkippedRuns)
	}
	return len(dying.calls.list())
}

// shiftedClock is offset from the clock of the process.
type shiftedClock struct{ offset time.Duration }

func (c shiftedClock) Now() time.Time { return time.Now().Add(c.offset) }

func (c shiftedClock) Alarm(t time.Time) (<-chan time.Time, func()) {
	timer := time.NewTimer(t.Sub(c.Now()))
	return timer.C, func() { timer.Stop() }
}

// TestScheduleUsesTheClockOfTheStore has a store with a clock that differs from the clock of the workers.
func TestScheduleUsesTheClockOfTheStore(t *testing.T) {
	for _, offset := range []time.Duration{time.Hour, -time.Hour, 90 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now().Add(offset)
			c := newClientOn(t, memstore.New(memstore.WithClock(shiftedClock{offset})))
			put(t, c, everyMinute("a"), PutCreated)
			if info := getSchedule(t, c, "a"); !info.Created.Equal(start) {
				t.Errorf("created at %v, want %v", info.Created, start)
			}
			ran := work(t, c, start.Truncate(time.Minute), nil)
			defer ran.stop()
			time.Sleep(2*time.Minute + 20*time.Second)
			ran.want(t, "1m0s", "2m0s")
			if info := getSchedule(t, c, "a"); info.MissedRuns != 0 {
				t.Errorf("%+v", info)
			}
		})
	}
}

// TestScheduleOfManyMissedRuns sends more runs than one step can.
func TestScheduleOfManyMissedRuns(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		s := Schedule{
			Name: "a", Queue: "q", When: recurrence.Spec{Every: time.Second, Start: start}, Missed: MissedAll,
			MissedMax: 3000, MissedWithin: 2 * time.Hour, Unfinished: UnfinishedAllow, Payload: make([]byte, 20_000),
		}
		put(t, c, s, PutCreated)
		time.Sleep(time.Hour + time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Schedules().Run(ctx) }()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		stats, err := c.Queue("q").Stats(t.Context())
		info := getSchedule(t, c, "a")
		// 3,000 of the runs that are late by more than a minute, and the 60 after them.
		if err != nil || stats.Ready != 3060 || info.Runs != 3060 || info.MissedRuns != 3600-3060 {
			t.Errorf("%d runs are ready, %d were sent, %d missed: %v", stats.Ready, info.Runs, info.MissedRuns, err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestScheduleOfEachMillisecondAfterALongTime does not look at all times of a year.
func TestScheduleOfEachMillisecondAfterALongTime(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		s := Schedule{Name: "a", Queue: "q", When: recurrence.Spec{Every: time.Millisecond, Start: start}}
		put(t, c, s, PutCreated)
		time.Sleep(365 * 24 * time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Schedules().Run(ctx) }()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		info := getSchedule(t, c, "a")
		if info.Runs != 1 || info.MissedRuns < 2*schedule.MaxRuns || info.MissedRuns > 4_000_000 ||
			time.Until(info.NextRun.Due) > time.Second {
			t.Errorf("%d runs, %d missed, %d skipped, next %v", info.Runs, info.MissedRuns, info.SkippedRuns, info.NextRun)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestScheduleWithMuchJitterAfterALongTime has more times in the range of its jitter than one step looks at.
func TestScheduleWithMuchJitterAfterALongTime(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		s := Schedule{Name: "a", Queue: "q", When: recurrence.Spec{Every: time.Second, Start: start, Jitter: 24 * time.Hour}}
		put(t, c, s, PutCreated)
		time.Sleep(72 * time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Schedules().Run(ctx) }()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		info := getSchedule(t, c, "a")
		if info.Runs != 1 || time.Until(info.NextRun.Due) > 2*time.Second || info.MissedRuns > 72*3600 {
			t.Errorf("%d runs, %d missed, %d skipped, next %v", info.Runs, info.MissedRuns, info.SkippedRuns, info.NextRun)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestScheduleThatWasImportedRuns has the schedules without the properties of the store that they come from.
func TestScheduleThatWasImportedRuns(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		from := newClientOn(t, memstore.New())
		put(t, from, everyMinute("a"), PutCreated)
		infos, err := from.Store().Get(t.Context(), reserved.Schedules, []string{"a"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Store().Restore(t.Context(), reserved.Schedules, []store.Info{*infos[0]}); err != nil {
			t.Fatal(err)
		}
		ran := work(t, c, start, nil)
		defer ran.stop()
		time.Sleep(time.Minute + time.Second)
		ran.want(t, "1m0s")
	})
}

// TestScheduleThatCannotRunKeepsNoOtherFromRunning has a record that was edited by hand.
func TestScheduleThatCannotRunKeepsNoOtherFromRunning(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		put(t, c, everyMinute("a"), PutCreated)
		for i, queue := range []string{"", "a{b", "a\nb", reserved.Schedules, "topic:", strings.Repeat("x", 1000)} {
			name := fmt.Sprint("odd", i)
			put(t, c, everyMinute(name), PutCreated)
			infos, err := c.store.Get(t.Context(), reserved.Schedules, []string{name})
			if err != nil {
				t.Fatal(err)
			}
			m := store.Outgoing{Message: infos[0].Message, Due: store.Due{At: infos[0].Due}}
			own, _ := json.Marshal(everyMinute(name).Queue)
			other, _ := json.Marshal(queue)
			key := []byte(`"queue":`)
			m.Payload = bytes.Replace(m.Payload, slices.Concat(key, own), slices.Concat(key, other), 1)
			m.OnDuplicate = store.OnDuplicate{Mode: store.DuplicateReplace}
			_, err = c.store.Send(t.Context(), reserved.Schedules, []store.Outgoing{m})
			if err != nil {
				t.Fatal(err)
			}
		}
		ran := work(t, c, start, nil)
		defer ran.stop()
		time.Sleep(2*time.Minute + 30*time.Second)
		ran.want(t, "1m0s", "2m0s")
	})
}
