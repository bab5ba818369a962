package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/internal/schedule"
	"github.com/laterq/later/recurrence"
)

// TestWorkersKilledAtAnyPointSendEachRunOnce kills some of three workers that send and handle the runs of a schedule:
// on a server with a clock that is an hour ahead of theirs; in a Cluster, where a run is sent before the schedule is
// settled; and on an embedded store that they share.
func TestWorkersKilledAtAnyPointSendEachRunOnce(t *testing.T) {
	runs, kills := 900, 2
	if os.Getenv("LATER_LONG") != "" {
		runs, kills = 10_000, 20
	}
	t.Run("redis", func(t *testing.T) {
		library := buildClock(t)
		t.Setenv("LD_PRELOAD", library)
		t.Setenv("CLOCK_OFFSET", fmt.Sprint(time.Hour.Seconds()))
		srv := redistest.Start(t)
		os.Unsetenv("LD_PRELOAD") // for the workers
		killSchedulers(t, srv.URL(), runs, kills)
	})
	t.Run("cluster", func(t *testing.T) {
		killSchedulers(t, redistest.SharedCluster(t).URL(), runs, kills)
	})
	t.Run("embedded", func(t *testing.T) {
		killSchedulers(t, "file://"+filepath.ToSlash(t.TempDir())+"/store", runs, kills)
	})
}

func killSchedulers(t *testing.T, url string, runs, kills int) {
	const processes = 3
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	queue, name := newQueueName(t), fmt.Sprint("schedule-", seed)
	const every = 2 * time.Millisecond
	inClient(t, url, func(c *later.Client) {
		stats, err := c.Queue(queue).Stats(bounded(t))
		if err != nil {
			t.Fatal(err)
		}
		start := stats.Now.Add(time.Second).Truncate(time.Millisecond)
		_, err = c.Schedules().Put(bounded(t), later.Schedule{
			Name: name, Queue: queue, Payload: []byte(doNothing),
			When:   recurrence.Spec{Every: every, Start: start, End: start.Add(time.Duration(runs) * every)},
			Missed: later.MissedAll, MissedMax: schedule.MaxRuns, MissedWithin: 24 * time.Hour,
			Unfinished: later.UnfinishedAllow,
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	j := newJournal()
	role := consumer{URL: url, Queues: []string{queue}, Concurrency: 8, Lease: time.Second}
	var alive []*child
	for i := range processes {
		alive = append(alive, startConsumer(t, j, fmt.Sprint("worker", i), role))
	}
	for kill := range kills {
		after := (kill*runs + random.IntN(runs)) / kills
		inClient(t, url, func(c *later.Client) {
			awaitSchedule(t, c, name, func(info *later.ScheduleInfo) bool { return info.Runs >= int64(after) })
		})
		victim := random.IntN(len(alive))
		alive[victim].kill()
		alive[victim] = startConsumer(t, j, fmt.Sprint("worker", processes+kill), role)
	}
	var ids []string
	inClient(t, url, func(c *later.Client) {
		awaitSchedule(t, c, name, func(info *later.ScheduleInfo) bool {
			stats, err := c.Queue(queue).Stats(bounded(t))
			if err != nil {
				t.Fatal(err)
			}
			return info.Finished && stats.Scheduled+stats.Ready+stats.Leased == 0
		})
		info, err := c.Schedules().Get(bounded(t), name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Runs != int64(runs) || info.MissedRuns+info.SkippedRuns != 0 || !info.Finished {
			t.Errorf("%d runs were sent, %d missed and %d skipped; want %d", info.Runs, info.MissedRuns,
				info.SkippedRuns, runs)
		}
		ids = checkRuns(t, c, j, queue, info)
	})
	for _, id := range ids {
		if first := j.find(event{Kind: later.EventStarted, ID: id, Attempt: 1}); len(first) > 1 {
			t.Errorf("run %q was sent %d times: %v", id, len(first), first)
		}
	}
}

// checkRuns checks that each run of a schedule was handled, or has an id that is remembered because it was, and returns
// their ids. The last events of a killed worker can be lost.
func checkRuns(t *testing.T, c *later.Client, j *journal, queue string, info *later.ScheduleInfo) (ids []string) {
	done := map[string]bool{}
	for _, e := range j.find(event{Kind: later.EventAcked}) {
		done[e.ID] = true
	}
	// The id of a run is the id of the last one with another time in it.
	const layout = "2006-01-02T15:04:05.000Z"
	prefix, suffix := info.Name+"@", info.LastRun.ID[len(info.Name)+1+len(layout):]
	for at := info.When.Start; at.Before(info.When.End); at = at.Add(info.When.Every) {
		id := prefix + at.UTC().Format(layout) + suffix
		ids = append(ids, id)
		if done[id] {
			continue
		}
		if _, err := c.Queue(queue).Send(bounded(t), nil, later.WithID(id)); !errors.Is(err, later.ErrDuplicate) {
			t.Errorf("run %q was never sent: %v", id, err)
		}
	}
	return ids
}

// awaitSchedule waits until a schedule is as it should be.
func awaitSchedule(t *testing.T, c *later.Client, name string, done func(*later.ScheduleInfo) bool) {
	t.Helper()
	ctx := bounded(t)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		info, err := c.Schedules().Get(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if done(info) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%d runs were sent, next %v", info.Runs, info.NextRun)
		}
	}
}

// TestScheduleOfADamagedQueueKeepsNoOtherFromRunning has a queue with a key of a wrong type, so that the server refuses
// to write its runs.
func TestScheduleOfADamagedQueueKeepsNoOtherFromRunning(t *testing.T) {
	srv := redistest.Start(t)
	c := open(t, srv.URL())
	good, bad := c.Queue("good"), c.Queue("bad")
	if _, err := bad.Send(bounded(t), nil); err != nil {
		t.Fatal(err)
	}
	rdb := srv.Client(t)
	keys, err := rdb.Keys(bounded(t), "*{bad}*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatal(keys, err)
	}
	for _, key := range keys {
		if err := rdb.Set(bounded(t), key, "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now().Add(time.Second)
	for _, q := range []*later.Queue{bad, good} {
		if _, err := c.Schedules().Put(bounded(t), later.Schedule{
			Name: q.Name(), Queue: q.Name(), When: recurrence.Spec{Times: []time.Time{start}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	received := make(chan string, 1)
	work(t, c, later.WorkerConfig{}, "good", func(_ context.Context, m *later.Message) error {
		received <- m.Headers["schedule"]
		return nil
	})
	select {
	case name := <-received:
		if name != "good" {
			t.Errorf("received a run of %q", name)
		}
	case <-time.After(patience):
		t.Fatal("a damaged queue keeps the schedule of another one from running")
	}
	if info, err := c.Schedules().Get(bounded(t), "bad"); err != nil || info.Runs != 0 {
		t.Errorf("%+v, %v", info, err)
	}
}
