//go:build unix

package chaos

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
)

func newRedis(options *redis.Options) *redis.Client { return redis.NewClient(options) }

// injectAny injects one of several faults. It spares the first worker, because its resource usage is measured.
func injectAny(ctx context.Context, r *run) error {
	kinds := []func(context.Context, *run) error{
		killServer, disruptServer, loseReplies, delayRequests, disruptNetwork, killConsumer, stopConsumer, killProducer,
	}
	return kinds[r.random.IntN(len(kinds))](ctx, r)
}

// disruptManyQueues injects one of the faults that concern all queues.
func disruptManyQueues(ctx context.Context, r *run) error {
	kinds := []func(context.Context, *run) error{loseReplies, killConsumer, killServer}
	return kinds[r.injected%len(kinds)](ctx, r)
}

// killConsumer kills a consumer and restarts it after up to a second.
func killConsumer(ctx context.Context, r *run) error {
	c := r.pick("worker", "receiver")
	r.kill(c)
	sleep(ctx, r.upTo(time.Second))
	return c.start()
}

// stopConsumer suspends a consumer for longer than its lease.
func stopConsumer(ctx context.Context, r *run) error {
	r.stop(ctx, r.pick("worker", "receiver"), r.fault.load.lease+200*time.Millisecond+r.upTo(time.Second))
	return nil
}

func killProducer(ctx context.Context, r *run) error {
	c := r.pick("producer")
	r.kill(c)
	sleep(ctx, r.upTo(100*time.Millisecond))
	return c.start()
}

// sendPoison sends a message that kills each process that handles it, and restarts these processes.
func sendPoison(ctx context.Context, r *run) error {
	const attempts = 3
	q := r.client.Queue(r.queues[r.random.IntN(len(r.queues))])
	id := fmt.Sprint("poison-", r.injected)
	r.log("poison", id)
	r.journal.one(beginSend, now(), id, id, "+0", flagNone)
	_, err := q.Send(ctx, makePayload(id, poison, 100), later.WithID(id), later.MaxAttempts(attempts))
	r.journal.one(endSend, now(), id, outcomeOf(err))
	if err != nil {
		return err
	}
	r.expectations = append(r.expectations, expectation{id, func(info *later.Info) error {
		if info == nil || info.State != later.StateDead || info.DeadReason != later.DeadLeaseExpired ||
			info.Attempts != attempts {
			return fmt.Errorf("want dead as lease_expired after %d attempts, got %s", attempts, describe(info))
		}
		return nil
	}})
	return within(ctx, 30*time.Second, "death of the poison message", func(ctx context.Context) error {
		for _, c := range r.children {
			if !c.alive() {
				r.logAt(c.died, "kill", c.actor())
				if err := c.start(); err != nil {
					return err
				}
			}
		}
		info, err := q.Get(ctx, id)
		if err == nil && info.State != later.StateDead {
			err = fmt.Errorf("it is %s", info.State)
		}
		return err
	})
}

// stop suspends a child for d.
func (r *run) stop(ctx context.Context, c *child, d time.Duration) {
	r.log("stop", c.actor())
	c.signal(syscall.SIGSTOP)
	sleep(ctx, d)
	c.signal(syscall.SIGCONT)
	r.log("continue", c.actor())
}

// kill kills a child and records the time.
func (r *run) kill(c *child) {
	r.log("kill", c.actor())
	c.kill()
}
