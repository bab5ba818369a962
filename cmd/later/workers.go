package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// shownQueues is how many characters of a worker's queues a table shows.
const shownQueues = 40

func (m *Main) workersCommand() *cobra.Command {
	cmd := m.command("workers [NAME...]", "List the live workers, or send them commands",
		`Workers lists the live workers of all processes that use the store: the version of each program, its queues,
how many messages its handlers hold, and for how long the first of them. With NAME, a worker's name or id, it prints the
messages too. A worker that does not answer within a second is shown as of its last heartbeat, which is 14 seconds old
at most. One that dies leaves the list within 30 seconds.

The name of a worker is the name of the machine and the id of the process, unless its program gives another (see --name
of later work). Several workers can have the same name; the id, with --json, is unique.

The commands drain, restart, pause and resume reach workers on any machine, through the store.`,
		`  later workers
  later workers web-1:4711
  later workers --json | jq -r 'select(.held_count > 0).name'
  later workers restart --all --one-at-a-time`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			all, err := c.ReportWorkers(ctx, 0)
			if err != nil {
				return err
			}
			if len(args) == 0 && len(all) == 0 {
				m.noWorkers()
			}
			if len(args) > 0 {
				if all, err = pickWorkers(all, args); err != nil {
					return err
				}
			}
			return m.printWorkers(all, len(args) > 0)
		}))
	cmd.AddCommand(m.workersControl(later.CommandDrain), m.workersControl(later.CommandRestart),
		m.workersControl(later.CommandPause), m.workersControl(later.CommandResume))
	return cmd
}

// noWorkers notes that no worker is live. The command succeeds all the same.
func (m *Main) noWorkers() {
	if !m.json {
		m.note("no worker is live in %s", m.shownURL())
	}
}

// pickWorkers returns the workers with these names or ids. It returns ErrNotFound, with the names that there are, if
// there is none for one of them.
func pickWorkers(all []later.WorkerInfo, names []string) (picked []later.WorkerInfo, err error) {
	for _, name := range names {
		if !slices.ContainsFunc(all, func(w later.WorkerInfo) bool { return w.Name == name || w.ID == name }) {
			if len(all) == 0 {
				return nil, notFound("no worker %q: no worker is live", name)
			}
			return nil, notFound("no worker %q; live workers: %s", name,
				listExisting(name, workerNamesOf(all), "later workers"))
		}
	}
	for _, w := range all {
		if slices.Contains(names, w.Name) || slices.Contains(names, w.ID) {
			picked = append(picked, w)
		}
	}
	return picked, nil
}

// workerNames returns the names of the live workers.
func workerNames(c *later.Client, ctx context.Context) ([]string, error) {
	all, err := c.Workers(ctx)
	return workerNamesOf(all), err
}

// workerNamesOf returns the names of workers, which are sorted by name, each once.
func workerNamesOf(all []later.WorkerInfo) (names []string) {
	for _, w := range all {
		names = append(names, w.Name)
	}
	return slices.Compact(names)
}

func (m *Main) printWorkers(all []later.WorkerInfo, detailed bool) error {
	t := newTable("NAME", "STATE", "VERSION", "QUEUES", ">HANDLERS", ">HELD", ">LONGEST", ">UP")
	for i, w := range all {
		if detailed && !m.json {
			separator := ""
			if i > 0 {
				separator = "\n"
			}
			if err := m.print("%s%s", separator, describeWorker(w)); err != nil {
				return err
			}
			continue
		}
		longest := "-"
		if len(w.Held) > 0 {
			longest = ago(w, w.Held[0].Since)
		}
		m.row(t, view.Worker(w), preview(w.Name, store.MaxWorkerName), w.State,
			cmp.Or(preview(w.Version, shownQueues), "-"), queuesOfWorker(w, shownQueues), handlersOf(w), w.HeldCount,
			longest, ago(w, w.Started))
	}
	return m.flush(t)
}

// ago returns how long ago a time was when the worker was listed.
func ago(w later.WorkerInfo, t time.Time) string {
	return durations.Format(max(0, w.Now.Sub(t)).Truncate(time.Millisecond))
}

// handlersOf returns the number of a worker's handlers, or - for clients over HTTP that do not tell it.
func handlersOf(w later.WorkerInfo) string {
	if w.Concurrency == 0 {
		return "-"
	}
	return strconv.Itoa(w.Concurrency)
}

// queuesOfWorker returns the worker's queues, shortened to some characters.
func queuesOfWorker(w later.WorkerInfo, limit int) string {
	text := preview(strings.Join(w.Queues, ", "), limit)
	if more := w.QueueCount - len(w.Queues); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// describeWorker formats a worker as one line per field, followed by the messages that its handlers hold.
func describeWorker(w later.WorkerInfo) string {
	f := &fields{width: 11}
	f.add("name", preview(w.Name, store.MaxWorkerName))
	f.add("id", preview(w.ID, 64))
	f.add("state", string(w.State))
	if w.PID == 0 {
		f.addf("process", "over HTTP")
	} else {
		f.addf("process", "%d on %s", w.PID, cmp.Or(preview(w.Host, 255), "-"))
	}
	f.add("version", cmp.Or(preview(w.Version, store.MaxWorkerName), "-"))
	f.add("queues", queuesOfWorker(w, 2000))
	if w.Concurrency > 0 {
		f.addf("handlers", "%d of %d run", w.HeldCount, w.Concurrency)
	}
	if w.Forwarding > 0 {
		f.addf("forwarding", "%d messages", w.Forwarding)
	}
	for _, to := range w.Forwards {
		f.addf("forwards", "%s to %s", preview(to.Queue, 128), preview(to.To, 256))
	}
	for _, g := range w.GivenBack {
		f.addf("gives back", "%d messages of %s: %s", g.Messages, preview(g.Queue, 128), preview(g.Error, 256))
	}
	f.add("up", ago(w, w.Started))
	f.addf("heartbeat", "%s ago", ago(w, w.Heartbeat))
	if len(w.Held) == 0 {
		return f.String()
	}
	f.WriteString("\n")
	t := newTable("QUEUE", "ID", ">ATTEMPT", ">HELD FOR")
	for _, h := range w.Held {
		t.add(preview(h.Queue, 128), preview(h.ID, 128), h.Attempt, ago(w, h.Since))
	}
	f.WriteString(t.String())
	if more := w.HeldCount - len(w.Held); more > 0 {
		fmt.Fprintf(f, "and %d more\n", more)
	}
	return f.String()
}

// workersLook is the time between looks at the workers while a command is being obeyed.
const workersLook = 100 * time.Millisecond

// controlOptions are the flags of later workers drain, restart, pause and resume.
type controlOptions struct {
	all        bool
	oneAtATime bool
	wait       time.Duration
}

// controlTexts describe the commands: their effect, and the word for it afterwards.
var controlTexts = map[later.WorkerCommand]struct{ short, long, done string }{
	later.CommandDrain: {"End workers when their handlers have finished",
		`Drain lets workers claim no more, lets handlers finish for as long as their programs allow, gives back the
rest, and ends the workers. Later work and later forward exit with 0. A supervisor that restarts programs after any
exit code starts them again.`, "drained"},
	later.CommandRestart: {"Restart workers with a new version of their program",
		`Restart lets workers drain and then start again, to deploy a new version while each finishes its work. Later
work and later forward execute their program again, as they do on SIGUSR2. A program of your own learns of it by the
error ErrRestart of Worker.Run; it executes itself, or ends so that its supervisor starts it.

A worker has restarted when it is gone and one of a new process has come: with the same name, or with the same queues on
the same machine. A worker over HTTP has when it receives again.`, "restarted"},
	later.CommandPause: {"Stop workers from claiming messages",
		`Pause lets workers claim no more messages until later workers resume. They finish the messages that
they hold. Other workers take the messages; later pause stops a queue for all of them. A worker that
restarts is not paused.`, "paused"},
	later.CommandResume: {"Let paused workers claim messages again",
		`Resume lets paused workers claim messages again.`, "resumed"},
}

func (m *Main) workersControl(do later.WorkerCommand) *cobra.Command {
	var o controlOptions
	text := controlTexts[do]
	cmd := m.command(string(do)+" [NAME...]", text.short,
		text.long+`

It tells the workers with these names or ids; without NAME all, after a question unless --all is set. It prints each
worker that has `+text.done+`, and waits for them for up to --wait. Then it fails and names the others, which may
still do it.`,
		fmt.Sprintf(`  later workers %[1]s web-1:4711
  later workers %[1]s --all --wait 5m`, do),
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			return m.controlWorkers(ctx, c, do, args, o)
		}))
	flags := cmd.Flags()
	flags.BoolVar(&o.all, "all", false, "tell all workers, without a question")
	o.wait = 2 * time.Minute
	durationFlag(flags, &o.wait, "wait", "how long to wait until it is done; 0 not at all")
	if do == later.CommandRestart {
		flags.BoolVar(&o.oneAtATime, "one-at-a-time", false,
			"restart the next one when the last one is back, and stop if one is not back within --wait")
	}
	return cmd
}

// controlWorkers sends a command to workers and waits until they have obeyed it.
func (m *Main) controlWorkers(
	ctx context.Context, c *later.Client, do later.WorkerCommand, names []string, o controlOptions,
) error {
	switch {
	case o.all && len(names) > 0:
		return store.Invalid("--all and a NAME are both given: leave out one of them")
	case o.oneAtATime && o.wait == 0:
		return store.Invalid("--one-at-a-time has to wait for each worker: leave out --wait 0")
	}
	live, err := c.Workers(ctx)
	if err != nil {
		return err
	}
	// Clients that receive over HTTP without a name are listed without handlers, and take no commands.
	told := slices.DeleteFunc(slices.Clone(live), func(w later.WorkerInfo) bool { return w.Concurrency == 0 })
	if len(names) > 0 {
		if told, err = pickWorkers(live, names); err != nil {
			return err
		}
	}
	switch {
	case len(live) == 0:
		m.noWorkers()
		return nil
	case len(told) == 0:
		m.note("only clients that receive over HTTP without the name of a worker are live: they take no commands")
		return nil
	}
	if len(names) == 0 && !o.all {
		count := "the one live worker"
		if len(told) > 1 {
			count = fmt.Sprintf("all %d live workers", len(told))
		}
		if err := m.confirm("%s%s %s?", strings.ToUpper(string(do[:1])), do[1:], count); err != nil {
			return err
		}
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	k := &controller{main: m, client: c, do: do, wait: o.wait, before: live}
	if !o.oneAtATime {
		err = k.send(ctx, told)
	} else {
		err = k.roll(ctx, told)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// controller sends a command to workers.
type controller struct {
	main   *Main
	client *later.Client
	do     later.WorkerCommand
	wait   time.Duration
	before []later.WorkerInfo // the workers that were live in the beginning
	taken  []string           // ids of workers that were found to be the successors of others
}

// roll sends the command to one worker after the other, and stops at the first that fails.
func (k *controller) roll(ctx context.Context, told []later.WorkerInfo) error {
	for i, w := range told {
		err := k.send(ctx, []later.WorkerInfo{w})
		if left := workerNamesOf(told[i+1:]); err != nil && len(left) > 0 {
			return fmt.Errorf("%w; %s was not told", err, listNames(left, "later workers"))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// send sends the command to workers at the same time, and waits until they have obeyed it.
func (k *controller) send(ctx context.Context, told []later.WorkerInfo) error {
	ids := make([]string, len(told))
	for i, w := range told {
		ids[i] = w.ID
	}
	_, err := k.client.ControlWorkers(ctx, k.do, ids...)
	var failed []error
	for _, e := range joinedIn(err) {
		failed = append(failed, e)
		if w, ok := e.(*later.WorkerError); ok {
			told = slices.DeleteFunc(slices.Clone(told), func(t later.WorkerInfo) bool { return t.ID == w.Worker.ID })
		} else {
			return err
		}
	}
	if k.wait == 0 {
		for _, w := range told {
			if err := k.print(w, false); err != nil {
				return err
			}
		}
	} else {
		failed = append(failed, k.await(ctx, told))
	}
	return k.main.reportAllButLast(failed)
}

func (k *controller) print(w later.WorkerInfo, done bool) error {
	text := "told"
	if done {
		text = controlTexts[k.do].done
	}
	return k.main.printResult(wire.Commanded{Name: w.Name, ID: w.ID, Command: string(k.do), Done: done}, "%s %s",
		text, preview(w.Name, store.MaxWorkerName))
}

// await prints workers when they have obeyed. It returns an ErrUnavailable that names the workers that have not in
// time.
func (k *controller) await(ctx context.Context, told []later.WorkerInfo) error {
	limit := time.NewTimer(k.wait)
	defer limit.Stop()
	tick := time.NewTicker(workersLook)
	defer tick.Stop()
	for {
		now, err := k.client.Workers(ctx)
		if err != nil && later.CodeOf(err) != later.CodeOf(later.ErrUnavailable) {
			return err
		}
		var waiting []later.WorkerInfo
		for _, w := range told {
			if err != nil || !k.obeyed(w, now) {
				waiting = append(waiting, w)
			} else if err := k.print(w, true); err != nil {
				return err
			}
		}
		if told = waiting; len(told) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-limit.C:
			return store.Errorf(store.ErrUnavailable, "not %s within %s: %s", controlTexts[k.do].done,
				durations.Format(k.wait), listNames(workerNamesOf(told), "later workers"))
		}
	}
}

// obeyed reports whether a worker has obeyed its command.
func (k *controller) obeyed(w later.WorkerInfo, now []later.WorkerInfo) bool {
	i := slices.IndexFunc(now, func(n later.WorkerInfo) bool { return n.ID == w.ID })
	gone := i < 0
	switch k.do {
	case later.CommandPause:
		return gone || now[i].State != later.WorkerRunning
	case later.CommandResume:
		return gone || now[i].State != later.WorkerPaused
	case later.CommandDrain:
		return gone
	}
	if !gone { // a worker over HTTP keeps its id
		return now[i].Started.After(w.Started)
	}
	return k.replaced(w, now)
}

// replaced reports whether a worker of a new process has taken the place of one that is gone.
func (k *controller) replaced(w later.WorkerInfo, now []later.WorkerInfo) bool {
	free := func(n later.WorkerInfo) bool {
		return !slices.Contains(k.taken, n.ID) && !slices.ContainsFunc(k.before, func(b later.WorkerInfo) bool {
			return b.ID == n.ID || b.Process == n.Process
		})
	}
	i := slices.IndexFunc(now, func(n later.WorkerInfo) bool { return n.Name == w.Name && free(n) })
	if i < 0 {
		i = slices.IndexFunc(now, func(n later.WorkerInfo) bool {
			return n.Host == w.Host && n.QueueCount == w.QueueCount && slices.Equal(n.Queues, w.Queues) && free(n) &&
				!k.named(n.Name)
		})
	}
	if i >= 0 {
		k.taken = append(k.taken, now[i].ID)
	}
	return i >= 0
}

// named reports whether one of the workers in the beginning had this name: another one takes that one's place.
func (k *controller) named(name string) bool {
	return slices.ContainsFunc(k.before, func(b later.WorkerInfo) bool { return b.Name == name })
}
