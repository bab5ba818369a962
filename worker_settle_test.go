package later

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestWorkerDoesNotSettleALostMessage(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		w := NewWorker(c, WorkerConfig{Lease: time.Second})
		var runs atomic.Int32
		w.Handle("q", func(ctx context.Context, m *Message) error {
			if runs.Add(1) == 1 {
				// Empty the queue and reuse the id for another message.
				if _, err := q.Purge(ctx); err != nil {
					t.Error(err)
				}
				mustSend(t, q, "new", WithID("id"), In(time.Hour))
				<-ctx.Done()
			}
			return nil
		})
		start(t, w)
		mustSend(t, q, "old", WithID("id"))
		time.Sleep(time.Minute)
		wantCounts(t, q, 1, 0, 0, 0)
	})
}

func TestWorkerSettleIsRetriedDuringAnOutage(t *testing.T) {
	for name, faults := range map[string][2]func(context.Context, string) error{
		"call is lost":  {unavailable("settle"), nil},
		"reply is lost": {nil, unavailable("settle")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen events
				f := &faulty{Store: memstore.New()}
				c := newClientOn(t, f, WithObserver(seen.add))
				q := c.Queue("q")
				var runs atomic.Int32
				w := NewWorker(c, WorkerConfig{})
				w.Handle("q", func(context.Context, *Message) error { runs.Add(1); return nil })
				start(t, w)
				f.set(faults[0], faults[1])
				for i := range 3 {
					mustSend(t, q, "", WithID(fmt.Sprint(i)))
				}
				time.Sleep(10 * time.Second)
				if len(seen.of(EventAcked)) != 0 {
					t.Error("an ack was reported without a reply")
				}
				f.set(nil, nil)
				time.Sleep(10 * time.Second)
				wantCounts(t, q, 0, 0, 0, 0)
				if n := runs.Load(); n != 3 || len(seen.of(EventAcked)) != 3 || len(seen.of(EventLeaseLost)) != 0 {
					t.Errorf("%d runs, %d acks, %d lost leases", n, len(seen.of(EventAcked)), len(seen.of(EventLeaseLost)))
				}
			})
		})
	}
}

func TestWorkerSettleIsGivenUpAtTheEndOfItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		var text lockedBuffer
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f, WithObserver(seen.add), WithLogger(text.logger()))
		q := c.Queue("q")
		w := NewWorker(c, WorkerConfig{Lease: 10 * time.Second})
		w.Handle("q", ignore)
		start(t, w)
		f.set(unavailable("settle", "extend"), nil)
		mustSend(t, q, "", WithID("id"))
		time.Sleep(10 * time.Second)
		if n := len(seen.of(EventUnsettled)); n != 1 || !strings.Contains(text.String(), "could not be settled") {
			t.Errorf("%d events, log %q", n, text.String())
		}
		f.set(nil, nil)
		time.Sleep(time.Minute) // it is delivered again
		wantCounts(t, q, 0, 0, 0, 0)
		if acked := seen.of(EventAcked); len(acked) != 1 || acked[0].Attempt != 2 {
			t.Errorf("acks %+v", acked)
		}
	})
}

func TestWorkerSettleRefusedAfterItsLeaseIsNoAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f, WithObserver(seen.add))
		w := NewWorker(c, WorkerConfig{Lease: 3 * time.Second})
		w.Handle("q", ignore)
		var settles atomic.Int32
		f.set(func(_ context.Context, call string) error {
			switch {
			case call == "extend":
				return store.ErrUnavailable
			case call == "settle":
				switch settles.Add(1) {
				case 1:
					return store.ErrUnavailable // the call is lost
				case 2:
					time.Sleep(4 * time.Second) // it reaches the store after the end of the lease
				}
			}
			return nil
		}, nil)
		mustSend(t, c.Queue("q"), "", WithID("id"))
		start(t, w)
		time.Sleep(time.Minute)
		acked, lost := seen.of(EventAcked), seen.of(EventLeaseLost)
		if len(acked) != 1 || acked[0].Attempt != 2 || len(lost) != 1 || lost[0].Attempt != 1 {
			t.Errorf("acks %+v, lost leases %+v; want the first attempt lost and the second acked", acked, lost)
		}
		wantCounts(t, c.Queue("q"), 0, 0, 0, 0)
	})
}

func TestWorkerSettleThatCannotSucceedIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f, WithObserver(seen.add))
		var tries atomic.Int32
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", ignore)
		start(t, w)
		f.set(func(_ context.Context, call string) error {
			if call == "settle" {
				tries.Add(1)
				return store.ErrCorrupt
			}
			return nil
		}, nil)
		mustSend(t, c.Queue("q"), "")
		time.Sleep(10 * time.Second)
		if tries.Load() != 1 || len(seen.of(EventUnsettled)) != 1 {
			t.Errorf("%d tries, %d events", tries.Load(), len(seen.of(EventUnsettled)))
		}
	})
}
