package benchmark

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// onMemory returns a queue in memory.
func onMemory(t *testing.T) BatchQueue {
	s := memstore.New()
	c, err := later.New(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	return Later(c, "bench")
}

func left(t *testing.T, q Queue, want int) {
	t.Helper()
	if n, err := q.Left(t.Context()); err != nil || n != want {
		t.Errorf("queue has %d messages (%v), want %d", n, err, want)
	}
}

func TestPayloadContainsNumberAndDueTime(t *testing.T) {
	due := time.UnixMilli(1_900_000_000_123)
	for _, size := range []int{MinSize, 100, 2 << 20} {
		p := NewPayload(size, 12345, due)
		if number, at, ok := readPayload(p); number != 12345 || !at.Equal(due) || !ok || len(p) != size {
			t.Errorf("payload of %d bytes has number %d, due %v, %v", len(p), number, at, ok)
		}
		if rest := bytes.Trim(p[MinSize:], "\x00"); len(rest) != size-MinSize {
			t.Errorf("%d bytes of %d are filled", len(rest), size-MinSize)
		}
	}
	if _, at, ok := readPayload(NewPayload(100, 0, time.Time{})); !at.IsZero() || !ok {
		t.Errorf("message due at once has due time %v, %v", at, ok)
	}
	for _, foreign := range []string{"", "short", "a payload that somebody else sent to this queue"} {
		if _, _, ok := readPayload([]byte(foreign)); ok {
			t.Errorf("%q was accepted", foreign)
		}
	}
}

func TestTallyCountsEachMessageOnce(t *testing.T) {
	tally := newTally(2)
	for range 3 {
		tally.record(NewPayload(MinSize, 0, time.Now().Add(time.Hour)))
	}
	tally.record([]byte("foreign"))
	tally.record(NewPayload(MinSize, 7, time.Time{})) // of another workload
	select {
	case <-tally.all:
		t.Error("the tally is complete with one message missing")
	default:
	}
	tally.record(NewPayload(MinSize, 1, time.Now().Add(-time.Hour)))
	<-tally.all
	if h, d, e := tally.handled.Load(), tally.doubles.Load(), tally.early.Load(); h != 2 || d != 2 || e != 1 {
		t.Errorf("handled %d, doubles %d, early %d; want 2, 2, 1", h, d, e)
	}
}

func TestSendSendsAllMessages(t *testing.T) {
	for _, cfg := range []SendConfig{
		{Messages: 10, Goroutines: 1}, {Messages: 777, Goroutines: 32}, {Messages: 2500, Goroutines: 2, Batch: 1000},
	} {
		q := onMemory(t)
		cfg.Size = 100
		sent, err := Local{q}.Send(t.Context(), cfg)
		if err != nil || sent.Messages != cfg.Messages || sent.PerSecond() <= 0 {
			t.Errorf("%+v: sent %+v, %v", cfg, sent, err)
		}
		left(t, q, cfg.Messages)
	}
}

// failing is a queue that refuses sends after a number of successes.
type failing struct {
	BatchQueue
	sends atomic.Int64
}

func (q *failing) Send(ctx context.Context, p []byte, due time.Time) (string, error) {
	if q.sends.Add(1) > 5 {
		return "", store.ErrFull
	}
	return q.BatchQueue.Send(ctx, p, due)
}

func TestWorkloadStopsAtFailure(t *testing.T) {
	q := &failing{BatchQueue: onMemory(t)}
	sends := SendConfig{Messages: 1000, Goroutines: 4, Size: 100}
	if _, err := (Local{q}).Send(t.Context(), sends); !errors.Is(err, store.ErrFull) {
		t.Errorf("got %v, want ErrFull", err)
	}
	_, err := Local{q}.Lateness(t.Context(), LatenessConfig{
		Rate: 1000, For: time.Second, Longest: time.Second, Size: 100, Handlers: 1, Limit: time.Minute,
	})
	if !errors.Is(err, store.ErrFull) {
		t.Errorf("got %v, want ErrFull", err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	drain := DrainConfig{Messages: 10, Size: 100, Handlers: 1, Limit: time.Minute}
	if _, err := (Local{onMemory(t)}).Drain(stopped, drain); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want Canceled", err)
	}
}

func TestDrainHandlesAllAndLeavesNone(t *testing.T) {
	q := onMemory(t)
	filled := false
	d, err := Local{q}.Drain(t.Context(), DrainConfig{
		Messages: 5000, Size: 100, Handlers: 8, Limit: time.Minute, OnFilled: func() { filled = true },
	})
	if err != nil || d.Handled != 5000 || d.Left != 0 || d.Doubles != 0 || d.Early != 0 || d.Settled < d.Took ||
		!filled {
		t.Errorf("drained %+v, filled %v, %v", d, filled, err)
	}
	left(t, q, 0)
}

func TestDrainStopsAtLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := work(t.Context(), onMemory(t), DrainConfig{Messages: 10, Handlers: 2, Limit: time.Minute},
			time.Time{})
		if err != nil || d.Handled != 0 || d.Took != time.Minute {
			t.Errorf("drained %+v, %v", d, err)
		}
	})
}

func TestHerdIsHandledWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := Local{onMemory(t)}.Drain(t.Context(), DrainConfig{Herd: true, Messages: 2000, Size: 100, Handlers: 8,
			Limit: time.Minute})
		if err != nil || d.Handled != 2000 || d.Left != 0 || d.Early != 0 || d.Took > time.Second {
			t.Errorf("herd %+v, %v", d, err)
		}
	})
}

func TestLatenessCountsEveryMessage(t *testing.T) {
	for _, whole := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q := onMemory(t)
			d, err := Local{q}.Lateness(t.Context(), LatenessConfig{
				Rate: 500, For: 2 * time.Second, Longest: 3 * time.Second, Size: 100, Handlers: 8, Limit: time.Minute,
				WholeSeconds: whole,
			})
			if err != nil || d.Sent != 1000 || len(d.Samples) != 1000 || d.Early != 0 || d.Missing != 0 ||
				d.Doubles != 0 {
				t.Errorf("sent %d, handled %d, early %d, missing %d, doubles %d, %v",
					d.Sent, len(d.Samples), d.Early, d.Missing, d.Doubles, err)
			}
			if p50, worst := Quantile(d.Samples, 0.5), Quantile(d.Samples, 1); p50 < 0 || worst > 2*time.Millisecond {
				t.Errorf("p50 %v, max %v", p50, worst)
			}
			left(t, q, 0)
		})
	}
}

func TestRedisReportsUsage(t *testing.T) {
	cluster := redistest.SharedCluster(t)
	for _, url := range []string{redistest.Shared(t).URL() + "?prefix=bench:", cluster.URL()} {
		r, err := OpenRedis(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		usage, err := r.Usage(t.Context())
		if err != nil || usage.CPU <= 0 || usage.Memory <= 0 {
			t.Errorf("usage %+v, %v", usage, err)
		}
		if version, err := r.Version(t.Context()); err != nil || len(version) < len("Redis 7.0.0") {
			t.Errorf("version %q, %v", version, err)
		}
		stopped, stop := context.WithCancel(t.Context())
		stop()
		if worst, err := r.WorstPing(stopped); err != nil || worst <= 0 {
			t.Errorf("worst PING %v, %v", worst, err)
		}
	}
	if _, err := OpenRedis(t.Context(), "mem://"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("OpenRedis of mem:// returned %v", err)
	}
}

func TestRedisCountsRequests(t *testing.T) {
	r, err := OpenRedis(t.Context(), redistest.Shared(t).URL()+"?prefix=counted:")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, closeAll, err := r.Counted()
	if err != nil {
		t.Fatal(err)
	}
	c, err := later.New(s)
	if err != nil {
		t.Fatal(err)
	}
	q := Later(c, "bench")
	left(t, q, 0)
	before := r.Requests()
	for range 3 {
		left(t, q, 0)
	}
	if n := r.Requests() - before; n != 3 {
		t.Errorf("3 calls sent %d requests", n)
	}
	if err := errors.Join(c.Close(), closeAll()); err != nil {
		t.Error(err)
	}
}
