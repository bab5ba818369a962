package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// destinationKinds are the values of --to.
const destinationKinds = "queue:NAME, topic:NAME, list:KEY, stream:KEY or channel:NAME"

// forwardOptions are the flags of later forward.
type forwardOptions struct {
	set         *pflag.FlagSet
	to          string
	front       bool
	maxLen      int64
	at          string
	exactlyOnce bool
	name        string
}

func (m *Main) forwardCommand() *cobra.Command {
	var o forwardOptions
	cmd := m.command("forward QUEUE --to DESTINATION",
		"Move messages to a queue, or a Redis list, stream or channel, as they fall due",
		`Forward moves the messages of a queue to a destination as they fall due, until it is stopped. Programs in any
language can read from a list, a stream or a channel without knowing Later. The destination is one of

  queue:NAME      another queue, where messages keep their ids, due times, headers and limits
  topic:NAME      a topic, from where they reach all subscribed queues (see later topic)
  list:KEY        a Redis list of payloads, for programs that take them from its left end (BLPOP, BLMOVE)
  stream:KEY      a Redis stream, for XREADGROUP; an entry has the fields id, payload, due (milliseconds since 1970)
                  and, for each header, header:NAME
  channel:NAME    a Redis pub/sub channel of payloads (PUBLISH, in a Cluster SPUBLISH); a message is lost if no
                  program listens

Within one store a message is moved exactly once: it leaves the queue and arrives in one step, so a kill neither loses
nor doubles it. In a Redis Cluster that needs a key or channel with the queue's name as its hash tag, such as
list:{mail}:due for the queue mail. Elsewhere in the Cluster, and with --at in another store, a message arrives at least
once; a queue refuses ids that it was already given, for at least a day. When it starts, forward prints which of the two
holds. With --exactly-once it starts only if it is exactly once.

If the destination cannot take messages, because its key has another type or its server is full or away, they stay in
the queue. Forward logs why and retries until it can. Messages that have expired or cannot be read become dead (see
later dead). A paused queue moves nothing (see later pause).

An embedded store and mem:// have only queues: for other destinations, name a Redis with --at. Any number of forwards
can serve one queue, but messages keep the order of their due times only with a single one.

Signals:

  SIGINT (Ctrl-C), SIGTERM,   drain: finish the call in progress and leave the rest in the queue; a second signal kills
  SIGHUP                      at once, but not a second SIGTERM within 2 s, which timeout(1) sends
  SIGTSTP (Ctrl-Z)            move no more until SIGCONT
  SIGUSR2                     drain, then execute the program again with the same arguments, to deploy a new version

Windows supports only the first: Ctrl-C, Ctrl-Break, and the end of the console or of the session. Later workers drains,
pauses, resumes and restarts from any machine, and forward can be a service of systemd, as later work can.`,
		`  later forward mail --to list:mail-now
  later forward orders --to stream:orders --max-len 1000000
  later forward prices --to 'channel:{prices}:live' --exactly-once --store redis+cluster://host:6379
  later forward jobs --to queue:jobs --store ./spool --at redis://localhost:6379/0  # embedded to Redis`,
		run(func(ctx context.Context, args []string) error { return m.forward(ctx, args[0], o) }))
	o.set = cmd.Flags()
	flags := o.set
	flags.StringVar(&o.to, "to", "", "move to this `DESTINATION`: "+destinationKinds)
	flags.BoolVar(&o.front, "front", false, "add to the front of the list (LPUSH)")
	flags.Int64Var(&o.maxLen, "max-len", 0, "keep about the newest `N` entries of the stream; 0 for all, the default")
	flags.StringVar(&o.at, "at", "", "the destination is in this `STORE`, a URL or a directory; at least once")
	flags.BoolVar(&o.exactlyOnce, "exactly-once", false, "do not start unless each message is moved exactly once")
	nameFlag(flags, &o.name)
	kinds := []string{"queue:", "topic:", "list:", "stream:", "channel:"}
	cmd.RegisterFlagCompletionFunc("to", cobra.FixedCompletions(kinds,
		cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	return cmd
}

// forward runs until it is stopped. If a restart fails, it continues.
func (m *Main) forward(ctx context.Context, queue string, o forwardOptions) error {
	to, err := m.checkForward(queue, o)
	if err != nil {
		return err
	}
	return m.restartable(func() (bool, error) { return m.forwardOnce(ctx, queue, to, o) })
}

// checkForward returns the destination. It rejects values that are wrong for any store, without connecting to one.
func (m *Main) checkForward(queue string, o forwardOptions) (later.Destination, error) {
	if err := store.CheckQueue(queue); err != nil {
		return later.Destination{}, err
	}
	target, err := o.target()
	if err != nil {
		return later.Destination{}, err
	}
	url := m.selected().url // open reports an error
	if o.set.Changed("at") {
		err = m.checkAt(target, o, url)
	} else {
		err = checkHere(queue, target, url)
	}
	if err != nil {
		return later.Destination{}, err
	}
	to, err := later.ParseDestination(o.to)
	if o.front {
		to = to.Front()
	}
	if o.maxLen != 0 {
		to = to.MaxLen(o.maxLen)
	}
	if o.exactlyOnce {
		to = to.ExactlyOnce()
	}
	return to, err
}

// target returns the target that --to, --front and --max-len describe.
func (o *forwardOptions) target() (store.Target, error) {
	switch {
	case o.to == "":
		return store.Target{}, store.Invalid("--to is missing: give " + destinationKinds)
	case !strings.Contains(o.to, ":"):
		return store.Target{}, store.Invalid("--to is %q: give "+destinationKinds, o.to)
	}
	target, err := store.ParseTarget(o.to)
	if err == nil {
		target.Front, target.MaxLen = o.front, o.maxLen
		err = target.Check()
	}
	if err != nil {
		return target, fmt.Errorf("%w (from --to)", err)
	}
	return target, nil
}

// checkHere rejects targets that the store at url does not have.
func checkHere(queue string, target store.Target, url string) error {
	switch isQueue := target.Kind == store.TargetQueue; {
	case isQueue && target.Name == queue:
		return store.Invalid("--to is the queue %q itself: must be another one", queue)
	case !isQueue && onlyQueues(url):
		return noLists("--to is %q, and the store at %s has only queues: name a Redis for it with --at, such as "+
			"--at redis://localhost:6379/0", target, url)
	}
	return nil
}

// checkAt rejects wrong values of --at. url is the URL of the queue's store.
func (m *Main) checkAt(target store.Target, o forwardOptions, url string) error {
	if o.exactlyOnce {
		return store.Invalid("--exactly-once and --at are both given: in another store messages arrive at " +
			"least once; leave out one of them")
	}
	named := m.named(o.at, "--at")
	at := named.url
	switch {
	case named.err != nil:
		return named.err
	case isMemory(at):
		return store.Invalid("--at is %s, the memory of this command itself: use another store", at)
	case at == url:
		return store.Invalid("--at is the store of the queue itself, %s: leave out --at",
			store.RedactURL(at))
	case target.Kind != store.TargetQueue && onlyQueues(at):
		return noLists("--to is %q, and the store at %s (from --at) has only queues: name a Redis with --at, such as "+
			"--at redis://localhost:6379/0", target, at)
	}
	return nil
}

// onlyQueues reports whether a store can forward only to queues, because it lacks lists, streams and channels.
func onlyQueues(url string) bool {
	_, embedded := directoryOf(url)
	return embedded || isMemory(url)
}

func noLists(format string, target store.Target, url string) error {
	return store.Errorf(store.ErrUnsupported, format, target, store.RedactURL(url))
}

// forwardOnce runs until it is stopped. It reports whether that was for a restart.
func (m *Main) forwardOnce(
	ctx context.Context, queue string, to later.Destination, o forwardOptions,
) (again bool, err error) {
	c, err := m.open(ctx)
	if err != nil {
		return false, err
	}
	defer c.Close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	w := m.newWorker("forwarding "+queue+" to "+o.to, stop)
	log := w.log.With("store", m.shownURL()) // outages name the store
	if o.at != "" {
		named := m.named(o.at, "--at")
		at, err := m.openSelected(ctx, named)
		if err != nil {
			return false, err
		}
		defer at.Close()
		to = to.At(at)
		log = log.With("at", store.RedactURL(named.url))
	}
	w.later = later.NewWorker(c, later.WorkerConfig{
		Logger: log, Name: o.name, OnCommand: w.onCommand,
	})
	w.later.Forward(queue, to)
	w.signals = w.listen()
	logAbsentQueues(ctx, c, w.log, []string{queue})
	return w.run(ctx)
}
