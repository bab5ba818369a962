package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

func (m *Main) runNowCommand() *cobra.Command {
	return m.command("run-now QUEUE ID...", "Make messages due at once",
		fmt.Sprintf(`Run-now makes scheduled messages due at once; their attempts are kept. It refuses a leased message
(exit code %d) and a dead message (exit code %d, use later dead replay).

If some messages are refused, run-now reports them on standard error, makes the others due, and exits with the code of
the last error.`,
			exitCode(store.ErrLeased), exitCode(store.ErrDead)),
		`  later run-now orders order-17 order-18`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			q, stats, err := existingQueue(ctx, c, args[0])
			if err != nil {
				return err
			}
			now := stats.Now.Truncate(time.Millisecond) // due times are rounded up, so this is not in the future
			var failed []error
			for _, id := range args[1:] {
				if err := q.Reschedule(ctx, id, later.At(now)); err != nil {
					failed = append(failed, err)
					continue
				}
				moved := wire.Rescheduled{ID: id, Queue: q.Name(), Due: wire.FormatTime(now)}
				if err := m.printResult(moved, "%s is due now", id); err != nil {
					return err
				}
			}
			return m.reportAllButLast(failed)
		}))
}
