package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later/migrate"
	"github.com/laterq/later/store"
)

func (m *Main) importCommand() *cobra.Command {
	var from int64
	cmd := m.command("import", "Import messages that later export wrote",
		`Import reads an export from standard input and restores its messages in the store, with all their fields. The
input can be several exports, one after the other.

Import counts and skips a message with an id that is live in the store or within its dedup window. So you can repeat an
import that failed or was stopped, with the same input; --from-line continues at the line that the first one reported,
which is faster. But messages that the store's workers finished in between are delivered again: start the store's
workers after the import. Due times do not change, even if they have passed.

If a line is not a valid message, import reports it and exits with code `+
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
	progress := importProgress{progressWriter{to: m.Stderr, shown: isTerminal(m.Stderr) && !m.json, began: time.Now()}}
	result, err := migrate.Import(ctx, client, input, migrate.ImportConfig{FromLine: from, Progress: progress.report})
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

// importedJSON is a queue's line with --json.
type importedJSON struct {
	Queue      string `json:"queue"`
	Imported   int64  `json:"imported"`
	Duplicates int64  `json:"duplicates"`
	Renamed    int64  `json:"renamed"`
}

func (m *Main) printImported(queues []migrate.QueueImport) error {
	t := newTable("QUEUE", ">IMPORTED", ">EXISTING")
	for _, q := range queues {
		if err := m.row(t, importedJSON(q), printable(q.Queue), q.Imported, q.Duplicates); err != nil {
			return err
		}
	}
	return m.flush(t)
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

// importProgress shows the progress of an import.
type importProgress struct{ progressWriter }

func (p *importProgress) report(r migrate.ImportResult) {
	p.show(func(elapsed time.Duration) string { return importLine(r, elapsed) })
}

// importLine formats the progress of an import.
func importLine(r migrate.ImportResult, elapsed time.Duration) string {
	n := r.Imported + r.Duplicates
	line := messages(n)
	if rate := formatRate(n, elapsed); rate != "" {
		line += "  " + rate[1:] + "/s"
	}
	return line
}
