package later

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laterq/later/memstore"
)

// race sends numbered messages of one id with Follow, all at once, and returns the number of sends by outcome.
func race(t *testing.T, q *Queue, n int) map[SendOutcome]int {
	t.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[SendOutcome]int{}
	for i := range n {
		all.Go(func() {
			results, err := q.SendBatch(t.Context(), []Outgoing{{
				ID: "a", Payload: []byte(fmt.Sprint(i)), OnDuplicate: Follow(),
			}})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			outcomes[results[0].Outcome]++
		})
	}
	all.Wait()
	return outcomes
}

func TestRacingSendsThatFollowCauseTwoRunsTheLastWithTheLastPayload(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		const n = 1000
		started, release := make(chan struct{}), make(chan struct{})
		var runs []string
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", func(_ context.Context, m *Message) error {
			runs = append(runs, fmt.Sprintf("%s, attempt %d", m.Payload, m.Attempt))
			if len(runs) == 1 {
				close(started)
				<-release
				return errors.New("what became of the first run does not matter")
			}
			return nil
		})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		mustSend(t, q, "first", WithID("a"), OnDuplicate(Follow()))
		<-started
		if outcomes := race(t, q, n-1); outcomes[SendFollows] != n-1 {
			t.Errorf("%v, want all to follow", outcomes)
		}
		mustSend(t, q, "last", WithID("a"), OnDuplicate(Follow()))
		close(release)
		time.Sleep(time.Hour) // of the bubble's clock
		stop()
		running.Wait()
		if got := strings.Join(runs, "; "); got != "first, attempt 1; last, attempt 1" {
			t.Errorf("runs are %s", got)
		}
		wantCounts(t, q, 0, 0, 0, 0)
	})
}

func TestSendsThatRaceWithWorkersNeverRunTwiceAtATimeAndEndWithTheLastPayload(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := c.Queue("q")
	w := NewWorker(c, WorkerConfig{Concurrency: 4})
	var runs, running atomic.Int64
	last := make(chan struct{})
	w.Handle("q", func(_ context.Context, m *Message) error {
		if running.Add(1) > 1 {
			t.Error("two runs of one id at a time")
		}
		runs.Add(1)
		if string(m.Payload) == "last" {
			close(last) // which panics in a second run
		}
		running.Add(-1)
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	outcomes := race(t, q, 1000)
	mustSend(t, q, "last", WithID("a"), OnDuplicate(Follow()))
	<-last
	stop()
	ended.Wait()
	if outcomes[SendSent]+outcomes[SendReplaced]+outcomes[SendFollows] != 1000 {
		t.Errorf("%d runs after %v", runs.Load(), outcomes)
	}
	wantCounts(t, q, 0, 0, 0, 0)
}

func TestCancelRemovesBothTheHeldMessageAndItsSuccessor(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := c.Queue("q")
	mustSend(t, q, "first", WithID("a"))
	held := mustReceive(t, q, 1)[0]
	mustSend(t, q, "second", WithID("a"), OnDuplicate(Follow()))
	state, err := q.Cancel(t.Context(), "a")
	if state != StateLeased || err != nil {
		t.Errorf("cancelled a message that was %s, %v", state, err)
	}
	wantError(t, held.Ack(t.Context()), ErrLeaseLost)
	_, err = q.Get(t.Context(), "a")
	wantError(t, err, ErrNotFound)
	wantCounts(t, q, 0, 0, 0, 0)
}

func TestSuccessorKeepsItsDueTimeUnlessASendHasOne(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		follow := OnDuplicate(Follow())
		mustSend(t, q, "0", WithID("a"), follow)
		held := mustReceive(t, q, 1)[0]
		begin := time.Now()
		mustSend(t, q, "1", WithID("a"), follow, In(time.Hour))
		time.Sleep(time.Second) // of the bubble's clock
		mustSend(t, q, "2", WithID("a"), follow)
		info, err := q.Get(t.Context(), "a")
		if err != nil || info.State != StateLeased || !info.Follows || string(info.Payload) != "2" ||
			!info.Due.Equal(begin.Add(time.Hour)) || !info.SentAt.Equal(begin) {
			t.Errorf("message is %+v, %v", info, err)
		}
		if err := held.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
		d := mustReceive(t, q, 1)[0]
		if string(d.Payload) != "2" || time.Since(begin) != time.Hour {
			t.Errorf("received %q after %v, want the last one after an hour", d.Payload, time.Since(begin))
		}
	})
}

// The first successor is a further message. A message that replaces the successor is not.
func TestObserverSeesASuccessorAsSent(t *testing.T) {
	var log []string
	c := newClientOn(t, memstore.New(), WithObserver(func(e Event) { log = append(log, string(e.Kind)) }))
	q := c.Queue("q")
	follow := []SendOption{WithID("a"), OnDuplicate(Follow())}
	mustSend(t, q, "", follow...)
	mustReceive(t, q, 1)
	mustSend(t, q, "", follow...)
	mustSend(t, q, "", follow...)
	if got := strings.Join(log, " "); got != "sent claimed sent duplicate" {
		t.Errorf("events are %s", got)
	}
}
