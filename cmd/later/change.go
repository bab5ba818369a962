package main

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

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

func (m *Main) rescheduleCommand() *cobra.Command {
	var w whenFlags
	var group groupFlag
	cmd := m.command("reschedule QUEUE (ID | --group GROUP) (--in DURATION | --at TIME)",
		"Change the due time of messages",
		fmt.Sprintf(`Reschedule sets a new due time for a scheduled or ready message; its attempts are kept. It refuses
a leased message (exit code %d) and a dead message (exit code %d, use later dead replay).

With --group, reschedule moves all scheduled and ready messages that were sent with that --group, and prints how many.
It leaves leased and dead ones, and counts them.`,
			exitCode(store.ErrLeased), exitCode(store.ErrDead)),
		`  later reschedule orders order-17 --in 2h
  later reschedule orders order-17 --at "2030-12-31 18:00"
  later reschedule orders --group customer-9 --in 5m`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			ofGroup, err := group.instead(args[1:])
			if err != nil {
				return err
			}
			_, given, err := w.when()
			if err != nil {
				return err
			}
			if !given {
				return store.Invalid("no due time: give --in or --at (or use later run-now)")
			}
			q, stats, err := existingQueue(ctx, c, args[0])
			if err != nil {
				return err
			}
			if ofGroup {
				return m.rescheduleGroup(ctx, q, stats, &w, group.name)
			}
			due := w.due(stats.Now)
			err = q.Reschedule(ctx, args[1], later.At(due))
			return m.printDone(err, wire.Rescheduled{ID: args[1], Queue: q.Name(), Due: wire.FormatTime(due)},
				"%s is due %s (%s)", args[1], formatRelative(due, stats.Now), formatTime(due, stats.Now))
		}))
	w.add(cmd.Flags())
	group.add(cmd, "move all messages of this `group`")
	return cmd
}

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

func (m *Main) editCommand() *cobra.Command {
	var w whenFlags
	var set, remove []string
	cmd := m.command("edit QUEUE ID [PAYLOAD|-] [--header KEY=VALUE] [--in DURATION | --at TIME]",
		"Change the payload, headers or due time of a message",
		fmt.Sprintf(`Edit changes a scheduled or ready message in place: its payload, some of its headers, its due
time, or several of these in one step. Everything else stays, also its attempts. PAYLOAD is any text; - reads it
unchanged from standard input. It refuses a leased message (exit code %d) and a dead message (exit code %d, use later
dead replay).

Changes of others during the edit are not lost: edit then begins again with the message as it is.`,
			exitCode(store.ErrLeased), exitCode(store.ErrDead)),
		`  later edit orders order-17 '{"order":17,"items":2}'
  later edit orders order-17 --header priority=low --remove-header trace --in 2h
  later edit reports daily - < report.json`,
		run(func(ctx context.Context, args []string) error {
			due, timed, err := w.when()
			if err != nil {
				return err
			}
			headers, err := parseHeaders(set)
			if err != nil {
				return err
			}
			if len(args) < 3 && !timed && len(headers)+len(remove) == 0 {
				return store.Invalid("nothing to change: give PAYLOAD, --header, --remove-header, --in or --at")
			}
			for _, key := range remove {
				if _, both := headers[key]; both {
					return store.Invalid("--header and --remove-header both name %q: use one of them", key)
				}
			}
			var payload []byte
			if len(args) == 3 {
				if payload, err = m.payload(args[2]); err != nil {
					return err
				}
			}
			return m.edit(ctx, args[0], args[1], func(message *later.Outgoing) error {
				if len(args) == 3 {
					message.Payload = payload
				}
				if timed {
					message.When = due
				}
				message.Headers = editedHeaders(message.Headers, headers, remove)
				return nil
			})
		}))
	w.add(cmd.Flags())
	cmd.Flags().StringArrayVar(&set, "header", nil, "set a header, as `key=value`; can be repeated")
	cmd.Flags().StringArrayVar(&remove, "remove-header", nil, "remove the header of this `KEY`; can be repeated")
	return cmd
}

func (m *Main) edit(ctx context.Context, queue, id string, change func(*later.Outgoing) error) error {
	client, err := m.open(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	q, _, err := existingQueue(ctx, client, queue)
	if err != nil {
		return err
	}
	return m.printDone(q.Edit(ctx, id, change), wire.Edited{ID: id, Queue: queue}, "edited %s", printable(id))
}

// editedHeaders returns headers with some set and some removed.
func editedHeaders(headers, set map[string]string, remove []string) map[string]string {
	edited := map[string]string{}
	maps.Copy(edited, headers)
	maps.Copy(edited, set)
	for _, key := range remove {
		delete(edited, key)
	}
	return edited
}

// groupFlag is the flag of commands for the messages of a group.
type groupFlag struct {
	name string
	cmd  *cobra.Command
}

// add defines the flag.
func (g *groupFlag) add(cmd *cobra.Command, usage string) {
	g.cmd = cmd
	cmd.Flags().StringVar(&g.name, "group", "", usage)
}

// given reports whether the flag is given. It refuses a name that no group can have.
func (g *groupFlag) given() (bool, error) {
	if !g.cmd.Flags().Changed("group") {
		return false, nil
	}
	if err := store.CheckGroup(g.name); err != nil {
		return false, fmt.Errorf("--group: %w", err)
	}
	return true, nil
}

// instead reports whether the command is for a group. Otherwise it is for ids, and there must be some.
func (g *groupFlag) instead(ids []string) (bool, error) {
	given, err := g.given()
	switch {
	case err != nil:
		return false, err
	case given && len(ids) > 0:
		return false, store.Invalid("--group and an id are both given: use one of them")
	case !given && len(ids) == 0:
		return false, store.Invalid("no id: give one, or --group for all messages of a group")
	}
	return given, nil
}

// cancelGroup cancels the messages of a group and prints how many.
func (m *Main) cancelGroup(ctx context.Context, c *later.Client, queue, group string,
	opts []later.CancelOption,
) error {
	q, _, err := existingQueue(ctx, c, queue)
	if err != nil {
		return err
	}
	n, err := q.CancelGroup(ctx, group, opts...)
	if err != nil {
		return fmt.Errorf("cancelled %s of group %q, then: %w", messages(n.Total()), group, err)
	}
	var states []string
	for _, s := range []struct {
		n    int
		name later.State
	}{{n.Scheduled, later.StateScheduled}, {n.Ready, later.StateReady}, {n.Leased, later.StateLeased},
		{n.Dead, later.StateDead}} {
		if s.n > 0 {
			states = append(states, fmt.Sprintf("%d %s", s.n, s.name))
		}
	}
	text := fmt.Sprintf("cancelled %s of group %s", messages(n.Total()), printable(group))
	if len(states) > 0 {
		text += ": " + strings.Join(states, ", ")
	}
	return m.printResult(wire.CancelledGroup{
		Queue: q.Name(), Group: group, Cancelled: n.Total(), Scheduled: n.Scheduled, Ready: n.Ready, Leased: n.Leased,
		Dead: n.Dead,
	}, "%s", text)
}

// rescheduleGroup moves the messages of a group and prints how many.
func (m *Main) rescheduleGroup(ctx context.Context, q *later.Queue, now later.Stats, w *whenFlags, group string) error {
	due := w.due(now.Now)
	n, err := q.RescheduleGroup(ctx, group, later.At(due))
	if err != nil {
		return fmt.Errorf("moved %s of group %q, then: %w", messages(n.Rescheduled), group, err)
	}
	text := fmt.Sprintf("moved %s of group %s, now due %s (%s)", messages(n.Rescheduled), printable(group),
		formatRelative(due, now.Now), formatTime(due, now.Now))
	if n.Leased+n.Dead > 0 {
		text += fmt.Sprintf("; left %d leased and %d dead", n.Leased, n.Dead)
	}
	return m.printResult(wire.RescheduledGroup{
		Queue: q.Name(), Group: group, Due: wire.FormatTime(due), Rescheduled: n.Rescheduled, Leased: n.Leased,
		Dead: n.Dead,
	}, "%s", text)
}
