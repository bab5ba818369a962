package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// awaitWorkers looks until the live workers are as wanted, and returns them.
func awaitWorkers(t *testing.T, c *later.Client, what string, wanted func([]later.WorkerInfo) bool) []later.WorkerInfo {
	t.Helper()
	limit := time.After(2 * patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		all, err := c.Workers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if wanted(all) {
			return all
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s: after %v the live workers are %+v", what, 2*patience, all)
		}
	}
}

func count(n int) func([]later.WorkerInfo) bool {
	return func(all []later.WorkerInfo) bool { return len(all) == n }
}

// workerOf returns the worker of a child.
func workerOf(t *testing.T, all []later.WorkerInfo, c *child) later.WorkerInfo {
	t.Helper()
	for _, w := range all {
		if w.PID == c.cmd.Process.Pid {
			return w
		}
	}
	t.Fatalf("no worker has the process id %d: %+v", c.cmd.Process.Pid, all)
	return later.WorkerInfo{}
}

func TestWorkersOfOtherProcessesAreSeenAndThoseKilledDisappear(t *testing.T) {
	t.Parallel()
	srv, j := redistest.Start(t), newJournal()
	c := open(t, srv.URL())
	q := c.Queue("q")
	survivor := startConsumer(t, j, "survivor", consumer{URL: srv.URL(), Queues: []string{"other"}, Concurrency: 2})
	victim := startConsumer(t, j, "victim", consumer{URL: srv.URL(), Queues: []string{"q"}, Concurrency: 3})
	id := send(t, q, doBlock)
	j.await(t, 1, event{Kind: later.EventStarted, ID: id})
	awaitWorkers(t, c, "two are started", count(2))

	all, err := c.ReportWorkers(bounded(t), patience)
	if err != nil {
		t.Fatal(err)
	}
	w := workerOf(t, all, victim)
	if w.Concurrency != 3 || w.QueueCount != 1 || w.Queues[0] != "q" || w.HeldCount != 1 ||
		w.State != later.WorkerRunning {
		t.Errorf("the victim is shown as %+v", w)
	}
	if len(w.Held) != 1 || w.Held[0].ID != id || w.Held[0].Queue != "q" || w.Held[0].Attempt != 1 {
		t.Errorf("the victim holds %+v; want %s", w.Held, id)
	}
	if other := workerOf(t, all, survivor); other.Process == w.Process || other.ID == w.ID || other.HeldCount != 0 {
		t.Errorf("the survivor is shown as %+v, the victim as %+v", other, w)
	}
	victim.kill()
	workerOf(t, awaitWorkers(t, c, "one was killed", count(1)), survivor)
	survivor.drain()
	awaitWorkers(t, c, "one has ended", count(0))
}

func TestWorkersOfOtherProcessesObey(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"Redis": redistest.Start(t).URL(), "Cluster": redistest.StartCluster(t).URL(),
	} {
		t.Run(name, func(t *testing.T) {
			j := newJournal()
			c := open(t, url)
			q := c.Queue("q")
			drained := startConsumer(t, j, "drained", consumer{URL: url, Queues: []string{"q"}})
			restarted := startConsumer(t, j, "restarted", consumer{URL: url, Queues: []string{"q"}})
			all := awaitWorkers(t, c, "two are started", count(2))
			control := func(do later.WorkerCommand, names ...string) {
				t.Helper()
				if told, err := c.ControlWorkers(bounded(t), do, names...); err != nil || len(told) != len(names) {
					t.Fatalf("%s: %+v, %v", do, told, err)
				}
			}
			for _, w := range all {
				if p, ok := c.Store().(store.Placer); !ok || !p.SameServer(t.Context(), "worker:"+w.ID, "q") {
					t.Errorf("the commands of worker %s are on another server than its queue", w.ID)
				}
			}
			control(later.CommandPause, all[0].Name, all[1].Name)
			awaitWorkers(t, c, "two are paused", func(all []later.WorkerInfo) bool {
				return len(all) == 2 && all[0].State == later.WorkerPaused && all[1].State == later.WorkerPaused
			})
			// A claim that was in flight may still take the first ones. The rest stays.
			var left string
			for i := 0; left == ""; i++ {
				id := send(t, q, doNothing, later.WithID(fmt.Sprint("m", i)))
				if d, err := q.Receive(brief(t), 1); err == nil {
					left = id
					if err := d[0].Release(bounded(t)); err != nil {
						t.Fatal(err)
					}
				}
			}
			control(later.CommandResume, all[0].ID, all[1].ID)
			j.await(t, 1, event{Kind: later.EventAcked, ID: left})

			control(later.CommandDrain, workerOf(t, all, drained).Name)
			drained.awaitExit()
			if !drained.cmd.ProcessState.Success() {
				t.Errorf("the drained process exited with %v", drained.cmd.ProcessState)
			}
			control(later.CommandRestart, workerOf(t, all, restarted).Name)
			restarted.awaitExit()
			if code := restarted.cmd.ProcessState.ExitCode(); code != exitRestart {
				t.Errorf("Run of the restarted process returned no ErrRestart: exit %d", code)
			}
			awaitWorkers(t, c, "both have ended", count(0))
		})
	}
}

// TestIdleWorkerIsListedAtLittleCost counts the requests by which a worker in another process is listed and receives
// commands.
func TestIdleWorkerIsListedAtLittleCost(t *testing.T) {
	t.Parallel()
	srv, j := redistest.Start(t), newJournal()
	c := open(t, srv.URL())
	startConsumer(t, j, "worker", consumer{URL: srv.URL(), Queues: []string{"q"}})
	awaitWorkers(t, c, "one is started", count(1))
	m := startMonitor(t, srv)
	const window = 30 * time.Second
	var sent []string
	for _, command := range m.during(window) {
		if strings.Contains(command, "{worker:") {
			sent = append(sent, command)
		}
	}
	t.Logf("%d commands in %v", len(sent), window)
	// Three heartbeats, and at most one claim of commands and one look for dead workers, which takes three calls.
	const most = 3 + 1 + 3
	if len(sent) == 0 || len(sent) > most {
		t.Errorf("%d commands in %v; want 1 to %d:\n%s", len(sent), window, most, strings.Join(sent, ""))
	}
}

// TestWorkersOnAServerWhoseClockIsOffAreLive uses a server with a clock that is an hour ahead of all processes, or
// behind.
func TestWorkersOnAServerWhoseClockIsOffAreLive(t *testing.T) {
	library := buildClock(t)
	for _, offset := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(fmt.Sprint("by ", offset), func(t *testing.T) {
			t.Setenv("LD_PRELOAD", library)
			t.Setenv("CLOCK_OFFSET", fmt.Sprint(offset.Seconds()))
			srv := redistest.Start(t)
			t.Setenv("LD_PRELOAD", "")
			c := open(t, srv.URL())
			startConsumer(t, newJournal(), "worker", consumer{URL: srv.URL(), Queues: []string{"q"}})
			w := awaitWorkers(t, c, "one is started", count(1))[0]
			for _, at := range []time.Time{w.Started, w.Heartbeat, w.Now} {
				if off := time.Until(at) - offset; off.Abs() > patience {
					t.Errorf("%v is %v from the server's clock", at, off)
				}
			}
		})
	}
}
