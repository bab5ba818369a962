package later

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestQueuesOfAWorkerAreThoseWithAHandlerOrDestination(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		w := NewWorker(c, WorkerConfig{})
		w.Handle("b", ignore)
		w.Forward("a", ToQueue("b"))
		if got := w.Queues(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("queues %v", got)
		}
	})
}

// TestWaitIdleWaitsForHandlersSettlesAndOnDead has each of them take its time.
func TestWaitIdleWaitsForHandlersSettlesAndOnDead(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		told := 0
		w := NewWorker(c, WorkerConfig{OnDead: func(ctx context.Context, _ *Info) {
			sleep(ctx, time.Minute)
			told++
		}})
		w.Handle("q", func(ctx context.Context, m *Message) error {
			return errors.Join(sleep(ctx, time.Hour), errors.New("no"))
		})
		w.Forward("in", ToQueue("q"))
		if err := w.WaitIdle(t.Context()); err != nil {
			t.Errorf("before Run: %v", err)
		}
		start(t, w)
		synctest.Wait()
		if err := w.WaitIdle(t.Context()); err != nil {
			t.Errorf("without messages: %v", err)
		}
		begin := time.Now()
		mustSend(t, c.Queue("in"), "", MaxAttempts(1))
		synctest.Wait()
		enough := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, enough)
		defer cancel()
		wantError(t, w.WaitIdle(ctx), enough)
		if err := w.WaitIdle(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); told != 1 || took != time.Hour+time.Minute {
			t.Errorf("WaitIdle returned after %v, and OnDead was called %d times", took, told)
		}
		wantCounts(t, c.Queue("q"), 0, 0, 0, 1)
	})
}
