package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/migrate"
	"github.com/laterq/later/store"
)

func (m *Main) importCommand() *cobra.Command {
	var from int64
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Read messages that later export wrote",
		Long: `Import reads an export from standard input and adds its messages to the store, with everything they had. Several
exports may follow each other.

A message whose id the store has, or remembers, is left as it is there and counted. So an import that failed or was
stopped can be given again with the same input; --from-line continues at the line that it named, and is faster. But
what the store's workers have done in between comes again: start them when the import is done. Due times stay, also
those that have passed.

A line that is not a message within the limits ends the import with exit code ` + strconv.Itoa(store.ErrInvalid.Code.Exit) + ` or ` +
			strconv.Itoa(store.ErrTooLarge.Code.Exit) + `, and is named; those before it are
imported. Of an export that is incomplete all there is is imported: exit code ` + strconv.Itoa(store.Internal.Exit) + `. Input of something else is refused before
anything is written.`,
		Example: `  later import < messages.ndjson
  later import --from-line 70001 < messages.ndjson
  ssh host later export orders | later import --store redis://localhost:6379/0`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: run(func(ctx context.Context, _ []string) error {
			if from < 1 {
				return store.Invalid("--from-line is %d: give 1 or more", from)
			}
			if isTerminal(m.Stdin) {
				return store.Invalid("standard input is a terminal: give a file, as in later import < FILE")
			}
			return m.importAll(ctx, from)
		}),
	}
	cmd.Flags().Int64Var(&from, "from-line", 1, "import from this line `N` on")
	return cmd
}

func (m *Main) importAll(ctx context.Context, from int64) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	pipe, release := readerUntil(ctx, m.Stdin)
	defer release()
	input := bufio.NewReader(pipe)
	if err := migrate.CheckHeader(input); err != nil { // before a store is made for it
		return err
	}
	client, err := m.open(ctx)
	if err != nil {
		return err
	}
	progress := importProgress{to: m.Stderr, shown: isTerminal(m.Stderr) && !m.json, began: time.Now()}
	result, err := migrate.Import(ctx, client, input, migrate.ImportConfig{FromLine: from, Progress: progress.report})
	progress.clear()
	printed := m.printImported(result.Queues)
	begun := result.Imported+result.Duplicates > 0 || result.NextLine > from
	_, stopped := errors.AsType[*stopError](err)
	switch {
	case errors.Is(err, migrate.ErrIncomplete):
		m.note("what there is of the export is imported: to go on, give the whole one with --from-line %d, or make a new export",
			result.NextLine)
	case err != nil && begun && (stopped || errors.Is(err, later.ErrUnavailable) || errors.Is(err, later.ErrFull)):
		m.note("imported up to line %d: to go on, give the same input with --from-line %d", result.NextLine-1, result.NextLine)
	case err != nil && begun:
		m.note("imported up to line %d: to go on when the rest is right, give --from-line %d", result.NextLine-1, result.NextLine)
	}
	return m.several([]error{printed, client.Close(), err})
}

// importedJSON is a queue's line with --json.
type importedJSON struct {
	Queue      string `json:"queue"`
	Imported   int64  `json:"imported"`
	Duplicates int64  `json:"duplicates"`
}

func (m *Main) printImported(queues []migrate.QueueImport) error {
	t := newTable("QUEUE", ">IMPORTED", ">THERE ALREADY")
	for _, q := range queues {
		if m.json {
			if err := m.printJSON(importedJSON(q)); err != nil {
				return err
			}
			continue
		}
		t.add(printable(q.Queue), strconv.FormatInt(q.Imported, 10), strconv.FormatInt(q.Duplicates, 10))
	}
	return m.flush(t)
}

// readerUntil returns a reader of r whose reads end, with the cause, when ctx does: the read of a terminal or a pipe
// cannot be stopped otherwise. Call release when done. The goroutine that reads is not waited for.
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

// importProgress shows on a terminal how far an import is, in one line that is written over.
type importProgress struct {
	to      io.Writer
	shown   bool
	began   time.Time
	written time.Time
}

func (p *importProgress) report(r migrate.ImportResult) {
	if now := time.Now(); p.shown && now.Sub(p.written) >= 100*time.Millisecond {
		p.written = now
		fmt.Fprintf(p.to, "\r%s%s", importLine(r, now.Sub(p.began)), clearLine)
	}
}

func (p *importProgress) clear() {
	if p.shown {
		fmt.Fprintf(p.to, "\r%s", clearLine)
	}
}

// importLine says how far an import is.
func importLine(r migrate.ImportResult, elapsed time.Duration) string {
	n := r.Imported + r.Duplicates
	line := messages(n)
	if rate := formatRate(n, elapsed); rate != "" {
		line += "  " + rate[1:] + "/s"
	}
	return line
}
