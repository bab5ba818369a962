package later

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestReceiveFromQueuesChecksItsArguments(t *testing.T) {
	c := newClientOn(t, memstore.New())
	for want, queues := range map[string][]ReceiveQueue{
		"there are 0 queues": nil, "there are 17 queues": make([]ReceiveQueue, 17), "given twice": {{Name: "a"}, {Name: "a"}},
		"queue name": {{}}, "weight of queue": {{Name: "a", Weight: 1001}}, "kept for Later's workers": {{Name: "worker:a"}},
	} {
		_, err := c.Receive(t.Context(), 1, queues)
		if wantError(t, err, ErrInvalid); !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", queues, err, want)
		}
	}
	wantError(t, second(c.Receive(t.Context(), 0, []ReceiveQueue{{Name: "a"}})), ErrInvalid)
	for _, w := range []RemoteWorker{{Name: "w"}, {ID: "a"}, {ID: "{", Name: "w"}, {ID: "a", Name: "w", Concurrency: -1}} {
		_, _, err := c.ReceiveFor(t.Context(), w, 1, []ReceiveQueue{{Name: "a"}})
		wantError(t, err, ErrInvalid)
	}
}

func TestReceiveFromQueuesFollowsTheirWeights(t *testing.T) {
	c := newClientOn(t, memstore.New())
	queues := []ReceiveQueue{{Name: "a", Weight: 3}, {Name: "b"}, {Name: "empty", Weight: 1000}}
	for range 2000 {
		for _, q := range queues[:2] {
			mustSend(t, c.Queue(q.Name), "")
		}
	}
	for _, n := range []int{1, 4, 7} {
		counts := map[string]int{}
		for range 300 {
			got, err := c.Receive(t.Context(), n, queues, NoWait())
			if err != nil || len(got) == 0 || len(got) > n {
				t.Fatal(len(got), err)
			}
			for _, d := range got {
				counts[d.Queue]++
				if err := d.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if part := float64(counts["a"]) / float64(counts["a"]+counts["b"]); part < 0.65 || part > 0.85 {
			t.Errorf("with %d messages at a time: %v", n, counts)
		}
	}
	if err := c.Queue("a").Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Receive(t.Context(), 1, queues, NoWait()); err != nil || len(got) != 1 || got[0].Queue != "b" {
		t.Errorf("an empty queue keeps others waiting: %v, %v", got, err)
	}
}

func TestReceiveFromQueuesBlocksUntilOneHasAMessage(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		queues := []ReceiveQueue{{Name: "a"}, {Name: "b"}, {Name: "c"}}
		begin := time.Now()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("enough"))
		defer cancel()
		if _, err := c.Receive(ctx, 1, queues); err == nil || err.Error() != "enough" || time.Since(begin) != time.Minute {
			t.Errorf("Receive returned %v after %v", err, time.Since(begin))
		}
		mustSend(t, c.Queue("b"), "", In(time.Hour))
		got, err := c.Receive(t.Context(), 10, queues)
		if err != nil || len(got) != 1 || got[0].Queue != "b" || got[0].Lateness > 0 {
			t.Errorf("got %v, %v after %v", got, err, time.Since(begin))
		}
	})
}

// notifying is a store that ends the Wait on the queue b with a notification when the caller of the Wait is about to
// leave. It counts the notifications that are passed on.
type notifying struct {
	store.Store
	passed atomic.Int64
}

func (n *notifying) Notify(context.Context, string) error { n.passed.Add(1); return nil }

func (n *notifying) Wait(ctx context.Context, queue string) error {
	err := n.Store.Wait(ctx, queue)
	if queue == "b" {
		return nil
	}
	return err
}

func TestReceiveFromQueuesPassesOnWhatItDoesNotClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notifying{Store: memstore.New()}
		c := newClientOn(t, n)
		queues := []ReceiveQueue{{Name: "a"}, {Name: "b"}}
		mustSend(t, c.Queue("a"), "", In(time.Hour))
		got, err := c.Receive(t.Context(), 1, queues)
		synctest.Wait()
		if err != nil || len(got) != 1 || n.passed.Load() != 1 {
			t.Errorf("%v, %v; %d wake-ups were passed on, want 1", got, err, n.passed.Load())
		}
	})
}

func TestReceiveFromQueuesReleasesWhatItClaimedForACallerWhoIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		queues := []ReceiveQueue{{Name: "a"}, {Name: "b"}}
		for _, q := range queues {
			mustSend(t, c.Queue(q.Name), "")
		}
		claims, let := 0, make(chan struct{})
		f.set(nil, func(_ context.Context, call string) error {
			if call == "claim" {
				if claims++; claims == 2 {
					<-let
				}
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Receive(ctx, 2, queues)
		wantError(t, err, context.DeadlineExceeded)
		close(let)
		synctest.Wait()
		f.set(nil, nil)
		for _, q := range queues {
			wantCounts(t, c.Queue(q.Name), 0, 1, 0, 0)
		}
	})
}

var remoteQueues = []ReceiveQueue{{Name: "mail"}, {Name: "orders"}}

func remote(name string) RemoteWorker {
	return RemoteWorker{ID: "http-" + name, Name: name, Version: "v1"}
}

func TestRemoteWorkerIsListedWhileItPollsAndHolds(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		poll := func(wait time.Duration, opts ...ReceiveOption) []*Delivery {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			got, told, err := c.ReceiveFor(ctx, remote("w"), 10, remoteQueues, opts...)
			if told != "" || err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(told, err)
			}
			return got
		}
		go poll(5 * time.Minute)
		for range 3 {
			time.Sleep(time.Minute)
			w := wantWorkers(t, c, "w")[0]
			if w.State != WorkerRunning || w.Concurrency != 10 || w.Version != "v1" || !slices.Equal(w.Queues,
				[]string{"mail", "orders"}) || c.now(t).Sub(w.Heartbeat) > fleet.BeatEvery || len(w.Held) > 0 {
				t.Errorf("%+v", w)
			}
		}
		time.Sleep(2*time.Minute + fleet.Lease - fleet.BeatEvery - time.Second)
		wantWorkers(t, c, "w")
		time.Sleep(fleet.BeatEvery + 2*time.Second)
		wantWorkers(t, c)

		id := mustSend(t, c.Queue("mail"), "")
		got := poll(time.Minute, Lease(10*time.Minute))
		if len(got) != 1 {
			t.Fatal(got)
		}
		time.Sleep(10*time.Minute - time.Second)
		if w := wantWorkers(t, c, "w")[0]; len(w.Held) != 1 || w.Held[0].ID != id || w.HeldCount != 1 {
			t.Errorf("%+v", w)
		}
		if err := got[0].Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
		poll(time.Second)
		if w := wantWorkers(t, c, "w")[0]; len(w.Held) != 0 {
			t.Errorf("after the next poll it holds %+v", w.Held)
		}
	})
}

// now returns the store's clock.
func (c *Client) now(t *testing.T) time.Time {
	t.Helper()
	stats, err := c.Queue("mail").Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stats.Now
}

func TestRemoteWorkerObeysThroughAnyClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		clients := []*Client{newClientOn(t, s), newClientOn(t, s)}
		c, polls := clients[0], 0
		type answer struct {
			got  []*Delivery
			told WorkerCommand
		}
		poll := func(wait time.Duration) <-chan answer {
			answers := make(chan answer, 1)
			polls++
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), wait)
				defer cancel()
				got, told, err := clients[polls%2].ReceiveFor(ctx, remote("w"), 1, remoteQueues)
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				answers <- answer{got, told}
			}()
			synctest.Wait()
			return answers
		}
		tell := func(do WorkerCommand) {
			t.Helper()
			if _, err := c.ControlWorkers(t.Context(), do, "w"); err != nil {
				t.Fatal(do, err)
			}
		}
		want := func(what string, answers <-chan answer, messages int, told WorkerCommand) {
			t.Helper()
			a := <-answers
			for _, d := range a.got {
				if err := d.Ack(t.Context()); err != nil {
					t.Error(what, err)
				}
			}
			if len(a.got) != messages || a.told != told {
				t.Errorf("%s: received %d messages and %q, want %d and %q", what, len(a.got), a.told, messages, told)
			}
		}
		first := poll(time.Minute)
		tell(CommandPause)
		mustSend(t, c.Queue("orders"), "")
		want("paused during a poll", first, 0, CommandPause)
		wantWorkers(t, c, "w paused")
		second := poll(time.Minute) // through the other client
		select {
		case a := <-second:
			t.Fatalf("a paused worker's poll did not wait: %+v", a)
		default:
		}
		tell(CommandResume)
		want("resumed", second, 1, "")
		third := poll(time.Minute)
		tell(CommandDrain)
		want("drained", third, 0, CommandDrain)
		wantWorkers(t, c, "w draining")
		mustSend(t, c.Queue("orders"), "")
		want("drained before the poll", poll(time.Minute), 0, CommandDrain)
		time.Sleep(2*fleet.Lease + time.Second)
		wantWorkers(t, c)
		want("another worker with the name", poll(time.Minute), 1, "")
		fourth := poll(time.Minute)
		tell(CommandRestart)
		mustSend(t, c.Queue("orders"), "")
		want("restarted", fourth, 0, CommandRestart)
		want("the new program", poll(time.Minute), 1, "")

		fifth := poll(time.Minute)
		before := wantWorkers(t, c, "w")[0]
		tell(CommandRestart)
		want("restarted without messages", fifth, 0, CommandRestart)
		if w := wantWorkers(t, c, "w draining")[0]; !w.Started.Equal(before.Started) {
			t.Errorf("before the new program it started at %v, and at %v before", w.Started, before.Started)
		}
		time.Sleep(time.Second)
		sixth := poll(time.Minute)
		if w := wantWorkers(t, c, "w")[0]; !w.Started.After(before.Started) {
			t.Errorf("the new program started at %v, and the old one at %v", w.Started, before.Started)
		}
		mustSend(t, c.Queue("orders"), "")
		want("the new program after a wait", sixth, 1, "")
	})
}

func TestRemoteWorkersDoNotShareCommands(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		for i := range 3 {
			go c.ReceiveFor(t.Context(), RemoteWorker{ID: fmt.Sprint(i), Name: fmt.Sprint("w", i)}, 1, remoteQueues)
		}
		synctest.Wait()
		if _, err := c.ControlWorkers(t.Context(), CommandPause, "w1"); err != nil {
			t.Fatal(err)
		}
		wantWorkers(t, c, "w0", "w1 paused", "w2")
	})
}
