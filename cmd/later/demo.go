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
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/store"
)

const (
	maxDemoOrders = 100_000
	maxDemoSpeed  = 100
	cleanTimeout  = 5 * time.Second
	// demoPrefix is the prefix of the demo's queue names.
	demoPrefix = "demo-"
)

// demoOptions are the flags of later demo.
type demoOptions struct {
	set    *pflag.FlagSet
	orders int
	speed  float64
	fresh  bool
	ui     bool
	noOpen bool
}

func (m *Main) demoCommand() *cobra.Command {
	o := demoOptions{orders: 8, speed: 1}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a small shop whose unpaid orders cancel themselves",
		Long: `Demo runs a small shop for about ten seconds. Each order sends a mail at once, and a message that is due some
seconds later and cancels the order. When a customer pays, that message is cancelled. One customer asks for more time,
and the message is rescheduled. A reminder fails twice and is retried; a webhook always fails and its message ends up
dead.

Demo prints each delivery with its lateness, and finally what became of every message. If a message is unaccounted
for, it is lost, and the exit code is 1. A delivery is early if it came before its due time. On Redis, demo compares
the two clocks first and allows for the error of that comparison.

In an embedded store, the default, you can stop the demo at any moment, by Ctrl-C, kill -9 or a power cut. The next run
prints what it found, continues, and counts everything. Messages that fell due in between are delivered at once; those
that the killed worker held are delivered when their leases expire, within %s. At the end, demo removes its queues,
%s.

If another process has the embedded store open, or it cannot be used, the demo runs in memory and says so; a store that
you name must work. On Redis, demo uses its own queues with unique names and removes them at the end, also after
Ctrl-C. On Redis and in memory, every run starts over.

With --ui, the shop is larger, goes on until Ctrl-C, and is shown on the web page, whose URL demo prints and opens in
the browser. It runs in memory, or in a store that you name, where it uses its own queues and removes them at the end.`,
		Example: `  later demo
  later demo --fresh
  later demo --ui
  later demo --store redis://localhost:6379/0 --orders 1000`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              run(func(ctx context.Context, _ []string) error { return m.demo(ctx, &o) }),
	}
	var names []string
	for _, name := range demoQueues {
		names = append(names, demoPrefix+name)
	}
	cmd.Long = fmt.Sprintf(cmd.Long, durations.Format(demoLease), strings.Join(names, ", "))
	o.set = cmd.Flags()
	o.set.IntVar(&o.orders, "orders", o.orders, "place `N` orders")
	o.set.Float64Var(&o.speed, "speed", o.speed, "run `N` times faster")
	o.set.BoolVar(&o.fresh, "fresh", false, "start over: remove what a stopped demo left")
	o.set.BoolVar(&o.ui, "ui", false, "show a shop that goes on, on the web page")
	addNoOpen(cmd, &o.noOpen)
	return cmd
}

func (o *demoOptions) check() error {
	if o.orders < 1 || o.orders > maxDemoOrders {
		return store.Invalid("--orders is %d: give 1 to %d", o.orders, maxDemoOrders)
	}
	if !(o.speed >= 1.0/maxDemoSpeed && o.speed <= maxDemoSpeed) {
		return store.Invalid("--speed is %v: give %v to %d", o.speed, 1.0/maxDemoSpeed, maxDemoSpeed)
	}
	for _, name := range []string{"orders", "speed", "fresh"} {
		if o.ui && o.set.Changed(name) {
			return store.Invalid("--ui and --%s are both given: omit one", name)
		}
	}
	if o.noOpen && !o.ui {
		return store.Invalid("--no-open is given without --ui")
	}
	return nil
}

func (m *Main) demo(ctx context.Context, o *demoOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.ui {
		return m.demoUI(ctx, o.noOpen)
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

// openDemo prepares the shop on the store that the user named. Without a name it uses the embedded store, or memory if
// that cannot be used.
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
		reason = "there is no directory for an embedded store, because HOME is not set"
	}
	m.note("the demo runs in memory and cannot be continued after a stop: %s", reason)
	return m.openShop(ctx, o, r, "mem://", sourceDefault)
}

// openShop prepares a new or a stopped shop on a store.
func (m *Main) openShop(ctx context.Context, o *demoOptions, r *demoReport, name, source string) (*shop, error) {
	url, err := m.storeURLOf(name)
	if err != nil {
		return nil, fmt.Errorf("%w (%s)", err, describeSource(source))
	}
	s := &shop{report: r, url: url, count: o.orders, speed: o.speed}
	_, s.keeps = directoryOf(url)
	s.shared = !s.keeps && !isMemory(url)
	prefix := demoPrefix
	if s.shared { // others may run a demo in this store, too
		prefix += strings.ToLower(rand.Text()[:6]) + "-"
	}
	s.pending = newPendingCount(prefix)
	if s.keeps {
		url = unshared(url) // there is one demo in a store
	}
	s.client, err = m.openURL(ctx, url, source, later.WithObserver(s.pending.observe))
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

// prepare starts a new demo, or continues a stopped one.
func (s *shop) prepare(ctx context.Context, prefix string, o *demoOptions) (err error) {
	s.mail, s.orders = s.client.Queue(prefix+"mail"), s.client.Queue(prefix+"orders")
	s.remind, s.webhook = s.client.Queue(prefix+"reminders"), s.client.Queue(prefix+"webhooks")
	if s.book, err = openBook(ctx, s.client.Queue(prefix+"book")); err != nil {
		return err
	}
	s.report.elapsed = s.book.elapsed
	begun, ok := s.book.entry(bookBegun, "")
	if ok && (o.fresh || s.book.has(bookClosed, "")) {
		// If the removal is interrupted, removed messages must not count as lost.
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
			s.report.main.note(
				"the stopped demo continues as it started, with --orders %d --speed %v; use --fresh to start over",
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

// run opens the shop, and prints the summary and cleans up when the shop has closed or was stopped.
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

// sumUp prints the summary.
func (s *shop) sumUp(ctx context.Context, stopped bool) error {
	ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
	defer cancel()
	found, err := s.findMessages(ctx)
	if err != nil {
		return err
	}
	a := s.book.outcome(found.pending, found.dead)
	if stopped {
		if s.keeps {
			s.report.main.note("stopped with %d messages waiting: later demo continues, later demo --fresh starts over",
				len(found.pending))
		} else {
			s.report.main.note("stopped with %d messages waiting", len(found.pending))
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

// cleanAfter removes the demo's queues. It returns err, or the error of the removal if err is nil.
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

// removeQueues removes the demo's queues. The book comes last, so that an interrupted removal can be repeated.
func (s *shop) removeQueues(ctx context.Context) error {
	for _, q := range append(s.queues(), s.book.queue) {
		if err := q.Delete(ctx); err != nil {
			return fmt.Errorf("remove the demo's queues: %w", err)
		}
	}
	return nil
}
