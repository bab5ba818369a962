package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/migrate"
	"github.com/laterq/later/store"
)

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
