package main

import (
	"context"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/migrate"
	"github.com/laterq/later/store"
)

func (m *Main) migrateFromDelayQueueCommand() *cobra.Command {
	var f fromFlags
	var queue, as, prefix string
	cmd := m.command("from-delayqueue REDIS --queue NAME", "Take over a queue of github.com/hdt3213/delayqueue",
		`From-delayqueue copies a queue of github.com/hdt3213/delayqueue, with or without a hash tag in its keys. See
later migrate --help for how to migrate.

Ids, payloads, due times and retries are kept. A message that waits for a retry has one failed attempt and as many
further ones as it had retries left. The rest of a TTL becomes an expiry: the message is not deleted then, but dead.
Entries of messages that delayqueue has deleted, because their TTL had passed, are counted as lost. Messages in progress
are refused; with --force they are copied as failed once.

The package github.com/laterq/later/compat/delayqueue has delayqueue's API for the programs.`,
		`  later migrate from-delayqueue redis://localhost:6379/0 --queue orders --dry-run
  later migrate from-delayqueue redis://localhost:6379/0 --queue orders --delete-source`,
		run(func(ctx context.Context, args []string) error {
			if queue == "" {
				return store.Invalid("--queue is missing: give the name of the queue in delayqueue")
			}
			return m.migrateFrom(ctx, args[0], f, func(
				ctx context.Context, to *later.Client, rdb redis.UniversalClient, cfg migrate.FromConfig,
			) (migrate.FromResult, error) {
				return migrate.FromDelayQueue(ctx, to, rdb, queue,
					migrate.DelayQueueConfig{FromConfig: cfg, Queue: as, Prefix: prefix})
			})
		}))
	cmd.Flags().StringVar(&queue, "queue", "", "`NAME` of the queue in delayqueue")
	cmd.Flags().StringVar(&as, "as", "", "send to this `QUEUE` (default: the same name)")
	cmd.Flags().StringVar(&prefix, "prefix", "", "`PREFIX` that UseCustomPrefix was given (default: dp)")
	f.add(cmd.Flags())
	return cmd
}
