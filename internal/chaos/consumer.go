//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// consumer is the role of a process that handles messages with a Worker or with Receive.
type consumer struct {
	role
	store   store.Store
	client  *later.Client // nil until it runs
	journal *journal
	log     *slog.Logger
}

// drainLimit is the time handlers have to finish when a consumer stops.
const drainLimit = 5 * time.Second

func (c consumer) work(ctx context.Context) error {
	client, err := later.New(c.store, later.WithLogger(c.log), later.WithObserver(c.observe))
	if err != nil {
		return err
	}
	c.client = client
	cfg := later.WorkerConfig{
		Concurrency:     c.Concurrency,
		Lease:           c.Lease,
		Backoff:         later.ConstantBackoff(backoff),
		ShutdownTimeout: drainLimit,
	}
	handle := c.handle
	if c.Lock != "" {
		middleware, closeLocks, err := c.locked()
		if err != nil {
			return err
		}
		defer closeLocks()
		cfg.Middleware, handle = append(cfg.Middleware, middleware), c.handleLocked
	}
	if c.Controlled {
		c.controlled(&cfg)
	}
	w := later.NewWorker(client, cfg)
	for _, queue := range c.Queues {
		w.Handle(queue, handle)
	}
	return errors.Join(c.ran(ctx, w.Run(ctx)), client.Close())
}

// observe records events that report a lost lease to its holder.
func (c consumer) observe(e later.Event) {
	if e.Kind == later.EventLeaseLost || e.Kind == later.EventUnsettled {
		c.journal.one(leaseLost, now(), e.ID, e.Attempt, string(e.Kind))
	}
}

// record records a delivery and returns the action for it. A poison message kills the process.
func (c consumer) record(m *later.Message) action {
	key, kind, whole := readPayload(m.Payload)
	whole = whole && (m.Headers[headerKey] == key) == (kind == headed)
	is := 0
	if whole {
		is = 1
	}
	c.journal.one(handled, now(), m.ID, m.Attempt, key, is, m.Fence)
	if kind == poison {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	if kind == failing && rand.IntN(10) > 0 {
		return doFail
	}
	do := chooseAction()
	if kind == lasting && do == doAck {
		return doHold
	}
	if do == doBury && c.DrainsFully {
		return doAck
	}
	return do
}

func (c consumer) handle(ctx context.Context, m *later.Message) error {
	switch c.record(m) {
	case doFail:
		return errRequested
	case doRetryIn:
		return errors.Join(errRequested, later.RetryIn(retryIn))
	case doSnooze:
		return later.Snooze(snoozeFor)
	case doBury:
		return later.Bury(errRequested)
	case doPanic:
		panic(errRequested)
	case doWork:
		return c.workFor(ctx, rand.N(20*time.Millisecond))
	case doHold:
		return c.workFor(ctx, c.holdFor())
	case doWorkOn:
		return c.workFor(ctx, c.Lease*2) // needs several extensions
	case doCancel:
		c.cancel(m)
	}
	return nil
}

// holdFor returns how long a handler holds a message. A change of the number of shards meets messages that are leased.
func (c consumer) holdFor() time.Duration {
	if c.Sharded {
		return rand.N(time.Second)
	}
	return rand.N(333 * time.Millisecond)
}

// cancel cancels a leased message. Its settle must then be refused.
func (c consumer) cancel(m *later.Message) {
	ctx, stop := context.WithTimeout(context.Background(), c.Lease)
	defer stop()
	c.journal.one(beginCancel, now(), m.ID)
	state, err := c.client.Queue(m.Queue).Cancel(ctx, m.ID)
	outcome := string(state)
	if err != nil {
		outcome = outcomeOf(err)
	}
	c.journal.one(endCancel, now(), m.ID, outcome)
}

func (c consumer) workFor(ctx context.Context, d time.Duration) error {
	if !sleep(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}

// receive takes batches from each queue and settles each message with its own call.
func (c consumer) receive(ctx context.Context) error {
	client, err := later.New(c.store, later.WithLogger(c.log), later.WithObserver(c.observe))
	if err != nil {
		return err
	}
	c.client = client
	var receiving sync.WaitGroup
	for _, name := range c.Queues {
		receiving.Go(func() {
			q := client.Queue(name)
			for ctx.Err() == nil {
				got, err := q.Receive(ctx, 20, later.Lease(c.Lease))
				if err != nil {
					sleep(ctx, 50*time.Millisecond)
				}
				var settling sync.WaitGroup
				for _, d := range got {
					settling.Go(func() { c.settle(d) })
				}
				settling.Wait()
			}
		})
	}
	receiving.Wait()
	return client.Close()
}

// settle settles a delivery, and retries while the outcome is unknown and the lease may last.
func (c consumer) settle(d *later.Delivery) {
	ctx, cancel := context.WithTimeout(context.Background(), c.Lease)
	defer cancel()
	do := c.record(d.Message)
	switch do {
	case doCancel:
		c.cancel(d.Message)
	case doHold:
		sleep(ctx, c.holdFor())
	}
	for {
		var err error
		switch do {
		case doFail, doPanic:
			err = d.Nack(ctx, backoff, errRequested)
		case doRetryIn:
			err = d.Nack(ctx, retryIn, errRequested)
		case doSnooze:
			err = d.Snooze(ctx, snoozeFor)
		case doBury:
			err = d.Bury(ctx, errRequested)
		case doRelease:
			err = d.Release(ctx)
		case doAbandon:
			return
		case doWorkOn:
			if err = d.Extend(ctx, c.Lease); err == nil {
				err = d.Ack(ctx)
			}
		default:
			err = d.Ack(ctx)
		}
		if err == nil || errors.Is(err, later.ErrLeaseLost) {
			return
		}
		if !sleep(ctx, 50*time.Millisecond) {
			c.log.Warn(fmt.Sprintf("chaos: message %s was not settled: %v", d.ID, err))
			return
		}
	}
}
