package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

const (
	maxDemoOrders = 100_000
	maxDemoSpeed  = 100
	cleanTimeout  = 5 * time.Second
)

func (m *Main) demoCommand() *cobra.Command {
	orders, speed := 8, 1.0
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch a small shop whose unpaid orders cancel themselves",
		Long: `Demo runs a small shop for about ten seconds. Each order sends a mail at once, and a message that is due some
seconds later and cancels the order. When a customer pays, that message is cancelled; one asks for more time,
and it is rescheduled. A reminder fails twice and is tried again, a webhook never works and ends in dead.

Each delivery is printed with its lateness, and a summary of all ends it. A delivery is early when it came
before its due time; on a Redis the two clocks are compared first, and the comparison's error is allowed for.

Without --store, LATER_STORE and REDIS_URL it runs in this process's memory. On a Redis it uses queues of its
own, named demo-..., and deletes them at the end, also after Ctrl-C, when the summary tells how far it came.`,
		Example: `  later demo
  later demo --store redis://localhost:6379/0 --orders 1000`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: run(func(ctx context.Context, _ []string) error {
			if orders < 1 || orders > maxDemoOrders {
				return store.Invalid("--orders is %d: give 1 to %d", orders, maxDemoOrders)
			}
			if !(speed >= 0.01 && speed <= maxDemoSpeed) {
				return store.Invalid("--speed is %v: give 0.01 to %d", speed, maxDemoSpeed)
			}
			return m.demo(ctx, orders, speed)
		}),
	}
	cmd.Flags().IntVar(&orders, "orders", orders, "place `N` orders")
	cmd.Flags().Float64Var(&speed, "speed", speed, "run `N` times faster")
	return cmd
}

func (m *Main) demo(ctx context.Context, orders int, speed float64) (err error) {
	ctx, stop := interruptible(ctx)
	defer stop()
	url, source := m.storeName()
	if url == "" {
		url = "mem://"
	}
	living := newLiving()
	client, err := m.openURL(ctx, url, source, later.WithObserver(living.observe))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, endEarly := context.WithCancelCause(ctx)
	defer endEarly(nil)
	prefix := "" // in our own memory there is nobody to keep apart from
	if !isMemory(url) {
		prefix = "demo-" + strings.ToLower(rand.Text()[:6]) + "-"
	}
	s := newShop(client, prefix, living, newDemoReport(m, endEarly), orders, speed)
	defer func() {
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
		defer cancel()
		left := s.deleteQueues(cleaning)
		if err == nil {
			err = left
		} else if left != nil {
			m.report(left)
		}
	}()
	if !isMemory(url) {
		if err := s.report.clock.measure(ctx, s.orders); err != nil {
			return err
		}
	}
	s.report.title(store.RedactURL(url))
	err = s.open(ctx)
	_, stopped := errors.AsType[*stopError](err)
	if stopped {
		m.note("stopped before its end")
	}
	if err == nil || stopped {
		err = errors.Join(err, s.report.summary())
	}
	return err
}

// shop is what the demo shows.
type shop struct {
	report  *demoReport
	living  *living
	client  *later.Client
	count   int // orders
	speed   float64
	mail    *later.Queue // confirmations, due at once
	orders  *later.Queue // messages that cancel unpaid orders
	remind  *later.Queue
	webhook *later.Queue
}

func newShop(c *later.Client, prefix string, l *living, r *demoReport, count int, speed float64) *shop {
	return &shop{
		report: r, living: l, client: c, count: count, speed: speed,
		mail:    c.Queue(prefix + "mail"),
		orders:  c.Queue(prefix + "orders"),
		remind:  c.Queue(prefix + "reminders"),
		webhook: c.Queue(prefix + "webhooks"),
	}
}

func (s *shop) queues() []*later.Queue {
	return []*later.Queue{s.mail, s.orders, s.remind, s.webhook}
}

func (s *shop) deleteQueues(ctx context.Context) error {
	for _, q := range s.queues() {
		if err := q.Delete(ctx); err != nil {
			return fmt.Errorf("delete the demo's queues: %w", err)
		}
	}
	return nil
}

// open runs the shop until all its messages are done or dead, or ctx ends.
func (s *shop) open(ctx context.Context) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	worker := s.worker()
	worked := make(chan error, 1)
	go func() { worked <- worker.Run(working) }()

	err := s.play(ctx)
	if err == nil {
		err = s.living.awaitNone(ctx)
	}
	stop()
	if left := <-worked; err == nil {
		err = left
	}
	if err == nil {
		err = s.showDead(ctx)
	}
	return err
}

// pace gives a duration at the demo's speed.
func (s *shop) pace(d time.Duration) time.Duration {
	return time.Duration(float64(d) / s.speed)
}

// step is something that happens in the shop so long after its opening.
type step struct {
	at time.Duration
	do func(ctx context.Context) error
}

// play does the steps of the plan, each at its time.
func (s *shop) play(ctx context.Context) error {
	plan := s.plan()
	slices.SortStableFunc(plan, func(a, b step) int { return int(a.at - b.at) })
	opened := time.Now()
	for _, next := range plan {
		timer := time.NewTimer(time.Until(opened.Add(s.pace(next.at))))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		if err := next.do(ctx); err != nil {
			return err
		}
	}
	return nil
}
