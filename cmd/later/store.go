package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/diskstore"
	"github.com/laterq/later/store"
)

const (
	// openTimeout is how long a store may take to answer at first.
	openTimeout = 2500 * time.Millisecond
	// completionTimeout is how long a shell waits for the names of queues.
	completionTimeout = 500 * time.Millisecond
	// maxNamed is how many queues an error names.
	maxNamed = 10
)

// storeName gives the URL of the store, as it was named, and what named it; "" when nothing did and there is no place
// for an embedded one.
func (m *Main) storeName() (url, source string) {
	if m.storeURL != "" {
		return m.storeURL, "--store"
	}
	for _, source := range []string{"LATER_STORE", "REDIS_URL"} {
		if url := m.getenv(source); url != "" {
			return url, source
		}
	}
	if url, err := m.defaultStore(); err == nil {
		return url, sourceDefault
	}
	return "", ""
}

// shownURL gives the URL of the store that is open, in full and without a password.
func (m *Main) shownURL() string {
	name, _ := m.storeName()
	if url, err := m.storeURLOf(name); err == nil {
		name = url
	}
	return store.RedactURL(name)
}

// from says in an error what named a store.
func from(source string) string {
	if source == sourceDefault {
		return source
	}
	return "from " + source
}

// open opens the store that the user named, or the embedded one.
func (m *Main) open(ctx context.Context) (*later.Client, error) {
	url, source := m.storeName()
	if url == "" {
		_, err := m.defaultStore()
		return nil, err
	}
	if isMemory(url) {
		m.note("%s forgets its messages when this command ends", url)
	}
	full, err := m.storeURLOf(url)
	made := err == nil && isNew(full)
	client, err := m.openURL(ctx, url, source)
	if err == nil && made {
		dir, _ := directoryOf(full)
		other := ""
		if source == sourceDefault {
			other = "; --store, LATER_STORE or REDIS_URL name another"
		}
		m.note("made a new store in %s%s", dir, other)
	}
	return client, err
}

// unanswered: nobody there said anything, rather than something that we cannot use.
func unanswered(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

func isMemory(url string) bool { return strings.HasPrefix(url, "mem:") }

// openURL opens the store of a name. It fails within openTimeout when nothing answers there.
func (m *Main) openURL(ctx context.Context, name, source string, opts ...later.Option) (*later.Client, error) {
	url, err := m.storeURLOf(name)
	if err != nil {
		return nil, fmt.Errorf("%w (%s)", err, from(source))
	}
	client, err := openPatiently(ctx, url, append(opts, later.WithLogger(m.logger()))...)
	if err == nil {
		return client, nil
	}
	shown := store.RedactURL(url) + " (" + from(source) + ")"
	held, isHeld := errors.AsType[*diskstore.HeldError](err)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case isHeld:
		return nil, &inUseError{held}
	case redis.IsAuthError(err):
		return nil, fmt.Errorf("the store at %s does not let us in: give user and password in the store URL, as in "+
			"redis://user:password@host:6379/0: %w", shown, err)
	case unanswered(err):
		return nil, fmt.Errorf("the store at %s does not answer; is it running, and is the address right? %w", shown, err)
	case errors.Is(err, later.ErrInvalid):
		return nil, fmt.Errorf("%w (%s)", err, from(source))
	case source == sourceDefault:
		return nil, fmt.Errorf("the store at %s cannot be used: %w; --store, LATER_STORE or REDIS_URL name another", shown, err)
	}
	return nil, fmt.Errorf("the store at %s cannot be used: %w", shown, err)
}

// withClient makes cobra's function of one that needs the store.
func (m *Main) withClient(f func(ctx context.Context, c *later.Client, args []string) error) func(*cobra.Command, []string) error {
	return run(func(ctx context.Context, args []string) error {
		client, err := m.open(ctx)
		if err != nil {
			return err
		}
		defer client.Close()
		return f(ctx, client, args)
	})
}

// existing gives the queue of a name and its counts; ErrNotFound, naming those there are, when it does not exist.
func existing(ctx context.Context, c *later.Client, name string) (*later.Queue, later.Stats, error) {
	q := c.Queue(name)
	stats, err := q.Stats(ctx)
	if err != nil {
		return nil, stats, err
	}
	if stats.Exists {
		return q, stats, nil
	}
	names, err := c.Queues(ctx)
	if err != nil {
		return nil, stats, err
	}
	if len(names) == 0 {
		return nil, stats, notFound("no queue %q; there are none yet in this store (see later version): later send QUEUE PAYLOAD makes one", name)
	}
	more := ""
	if len(names) > maxNamed {
		more = fmt.Sprintf(" and %d more (see later queues)", len(names)-maxNamed)
		names = names[:maxNamed]
	}
	return nil, stats, notFound("no queue %q; queues there are: %s%s", name, strings.Join(names, ", "), more)
}

// kindError is an error of a kind with a text of its own.
type kindError struct {
	kind error
	text string
}

func (e *kindError) Error() string { return e.text }
func (e *kindError) Unwrap() error { return e.kind }

func notFound(format string, args ...any) error {
	return &kindError{later.ErrNotFound, fmt.Sprintf(format, args...)}
}

// explain says of an id that was not found that its queue does not exist either, if so.
func explain(ctx context.Context, c *later.Client, queue string, err error) error {
	if errors.Is(err, later.ErrNotFound) {
		if _, _, missing := existing(ctx, c, queue); errors.Is(missing, later.ErrNotFound) {
			return missing
		}
	}
	return err
}

// queueNames completes the first argument (or, with all, every one) with the names of queues.
func (m *Main) queueNames(all bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !all {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		name, _ := m.storeName()
		url, err := m.storeURLOf(name)
		if err != nil || isNew(url) { // a look at what there is makes nothing
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		client, err := later.Open(ctx, url, later.WithLogger(m.logger()))
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer client.Close()
		names, err := client.Queues(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names = slices.DeleteFunc(names, func(name string) bool {
			return !strings.HasPrefix(name, typed) || slices.Contains(args, name)
		})
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
