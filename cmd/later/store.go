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

// storeName gives the URL of the store and what named it; "" when nothing did.
func (m *Main) storeName() (url, source string) {
	if m.storeURL != "" {
		return m.storeURL, "--store"
	}
	for _, source := range []string{"LATER_STORE", "REDIS_URL"} {
		if url := m.getenv(source); url != "" {
			return url, source
		}
	}
	return "", ""
}

// open opens the store that the user named. It fails within openTimeout when nothing answers there.
func (m *Main) open(ctx context.Context) (*later.Client, error) {
	url, source := m.storeName()
	if url == "" {
		return nil, store.Invalid("no store is named: give --store redis://localhost:6379/0, or set LATER_STORE or " +
			"REDIS_URL to such a URL (later demo needs none)")
	}
	if isMemory(url) {
		m.note("%s forgets its messages when this command ends", url)
	}
	return m.openURL(ctx, url, source)
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

func (m *Main) openURL(ctx context.Context, url, source string, opts ...later.Option) (*later.Client, error) {
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	client, err := later.Open(opening, url, append(opts, later.WithLogger(m.logger()))...)
	switch {
	case err == nil:
		return client, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case redis.IsAuthError(err):
		return nil, fmt.Errorf("the store at %s (from %s) does not let us in: give user and password in the store URL, as in "+
			"redis://user:password@host:6379/0: %w", store.RedactURL(url), source, err)
	case unanswered(err):
		return nil, fmt.Errorf("the store at %s (from %s) does not answer; is it running, and is the address right? %w",
			store.RedactURL(url), source, err)
	case errors.Is(err, later.ErrInvalid):
		return nil, fmt.Errorf("%w (from %s)", err, source)
	}
	return nil, fmt.Errorf("the store at %s (from %s) cannot be used: %w", store.RedactURL(url), source, err)
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
		return nil, stats, notFound("no queue %q; there are none yet: later send QUEUE PAYLOAD makes one", name)
	}
	more := ""
	if len(names) > maxNamed {
		more = fmt.Sprintf(" and %d more (see later queues)", len(names)-maxNamed)
		names = names[:maxNamed]
	}
	return nil, stats, notFound("no queue %q; queues there are: %s%s", name, strings.Join(names, ", "), more)
}

// notFoundError is an ErrNotFound with a text of its own.
type notFoundError struct{ text string }

func (e *notFoundError) Error() string { return e.text }
func (e *notFoundError) Unwrap() error { return later.ErrNotFound }

func notFound(format string, args ...any) error {
	return &notFoundError{fmt.Sprintf(format, args...)}
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
		url, source := m.storeName()
		if url == "" {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		client, err := m.openURL(ctx, url, source)
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
