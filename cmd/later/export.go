package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/inspect"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/migrate"
	"github.com/laterq/later/store"
)

func (m *Main) exportCommand() *cobra.Command {
	var file string
	var resume bool
	var filter inspect.Filter
	cmd := m.command("export [QUEUE...]", "Export messages as JSON",
		`Export writes the live messages of the named queues, or of all queues, to standard output or to a file. Live
includes dead. The output has one JSON object per line, with everything that later import needs to restore the messages
in any store: due times, attempts, headers and limits, dead messages with their reasons, unreadable ones with their
bytes. Leased messages are imported as if they had been released. The limits of queues and keys are exported. Pauses,
retentions and properties of queues, and ids within their dedup window, are not.

Export only reads the store. An export made while workers are busy is not a snapshot: a message that changes state
during the export may be missing. For a complete export, use later pause first and wait until no message is leased.

With --file, export writes to a new file that only you can read. With --resume, it continues the file of an earlier
export after the last complete line, or creates the file, so you can repeat the command until it succeeds. It leaves
a complete export alone.

With --state or --group, export writes only the messages in that state or group, and with --error-pattern the dead ones
with a last error of a pattern that later dead errors prints. So you can save messages before you purge them. Such an
export has no limits and cannot be resumed.

If a queue is damaged, the other queues are exported nevertheless, and the exit code is `+
			strconv.Itoa(exitCode(store.ErrCorrupt))+`.`,
		`  later export > messages.ndjson
  later export orders mail --file messages.ndjson --resume
  later export orders | jq -r 'select(.state == "dead") | .last_error'`,
		run(func(ctx context.Context, args []string) error {
			if resume && file == "" {
				return store.Invalid("--resume needs --file: name the file to continue")
			}
			cfg := migrate.ExportConfig{Queues: args}
			if filter.ErrorPattern != "" && filter.State == "" && filter.Group == "" {
				filter.State = later.StateDead
			}
			if filter.State != "" || filter.Group != "" {
				cfg.Filter = &filter
			}
			return m.export(ctx, cfg, file, resume)
		}))
	cmd.Flags().StringVar(&file, "file", "", "write to this new `FILE` (default: standard output)")
	stateFlag(cmd, (*string)(&filter.State))
	cmd.Flags().StringVar(&filter.Group, "group", "", "only messages of this `GROUP`")
	cmd.Flags().StringVar(&filter.ErrorPattern, "error-pattern", "", "only dead messages with errors of this `PATTERN`")
	cmd.Flags().BoolVar(&resume, "resume", false, "continue the export in the file")
	return cmd
}

func (m *Main) export(ctx context.Context, cfg migrate.ExportConfig, file string, resume bool) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	client, err := m.openExisting(ctx)
	if err != nil {
		return err
	}
	progress := m.newProgress(true)
	cfg.Progress = func(q migrate.QueueExport) { progress.report(q.Queue, q.Exported+q.Refused, q.Total) }
	var result migrate.ExportResult
	if file == "" {
		result, err = migrate.Export(ctx, client, m.Stdout, cfg)
	} else {
		result, err = migrate.ExportFile(ctx, client, file, resume, cfg)
	}
	progress.clear()
	for _, q := range result.Queues {
		if q.Leased > 0 {
			m.note("queue %q: %d of the exported messages are leased", q.Queue, q.Leased)
		}
		if q.Paused {
			m.note("queue %q is paused; the pause is not exported", q.Queue)
		}
	}
	switch {
	case errors.Is(err, errOutputClosed):
	case result.Complete && len(result.Queues) == 0 && resume && result.Messages > 0:
		m.note("%s is complete, with %s", file, messages(result.Messages))
	case result.Complete:
		m.note("exported %s", messages(result.Messages))
	case result.Messages > 0 && file != "":
		m.note("%s has %s so far: to continue, repeat the command with --resume", file, messages(result.Messages))
	case result.Messages > 0:
		m.note("exported %s so far; an export with --file FILE can be resumed", messages(result.Messages))
	}
	return m.endTransfer(client, nil, err)
}

func (m *Main) importCommand() *cobra.Command {
	var from int64
	cmd := m.command("import", "Import messages that later export wrote",
		`Import reads an export from standard input and restores its messages in the store, with all their fields. The
input can be several exports, one after the other.

A queue without limits gets the ones of the export; one with other limits keeps its own.

Import counts and skips a message with an id that is live in the store or within its dedup window. So you can repeat an
import that failed or was stopped, with the same input; --from-line continues at the line that the first one reported,
which is faster. But messages that the store's workers finished in between are delivered again: start the store's
workers after the import. Due times do not change, even if they have passed.

If a line has no valid message or limits, import reports it and exits with code `+
			strconv.Itoa(exitCode(store.ErrInvalid))+`, or `+
			strconv.Itoa(exitCode(store.ErrTooLarge))+` if it is over a limit; the
lines before it are imported. An incomplete export is imported as far as it goes, with exit code `+
			strconv.Itoa(exitCodes[store.Internal])+`. Other input is
refused before anything is written.`,
		`  later import < messages.ndjson
  later import --from-line 70001 < messages.ndjson
  ssh host later export orders | later import --store redis://localhost:6379/0`,
		run(func(ctx context.Context, _ []string) error {
			if from < 1 {
				return store.Invalid("--from-line is %d: must be 1 or more", from)
			}
			if isTerminal(m.Stdin) {
				return store.Invalid("standard input is a terminal: use a file, as in later import < FILE")
			}
			return m.importAll(ctx, from)
		}))
	cmd.Flags().Int64Var(&from, "from-line", 1, "start at line `N`")
	return cmd
}

func (m *Main) importAll(ctx context.Context, from int64) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	pipe, release := readerUntil(ctx, m.Stdin)
	defer release()
	input := bufio.NewReader(pipe)
	if err := migrate.CheckHeader(input); err != nil { // before a store is created
		return err
	}
	client, err := m.open(ctx)
	if err != nil {
		return err
	}
	progress := m.newProgress(false)
	result, err := migrate.Import(ctx, client, input, migrate.ImportConfig{FromLine: from,
		Progress: func(r migrate.ImportResult) { progress.report("", r.Imported+r.Duplicates, 0) }})
	progress.clear()
	printed := m.printImported(result.Queues)
	if result.Renamed > 0 {
		m.note("gave %s another name: . and .. are %%2E and %%2E%%2E now, in ids, groups and names of queues",
			messages(result.Renamed))
	}
	begun := result.Imported+result.Duplicates > 0 || result.NextLine > from
	stopped, unavailable := interruption(err)
	switch {
	case errors.Is(err, migrate.ErrIncomplete):
		m.note("imported the incomplete export: to continue, import the complete one with --from-line %d, or "+
			"export again", result.NextLine)
	case err != nil && begun && (stopped || unavailable):
		m.note("imported up to line %d: to continue, repeat with the same input and --from-line %d",
			result.NextLine-1, result.NextLine)
	case err != nil && begun:
		m.note("imported up to line %d: to continue, correct the rest and use --from-line %d",
			result.NextLine-1, result.NextLine)
	}
	return m.endTransfer(client, printed, err)
}

func (m *Main) printImported(queues []migrate.QueueImport) error {
	t := newTable("QUEUE", ">IMPORTED", ">EXISTING")
	for _, q := range queues {
		line := wire.ImportedQueue{Queue: q.Queue, Imported: q.Imported, Duplicates: q.Duplicates, Renamed: q.Renamed,
			Limits: string(q.Limits)}
		m.row(t, line, printable(q.Queue), q.Imported, q.Duplicates)
		m.noteKeptLimits(q.Queue, q.Limits)
	}
	return m.flush(t)
}

// noteKeptLimits notes that a queue kept limits that differ from the ones to be set.
func (m *Main) noteKeptLimits(queue string, l migrate.Limits) {
	if l == migrate.LimitsKept && !m.json {
		m.note("queue %q has limits of its own, which stay: later flow %s shows them", queue, queue)
	}
}

// readerUntil returns a reader of r that fails with the cause of ctx when ctx ends; a read of a terminal or a pipe
// cannot be stopped otherwise. Call release when done. The reading goroutine may outlive it.
func readerUntil(ctx context.Context, r io.Reader) (_ io.Reader, release func()) {
	pr, pw := io.Pipe()
	go func() {
		_, err := io.Copy(pw, r)
		pw.CloseWithError(err)
	}()
	stop := context.AfterFunc(ctx, func() { pw.CloseWithError(context.Cause(ctx)) })
	return pr, func() {
		stop()
		pr.Close()
	}
}
