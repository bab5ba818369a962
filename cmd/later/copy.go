package main

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/migrate"
	"github.com/laterq/later/store"
)

// copyOptions are the flags of later copy.
type copyOptions struct {
	from, to string
	queues   []string
	move     bool
}

func (m *Main) copyCommand() *cobra.Command {
	var o copyOptions
	cmd := m.command("copy --from STORE --to STORE", "Copy or move messages to another store",
		`Copy copies the live messages of all queues, or of the queues named with --queue, to another store. Live
includes dead. Messages keep their due times, attempts, headers and limits; dead messages keep their reasons, and
unreadable ones their bytes. A STORE is a URL or a directory, as for --store. Due times do not change, so the clocks of
both stores should agree. Properties and limits of a queue are copied unless the target has them or other ones. Pauses
and retentions of queues, and ids within their dedup window, are not copied.

Copy only reads the source. It skips a message with an id that exists in the target, so you can repeat a copy that was
stopped. But messages that the target's workers finished in between are delivered again: start the target's workers
after the copy. Leased messages are copied as if they had been released. While workers are busy in the source, messages
that change state may be missed; for a complete copy, stop them with later pause first.

With --move, copy removes each message from the source once the target has it, so that it is delivered once, even
if you stop and repeat the move. It pauses each queue of the source, and leaves it paused. Stop the producers first.
Leased messages stay in the source, and the exit code is `+
			strconv.Itoa(exitCode(store.ErrLeased))+`; move again after their workers have finished or
their leases have expired. A message also stays if the target has another message with its id, or still refuses the
id: exit code `+strconv.Itoa(exitCode(store.ErrDuplicate))+`.

If several things went wrong, the exit code is that of the first in this list: an error that ended the copy, a damaged
queue, messages over a limit, conflicts, leased messages.`,
		`  later copy --from ~/.local/share/later --to redis://localhost:6379/0 --move  # embedded to Redis
  later copy --from redis://localhost:6379/0 --to ~/.local/share/later --move  # and back
  later copy --from redis://localhost:6379/0 --to ./backup --queue orders      # a backup of one queue`,
		run(func(ctx context.Context, _ []string) error { return m.copy(ctx, o) }))
	cmd.Flags().StringVar(&o.from, "from", "", "copy from this `STORE`")
	cmd.Flags().StringVar(&o.to, "to", "", "copy to this `STORE`")
	cmd.Flags().StringArrayVar(&o.queues, "queue", nil, "copy this `QUEUE`; can be repeated (default: all)")
	cmd.Flags().BoolVar(&o.move, "move", false, "remove each message from the source once the target has it")
	return cmd
}

// checkCopy returns the two stores. It rejects invalid combinations of flags.
func (m *Main) checkCopy(o copyOptions) (from, to selected, err error) {
	if m.storeURL != "" {
		return from, to, store.Invalid("--store is set: copy uses --from and --to instead")
	}
	var stores [2]selected
	for i, flag := range []struct{ name, value string }{{"--from", o.from}, {"--to", o.to}} {
		if flag.value == "" {
			embedded := ""
			if url, err := m.defaultStore(); err == nil {
				dir, _ := directoryOf(url)
				embedded = "; the embedded store of this user is " + dir
			}
			return from, to, store.Invalid("%s is missing: give a URL such as redis://localhost:6379/0, or a "+
				"directory%s", flag.name, embedded)
		}
		if isMemory(flag.value) {
			return from, to, store.Invalid("%s is %s, the memory of this command itself: use another store",
				flag.name, flag.value)
		}
		if stores[i] = m.named(flag.value, flag.name); stores[i].err != nil {
			return from, to, stores[i].err
		}
	}
	switch from, to = stores[0], stores[1]; {
	case from.url == to.url:
		err = store.Invalid("--from and --to are the same store, %s: use two stores", store.RedactURL(from.url))
	case from.isNew:
		err = notFound("no store in %s (from --from)", from.dir)
	}
	return from, to, err
}

func (m *Main) copy(ctx context.Context, o copyOptions) error {
	source, target, err := m.checkCopy(o)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	from, err := m.openSelected(ctx, source)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := m.openSelected(ctx, target)
	if err != nil {
		return err
	}
	progress := m.newProgress(false)
	result, err := migrate.Copy(ctx, to, from, migrate.CopyConfig{Queues: o.queues, Move: o.move,
		Progress: func(q migrate.QueueCopy) { progress.report(q.Queue, q.Seen(), q.Total) }})
	progress.clear()
	printed := m.printCopied(result.Queues, o)
	switch stopped, unavailable := interruption(err); {
	case stopped:
		m.note("stopped; repeat the command to continue")
	case unavailable && len(result.Queues) > 0:
		m.note("repeat the command to continue once the store is available again")
	}
	return m.endTransfer(to, printed, err)
}

// interruption reports whether a transfer ended because it was stopped, or because a store was unavailable or full. In
// both cases the user can continue it with the same command.
func interruption(err error) (stopped, unavailable bool) {
	_, stopped = errors.AsType[*stopError](err)
	return stopped, errors.Is(err, later.ErrUnavailable) || errors.Is(err, later.ErrFull)
}

// endTransfer ends a copy, an export or an import: it closes the client, reports all errors except the one that decides
// the exit code, and returns that one: the first of the errors that are joined in err. printed is an error of printing
// the result.
func (m *Main) endTransfer(client *later.Client, printed, err error) error {
	errs := []error{printed, client.Close()}
	for _, part := range slices.Backward(joinedIn(err)) {
		errs = append(errs, part)
	}
	return m.reportAllButLast(errs)
}

// joinedIn returns the errors that errors.Join joined, or err alone if it is not such an error, and none for nil. An
// error of several others that has a text of its own, as of fmt.Errorf, stays whole.
func joinedIn(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		if errs := joined.Unwrap(); errors.Join(errs...).Error() == err.Error() {
			return errs
		}
	}
	return []error{err}
}

// copiedJSON is a queue's line with --json. It has either copied or moved.
type copiedJSON struct {
	Queue      string `json:"queue"`
	Copied     *int64 `json:"copied,omitempty"`
	Moved      *int64 `json:"moved,omitempty"`
	Duplicates int64  `json:"duplicates"`
	Leased     int64  `json:"leased"`
	Conflicts  int64  `json:"conflicts"`
	Refused    int64  `json:"refused"`
	Paused     bool   `json:"paused"`
	Limits     string `json:"limits,omitempty"`
}

func (m *Main) printCopied(queues []migrate.QueueCopy, o copyOptions) error {
	t := newTable("QUEUE", ">COPIED", ">EXISTING", ">LEASED", ">REFUSED")
	if o.move {
		t = newTable("QUEUE", ">MOVED", ">EXISTING", ">LEFT: LEASED", ">LEFT: CONFLICTS", ">LEFT: REFUSED")
	}
	for _, q := range queues {
		line := copiedJSON{
			Queue: q.Queue, Copied: &q.Copied, Duplicates: q.Duplicates, Leased: q.Leased, Conflicts: q.Conflicts,
			Refused: q.Refused, Paused: q.Paused, Limits: string(q.Limits),
		}
		cells := []any{q.Queue, q.Copied, q.Duplicates, q.Leased, q.Refused}
		if o.move {
			line.Copied, line.Moved = nil, &q.Copied
			cells = []any{q.Queue, q.Copied, q.Duplicates, q.Leased, q.Conflicts, q.Refused}
		}
		m.row(t, line, cells...)
		if q.Paused && !m.json {
			m.note("queue %q is paused in the source, but not in the target", q.Queue)
		}
		m.noteKeptLimits(q.Queue, q.Limits)
	}
	if o.move && len(queues) > 0 && !m.json {
		m.note("the moved queues are paused in the source")
	}
	return m.flush(t)
}
