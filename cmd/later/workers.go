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
		var err error
		if detailed && !m.json {
			separator := ""
			if i > 0 {
				separator = "\n"
			}
			err = m.print("%s%s", separator, describeWorker(w))
		} else {
			longest := "-"
			if len(w.Held) > 0 {
				longest = ago(w, w.Held[0].Since)
			}
			err = m.row(t, view.Worker(w), preview(w.Name, later.MaxWorkerName), w.State,
				cmp.Or(preview(w.Version, shownQueues), "-"), queuesOfWorker(w, shownQueues), handlersOf(w), w.HeldCount,
				longest, ago(w, w.Started))
		}
		if err != nil {
			return err
		}
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
	f.add("name", preview(w.Name, later.MaxWorkerName))
	f.add("id", preview(w.ID, 64))
	f.add("state", string(w.State))
	if w.PID == 0 {
		f.addf("process", "over HTTP")
	} else {
		f.addf("process", "%d on %s", w.PID, cmp.Or(preview(w.Host, 255), "-"))
	}
	f.add("version", cmp.Or(preview(w.Version, later.MaxWorkerName), "-"))
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
