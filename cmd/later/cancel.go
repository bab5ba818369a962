package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

func (m *Main) cancelCommand() *cobra.Command {
	var keepID bool
	var group groupFlag
	cmd := m.command("cancel QUEUE (ID... | --group GROUP)", "Cancel messages",
		fmt.Sprintf(`Cancel removes messages in any state and prints the state that each was in. A leased message is not
delivered again. Its handler's context ends within a second; the handler may finish before that.

An id may be sent again at once. With --keep-id it is refused as a duplicate for the dedup window that the message was
sent with, so that a producer that repeats its send does not bring the message back.

With --group, cancel removes all messages that were sent with that --group, and prints how many. It is no error if there
are none.

If some messages do not exist, cancel reports them on standard error, cancels the others, and exits with code %d.`,
			exitCode(store.ErrNotFound)),
		`  later cancel orders order-17
  later cancel orders --group customer-9
  later list orders --state scheduled --json | jq -r .id | xargs later cancel orders`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			var opts []later.CancelOption
			if keepID {
				opts = append(opts, later.KeepID())
			}
			if ofGroup, err := group.instead(args[1:]); err != nil {
				return err
			} else if ofGroup {
				return m.cancelGroup(ctx, c, args[0], group.name, opts)
			}
			results, err := c.Queue(args[0]).CancelBatch(ctx, args[1:], opts...)
			var failed []error
			for _, r := range results {
				if r.Err != nil {
					failed = append(failed, r.Err)
					continue
				}
				if err := m.printResult(wire.Cancelled{ID: r.ID, Queue: args[0], Was: r.State},
					"cancelled %s, which was %s", r.ID, r.State); err != nil {
					return err
				}
			}
			return explainNotFound(ctx, c, args[0], m.reportAllButLast(append(failed, err)))
		}))
	cmd.Flags().BoolVar(&keepID, "keep-id", false, "refuse the ids as duplicates until their dedup windows end")
	group.add(cmd, "cancel all messages of this `group`")
	return cmd
}
