package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/diskstore"
	"github.com/laterq/later/internal/nearest"
	"github.com/laterq/later/store"
)

// openTimeout is how long a store may take to open. It is longer in processes that tests start.
var openTimeout = 2500 * time.Millisecond

const (
	// completionTimeout is how long shell completion waits for queue names.
	completionTimeout = 500 * time.Millisecond
	// maxNamed is the maximum number of queues or topics that an error lists.
	maxNamed = 10
)

// selected is a store that the user selected.
type selected struct {
	url    string // as the user wrote it if err is set
	dir    string // of an embedded store
	source string // a flag, a variable or "the default"
	isNew  bool   // it is an embedded store that does not exist yet
	err    error  // why the store cannot be named
}

// selected returns the store of --store, a variable or the default.
func (m *Main) selected() selected {
	if m.storeURL != "" {
		return m.named(m.storeURL, "--store")
	}
	for _, source := range []string{"LATER_STORE", "REDIS_URL"} {
		if name := m.getenv(source); name != "" {
			return m.named(name, source)
		}
	}
	url, err := m.defaultStore()
	if err != nil {
		return selected{err: err}
	}
	return m.named(url, sourceDefault)
}

// named returns the store that a flag or a variable names.
func (m *Main) named(name, source string) selected {
	url, err := m.storeURLOf(name)
	if err != nil {
		return selected{url: name, source: source, err: fmt.Errorf("%w (%s)", err, describeSource(source))}
	}
	dir, _ := directoryOf(url)
	return selected{url: url, dir: dir, source: source, isNew: isNew(url)}
}

// withToken returns the URL of a server with LATER_TOKEN, unless the URL has a user.
func (m *Main) withToken(text string) string {
	u, err := url.Parse(text)
	token := strings.TrimSpace(m.getenv("LATER_TOKEN"))
	if err != nil || u.User != nil || token == "" {
		return text
	}
	u.User = url.UserPassword("", token)
	return u.String()
}

// shownURL returns the full URL of the selected store, without a password.
func (m *Main) shownURL() string { return store.RedactURL(m.selected().url) }

// storeKind returns the kind of the selected store.
func (m *Main) storeKind() string {
	switch scheme, _, _ := strings.Cut(m.shownURL(), ":"); scheme {
	case "file":
		return "embedded"
	case "mem":
		return "memory"
	case "http", "https":
		return "remote"
	}
	return "redis"
}

// describeSource describes the source of a store's name.
func describeSource(source string) string {
	if source == sourceDefault {
		return source
	}
	return "from " + source
}

// open opens the store that the user named, or else the embedded store.
func (m *Main) open(ctx context.Context, opts ...later.Option) (*later.Client, error) {
	return m.openSelected(ctx, m.selected(), opts...)
}

// openSelected opens a store. It notes that it creates one, or that one in memory does not last.
func (m *Main) openSelected(ctx context.Context, s selected, opts ...later.Option) (*later.Client, error) {
	if isMemory(s.url) {
		m.note("messages in %s are lost when this command ends", s.url)
	}
	client, err := m.openQuietly(ctx, s, opts...)
	if err == nil && s.isNew {
		other := ""
		if s.source == sourceDefault {
			other = "; use --store, LATER_STORE or REDIS_URL for another"
		}
		m.note("created a store in %s%s", s.dir, other)
	}
	return client, err
}

// openExisting opens the selected store, and returns an error instead of creating it.
func (m *Main) openExisting(ctx context.Context) (*later.Client, error) {
	s := m.selected()
	if s.isNew {
		return nil, notFound("there is no store in %s", s.dir)
	}
	return m.openSelected(ctx, s)
}

// openDry is open unless it is for a dry run, which does not create a store: an empty one in memory stands for it.
func (m *Main) openDry(ctx context.Context, dry bool) (*later.Client, error) {
	if s := m.selected(); !dry || !s.isNew {
		return m.openSelected(ctx, s)
	}
	return later.Open(ctx, "mem://", later.WithLogger(m.logger()))
}

// isUnreachable reports whether err means that nothing answered at the store's address.
func isUnreachable(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

func isMemory(url string) bool { return strings.HasPrefix(url, "mem:") }

// openQuietly opens a store. It fails within openTimeout if nothing answers.
func (m *Main) openQuietly(ctx context.Context, s selected, opts ...later.Option) (*later.Client, error) {
	if s.err != nil {
		return nil, s.err
	}
	url, source := s.url, s.source
	client, err := openWithRetry(ctx, url, append(opts, later.WithLogger(m.logger()))...)
	if err == nil {
		return client, nil
	}
	shown := store.RedactURL(url) + " (" + describeSource(source) + ")"
	held, isHeld := errors.AsType[*diskstore.HeldError](err)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case isHeld:
		return nil, &inUseError{held}
	case redis.IsAuthError(err):
		return nil, fmt.Errorf("the store at %s refused the login: give user and password in the store URL, as in "+
			"redis://user:password@host:6379/0: %w", shown, err)
	case isUnreachable(err):
		return nil, fmt.Errorf("the store at %s does not answer; is it running, and is the address right? %w", shown,
			err)
	case errors.Is(err, later.ErrInvalid):
		return nil, fmt.Errorf("%w (%s)", err, describeSource(source))
	case source == sourceDefault:
		return nil, fmt.Errorf("the store at %s cannot be used: %w; use --store, LATER_STORE or REDIS_URL for another",
			shown, err)
	}
	return nil, fmt.Errorf("the store at %s cannot be used: %w", shown, err)
}

// withClient adapts a function that needs a client to cobra.
func (m *Main) withClient(
	f func(ctx context.Context, c *later.Client, args []string) error,
) func(*cobra.Command, []string) error {
	return run(func(ctx context.Context, args []string) error {
		client, err := m.open(ctx)
		if err != nil {
			return err
		}
		defer client.Close()
		return f(ctx, client, args)
	})
}

// existingQueue returns the named queue and its counts. If the queue does not exist, it returns ErrNotFound with the
// names of the existing queues.
func existingQueue(ctx context.Context, c *later.Client, name string) (*later.Queue, later.Stats, error) {
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
	return nil, stats, missing("queue", name, names, "later queues", "later send QUEUE PAYLOAD")
}

// missing returns the error for a name that the store does not have. list and create are commands.
func missing(kind, name string, names []string, list, create string) error {
	if len(names) == 0 {
		return notFound("no %s %q; this store has no %ss yet (see later version): %s creates one", kind, name, kind,
			create)
	}
	return notFound("no %s %q; existing %ss: %s", kind, name, kind, listExisting(name, names, list))
}

// listNames lists up to maxNamed names, and the command that shows the others.
func listNames(names []string, command string) string {
	more := ""
	if len(names) > maxNamed {
		more = fmt.Sprintf(" and %d more (see %s)", len(names)-maxNamed, command)
		names = names[:maxNamed]
	}
	return strings.Join(names, ", ") + more
}

// listExisting lists names for an error about a missing one, and the one that was meant if it may not be listed.
func listExisting(missing string, names []string, command string) string {
	list := listNames(names, command)
	if len(names) > maxNamed {
		list += didYouMeanName(missing, names)
	}
	return list
}

func notFound(format string, args ...any) error {
	return store.Errorf(store.ErrNotFound, format, args...)
}

// explainNotFound returns err, or a better error if an id was not found because its queue does not exist.
func explainNotFound(ctx context.Context, c *later.Client, queue string, err error) error {
	if errors.Is(err, later.ErrNotFound) {
		if _, _, missing := existingQueue(ctx, c, queue); errors.Is(missing, later.ErrNotFound) {
			return missing
		}
	}
	return err
}

// didYouMeanName is the end of a text about a name that the store does not have: the most similar of its names.
func didYouMeanName(name string, names []string) string {
	if similar, ok := nearest.Word(name, names); ok {
		return "; did you mean " + similar + "?"
	}
	return ""
}

// noteNewQueue notes that a command created a queue, because its name may be mistyped. With onlySimilar it does so only
// if another queue has a similar name.
func (m *Main) noteNewQueue(ctx context.Context, c *later.Client, name string, onlySimilar bool) {
	names, err := c.Queues(ctx)
	if err != nil {
		return // the command has done its work
	}
	similar := didYouMeanName(name, without(names, name))
	if similar != "" || !onlySimilar {
		m.note("queue %q did not exist and was created%s", name, similar)
	}
}

// without returns the names other than name.
func without(names []string, name string) []string {
	return slices.DeleteFunc(names, func(other string) bool { return other == name })
}

// logAbsentQueues logs which of a worker's queues do not exist yet.
func logAbsentQueues(ctx context.Context, c *later.Client, log *slog.Logger, queues []string) {
	names, err := c.Queues(ctx)
	if err != nil {
		return // the worker reports it, and tries again
	}
	for _, queue := range queues {
		if !slices.Contains(names, queue) {
			log.Warn("queue does not exist yet: waiting for its first message"+didYouMeanName(queue, names),
				"queue", queue)
		}
	}
}

// noteUnheard notes that a message was published to a topic without subscriptions.
func (m *Main) noteUnheard(ctx context.Context, c *later.Client, t *later.Topic) {
	subscriptions, err := t.Subscriptions(ctx)
	if err != nil || len(subscriptions) > 0 {
		return // the message is sent
	}
	cfg, err := t.Config(ctx)
	if err != nil {
		return
	}
	names, err := c.Topics(ctx)
	if err != nil {
		return
	}
	what := "waits for the first one"
	if cfg.DropUnsubscribed {
		what = "is dropped if there is none when it is due"
	}
	m.note("topic %q has no subscriptions: a message %s%s", t.Name(), what,
		didYouMeanName(t.Name(), without(names, t.Name())))
}
