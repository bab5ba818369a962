package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/metrics"
	"github.com/laterq/later/store"
)

// cleanTimeout limits how long demo removes its queues at the end.
const cleanTimeout = 5 * time.Second

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
	o := demoOptions{orders: 9, speed: 1}
	cmd := m.command("demo", "Run a small shop whose unpaid orders cancel themselves",
		fmt.Sprintf(`Demo runs a small shop for about ten seconds. Each order sends a mail at once, and a message that
is due some seconds later and cancels the order. When a customer pays, that message is cancelled. One customer asks for
more time, and the message is rescheduled. Reminders and webhooks fail and are retried, and some messages end up dead.

Demo prints each delivery with its lateness, and finally the number of messages in each state. If a message is
unaccounted for, it is lost, and the exit code is 1. A delivery is early if it came before its due time.

In an embedded store, the default, you can stop the demo at any moment, by Ctrl-C, kill -9 or a power cut. The next run
delivers the messages that it finds. Messages that fell due in between come at once; messages that the killed worker
held come when their leases expire, within %s. If the embedded store cannot be used, the demo runs in memory. A store
that you name must work. The names of the demo's queues begin with demo-, and are unique where other processes share
the store. At the end, demo removes them, also after Ctrl-C unless it can continue.

With --ui, the shop goes on until Ctrl-C and is shown on the web page. Demo prints its URL and opens it in the browser.
It then also has a topic, schedules, a paused queue, and messages that are due within weeks. It runs in memory, or in a
store that you name.`,
			durations.Format(demoLease)),
		`  later demo
  later demo --fresh
  later demo --ui
  later demo --store redis://localhost:6379/0 --orders 1000`,
		run(func(ctx context.Context, _ []string) error { return m.demo(ctx, &o) }))
	o.set = cmd.Flags()
	o.set.IntVar(&o.orders, "orders", o.orders, "place `N` orders")
	o.set.Float64Var(&o.speed, "speed", o.speed, "run `N` times faster")
	o.set.BoolVar(&o.fresh, "fresh", false, "start over: remove the messages of a stopped demo")
	o.set.BoolVar(&o.ui, "ui", false, "show a shop that goes on, on the web page")
	addNoOpen(cmd, &o.noOpen)
	return cmd
}

func (o *demoOptions) check() error {
	switch {
	case o.orders < 1 || o.orders > 100_000:
		return store.Invalid("--orders is %d: must be 1 to 100000", o.orders)
	case !(o.speed >= 0.01 && o.speed <= 100):
		return store.Invalid("--speed is %v: must be 0.01 to 100", o.speed)
	case o.noOpen && !o.ui:
		return store.Invalid("--no-open is given without --ui")
	}
	for _, name := range []string{"orders", "speed", "fresh"} {
		if o.ui && o.set.Changed(name) {
			return store.Invalid("--ui and --%s are both given: omit one", name)
		}
	}
	return nil
}

func (m *Main) demo(ctx context.Context, o *demoOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	s := &shop{demoOptions: o, counts: metrics.New(metrics.Config{}), report: &demoReport{
		main: m, quiet: o.ui || m.json, fail: fail, began: time.Now(), left: map[string]bool{},
	}}
	selected, memory := m.selected(), selected{url: "mem://", source: sourceDefault}
	named := selected.source != "" && selected.source != sourceDefault
	if o.ui && !named {
		selected = memory
	}
	err := s.open(ctx, selected)
	if err != nil && !named && ctx.Err() == nil {
		reason, _, _ := strings.Cut(err.Error(), "\n")
		m.note("the demo runs in memory and cannot be continued after a stop: %s", reason)
		err = s.open(ctx, memory)
	}
	if err != nil {
		return err
	}
	show := s.show
	if o.ui {
		show = s.showOnPage
	}
	return errors.Join(show(ctx), s.client.Close())
}

// open opens the shop in a store, with the messages of a stopped demo that are there.
func (s *shop) open(ctx context.Context, selected selected) (err error) {
	shared := !isMemory(selected.url)
	s.url, s.prefix, s.keeps = selected.url, "demo-", selected.dir != "" && !s.ui
	if s.keeps {
		selected.url, shared = unshared(s.url), false // there is one demo in a store
	}
	if shared { // others may run a demo in this store, too
		s.prefix += strings.ToLower(rand.Text()[:6]) + "-"
	}
	if s.client, err = s.report.main.openQuietly(ctx, selected, later.WithObserver(s.counts.Observe)); err != nil {
		return err
	}
	if s.keeps {
		err = s.find(ctx)
	} else if shared {
		asked := time.Now()
		stats, failed := s.queue("mail").Stats(ctx)
		s.report.ahead, err = stats.Now.Sub(asked)+time.Millisecond, failed // Now is cut to whole ones
	}
	if err != nil {
		err = errors.Join(err, s.client.Close())
	}
	return err
}

// show runs the shop, prints each delivery and a summary, and removes the queues unless the next run can continue.
func (s *shop) show(ctx context.Context) error {
	m := s.report.main
	if !m.json {
		m.print("A shop on %s. Orders that are not paid in time cancel themselves.\n\n", store.RedactURL(s.url))
	}
	if s.report.summary.Found > 0 {
		m.note("a demo was stopped here and continues with %d messages", s.report.summary.Found)
	}
	err := s.run(ctx)
	_, stopped := errors.AsType[*stopError](err)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	if err == nil || stopped {
		waiting, listed := s.messages(ctx)
		lost, printed := s.report.end(waiting)
		err = errors.Join(err, listed, printed)
		if err == nil && len(lost) > 0 {
			err = fmt.Errorf("%d messages are lost: %s", len(lost), preview(strings.Join(lost, ", "), 200))
		}
	}
	if stopped && s.keeps {
		m.note("stopped: later demo continues, later demo --fresh starts over")
	}
	if err != nil && s.keeps {
		return err
	}
	return errors.Join(err, s.remove(ctx))
}

// showOnPage runs the shop and its page until a signal ends them, and then removes the shop's queues.
func (s *shop) showOnPage(ctx context.Context) error {
	m, o := s.report.main, serveOptions{listen: defaultListen, anyPort: true}
	o.finished.Queues = []string{"*"}
	control, address, err := m.control(o)
	if err != nil {
		return err
	}
	web, err := m.startWeb(s.client, s.counts, control, address, o)
	if err != nil {
		return err
	}
	if err = s.stock(ctx); err == nil {
		m.showPage(web.url+"/", s.noOpen)
		err = s.run(ctx)
	}
	if _, stopped := errors.AsType[*stopError](context.Cause(ctx)); stopped {
		err = nil // the end of ctx caused the error, whichever call returned it
	}
	cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	return errors.Join(err, web.stop(), s.remove(cleaning))
}
