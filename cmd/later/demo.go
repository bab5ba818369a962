package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laterq/later"
	"github.com/laterq/later/diskstore"
	"github.com/laterq/later/store"
)

const (
	maxDemoOrders = 100_000
	maxDemoSpeed  = 100
	cleanTimeout  = 5 * time.Second
	// demoPrefix begins the names of the demo's queues.
	demoPrefix = "demo-"
)

// demoOptions are the flags of later demo.
type demoOptions struct {
	set    *pflag.FlagSet
	orders int
	speed  float64
	fresh  bool
}

func (m *Main) demoCommand() *cobra.Command {
	o := demoOptions{orders: 8, speed: 1}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch a small shop whose unpaid orders cancel themselves",
		Long: `Demo runs a small shop for about ten seconds. Each order sends a mail at once, and a message that is due some
seconds later and cancels the order. When a customer pays, that message is cancelled; one asks for more time,
and it is rescheduled. A reminder fails twice and is tried again, a webhook never works and ends in dead.

Each delivery is printed with its lateness, and a summary of all ends it: what became of every message that was
sent. One of which nothing is known would be lost, and the exit code 1. A delivery is early when it came before its
due time; on a Redis the two clocks are compared first, and the comparison's error is allowed for.

In an embedded store, which is the default, it can be stopped at any moment, by Ctrl-C, kill -9 or a power cut: the
next run says what it found, goes on where it was, and counts all of it. The messages that fell due meanwhile come at
once; those that the killed worker held, when their lease has ended, within %s. At its end it removes its queues,
%s.

When another process has the embedded store open, or it cannot be used, the demo runs in memory and says so; a store
that was named must work. On a Redis it uses queues of its own with names of their own, and removes them at the end,
also after Ctrl-C; there, and in memory, it begins anew each time.`,
		Example: `  later demo
  later demo --fresh
  later demo --store redis://localhost:6379/0 --orders 1000`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              run(func(ctx context.Context, _ []string) error { return m.demo(ctx, &o) }),
	}
	var names []string
	for _, name := range demoQueues {
		names = append(names, demoPrefix+name)
	}
	cmd.Long = fmt.Sprintf(cmd.Long, formatDuration(demoLease), strings.Join(names, ", "))
	o.set = cmd.Flags()
	o.set.IntVar(&o.orders, "orders", o.orders, "place `N` orders")
	o.set.Float64Var(&o.speed, "speed", o.speed, "run `N` times faster")
	o.set.BoolVar(&o.fresh, "fresh", false, "begin anew: remove what a demo left that was stopped")
	return cmd
}

func (o *demoOptions) check() error {
	if o.orders < 1 || o.orders > maxDemoOrders {
		return store.Invalid("--orders is %d: give 1 to %d", o.orders, maxDemoOrders)
	}
	if !(o.speed >= 1.0/maxDemoSpeed && o.speed <= maxDemoSpeed) {
		return store.Invalid("--speed is %v: give %v to %d", o.speed, 1.0/maxDemoSpeed, maxDemoSpeed)
	}
	return nil
}

func (m *Main) demo(ctx context.Context, o *demoOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	ctx, endEarly := context.WithCancelCause(ctx)
	defer endEarly(nil)
	s, err := m.openDemo(ctx, o, newDemoReport(m, endEarly))
	if err != nil {
		return err
	}
	err = s.run(ctx)
	closed := s.client.Close()
	if err == nil {
		err = closed
	}
	return err
}

// openDemo prepares the shop on the store that the user named; else on the embedded one, or in memory if that cannot
// be used.
func (m *Main) openDemo(ctx context.Context, o *demoOptions, r *demoReport) (*shop, error) {
	name, source := m.storeName()
	if name != "" && source != sourceDefault {
		return m.openShop(ctx, o, r, name, source)
	}
	_, err := m.defaultStore()
	if err == nil {
		var s *shop
		if s, err = m.openShop(ctx, o, r, name, source); err == nil || ctx.Err() != nil {
			return s, err
		}
	}
	reason := err.Error()
	if held, ok := errors.AsType[*diskstore.HeldError](err); ok {
		reason = fmt.Sprintf("the embedded store in %s is in use by %s", held.Dir, cmp.Or(held.Holder, "another process"))
	} else if name == "" {
		reason = "there is no place for an embedded store, since HOME is not set"
	}
	m.note("the demo runs in memory, and cannot go on after a stop: %s", reason)
	return m.openShop(ctx, o, r, "mem://", sourceDefault)
}

// openShop prepares the shop on a store: a new one, or one that was stopped.
func (m *Main) openShop(ctx context.Context, o *demoOptions, r *demoReport, name, source string) (*shop, error) {
	url, err := m.storeURLOf(name)
	if err != nil {
		return nil, fmt.Errorf("%w (%s)", err, from(source))
	}
	s := &shop{report: r, url: url, count: o.orders, speed: o.speed}
	_, s.keeps = directoryOf(url)
	s.shared = !s.keeps && !isMemory(url)
	prefix := demoPrefix
	if s.shared { // somebody else may have a demo there too
		prefix += strings.ToLower(rand.Text()[:6]) + "-"
	}
	s.living = newLiving(prefix)
	s.client, err = m.openURL(ctx, url, source, later.WithObserver(s.living.observe))
	if err != nil {
		return nil, err
	}
	if err := s.prepare(ctx, prefix, o); err != nil {
		if s.shared && s.book != nil {
			err = s.cleanAfter(ctx, err)
		}
		return nil, errors.Join(err, s.client.Close())
	}
	return s, nil
}

// prepare finds what there is, and begins anew or goes on.
func (s *shop) prepare(ctx context.Context, prefix string, o *demoOptions) (err error) {
	s.mail, s.orders = s.client.Queue(prefix+"mail"), s.client.Queue(prefix+"orders")
	s.remind, s.webhook = s.client.Queue(prefix+"reminders"), s.client.Queue(prefix+"webhooks")
	if s.book, err = openBook(ctx, s.client.Queue(prefix+"book")); err != nil {
		return err
	}
	s.report.elapsed = s.book.elapsed
	begun, ok := s.book.entry(bookBegun, "")
	if ok && (o.fresh || s.book.has(bookClosed, "")) {
		// Should the removal be stopped, nothing that is gone shall seem lost.
		if err := s.book.note(ctx, bookEntry{Kind: bookClosed}); err != nil {
			return err
		}
		if err := s.removeQueues(ctx); err != nil {
			return err
		}
		ok = false
		if s.book, err = openBook(ctx, s.book.queue); err != nil {
			return err
		}
		s.report.elapsed = s.book.elapsed
	}
	if ok {
		s.count, s.speed = begun.Orders, begun.Speed
		if o.set.Changed("orders") && o.orders != s.count || o.set.Changed("speed") && o.speed != s.speed {
			s.report.main.note("a demo that was stopped goes on as it began, with --orders %d --speed %v; --fresh begins anew",
				s.count, s.speed)
		}
		return s.resume(ctx)
	}
	for _, q := range append(s.queues(), s.book.queue) {
		stats, err := q.Stats(ctx)
		if err != nil {
			return err
		}
		if stats.Exists {
			return notOurs(q)
		}
	}
	return s.book.note(ctx, bookEntry{Kind: bookBegun, Orders: s.count, Speed: s.speed})
}

// run opens the shop, and sums up and cleans when it has closed or was stopped.
func (s *shop) run(ctx context.Context) error {
	if s.shared {
		if err := s.report.clock.measure(ctx, s.orders); err != nil {
			return s.cleanAfter(ctx, err)
		}
	}
	s.report.title(store.RedactURL(s.url))
	if s.found != nil {
		if err := s.report.resumed(s.found); err != nil {
			return err
		}
	}
	err := s.open(ctx)
	_, stopped := errors.AsType[*stopError](err)
	if err == nil || stopped {
		err = errors.Join(err, s.sumUp(context.WithoutCancel(ctx), stopped))
	}
	if err != nil && s.keeps {
		return err
	}
	return s.cleanAfter(ctx, err)
}

// sumUp prints what became of all messages.
func (s *shop) sumUp(ctx context.Context, stopped bool) error {
	ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
	defer cancel()
	found, err := s.look(ctx)
	if err != nil {
		return err
	}
	a := s.book.account(found.living, found.dead)
	if stopped {
		if s.keeps {
			s.report.main.note("stopped before its end: %d messages wait; later demo goes on with them, later demo --fresh begins anew",
				len(found.living))
		} else {
			s.report.main.note("stopped before its end, with %d messages waiting", len(found.living))
		}
	}
	if err := s.report.summary(a); err != nil || stopped {
		return err
	}
	if len(a.lost) > 0 {
		return fmt.Errorf("%d messages are lost: %s", len(a.lost), preview(strings.Join(a.lost, ", "), 200))
	}
	return s.book.note(ctx, bookEntry{Kind: bookClosed})
}

// cleanAfter removes the demo's queues. It gives err, or what went wrong if that is nil.
func (s *shop) cleanAfter(ctx context.Context, err error) error {
	cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	left := s.removeQueues(cleaning)
	if err == nil {
		return left
	}
	if left != nil {
		s.report.main.report(left)
	}
	return err
}

// removeQueues removes the book last, so that a removal that is stopped can be taken up again.
func (s *shop) removeQueues(ctx context.Context) error {
	for _, q := range append(s.queues(), s.book.queue) {
		if err := q.Delete(ctx); err != nil {
			return fmt.Errorf("remove the demo's queues: %w", err)
		}
	}
	return nil
}
