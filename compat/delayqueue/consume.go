package delayqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// consumer is one run of StartConsume.
type consumer struct {
	stop context.CancelFunc
	done chan struct{}
}

// StartConsume begins to call the callback for messages, and returns a channel that is closed when consuming has ended:
// after StopConsume, when the callbacks that were running have returned or exceeded WithMaxConsumeDuration. It panics
// without a callback. While consuming it returns the same channel again.
//
// A queue name or a prefix that is not allowed ends consuming at once, and the reason is logged. A server that cannot
// be reached or used does not: consuming begins when it can.
func (q *DelayQueue) StartConsume() (done <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.settings.callback == nil {
		panic("this instance has no callback")
	}
	if q.running != nil {
		return q.running.done
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &consumer{stop: stop, done: make(chan struct{})}
	q.running = c
	client, engine, err := q.open()
	if err != nil {
		q.logger.Printf("delayqueue: queue %q is not consumed: %v", q.name, err)
		q.end(c)
		return c.done
	}
	worker := later.NewWorker(client, q.settings.worker())
	worker.Handle(q.name, q.handler(q.settings.callback))
	logger := q.logger
	go func() {
		err := worker.Run(ctx)
		if err != nil && ctx.Err() == nil {
			logger.Printf("delayqueue: consuming queue %q has ended: %v", q.name, err)
		}
		client.Close()
		engine.Close()
		q.report.wait()
		q.mu.Lock()
		defer q.mu.Unlock()
		q.end(c)
	}()
	return c.done
}

// end marks a consumer as ended. q.mu is held.
func (q *DelayQueue) end(c *consumer) {
	c.stop()
	if q.running == c {
		q.running = nil
	}
	close(c.done)
}

// StopConsume ends consuming. It does not wait: a callback may call it. It has no effect if nothing is consumed.
func (q *DelayQueue) StopConsume() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running != nil {
		q.running.stop()
		q.running = nil
	}
}

// worker returns the configuration of a worker with these settings.
func (s settings) worker() later.WorkerConfig {
	const most = math.MaxInt32
	config := later.WorkerConfig{
		Concurrency: int(min(s.concurrent, most)),
		Lease:       max(s.maxConsumeDuration, time.Second), // heartbeats extend it; it matters when the process dies
		Timeout:     s.maxConsumeDuration,
		Backoff:     s.backoff,
		// A callback that runs when consuming is stopped has all of its time.
		ShutdownTimeout: s.maxConsumeDuration + time.Second,
	}
	if s.fetchLimit > 0 {
		config.Concurrency = int(min(s.concurrent, s.fetchLimit, most))
		const largest = 2000 // of WorkerConfig.MaxPrefetch
		config.MaxPrefetch = cmp.Or(int(min(s.fetchLimit-uint(config.Concurrency), largest)), -1)
	}
	return config
}

// backoff returns how long a failed message waits.
func (s settings) backoff(_ int, err error) time.Duration {
	if errors.Is(err, later.ErrTimeout) {
		return 0
	}
	if s.nackRedeliveryDelay > 0 {
		return s.nackRedeliveryDelay
	}
	return s.fetchInterval
}

var errRefused = errors.New("callback returned false")

// handler returns the handler that calls a callback. Since a callback cannot be stopped, it runs in a goroutine that
// the handler leaves behind when its context ends.
func (q *DelayQueue) handler(callback CallbackFunc) later.HandlerFunc {
	return func(ctx context.Context, m *later.Message) error {
		result := make(chan error, 1)
		var over atomic.Bool // the first of callback and context to end sets it
		payload, id := string(m.Payload), m.ID
		go func() {
			err := errGoexit
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("callback panicked: %v\n%s", p, debug.Stack())
				}
				if over.CompareAndSwap(false, true) {
					result <- err
				} else if err == nil {
					q.ackLate(id)
				}
			}()
			done := callback(payload)
			if err = errRefused; done {
				err = nil
			}
		}()
		select {
		case err := <-result:
			return err
		case <-ctx.Done():
			if over.CompareAndSwap(false, true) {
				return context.Cause(ctx)
			}
			return <-result
		}
	}
}

var errGoexit = errors.New("callback called runtime.Goexit")

// ackLate ends a message after its callback succeeded too late, so that it is not delivered again.
func (q *DelayQueue) ackLate(id string) {
	queue, err := q.queue()
	if err == nil {
		_, err = queue.Cancel(context.Background(), id)
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		q.log("delayqueue: message %q of queue %q is done, but will be delivered again: %v", id, q.name, err)
	}
}
