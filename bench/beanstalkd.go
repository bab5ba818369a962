package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/beanstalkd/go-beanstalk"
	"golang.org/x/sync/errgroup"

	"github.com/laterq/later/internal/benchmark"
)

func beanstalkdSubjects() []*subject {
	variant := func(name, title, settings string, binlog bool, workloads ...string) *subject {
		return &subject{
			subjectInfo: subjectInfo{Name: name, Title: title, Settings: settings, Cannot: map[string]string{
				"herd": "a delay counts whole seconds from each put, so no two jobs can be made due at one time",
			}},
			workloads: workloads, missing: installed("beanstalkd", "apt-get install beanstalkd"),
			start: func(ctx context.Context, _ []string) (*target, error) {
				s, err := startBeanstalkd(ctx, binlog)
				if err != nil {
					return nil, err
				}
				return onServer(ctx, s, connectBeanstalkd)
			},
			connect: connectBeanstalkd, wholeSeconds: true,
		}
	}
	return []*subject{
		variant("beanstalkd", "beanstalkd, in memory",
			"jobs in memory only; each handler reserves on a connection of its own, senders share 32", false,
			"send", "drain", "lateness", "memory", "idle"),
		variant("beanstalkd-binlog", "beanstalkd, binlog", "as beanstalkd, with -b, which syncs every 50 ms", true,
			"send", "drain", "lateness"),
	}
}

// beanstalkdSenders is the number of sending connections. Each is used by one goroutine at a time; several may share it
// in turn.
const beanstalkdSenders = 32

// jobTime is how long a job may take.
const jobTime = time.Minute

type beanstalkdQueue struct {
	addr    string
	senders []*beanstalk.Conn
	next    atomic.Uint32
}

func connectBeanstalkd(_ context.Context, addr string) (benchmark.Queue, func() error, error) {
	q := &beanstalkdQueue{addr: addr}
	closeAll := func() (err error) {
		for _, c := range q.senders {
			err = errors.Join(err, c.Close())
		}
		return err
	}
	for range beanstalkdSenders {
		c, err := beanstalk.Dial("tcp", addr)
		if err != nil {
			return nil, nil, errors.Join(err, closeAll())
		}
		q.senders = append(q.senders, c)
	}
	return q, closeAll, nil
}

// Send rounds the delay to the nearest second, because beanstalkd supports only whole seconds. The workload lateness
// sends no other delays.
func (q *beanstalkdQueue) Send(_ context.Context, payload []byte, due time.Time) (string, error) {
	delay := time.Duration(0)
	if !due.IsZero() {
		delay = time.Until(due).Round(time.Second)
	}
	c := q.senders[q.next.Add(1)%beanstalkdSenders]
	id, err := c.Put(payload, 1, max(0, delay), jobTime)
	return strconv.FormatUint(id, 10), err
}

// reservation is how long a handler waits for a job before it asks again. Closing the connection ends the wait.
const reservation = time.Hour

// beanstalkdWorker is the connection of one handler.
type beanstalkdWorker struct {
	*beanstalk.Conn
	mu       sync.Mutex
	handling bool
	ended    bool
}

// set notes whether a job is handled. It returns false if the worker must stop.
func (w *beanstalkdWorker) set(handling bool) (goOn bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handling = handling
	return !w.ended
}

// stop closes the connection if it is waiting. A busy handler finishes its job first.
func (w *beanstalkdWorker) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if !w.handling {
		w.Close()
	}
}

func (w *beanstalkdWorker) run(handle func(payload []byte)) error {
	defer w.Close()
	for {
		id, payload, err := w.Reserve(reservation)
		if !w.set(true) {
			return nil // a job that arrives now is returned when the connection closes
		}
		if err == nil {
			handle(payload)
			err = w.Delete(id)
		}
		if !w.set(false) || err != nil {
			return err
		}
	}
}

func (q *beanstalkdQueue) Work(ctx context.Context, handlers int, handle func(payload []byte)) error {
	workers, ctx := errgroup.WithContext(ctx)
	for range handlers {
		workers.Go(func() error {
			c, err := beanstalk.Dial("tcp", q.addr)
			if err != nil {
				return err
			}
			w := &beanstalkdWorker{Conn: c}
			defer context.AfterFunc(ctx, w.stop)()
			return w.run(handle)
		})
	}
	return workers.Wait()
}

func (q *beanstalkdQueue) Left(context.Context) (left int, err error) {
	stats, err := q.senders[0].Stats()
	for _, state := range []string{"ready", "reserved", "delayed", "buried"} {
		n, failed := strconv.Atoi(stats["current-jobs-"+state])
		left, err = left+n, errors.Join(err, failed)
	}
	return left, err
}
