package later

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestBatchWaitsForMessagesUntilItIsFullOrItsTimeIsOver(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		var runs log[batchRun]
		w := NewWorker(c, WorkerConfig{Concurrency: 1, Lease: time.Second})
		w.HandleBatch("q", recording(&runs, 0), BatchConfig{Size: 5, Wait: 10 * time.Second})
		start(t, w)
		for _, delay := range []int{1, 2, 3, 4, 5, 20, 24, 29, 60, 61, 61, 61, 61, 61, 61} {
			mustSend(t, q, "", In(time.Duration(delay)*time.Second))
		}
		time.Sleep(25 * time.Second)
		wantCounts(t, q, 8, 0, 2, 0) // the waiting batch outlives several leases
		time.Sleep(time.Hour)
		want := []batchRun{{5 * time.Second, 5}, {30 * time.Second, 3}, {61 * time.Second, 5}, {71 * time.Second, 2}}
		if got := runs.list(); !slices.Equal(got, want) {
			t.Errorf("batches ran as %v, want %v", got, want)
		}
		wantCounts(t, q, 0, 0, 0, 0)
	})
}

func TestBatchThatWaitsForgetsACancelledMessage(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		var ids log[string]
		w := NewWorker(c, WorkerConfig{Concurrency: 1, Lease: time.Second})
		w.HandleBatch("q", func(_ context.Context, msgs []*Message) []error {
			for _, m := range msgs {
				ids.add(m.ID)
			}
			return nil
		}, BatchConfig{Wait: 10 * time.Second})
		start(t, w)
		for _, wait := range [][]string{{"a", "b"}, {"c"}} { // the second batch loses all of its messages
			for _, id := range wait {
				mustSend(t, q, "", WithID(id))
			}
			synctest.Wait()
			if _, err := q.Cancel(t.Context(), wait[0]); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
		}
		mustSend(t, q, "", WithID("d"))
		time.Sleep(20 * time.Second)
		if got := ids.list(); !slices.Equal(got, []string{"b", "d"}) {
			t.Errorf("handled %v, want b and d", got)
		}
		wantCounts(t, q, 0, 0, 0, 0)
	})
}

func TestBatchThatWaitsIsHandledWhileTheWorkerIsPaused(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		var runs log[batchRun]
		w := NewWorker(c, WorkerConfig{Concurrency: 1})
		w.HandleBatch("q", recording(&runs, 0), BatchConfig{Wait: 10 * time.Second})
		mustSend(t, c.Queue("q"), "")
		start(t, w)
		synctest.Wait()
		w.Pause()
		mustSend(t, c.Queue("q"), "")
		time.Sleep(time.Minute)
		wantCounts(t, c.Queue("q"), 0, 1, 0, 0)
		w.Resume()
		time.Sleep(time.Minute)
		want := []batchRun{{10 * time.Second, 1}, {70 * time.Second, 1}}
		if got := runs.list(); !slices.Equal(got, want) {
			t.Errorf("batches ran as %v, want %v", got, want)
		}
	})
}

func TestBatchStartsOnTimeWhileAClaimForMoreHangs(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("takes effect %v", late), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFreezing()
				f.late = late
				c := newClientOn(t, f)
				q := c.Queue("q")
				var runs log[batchRun]
				w := NewWorker(c, WorkerConfig{Concurrency: 1})
				w.HandleBatch("q", recording(&runs, 0), BatchConfig{Size: 10, Wait: 5 * time.Second})
				worst := time.Duration(0)
				w.Handle("other", func(_ context.Context, m *Message) error {
					worst = max(worst, m.Lateness)
					return nil
				})
				mustSend(t, q, "")
				start(t, w)
				synctest.Wait()
				f.freeze(func(queue string) bool { return queue == "q" })
				mustSend(t, q, "") // which the worker tries to claim for the waiting batch
				for range 20 {
					time.Sleep(500 * time.Millisecond)
					mustSend(t, c.Queue("other"), "")
				}
				if got := runs.list(); !slices.Equal(got, []batchRun{{5 * time.Second, 1}}) {
					t.Errorf("batches ran as %v, want one after 5 s", got)
				}
				f.thaw()
				time.Sleep(time.Minute)
				if n := len(runs.list()); n != 2 {
					t.Errorf("%d batches ran, want 2", n)
				}
				wantCounts(t, q, 0, 0, 0, 0)
				// The batch that waits has the only slot.
				if worst > 5*time.Second {
					t.Errorf("a message of the other queue was %v late, want at most the wait of a batch", worst)
				}
				wantCounts(t, c.Queue("other"), 0, 0, 0, 0)
			})
		})
	}
}

// A process that cannot start a message must not be the one that the store wakes for it.
func TestBatchThatTookTheLastSlotEndsTheWaitForMessages(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		waits := func(w *Worker) bool {
			synctest.Wait()
			return w.run.Load().Waits > 0
		}
		var runs log[batchRun]
		w := NewWorker(c, WorkerConfig{Concurrency: 1})
		w.HandleBatch("q", recording(&runs, time.Hour), BatchConfig{Wait: time.Second})
		mustSend(t, c.Queue("q"), "")
		start(t, w)
		if !waits(w) {
			t.Error("the worker does not wait for messages for its batch")
		}
		time.Sleep(2 * time.Second)
		if waits(w) {
			t.Error("the worker waits for messages that it cannot handle")
		}
		mustSend(t, c.Queue("q"), "")
		time.Sleep(time.Hour + 2*time.Second)
		want := []batchRun{{time.Second, 1}, {time.Hour + 2*time.Second, 1}}
		if got := runs.list(); !slices.Equal(got, want) {
			t.Errorf("batches ran as %v, want %v", got, want)
		}
		time.Sleep(time.Hour)
	})
}

func TestBatchSlotIsReturnedByEachWayOut(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		w := NewWorker(c, WorkerConfig{Concurrency: 3})
		w.HandleBatch("q", func(ctx context.Context, msgs []*Message) []error {
			switch len(msgs) % 3 {
			case 0:
				panic("no")
			case 1:
				runtime.Goexit()
			}
			return nil
		}, BatchConfig{Size: 5, Wait: time.Second})
		start(t, w)
		for i := range 40 {
			backlog(t, c.Queue("q"), 1+i%12)
			time.Sleep(300 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		w.Pause()
		time.Sleep(10 * time.Second) // a batch of retries may be forming
		synctest.Wait()
		if load := w.run.Load(); load.Free != 3 || load.Held != 0 || load.Forming != 0 || load.Coming != 0 {
			t.Errorf("of 3 slots: %+v", load)
		}
	})
}
