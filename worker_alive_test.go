package later

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/handle"
	"github.com/laterq/later/memstore"
)

func TestWorkerIsAliveWhileItWorksAndWhileTheStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		f.set(unavailable("claim"), nil)
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", func(ctx context.Context, _ *Message) error { return sleep(ctx, time.Hour) })
		wantError(t, w.Alive(), ErrInvalid)
		start(t, w)
		time.Sleep(time.Hour)
		select {
		case <-w.Claimed():
			t.Error("the worker has claimed, though claims fail")
		default:
		}
		if err := w.Alive(); err != nil {
			t.Errorf("Alive while the store fails: %v", err)
		}
		f.set(nil, nil)
		<-w.Claimed()
		mustSend(t, c.Queue("q"), "")
		time.Sleep(30 * time.Minute)
		if err := w.Alive(); err != nil {
			t.Errorf("Alive with a slow handler: %v", err)
		}
		hang := make(chan struct{})
		defer close(hang)
		f.set(func(_ context.Context, call string) error {
			if call == "claim" {
				<-hang // and ignores its context
			}
			return nil
		}, nil)
		mustSend(t, c.Queue("q"), "")
		time.Sleep(callTimeout + handle.StuckAfter - time.Second)
		if err := w.Alive(); err != nil {
			t.Errorf("Alive: %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := w.Alive(); err == nil || !strings.Contains(err.Error(), `claim of queue "q" has not returned`) {
			t.Errorf("Alive with a call that hangs: %v", err)
		}
	})
}
