package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/diskstore"
	"github.com/laterq/later/doctor"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

func (m *Main) doctorCommand() *cobra.Command {
	var repair bool
	var target string
	cmd := m.command("doctor", "Check and repair a store",
		`Doctor checks everything in a store: every block of an embedded store's files, and whether the messages,
indexes and counters of each queue agree. It prints a line for each check and each issue:

  ok          no issue
  note        worth knowing; no action needed
  warning     nothing is lost, but action is needed
  error       messages are lost or cannot be delivered, or counts are wrong
  repaired    an issue that was repaired

With --repair, doctor makes indexes and counters of a Redis store consistent again. It never removes a message that
can be read. A damaged embedded store is not repaired in place: --recover creates a new store from everything that can
still be read, in a directory that must be missing or empty, and leaves the damaged store unchanged. Messages that
were leased are ready in the new store. If the damage hit an ack, the acked message may be delivered again.

Other programs can use the store meanwhile, except with --recover. The exit code is 0 if there is nothing worse than a
note, `+
			fmt.Sprint(exitCode(store.ErrCorrupt))+
			` if errors remain or something was lost, and 1 if only warnings remain.`,
		`  later doctor
  later doctor --store redis://localhost:6379/0 --repair --json
  later doctor --store file:///var/lib/later --recover /var/lib/later-new`,
		run(func(ctx context.Context, _ []string) error {
			ctx, stop := interruptible(ctx)
			defer stop()
			d := &doctorRun{main: m}
			if target != "" {
				if repair {
					return store.Invalid("--repair and --recover are both given: use --recover, the new store " +
						"needs no repair")
				}
				return d.recover(ctx, target)
			}
			return d.check(ctx, doctor.Config{Repair: repair})
		}))
	cmd.Flags().BoolVar(&repair, "repair", false, "repair inconsistent indexes and counters in Redis")
	cmd.Flags().StringVar(&target, "recover", "", "recover a damaged store to a new store in `DIR`")
	cmd.MarkFlagDirname("recover")
	return cmd
}

// doctorRun prints the results of later doctor, and counts the issues.
type doctorRun struct {
	main             *Main
	errors, warnings int
	printing         error // the first error of printing
}

func (d *doctorRun) check(ctx context.Context, cfg doctor.Config) error {
	m := d.main
	client, err := m.openExisting(ctx)
	if dir := m.selected().dir; dir != "" && errors.Is(err, later.ErrCorrupt) {
		return d.inspect(ctx, dir, err)
	}
	if err != nil {
		return err
	}
	defer client.Close()
	err = doctor.Check(ctx, client, cfg, d.report)
	if errors.Is(err, later.ErrUnsupported) {
		m.note("there is nothing to check in %s", m.shownURL())
		return nil
	}
	return d.done(err)
}

// inspect reports the damage in a store that cannot be opened. reason is the error of the open.
func (d *doctorRun) inspect(ctx context.Context, dir string, reason error) error {
	err := diskstore.Inspect(ctx, dir, d.report)
	if err == nil && d.errors == 0 {
		err = reason
	}
	return d.done(err)
}

// recover copies the readable messages of a damaged store to a new store in target.
func (d *doctorRun) recover(ctx context.Context, target string) error {
	m := d.main
	from := m.selected()
	switch {
	case from.err != nil:
		return from.err
	case from.dir == "":
		return store.Invalid("--recover needs an embedded store, but the store is %s (%s): give a directory "+
			"with --store", store.RedactURL(from.url), describeSource(from.source))
	}
	err := diskstore.Recover(ctx, from.dir, target, d.report)
	if held, ok := errors.AsType[*diskstore.HeldError](err); ok {
		return &inUseError{held}
	}
	if err != nil {
		return fmt.Errorf("%w; remove %s before you try again", err, target)
	}
	m.note("recovered the readable messages to %s; %s is unchanged", target, from.dir)
	return d.done(nil)
}

func (d *doctorRun) report(r doctor.Result) {
	mark := string(r.Severity)
	switch {
	case r.Repaired:
		mark = "repaired"
	case r.Severity == doctor.Error:
		d.errors++
	case r.Severity == doctor.Warning:
		d.warnings++
	}
	if d.printing != nil {
		return
	}
	if d.main.json {
		d.printing = d.main.printJSON(wire.CheckResult(r))
		return
	}
	queue := ""
	if r.Queue != "" {
		queue = fmt.Sprintf("queue %s: ", r.Queue)
	}
	text := fmt.Sprintf("%-8s  %s%s\n", mark, queue, r.Text) // "repaired" has 8 letters
	if r.Advice != "" {
		text += fmt.Sprintf("%12s%s\n", "", r.Advice)
	}
	d.printing = d.main.print("%s", printable(text))
}

// done returns err if it is not nil, else the error for the issues that remain.
func (d *doctorRun) done(err error) error {
	switch {
	case err != nil:
	case d.printing != nil:
		err = d.printing
	case d.errors > 0:
		err = fmt.Errorf("%w: %s", later.ErrCorrupt, plural(d.errors, "error remains", "errors remain"))
	case d.warnings > 0:
		err = errors.New(plural(d.warnings, "warning remains", "warnings remain"))
	}
	return err
}
