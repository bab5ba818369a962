package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/diskstore"
	"github.com/laterq/later/store"
)

func (m *Main) doctorCommand() *cobra.Command {
	var repair bool
	var target string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check a store, and repair it",
		Long: `Doctor checks everything that a store keeps: of an embedded store every block of its files, and of each queue
whether its messages, indexes and counters agree. It prints a line for each thing that it checked or found:

  ok          it is right
  note        worth knowing, and nothing needs to be done
  warning     nothing is lost, and something should be done
  error       messages are lost or cannot be delivered, or counts are wrong
  repaired    it was wrong and is repaired

With --repair it repairs what contradicts itself; no message that can be read is removed by that. A damaged file it
cannot repair: --recover creates a new store, in a directory that is missing or empty, from all that can still be read,
and changes nothing in the damaged one. A message may then come back that was acked, where the damage hit the ack.

An embedded store is open in one process at a time: stop the program that has it. The exit code is 0 when nothing is
worse than a note, ` + fmt.Sprint(store.ErrCorrupt.Code.Exit) + ` when errors are left or something was lost, and 1 when there are only warnings.`,
		Example: `  later doctor
  later doctor --repair --json
  later doctor --store file:///var/lib/later --recover /var/lib/later-new`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: run(func(ctx context.Context, _ []string) error {
			ctx, stop := interruptible(ctx)
			defer stop()
			d := &doctor{main: m}
			if target != "" {
				if repair {
					return store.Invalid("--repair and --recover are both given: recover first, the new store needs no repair")
				}
				return d.recover(ctx, target)
			}
			return d.examine(ctx, later.Examination{Repair: repair})
		}),
	}
	cmd.Flags().BoolVar(&repair, "repair", false, "repair what contradicts itself")
	cmd.Flags().StringVar(&target, "recover", "", "create a new store in `DIR` from what can be read of a damaged one")
	cmd.MarkFlagDirname("recover")
	return cmd
}

// doctor prints findings, and counts them.
type doctor struct {
	main                       *Main
	errors, warnings, repaired int
	printing                   error // the first of printing
}

func (d *doctor) examine(ctx context.Context, opts later.Examination) error {
	m := d.main
	name, _ := m.storeName()
	url, err := m.storeURLOf(name)
	dir, embedded := directoryOf(url)
	if err == nil && isNew(url) {
		return notFound("there is no store in %s", dir)
	}
	client, err := m.open(ctx)
	if err != nil {
		if embedded && errors.Is(err, later.ErrCorrupt) {
			return d.inspect(ctx, dir, err)
		}
		return err
	}
	defer client.Close()
	err = client.Examine(ctx, opts, d.report)
	if errors.Is(err, later.ErrUnsupported) {
		m.note("there is nothing to examine in %s", m.shownURL())
		return nil
	}
	return d.done(err)
}

// inspect reports what is damaged in a store that cannot be opened for a reason.
func (d *doctor) inspect(ctx context.Context, dir string, reason error) error {
	err := diskstore.Inspect(ctx, dir, d.report)
	if err == nil && d.errors == 0 {
		err = reason
	}
	return d.done(err)
}

// recover recovers what can be read of a damaged store into a new directory.
func (d *doctor) recover(ctx context.Context, target string) error {
	m := d.main
	name, source := m.storeName()
	url, err := m.storeURLOf(name)
	if err != nil {
		return fmt.Errorf("%w (%s)", err, from(source))
	}
	dir, ok := directoryOf(url)
	if !ok {
		return store.Invalid("--recover is for an embedded store, and the store is %s (%s): give its directory with --store",
			store.RedactURL(url), from(source))
	}
	err = diskstore.Recover(ctx, dir, target, d.report)
	if held, ok := errors.AsType[*diskstore.HeldError](err); ok {
		return &inUseError{held}
	}
	if err != nil {
		return fmt.Errorf("%w; remove %s before you try again", err, target)
	}
	m.note("what could be read is in %s, and %s is as it was", target, dir)
	return d.done(nil)
}

// findingJSON is a finding's line with --json.
type findingJSON struct {
	Severity string `json:"severity"`
	Check    string `json:"check"`
	Queue    string `json:"queue,omitempty"`
	Text     string `json:"text"`
	Advice   string `json:"advice,omitempty"`
	Count    int64  `json:"count"`
	Repaired bool   `json:"repaired"`
}

func (d *doctor) report(f later.Finding) {
	mark := string(f.Severity)
	switch {
	case f.Repaired:
		d.repaired++
		mark = "repaired"
	case f.Severity == later.SeverityError:
		d.errors++
	case f.Severity == later.SeverityWarning:
		d.warnings++
	}
	if d.printing != nil {
		return
	}
	if d.main.json {
		d.printing = d.main.printJSON(findingJSON{string(f.Severity), f.Check, f.Queue, f.Text, f.Advice, f.Count, f.Repaired})
		return
	}
	queue := ""
	if f.Queue != "" {
		queue = fmt.Sprintf("queue %s: ", f.Queue)
	}
	text := fmt.Sprintf("%-8s  %s%s\n", mark, queue, f.Text) // "repaired" has 8 letters
	if f.Advice != "" {
		text += fmt.Sprintf("%12s%s\n", "", f.Advice)
	}
	d.printing = d.main.print("%s", printable(text))
}

// done returns err, or else the error that the findings amount to.
func (d *doctor) done(err error) error {
	switch {
	case err != nil:
	case d.printing != nil:
		err = d.printing
	case d.errors > 0:
		err = fmt.Errorf("%w: %s", later.ErrCorrupt, plural(d.errors, "error", "is", "errors", "are")+" left")
	case d.warnings > 0:
		err = errors.New(plural(d.warnings, "warning", "is", "warnings", "are") + " left")
	}
	return err
}

func plural(n int, one, is, many, are string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s %s", one, is)
	}
	return fmt.Sprintf("%d %s %s", n, many, are)
}
