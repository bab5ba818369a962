package main

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/migrate"
	"github.com/laterq/later/store"
)

func (m *Main) migrateCommand() *cobra.Command {
	return m.group("migrate from-delayqueue|from-asynq|from-zset REDIS", "Take over the messages of another queue",
		`Migrate copies the live messages of another program's queue in Redis to the store, with their ids, payloads,
due times and attempts, as far as the other queue keeps them. REDIS is the URL of its database, as in --store.

Stop the programs that use the queue, look at the counts of --dry-run, migrate, and start the new programs. The source
is left as it is until --delete-source is given, with the first run or another one: then each page of messages is
removed once the store has it. A migration that failed or was stopped is continued by repeating the command: ids keep
live messages from being copied twice. But messages that the store's workers finished in between are delivered again if
they are still in the source, so start the store's workers after the migration.

A source that is in use is refused before anything is written, with exit code `+
			strconv.Itoa(exitCode(store.ErrLeased))+`, as far as that can be told; --force
migrates from it nevertheless. Messages that are over a limit stay in the source, and the exit code is `+
			strconv.Itoa(exitCode(store.ErrInvalid))+` or `+strconv.Itoa(exitCode(store.ErrTooLarge))+`; messages
with ids that the store has for other messages stay too, and the exit code is `+
			strconv.Itoa(exitCode(store.ErrDuplicate))+`.

Between two stores of Later use later copy.`,
		`  later migrate from-asynq redis://localhost:6379/0 --dry-run
  later migrate from-asynq redis://localhost:6379/0 --delete-source`,
		m.migrateFromDelayQueueCommand(), m.migrateFromAsynqCommand(), m.migrateFromZSetCommand())
}

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

func (m *Main) migrateFromZSetCommand() *cobra.Command {
	var f fromFlags
	var cfg migrate.ZSetConfig
	var unit string
	cmd := m.command("from-zset REDIS KEY", "Take over a sorted set that is used as a delay queue",
		`From-zset copies a sorted set with payloads as members, and with due times in seconds or milliseconds
since 1970 as scores. See later migrate --help for how to migrate.

The unit is recognised by the first and the last score. A score is rounded up to a millisecond; one of zero or less
means at once. The id of a message is the hash of the member, unless --id-from selects the member itself or a field of
members that are JSON objects.`,
		`  later migrate from-zset redis://localhost:6379/0 jobs --dry-run
  later migrate from-zset redis://localhost:6379/0 jobs --as orders --id-from json:order_id --delete-source`,
		run(func(ctx context.Context, args []string) error {
			switch unit {
			case "":
			case "s":
				cfg.Unit = time.Second
			case "ms":
				cfg.Unit = time.Millisecond
			default:
				return store.Invalid("--unit is %q: must be s or ms, or omitted", unit)
			}
			return m.migrateFrom(ctx, args[0], f, func(
				ctx context.Context, to *later.Client, rdb redis.UniversalClient, common migrate.FromConfig,
			) (migrate.FromResult, error) {
				cfg.FromConfig = common
				return migrate.FromZSet(ctx, to, rdb, args[1], cfg)
			})
		}))
	cmd.Flags().StringVar(&cfg.Queue, "as", "", "send to this `QUEUE` (default: the name of the key)")
	cmd.Flags().StringVar(&unit, "unit", "", "`UNIT` of the scores, s or ms (default: recognised)")
	cmd.Flags().StringVar(&cfg.IDFrom, "id-from", "", "`SOURCE` of ids: hash, member or json:FIELD (default: hash)")
	f.add(cmd.Flags())
	return cmd
}
