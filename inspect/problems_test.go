package inspect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/pauses"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/internal/topic"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

// problems returns the problems of a store, each as severity, kind and text.
func problems(t *testing.T, c *later.Client) (all []string) {
	t.Helper()
	list, err := Problems(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Problems {
		all = append(all, fmt.Sprintf("%s %s: %s", p.Severity, p.Kind, p.Text()))
		if p.Now.IsZero() || len(p.Action().Command) == 0 {
			t.Errorf("%+v has no time or action", p)
		}
	}
	return all
}

// wantProblems fails unless the problems are these.
func wantProblems(t *testing.T, c *later.Client, want ...string) {
	t.Helper()
	if got := strings.Join(problems(t, c), "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// busy runs a worker until the end of the test, with handlers that wait.
func busy(t *testing.T, c *later.Client, cfg later.WorkerConfig, queues ...string) (w *later.Worker, release func()) {
	t.Helper()
	cfg.MaxPrefetch = -1
	w = later.NewWorker(c, cfg)
	done := make(chan struct{})
	for _, queue := range queues {
		w.Handle(queue, func(context.Context, *later.Message) error {
			<-done
			return nil
		})
	}
	stop := start(t, w)
	free := sync.OnceFunc(func() { close(done) })
	t.Cleanup(free)
	return w, func() {
		free()
		wantNoError(t, stop())
	}
}

func TestProblemsOfWorkers(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		q := c.Queue("mail")
		mustSend(t, q, "", later.In(time.Hour))
		for range 3 {
			mustSend(t, q, "")
		}
		wantProblems(t, c) // too young
		time.Sleep(12 * time.Minute)
		wantProblems(t, c,
			"act no_worker: queue mail has no worker: 3 messages are due, the first for 12 min")

		_, release := busy(t, c, later.WorkerConfig{Name: "batch-1", Concurrency: 1}, "mail")
		time.Sleep(2 * time.Minute)
		wantProblems(t, c,
			"act workers_busy: the handler of batch-1 is busy for 2 min: 2 messages of queue mail wait")
		mustSend(t, q, "", later.WithID("last"))
		if e := explained(t, c, q, "last", WhyWaiting); e.Text(time.UTC) !=
			"the handler of batch-1 is busy for 2 min, and 2 messages are before it" || e.Busy != e.Handlers {
			t.Errorf("%s: %+v", e.Text(time.UTC), e)
		}
		if _, err := c.ControlWorkers(t.Context(), later.CommandPause, "batch-1"); err != nil {
			t.Fatal(err)
		}
		wantProblems(t, c, "act workers_paused: all workers of queue mail are paused or draining: "+
			"3 messages are due, the first for 14 min")
		_, releaseOthers := busy(t, c, later.WorkerConfig{Name: "batch-2", Concurrency: 8}, "mail")
		time.Sleep(20 * time.Second)
		wantProblems(t, c)
		release()
		releaseOthers()
	})
}

func mustList(t *testing.T, q *later.Queue, state later.State) []*later.Info {
	t.Helper()
	page, err := q.List(t.Context(), later.ListOptions{State: state})
	wantNoError(t, err)
	return page.Messages
}

func TestProblemsOfAProgramThatIsNoListedWorker(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		q := c.Queue("mail")
		for range 3 {
			mustSend(t, q, "")
		}
		time.Sleep(time.Minute)
		mustReceive(t, q, 1, later.Lease(20*time.Minute))
		time.Sleep(2 * time.Second)
		wantProblems(t, c)
		time.Sleep(10 * time.Minute)
		wantProblems(t, c, "watch overdue: workers of queue mail are late: 2 messages are due, the first for 11 min")
		time.Sleep(20 * time.Minute) // the lease has ended, and no claim has ended it
		wantProblems(t, c, "act no_worker: queue mail has no worker: 2 messages are due, the first for 31 min")
	})
}

func TestProblemsOfPausedQueues(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		ctx := pauses.WithAuthor(t.Context(), "ann")
		q := c.Queue("mail")
		wantNoError(t, q.Pause(ctx))
		time.Sleep(3 * time.Hour)
		wantNoError(t, q.Pause(t.Context())) // changes nothing
		wantProblems(t, c, "watch paused: queue mail is paused for 3 h by ann")
		mustSend(t, q, "")
		wantProblems(t, c, "watch paused: queue mail is paused for 3 h by ann: 1 message is due")
		wantNoError(t, q.Resume(ctx))
		if all, err := c.Store().Properties(ctx, "mail"); err != nil || len(all) > 0 {
			t.Errorf("properties are %v, %v", all, err)
		}
		wantNoError(t, c.Store().SetPaused(ctx, "mail", true)) // by a program that does not keep it
		wantProblems(t, c, "watch paused: queue mail is paused: 1 message is due")
	})
}

func TestProblemsOfLimits(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		q, r, k := c.Queue("a"), c.Queue("b"), c.Queue("c")
		wantNoError(t, q.SetFlow(t.Context(), later.Flow{Concurrency: 2}))
		wantNoError(t, r.SetFlow(t.Context(), later.Flow{Rate: later.Rate{N: 1, Per: time.Hour}}))
		wantNoError(t, k.SetFlow(t.Context(), later.Flow{Key: later.KeyFlow{Concurrency: 1}}))
		for i := range 5 {
			mustSend(t, q, "")
			mustSend(t, r, "")
			mustSend(t, k, "", later.Key("customer-7"), later.WithID(fmt.Sprint("customer-7/", i)))
		}
		_, release := busy(t, c, later.WorkerConfig{Name: "w", Concurrency: 10}, "a", "b", "c")
		time.Sleep(time.Minute)
		wantProblems(t, c,
			"watch limited: queue a has 2 of 2 messages in flight, its limit: 3 messages are due, the first for 1 min",
			"watch limited: queue b may start 1/1h, its limit: 4 messages are due, the first for 1 min",
			"watch key_limited: key customer-7 of queue c has 1 of 1 messages in flight, its limit: "+
				"4 messages are due, the first for 1 min")
		time.Sleep(5 * time.Minute)
		if all := problems(t, c); len(all) != 3 || !strings.HasPrefix(all[0], "act ") || !strings.HasPrefix(all[2], "act ") {
			t.Errorf("%q", all)
		}
		release()
	})
}

func TestProblemsOfAHaltedKey(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		haltedKey(t, c)
		time.Sleep(time.Second)
		wantProblems(t, c, "act key_halted: key k of queue mail is halted by the dead message k/1",
			"watch dead: 1 message of queue mail died in the last hour, most often: no such user #")
	})
}

func TestProblemsOfDeadMessages(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		q := c.Queue("mail")
		die := func(n int, text string) {
			for i := range n {
				mustSend(t, q, "")
				wantNoError(t, mustReceive(t, q, 1)[0].Bury(t.Context(), fmt.Errorf(text, i)))
			}
		}
		die(2, "refused %d")
		wantProblems(t, c, "watch dead: 2 messages of queue mail died in the last hour, most often: refused #")
		time.Sleep(2 * time.Hour)
		wantProblems(t, c) // few, and old
		die(1, "refused %d")
		die(11, "timeout %d")
		wantProblems(t, c,
			"act dead: 12 messages of queue mail died in the last hour, most often: timeout # (14 dead in all)")
		die(100, "timeout %d")
		wantProblems(t, c,
			"act dead: 100 or more messages of queue mail died in the last hour, most often: timeout # (114 dead in all)")
		time.Sleep(2 * time.Hour)
		wantProblems(t, c, "watch dead: queue mail has 114 dead messages, most often: timeout #")
	})
}

func TestProblemsOfMessagesThatAreGivenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		mux := later.NewMux()
		mux.Handle("known", func(context.Context, *later.Message) error { return nil })
		w := later.NewWorker(c, later.WorkerConfig{Name: "w", Concurrency: 1})
		w.HandleMux("mail", mux)
		stop := start(t, w)
		mustSend(t, c.Queue("mail"), "", later.Kind("mistyped"))
		time.Sleep(20 * time.Second)
		got := problems(t, c)
		// In the second in which the message falls due and is given back again, it counts twice.
		want := regexp.MustCompile("^act given_back: workers of queue mail give (1 message|2 messages) back, since they " +
			"cannot handle (it|them): .*mistyped")
		if len(got) != 1 || !want.MatchString(got[0]) {
			t.Errorf("%q", got)
		}
		wantNoError(t, stop())
	})
}

func TestProblemsOfSchedules(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		daily := later.Schedule{Name: "daily", Queue: "reports", When: recurrence.Spec{Every: 24 * time.Hour}}
		often := later.Schedule{Name: "often", Queue: "reports", When: recurrence.Spec{Every: time.Minute},
			Missed: later.MissedNone, Unfinished: later.UnfinishedAllow}
		for _, s := range []later.Schedule{daily, often} {
			if _, err := c.Schedules().Put(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		wantProblems(t, c)
		time.Sleep(time.Hour)
		wantProblems(t, c, "act schedule_late: schedule often has been late for 59 min, since no worker sends its run")

		stop := start(t, c.Schedules().Worker())
		time.Sleep(time.Second)
		got := problems(t, c)
		if len(got) != 2 || !strings.HasPrefix(got[1], "watch schedule_missed: schedule often has left out 58 runs, ") {
			t.Errorf("%q", got)
		}
		wantNoError(t, c.Schedules().Delete(t.Context(), "often"))
		run, err := c.Schedules().Trigger(t.Context(), "daily")
		wantNoError(t, err)
		for range 100 { // until it is the one
			d := mustReceive(t, c.Queue("reports"), 1)[0]
			if d.ID == run.ID {
				wantNoError(t, d.Bury(t.Context(), errors.New("no paper")))
				break
			}
			wantNoError(t, d.Ack(t.Context()))
		}
		wantProblems(t, c, "act schedule_failed: the last run of schedule daily failed and is dead: no paper",
			"watch dead: 1 message of queue reports died in the last hour, most often: no paper")
		wantNoError(t, stop())
	})
}

func TestProblemsOfTopics(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		news := c.Topic("news")
		publish := func(opts ...later.SendOption) {
			if _, err := news.Publish(t.Context(), nil, opts...); err != nil {
				t.Fatal(err)
			}
		}
		publish(later.In(time.Hour))
		wantProblems(t, c, "watch topic_unsubscribed: topic news has no subscription: 1 message waits")
		publish()
		time.Sleep(10 * time.Minute)
		wantProblems(t, c, "act topic_unsubscribed: topic news has no subscription: 2 messages wait for 10 min")
		publish()
		wantNoError(t, news.Configure(t.Context(), later.TopicConfig{DropUnsubscribed: true}))
		wantNoError(t, topic.New(c.Store(), "news").DropReady(t.Context()))
		wantProblems(t, c, "watch topic_unsubscribed: topic news has no subscription: 1 message waits",
			"watch topic_drops: topic news dropped 2 messages in the last hour, since no queue was subscribed")
		wantNoError(t, news.Configure(t.Context(), later.TopicConfig{}))
		wantNoError(t, news.Subscribe(t.Context(), "mail"))
		time.Sleep(2 * time.Hour)
		wantProblems(t, c, "act topic_waits: topic news is not distributed, since no worker of a subscribed queue does it: "+
			"1 message is due, the first for 1 h")
	})
}

// A message waits for its shard's share of a limit, although the limit of the queue is not used up.
func TestProblemsAndExplanationsOfShares(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		ctx, q := t.Context(), c.Queue("mail")
		wantNoError(t, q.SetShards(ctx, 2))
		wantNoError(t, q.SetFlow(ctx, later.Flow{Concurrency: 2}))
		var one []string // ids of one shard
		for i := 0; len(one) < 3; i++ {
			mustSend(t, q, "", later.WithID(fmt.Sprint(i)))
			shards, err := q.Shards(ctx)
			wantNoError(t, err)
			if shards.Each[1].Stats.Ready+shards.Each[1].Stats.Leased > int64(len(one)) {
				one = append(one, fmt.Sprint(i))
				continue
			}
			if _, err := q.Cancel(ctx, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		_, release := busy(t, c, later.WorkerConfig{Name: "w", Concurrency: 10}, "mail")
		time.Sleep(time.Minute)
		e := explained(t, c, q, mustList(t, q, later.StateReady)[0].ID, WhyLimited)
		want := "its shard 1 of 2, with its share of the limits of the queue, has 1 of 1 messages in flight"
		if e.Text(time.UTC) != want || e.Shard != 1 || e.Shards != 2 {
			t.Errorf("%s: %+v", e.Text(time.UTC), e)
		}
		wantProblems(t, c, "watch limited: shard 1 of queue mail has 1 of 1 messages in flight, its share of the limit: "+
			"2 messages are due, the first for 1 min")
		release()
	})
}

// Ping says that the store is full.
func (s *damaged) Ping(context.Context) error {
	return store.Errorf(store.ErrFull, "the reserve is used up")
}

// damaged is a full store with a queue that cannot be read and one that does not answer.
type damaged struct{ store.Store }

func (s *damaged) Stats(ctx context.Context, queue string) (store.Stats, error) {
	switch queue {
	case "bad":
		return store.Stats{}, store.Errorf(store.ErrCorrupt, "counts are negative")
	case "slow":
		<-ctx.Done()
		return store.Stats{}, context.Cause(ctx)
	}
	return s.Store.Stats(ctx, queue)
}

func TestProblemsOfAStoreThatIsFullAndQueuesThatCannotBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T, healthy *later.Client) {
		for _, name := range []string{"bad", "mail", "slow"} {
			mustSend(t, healthy.Queue(name), "")
		}
		c, err := later.New(&damaged{healthy.Store()})
		wantNoError(t, err)
		defer c.Close()
		time.Sleep(time.Minute)
		got := problems(t, c)
		if len(got) != 4 || !strings.HasPrefix(got[0], "act full: the store has no room, so it refuses sends: ") ||
			!strings.HasPrefix(got[1], "act unreadable: queue bad cannot be read: ") ||
			!strings.HasPrefix(got[2], "act unreadable: queue slow cannot be read: ") ||
			!strings.HasPrefix(got[3], "act no_worker: ") {
			t.Errorf("%q", got)
		}
	})
}

func TestProblemsInRedis(t *testing.T) {
	c, err := later.Open(t.Context(), redistest.Start(t).URL())
	wantNoError(t, err)
	defer c.Close()
	old := later.At(time.Now().Add(-12 * time.Minute))
	mustSend(t, c.Queue("mail"), "", old)
	mustSend(t, c.Queue("paused"), "", old)
	wantNoError(t, c.Queue("paused").Pause(pauses.WithAuthor(t.Context(), "ann")))
	sharded := c.Queue("sharded")
	wantNoError(t, sharded.SetShards(t.Context(), 2))
	mustSend(t, sharded, "", old)
	if _, err := c.Topic("news").Publish(t.Context(), nil, old); err != nil {
		t.Fatal(err)
	}
	keys := c.Queue("keys")
	wantNoError(t, keys.SetFlow(t.Context(), later.Flow{Key: later.KeyFlow{Order: later.OrderHalt}}))
	mustSend(t, keys, "", later.Key("k"), later.WithID("k/1"))
	wantNoError(t, mustReceive(t, keys, 1)[0].Bury(t.Context(), errors.New("refused 17")))
	wantProblems(t, c,
		"act no_worker: queue mail has no worker: 1 message is due, the first for 12 min",
		"act no_worker: queue sharded has no worker: 1 message is due, the first for 12 min",
		"act key_halted: key k of queue keys is halted by the dead message k/1",
		"act topic_unsubscribed: topic news has no subscription: 1 message waits for 12 min",
		"watch dead: 1 message of queue keys died in the last hour, most often: refused #",
		"watch paused: queue paused is paused by ann: 1 message is due")
}

func TestDocsHaveEveryKindOfProblem(t *testing.T) {
	text, err := os.ReadFile("../docs/monitoring.md")
	wantNoError(t, err)
	rest := string(text)
	for _, kind := range ProblemKinds() {
		_, after, found := strings.Cut(rest, fmt.Sprintf("\n| `%s` | ", kind))
		if !found {
			t.Errorf("the table of docs/monitoring.md lacks %s, or has it in another place", kind)
			continue
		}
		rest = after
	}
}
