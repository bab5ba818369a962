package main

import (
	"context"
	"fmt"
	"maps"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

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
	if err := q.Edit(ctx, id, change); err != nil {
		return err
	}
	return m.printResult(wire.Edited{ID: id, Queue: queue}, "edited %s", printable(id))
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
