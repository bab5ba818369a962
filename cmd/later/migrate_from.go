package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/migrate"
	"github.com/laterq/later/redisstore"
	"github.com/laterq/later/store"
)

// fromFlags are the flags of all commands that migrate from another queue.
type fromFlags struct {
	dryRun, deleteSource, force bool
	watch                       time.Duration
}

func (f *fromFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&f.dryRun, "dry-run", false, "count the messages, show the first ten, and change nothing")
	flags.BoolVar(&f.deleteSource, "delete-source", false, "remove messages from the source once the store has them")
	flags.BoolVar(&f.force, "force", false, "migrate from a source that is in use")
	f.watch = time.Second
	durationFlag(flags, &f.watch, "watch", "watch the source for changes for so long before writing; 0s: do not")
}

// fromFunc migrates from rdb.
type fromFunc func(
	ctx context.Context, to *later.Client, rdb redis.UniversalClient, cfg migrate.FromConfig,
) (migrate.FromResult, error)

// migrateFrom migrates from the Redis at url, and prints the result.
func (m *Main) migrateFrom(ctx context.Context, url string, f fromFlags, from fromFunc) error {
	if f.dryRun && f.deleteSource {
		return store.Invalid("--dry-run and --delete-source are both given: use one of them")
	}
	rdb, err := openSource(ctx, url)
	if err != nil {
		return err
	}
	defer rdb.Close()
	ctx, stop := interruptible(ctx)
	defer stop()
	if err := m.checkSource(ctx, rdb, f, from); err != nil {
		return err
	}
	client, err := m.openTarget(ctx, f.dryRun)
	if err != nil {
		return err
	}
	progress := m.newProgress(false)
	cfg := migrate.FromConfig{
		DryRun: f.dryRun, DeleteSource: f.deleteSource, Force: f.force, Watch: f.watch,
		Progress: func(q migrate.FromQueue) { progress.report(q.Source, q.Seen(), q.Total()) },
	}
	if cfg.Watch == 0 {
		cfg.Watch = -1
	}
	result, err := from(ctx, client, rdb, cfg)
	progress.clear()
	printed := m.printMigrated(result, f)
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
func (m *Main) checkSource(ctx context.Context, rdb redis.UniversalClient, f fromFlags, from fromFunc) error {
	if f.dryRun || !m.selected().isNew {
		return nil
	}
	none, err := m.openTarget(ctx, true)
	if err != nil {
		return err
	}
	defer none.Close()
	result, err := from(ctx, none, rdb, migrate.FromConfig{DryRun: true, Force: f.force})
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

func (m *Main) printMigrated(result migrate.FromResult, f fromFlags) error {
	if m.json {
		return m.printMigratedJSON(result, f)
	}
	copied := ">COPIED"
	if f.dryRun {
		copied = ">TO COPY"
	}
	t := newTable("SOURCE", "QUEUE", copied, ">EXISTING", ">CONFLICTS", ">REFUSED", ">LOST", ">DELETED", "FOUND")
	for _, q := range result.Queues {
		var found []string
		for _, s := range q.States {
			if text := fmt.Sprintf("%d %s", s.Count, s.State); s.Left {
				found = append(found, text+" (left there)")
			} else if s.Count > 0 {
				found = append(found, text)
			}
		}
		t.add(printable(q.Source), printable(q.Queue), q.Copied, q.Duplicates, q.Conflicts, q.Refused, q.Lost, q.Deleted,
			strings.Join(found, ", "))
	}
	if err := m.flush(t); err != nil || len(result.First) == 0 {
		return err
	}
	first := newTable("DUE", "STATE", "QUEUE", "ID", ">ATTEMPTS", "PAYLOAD")
	for _, e := range result.First {
		first.add(formatTime(e.Info.Due, time.Now()), e.State, printable(e.Queue), printable(e.Info.ID),
			e.Info.Attempts, preview(string(e.Info.Payload), 40))
	}
	return errors.Join(m.print("\n"), m.flush(first))
}

func (m *Main) printMigratedJSON(result migrate.FromResult, f fromFlags) error {
	for _, q := range result.Queues {
		line := migratedJSON{
			Source: q.Source, Queue: q.Queue, States: map[string]int64{}, Left: map[string]int64{}, DryRun: f.dryRun,
			Copied: q.Copied, Duplicates: q.Duplicates, Conflicts: q.Conflicts, Refused: q.Refused, Lost: q.Lost,
			Deleted: q.Deleted,
		}
		for _, s := range q.States {
			if s.Left {
				line.Left[s.State] = s.Count
			} else {
				line.States[s.State] = s.Count
			}
		}
		if err := m.printJSON(line); err != nil {
			return err
		}
	}
	for _, e := range result.First {
		if err := m.printJSON(firstJSON{e.Source, e.State, wire.NewInfo(e.Queue, &e.Info)}); err != nil {
			return err
		}
	}
	return nil
}
