package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/migrate"
	"github.com/laterq/later/redisstore"
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
	var cfg migrate.DelayQueueConfig
	var queue string
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
			return m.migrateFrom(ctx, args[0], cfg.FromConfig, func(
				ctx context.Context, to *later.Client, rdb redis.UniversalClient, common migrate.FromConfig,
			) (migrate.FromResult, error) {
				cfg.FromConfig = common
				return migrate.FromDelayQueue(ctx, to, rdb, queue, cfg)
			})
		}))
	cmd.Flags().StringVar(&queue, "queue", "", "`NAME` of the queue in delayqueue")
	cmd.Flags().StringVar(&cfg.Queue, "as", "", "send to this `QUEUE` (default: the same name)")
	cmd.Flags().StringVar(&cfg.Prefix, "prefix", "", "`PREFIX` that UseCustomPrefix was given (default: dp)")
	addFrom(cmd.Flags(), &cfg.FromConfig)
	return cmd
}

func (m *Main) migrateFromAsynqCommand() *cobra.Command {
	var cfg migrate.AsynqConfig
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
			return m.migrateFrom(ctx, args[0], cfg.FromConfig, func(
				ctx context.Context, to *later.Client, rdb redis.UniversalClient, common migrate.FromConfig,
			) (migrate.FromResult, error) {
				cfg.FromConfig = common
				return migrate.FromAsynq(ctx, to, rdb, cfg)
			})
		}))
	cmd.Flags().StringArrayVar(&cfg.Queues, "queue", nil, "`NAME` of a queue in asynq; can be repeated (default: all)")
	cmd.Flags().StringVar(&cfg.Queue, "as", "", "send to this `QUEUE`, with one --queue (default: the same name)")
	addFrom(cmd.Flags(), &cfg.FromConfig)
	return cmd
}

func (m *Main) migrateFromZSetCommand() *cobra.Command {
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
			return m.migrateFrom(ctx, args[0], cfg.FromConfig, func(
				ctx context.Context, to *later.Client, rdb redis.UniversalClient, common migrate.FromConfig,
			) (migrate.FromResult, error) {
				cfg.FromConfig = common
				return migrate.FromZSet(ctx, to, rdb, args[1], cfg)
			})
		}))
	cmd.Flags().StringVar(&cfg.Queue, "as", "", "send to this `QUEUE` (default: the name of the key)")
	cmd.Flags().StringVar(&unit, "unit", "", "`UNIT` of the scores, s or ms (default: recognised)")
	cmd.Flags().StringVar(&cfg.IDFrom, "id-from", "", "`SOURCE` of ids: hash, member or json:FIELD (default: hash)")
	addFrom(cmd.Flags(), &cfg.FromConfig)
	return cmd
}

// addFrom adds the flags of all commands that migrate from another queue.
func addFrom(flags *pflag.FlagSet, cfg *migrate.FromConfig) {
	flags.BoolVar(&cfg.DryRun, "dry-run", false, "count the messages, show the first ten, and change nothing")
	flags.BoolVar(&cfg.DeleteSource, "delete-source", false, "remove messages from the source once the store has them")
	flags.BoolVar(&cfg.Force, "force", false, "migrate from a source that is in use")
	cfg.Watch = time.Second
	durationFlag(flags, &cfg.Watch, "watch", "watch the source for changes for so long before writing; 0s: do not")
}

// fromFunc migrates from rdb.
type fromFunc func(
	ctx context.Context, to *later.Client, rdb redis.UniversalClient, cfg migrate.FromConfig,
) (migrate.FromResult, error)

// migrateFrom migrates from the Redis at url, and prints the result.
func (m *Main) migrateFrom(ctx context.Context, url string, cfg migrate.FromConfig, from fromFunc) error {
	if cfg.DryRun && cfg.DeleteSource {
		return store.Invalid("--dry-run and --delete-source are both given: use one of them")
	}
	rdb, err := openSource(ctx, url)
	if err != nil {
		return err
	}
	defer rdb.Close()
	ctx, stop := interruptible(ctx)
	defer stop()
	if err := m.checkSource(ctx, rdb, cfg, from); err != nil {
		return err
	}
	client, err := m.openTarget(ctx, cfg.DryRun)
	if err != nil {
		return err
	}
	progress := m.newProgress(false)
	cfg.Progress = func(q migrate.FromQueue) { progress.report(q.Source, q.Seen(), q.Total()) }
	cfg.Watch = cmp.Or(cfg.Watch, -1)
	result, err := from(ctx, client, rdb, cfg)
	progress.clear()
	printed := m.printMigrated(result, cfg.DryRun)
	switch stopped, unavailable := interruption(err); {
	case stopped:
		m.note("stopped; repeat the command to continue")
	case unavailable && len(result.Queues) > 0:
		m.note("repeat the command to continue once both are available again")
	}
	return m.endTransfer(client, printed, err)
}

// openSource returns a client of the Redis with the queue of another program, once it answers.
func openSource(ctx context.Context, url string) (redis.UniversalClient, error) {
	rdb, err := redisstore.OpenClient(url)
	if err != nil {
		return nil, fmt.Errorf("%w (of the source)", err)
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := rdb.Ping(ctx).Err(); err != nil {
		rdb.Close()
		return nil, fmt.Errorf("the source at %s cannot be used: %w: %w", store.RedactURL(url), store.ErrUnavailable,
			err)
	}
	return rdb, nil
}

// checkSource returns the error of a source that nothing can be migrated from, if the store would have to be created.
func (m *Main) checkSource(
	ctx context.Context, rdb redis.UniversalClient, cfg migrate.FromConfig, from fromFunc,
) error {
	if cfg.DryRun || !m.selected().isNew {
		return nil
	}
	none, err := m.openTarget(ctx, true)
	if err != nil {
		return err
	}
	defer none.Close()
	result, err := from(ctx, none, rdb, migrate.FromConfig{DryRun: true, Force: cfg.Force})
	if len(result.Queues) == 0 || errors.Is(err, store.ErrLeased) || errors.Is(err, store.ErrUnsupported) {
		return err
	}
	return nil
}

// openTarget opens the store. A dry run needs none, and must not create one.
func (m *Main) openTarget(ctx context.Context, dryRun bool) (*later.Client, error) {
	if dryRun {
		return later.Open(ctx, "mem://", later.WithLogger(m.logger()))
	}
	return m.open(ctx)
}

// migratedJSON is a queue's line with --json.
type migratedJSON struct {
	Source     string           `json:"source"`
	Queue      string           `json:"queue"`
	States     map[string]int64 `json:"states"`
	Left       map[string]int64 `json:"left,omitempty"`
	DryRun     bool             `json:"dry_run"`
	Copied     int64            `json:"copied"`
	Duplicates int64            `json:"duplicates"`
	Conflicts  int64            `json:"conflicts"`
	Refused    int64            `json:"refused"`
	Lost       int64            `json:"lost"`
	Deleted    int64            `json:"deleted"`
}

// firstJSON is the line of a message that a dry run shows with --json.
type firstJSON struct {
	Source      string `json:"source"`
	SourceState string `json:"source_state"`
	wire.Info
}

func (m *Main) printMigrated(result migrate.FromResult, dryRun bool) error {
	copied := ">COPIED"
	if dryRun {
		copied = ">TO COPY"
	}
	t := newTable("SOURCE", "QUEUE", copied, ">EXISTING", ">CONFLICTS", ">REFUSED", ">LOST", ">DELETED", "FOUND")
	for _, q := range result.Queues {
		line := migratedJSON{
			Source: q.Source, Queue: q.Queue, States: map[string]int64{}, Left: map[string]int64{}, DryRun: dryRun,
			Copied: q.Copied, Duplicates: q.Duplicates, Conflicts: q.Conflicts, Refused: q.Refused, Lost: q.Lost,
			Deleted: q.Deleted,
		}
		var found []string
		for _, s := range q.States {
			text, counts := fmt.Sprintf("%d %s", s.Count, s.State), line.States
			if s.Left {
				text, counts = text+" (left there)", line.Left
			}
			if counts[s.State] = s.Count; s.Left || s.Count > 0 {
				found = append(found, text)
			}
		}
		m.row(t, line, printable(q.Source), printable(q.Queue), q.Copied, q.Duplicates, q.Conflicts,
			q.Refused, q.Lost, q.Deleted, strings.Join(found, ", "))
	}
	first := newTable("DUE", "STATE", "QUEUE", "ID", ">ATTEMPTS", "PAYLOAD")
	for _, e := range result.First {
		m.row(first, firstJSON{e.Source, e.State, wire.NewInfo(e.Queue, &e.Info)},
			formatTime(e.Info.Due, time.Now()), e.State, printable(e.Queue), printable(e.Info.ID), e.Info.Attempts,
			preview(string(e.Info.Payload), 40))
	}
	if err := m.flush(t); err != nil || len(first.rows) == 0 {
		return cmp.Or(err, first.err)
	}
	return errors.Join(m.print("\n"), m.flush(first))
}
