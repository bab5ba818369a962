package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/store"
)

// wantFound fails unless a reading finds so many problems of a kind with each severity, and leaves out so many queues.
func wantFound(t *testing.T, r *ProblemReader, kind ProblemKind, act, watch, leftOut int) {
	t.Helper()
	found, err := r.Find(t.Context())
	wantNoError(t, err)
	n := map[ProblemSeverity]int{}
	for _, p := range found.Problems {
		if p.Kind == kind {
			n[p.Severity]++
		}
	}
	if n[Act] != act || n[Watch] != watch || found.LeftOut != leftOut {
		t.Errorf("%v, %d left out; want %d, %d, %d", n, found.LeftOut, act, watch, leftOut)
	}
}

// readAll reads until nothing is left out. Queues that are read at the same time may overtake each other, so that one
// of them can be left out more than once.
func readAll(t *testing.T, r *ProblemReader) {
	t.Helper()
	for range 10 {
		found, err := r.Find(t.Context())
		wantNoError(t, err)
		if found.LeftOut == 0 {
			return
		}
	}
	t.Error("some queues are left out in each reading")
}

// More queues have dead messages than one reading reads deaths of. All are listed, and the second reading knows all.
func TestProblemsOfDeadMessagesInManyQueues(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		for i := range 60 {
			q := c.Queue(fmt.Sprintf("q%02d", i))
			for range 12 {
				mustSend(t, q, "")
				wantNoError(t, mustReceive(t, q, 1)[0].Bury(t.Context(), errors.New("x")))
			}
		}
		r := ProblemReader{Client: c}
		wantFound(t, &r, DeadLetters, 50, 10, 10)
		wantFound(t, &r, DeadLetters, 60, 0, 0)
		time.Sleep(5 * time.Minute) // the deaths are read again
		wantFound(t, &r, DeadLetters, 60, 0, 0)
	})
}

// More queues have keys at their limits than one reading reads keys of. The next one begins with the others, and lists
// the first ones as they were.
func TestProblemsOfKeysInManyQueues(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		var queues []string
		for i := range 60 {
			q := c.Queue(fmt.Sprintf("q%02d", i))
			queues = append(queues, q.Name())
			wantNoError(t, q.SetFlow(t.Context(), later.Flow{Key: later.KeyFlow{Concurrency: 1}}))
			mustSend(t, q, "", later.Key("k"))
			mustSend(t, q, "", later.Key("k"))
		}
		_, release := busy(t, c, later.WorkerConfig{Name: "w", Concurrency: 100}, queues...)
		time.Sleep(time.Minute)
		r := ProblemReader{Client: c}
		wantFound(t, &r, KeyLimited, 0, 50, 10)
		readAll(t, &r)
		wantFound(t, &r, KeyLimited, 0, 60, 0)
		release()
	})
}

func TestProblemsOfManyTopics(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		for i := range 210 {
			_, err := c.Topic(fmt.Sprintf("t%03d", i)).Publish(t.Context(), nil, later.In(time.Hour))
			wantNoError(t, err)
		}
		r := ProblemReader{Client: c}
		wantFound(t, &r, TopicUnsubscribed, 0, 200, 10)
		readAll(t, &r)
		wantFound(t, &r, TopicUnsubscribed, 0, 210, 0)
	})
}

// haltedKey has the key k of the queue mail halted by the dead message k/1, with another message behind it.
func haltedKey(t *testing.T, c *later.Client) {
	t.Helper()
	q := c.Queue("mail")
	wantNoError(t, q.SetFlow(t.Context(), later.Flow{Key: later.KeyFlow{Order: later.OrderHalt}}))
	mustSend(t, q, "", later.Key("k"), later.WithID("k/1"))
	mustSend(t, q, "", later.Key("k"), later.WithID("k/2"))
	wantNoError(t, mustReceive(t, q, 1)[0].Bury(t.Context(), errors.New("no such user 4711")))
}

// A queue with messages that wait for their halted key only is not late.
func TestProblemsOfMessagesBehindAHaltedKey(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		haltedKey(t, c)
		w := later.NewWorker(c, later.WorkerConfig{Name: "w"})
		w.Handle("mail", func(context.Context, *later.Message) error { return nil })
		stop := start(t, w)
		time.Sleep(10 * time.Minute)
		wantProblems(t, c, "act key_halted: key k of queue mail is halted by the dead message k/1",
			"watch dead: 1 message of queue mail died in the last hour, most often: no such user #")
		wantNoError(t, stop())
	})
}

// partlyDamaged is a store with damaged queues and one that answers slowly.
type partlyDamaged struct{ store.Store }

func (s partlyDamaged) Stats(ctx context.Context, q string) (store.Stats, error) {
	if strings.HasPrefix(q, "bad") {
		return store.Stats{}, store.Errorf(store.ErrCorrupt, "counts are negative")
	}
	if q == "z" {
		time.Sleep(150 * time.Millisecond)
	}
	return s.Store.Stats(ctx, q)
}

// Queues that are damaged, and say so at once, take no time from others.
func TestProblemsOfManyDamagedQueues(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		for i := range 20 {
			mustSend(t, c.Queue(fmt.Sprintf("bad%02d", i)), "", later.In(time.Hour))
		}
		mustSend(t, c.Queue("z"), "")
		time.Sleep(time.Minute)
		r := ProblemReader{Client: newClientOn(t, partlyDamaged{c.Store()})}
		found, err := r.Find(t.Context())
		wantNoError(t, err)
		i := slices.IndexFunc(found.Problems, func(p Problem) bool { return p.Queue == "z" })
		if i < 0 || found.Problems[i].Kind != NoLiveWorker {
			t.Errorf("%+v", found.Problems)
		}
	})
}

func TestActionsKeepNames(t *testing.T) {
	for want, p := range map[string]Problem{
		"later workers resume -- --all": {Kind: WorkersPaused, Worker: "--all", Paused: []string{"--all"}},
		"later workers resume a 'b c'":  {Kind: WorkersPaused, Queue: "q", Paused: []string{"a", "b c"}},
		"later workers":                 {Kind: WorkersPaused, Queue: "q", Workers: 2},
		"later workers ":                {Kind: WorkersBusy, Queue: "q", Worker: "drain"},
		"later keys --resume -- q -k":   {Kind: KeyHalted, Queue: "q", Key: "-k", Message: "m"},
		"later keys q '=ls'":            {Kind: KeyLimited, Queue: "q", Key: "=ls"},
		"later keys --resume orders k":  {Kind: KeyHalted, Queue: "orders", Key: "k"},
		"later resume -- --help":        {Kind: QueuePaused, Queue: "--help"},
		"later stats mail":              {Kind: NoLiveWorker, Queue: "mail"},
		"later dead replay -- mail -rf": {Kind: ScheduleFailed, Queue: "mail", Message: "-rf"},
	} {
		if got := p.Action().Shell(); got != strings.TrimSpace(want) {
			t.Errorf("got %s; want %s", got, want)
		}
	}
}

// Only the paused workers of the queue are to be resumed.
func TestProblemsOfPausedWorkersNameThem(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		var stops []func() error
		for name, queue := range map[string]string{"a": "mail", "b": "mail", "meant so": "billing"} {
			w := later.NewWorker(c, later.WorkerConfig{Name: name})
			w.Handle(queue, func(context.Context, *later.Message) error { return nil })
			stops = append(stops, start(t, w))
			w.Pause()
		}
		mustSend(t, c.Queue("mail"), "")
		time.Sleep(time.Minute)
		list, err := Problems(t.Context(), c)
		wantNoError(t, err)
		if len(list.Problems) != 1 || !strings.HasPrefix(list.Problems[0].Action().Shell(), "later workers resume ") ||
			len(list.Problems[0].Paused) != 2 || slices.Contains(list.Problems[0].Paused, "meant so") {
			t.Errorf("%+v", list.Problems)
		}
		for _, stop := range stops {
			wantNoError(t, stop())
		}
	})
}

// A topic that is paused, or has a worker that is late, has no other cause.
func TestProblemsOfAPausedTopic(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		news := c.Topic("news")
		wantNoError(t, news.Subscribe(t.Context(), "mail"))
		w := later.NewWorker(c, later.WorkerConfig{Name: "w"})
		w.Handle("mail", func(context.Context, *later.Message) error { return nil })
		stop := start(t, w)
		wantNoError(t, c.Store().SetPaused(t.Context(), "topic:news", true))
		_, err := news.Publish(t.Context(), nil)
		wantNoError(t, err)
		time.Sleep(time.Minute)
		wantProblems(t, c, "watch paused: topic news is paused: 1 message is due")
		wantNoError(t, stop())
	})
}

// busyTopic is a store with a topic that is behind, although messages of it were forwarded in the last minute.
type busyTopic struct{ store.Store }

func (s busyTopic) Activity(ctx context.Context, queue string) (a store.Activity, err error) {
	a, err = s.Store.Activity(ctx, queue)
	if queue == "topic:news" {
		a.Minute.Counts[event.Forwarded] = 1
	}
	return a, err
}

func TestProblemsOfATopicThatIsDistributedLate(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		wantNoError(t, c.Topic("news").Subscribe(t.Context(), "mail"))
		_, err := c.Topic("news").Publish(t.Context(), nil)
		wantNoError(t, err)
		r := ProblemReader{Client: newClientOn(t, busyTopic{c.Store()})}
		for _, want := range []string{"", "workers distribute topic news late: 1 message is due, the first for 6 min"} {
			time.Sleep(3 * time.Minute)
			found, err := r.Find(t.Context())
			wantNoError(t, err)
			got := ""
			for _, p := range found.Problems {
				got += p.Text()
			}
			if got != want {
				t.Errorf("got %q; want %q", got, want)
			}
		}
	})
}

// stopped is a store with a queue that starts no message, since its shards change.
type stopped struct{ store.Store }

func (s stopped) SetShards(context.Context, string, int) error { return nil }

func (s stopped) Shards(ctx context.Context, queue string) (store.Shards, error) {
	stats, err := s.Stats(ctx, queue)
	return store.Shards{Number: 2, From: 1, Moving: true, Stopped: true, Since: stats.Now.Add(-2 * time.Minute),
		Each: []store.Shard{{Stats: stats}, {}}}, err
}

func TestProblemsOfAQueueWhoseMessagesMove(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		_, release := busy(t, c, later.WorkerConfig{Name: "w", Concurrency: 1}, "mail")
		mustSend(t, c.Queue("mail"), "")
		mustSend(t, c.Queue("mail"), "")
		time.Sleep(10 * time.Minute)
		r := ProblemReader{Client: newClientOn(t, stopped{c.Store()})}
		found, err := r.Find(t.Context())
		wantNoError(t, err)
		if len(found.Problems) != 1 || found.Problems[0].Text() != "queue mail changes to 2 shards for 2 min, and starts no "+
			"message until those that are due have moved: 1 message is due" {
			t.Errorf("%+v", found.Problems)
		}
		release()
	})
}
