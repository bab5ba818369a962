package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/migrate"
	"github.com/laterq/later/store"
)

func (m *Main) exportCommand() *cobra.Command {
	var file string
	var resume bool
	var filter later.Filter
	cmd := m.command("export [QUEUE...]", "Export messages as JSON",
		`Export writes the live messages of the named queues, or of all queues, to standard output or to a file. Live
includes dead. The output has one JSON object per line, with everything that later import needs to restore the messages
in any store: due times, attempts, headers and limits, dead messages with their reasons, unreadable ones with their
bytes. Leased messages are imported as if they had been released. Pauses, retentions and properties of queues, and ids
within their dedup window, are not exported.

Export only reads the store. An export made while workers are busy is not a snapshot: a message that changes state
during the export may be missing. For a complete export, use later pause first and wait until no message is leased.

With --file, export writes to a new file that only you can read. With --resume, it continues the file of an earlier
export after the last complete line, or creates the file, so you can repeat the command until it succeeds. It leaves
a complete export alone.

With --state or --group, export writes only the messages in that state or group, and with --error-pattern the dead ones
with a last error of a pattern that later dead errors prints. So you can save messages before you purge them. Such an
export cannot be resumed.

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
	shown := isTerminal(m.Stderr) && !isTerminal(m.Stdout) && !m.json
	progress := copyProgress{progressWriter: progressWriter{to: m.Stderr, shown: shown}, last: time.Now()}
	cfg.Progress = func(q migrate.QueueExport) {
		progress.report(migrate.QueueCopy{Queue: q.Queue, Total: q.Total, Copied: q.Exported, Refused: q.Refused})
	}
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

func messages(n int64) string {
	if n == 1 {
		return "1 message"
	}
	return fmt.Sprintf("%d messages", n)
}
