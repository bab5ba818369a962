package main

import (
	"context"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/migrate"
)

func (m *Main) migrateFromAsynqCommand() *cobra.Command {
	var f fromFlags
	var queues []string
	var as string
	cmd := m.command("from-asynq REDIS", "Take over queues of github.com/hibiken/asynq",
		`From-asynq copies the pending, scheduled, retry and archived tasks of asynq's queues. See later migrate --help
for how to migrate.

A task's type becomes the header "kind"; its id, payload, headers, due time, retries, failures, last error and timeout
are kept. Its deadline becomes an expiry. An archived task becomes a dead message. A task that holds a uniqueness lock
has the lock's name as its id, TYPE:MD5 of the payload, and its own id in the header "asynq-id": sending with such ids
is unique in the same way.

Completed tasks are left in the source. Servers and schedulers that are alive, active tasks, and tasks that wait in
groups are refused; --force leaves them alone and copies the rest.`,
		`  later migrate from-asynq redis://localhost:6379/0 --dry-run
  later migrate from-asynq redis://localhost:6379/0 --queue default --as mail --delete-source`,
		run(func(ctx context.Context, args []string) error {
			return m.migrateFrom(ctx, args[0], f, func(
				ctx context.Context, to *later.Client, rdb redis.UniversalClient, cfg migrate.FromConfig,
			) (migrate.FromResult, error) {
				return migrate.FromAsynq(ctx, to, rdb, migrate.AsynqConfig{FromConfig: cfg, Queues: queues, Queue: as})
			})
		}))
	cmd.Flags().StringArrayVar(&queues, "queue", nil, "`NAME` of a queue in asynq; can be repeated (default: all)")
	cmd.Flags().StringVar(&as, "as", "", "send to this `QUEUE`, with one --queue (default: the same name)")
	f.add(cmd.Flags())
	return cmd
}
