//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/laterq/later"
	_ "github.com/laterq/later/diskstore"  // registers file:// URLs
	_ "github.com/laterq/later/memstore"   // registers mem:// URLs
	_ "github.com/laterq/later/redisstore" // registers redis:// URLs
	"github.com/laterq/later/store"
)

// roleEnv holds the role of a child process as JSON.
const roleEnv = "LATER_CHAOS_ROLE"

// role describes the work of a child process.
type role struct {
	// worker, receiver, laggard, producer, follower, forwarder, watcher, steady-watcher, resharder or server
	Kind        string
	Actor       string // names its journal
	Dir         string // of the journal
	URL         string
	Queues      []string
	Seed        uint64
	Profile     bool
	DrainsFully bool // all messages end up handled: none is due far in the future or buried
	Clients     int  // of this role in the process, each with connections of its own; 0 means one

	// For consumers.
	Lease       time.Duration
	Concurrency int
	Lock        string // policy, by its name in lockPolicies; "" for handlers without locks
	Controlled  bool   // records the commands that it obeys

	Sharded bool // the numbers of shards of the queues change; see reshard.go
	Deadly  bool // the process dies between steps of such changes

	// For forwarders, by queue.
	To map[string]string

	// For producers.
	Rate                   int // messages a second
	PayloadMin, PayloadMax int // bytes
	Spread                 time.Duration
	Grouped                bool          // batches are groups; see groups.go
	Keyed                  bool          // messages have keys and urgencies
	Ordered                int           // of Queues, the number of the last ones, which have an order
	Dies                   bool          // a share of the messages fails all attempts or expires
	Far                    time.Duration // delay of messages due far ahead: farAway, or about a step of the clock
	Durable                int           // replicas that must have a send; 0 waits for none
}

// RunChild runs the role given by the environment and exits. Without a role it returns. A program that calls Run must
// call RunChild first, because Run starts children from the program's own executable.
func RunChild() {
	text := os.Getenv(roleEnv)
	if text == "" {
		return
	}
	logging.Disable() // go-redis logs each connection broken by a fault
	var r role
	err := json.Unmarshal([]byte(text), &r)
	if err == nil {
		err = r.execute()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (r role) execute() error {
	j, err := openJournal(r.Dir, r.Actor)
	if err != nil {
		return err
	}
	defer j.close()
	if r.Profile {
		end, err := profile(r.Dir, r.Actor)
		if err != nil {
			return err
		}
		defer end()
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s, err := openStore(ctx, r.URL, log)
	if err != nil {
		return err
	}
	if r.Sharded {
		s = r.sharded(s, j, log)
	}
	defer s.Close()
	j.one(begun, now(), "-", r.Kind, os.Getpid())
	go reportUsage(ctx, j)
	pulses, quiet := context.WithCancel(context.Background())
	defer quiet() // before the journal is closed
	go reportStarvation(pulses, j)
	switch r.Kind {
	case "producer":
		err = r.each(ctx, s, log, func(r role, s store.Store) error {
			p, err := newProducer(r, s, j, log)
			if err == nil {
				err = p.run(ctx)
			}
			return err
		})
	case "worker":
		err = r.each(ctx, s, log, func(r role, s store.Store) error {
			return consumer{role: r, store: recorder{s, j}, journal: j, log: log}.work(ctx)
		})
	case "laggard":
		l := laggard{role: r, store: recorder{s, j}, journal: j}
		err = l.run(ctx)
	case "receiver":
		err = consumer{role: r, store: recorder{s, j}, journal: j, log: log}.receive(ctx)
	case "forwarder":
		err = forwarder{role: r, store: s, journal: j, log: log}.run(ctx)
	case followerKind:
		err = follower{role: r, journal: j}.run(ctx, s, log)
	case resharderKind:
		err = resharder{role: r, store: s, journal: j}.run(ctx)
	case serverKind:
		err = r.serve(ctx, s, log)
	case watcherKind, steadyKind:
		err = watcher{role: r, store: s, journal: j, log: log}.run(ctx)
	default:
		err = fmt.Errorf("unknown role %q", r.Kind)
	}
	if err != nil {
		return err
	}
	j.one(ended, now(), "-")
	return nil
}

// each runs a role with each of the process's clients. The first one uses s.
func (r role) each(ctx context.Context, s store.Store, log *slog.Logger, run func(role, store.Store) error) error {
	if r.Clients == 0 {
		return run(r, s)
	}
	errs := make([]error, r.Clients)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			of, own := r, s
			of.Actor, of.Seed, of.Rate = fmt.Sprint(r.Actor, "-", i), r.Seed*1000+uint64(i), max(1, r.Rate/r.Clients)
			if i > 0 {
				var err error
				if own, err = openStore(ctx, r.URL, log); err != nil {
					if ctx.Err() == nil { // else the process was stopped before this client had begun
						errs[i] = err
					}
					return
				}
				defer own.Close()
			}
			errs[i] = run(of, own)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// openStore opens the store, retrying until its server is reachable.
func openStore(ctx context.Context, url string, log *slog.Logger) (store.Store, error) {
	for {
		s, err := store.Open(ctx, url, store.OpenConfig{Logger: log})
		if err == nil || ctx.Err() != nil || !errors.Is(err, store.ErrUnavailable) {
			return s, err
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return nil, err
		}
	}
}

// reportUsage records the resources used by the process every second.
func reportUsage(ctx context.Context, j *journal) {
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	for sleep(ctx, time.Second) {
		metrics.Read(heap)
		j.one(usage, now(), "-", residentKiB(os.Getpid()), runtime.NumGoroutine(), int64(heap[0].Value.Uint64()>>10))
	}
}

// Gaps of a ticker that mean that a process was not running: it was stopped, or the machine is busy.
const (
	pulse       = 50 * time.Millisecond
	starvedFrom = 300 * time.Millisecond
)

// reportStarvation records when the process did not run for a while.
func reportStarvation(ctx context.Context, j *journal) {
	for last := now(); sleep(ctx, pulse); {
		at := now()
		if at-last > starvedFrom.Microseconds() {
			j.one(starved, at, "-", last)
		}
		last = at
	}
}

// residentKiB returns the resident memory of a process, or 0 if the system does not report it.
func residentKiB(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if fields := strings.Fields(string(text)); err == nil && len(fields) > 1 {
		pages, _ := strconv.ParseInt(fields[1], 10, 64)
		return pages * int64(os.Getpagesize()) >> 10
	}
	return 0
}

// sleep pauses for d. It returns false if ctx was done before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// child is a process with a role. When the process dies, start starts a new generation of it.
type child struct {
	role       role // Actor lacks the generation
	generation int
	cmd        *exec.Cmd
	exited     chan struct{}
	died       int64 // when it exited, µs; valid once exited is closed
}

// start starts the next generation.
func (c *child) start() error {
	c.generation++
	r := c.role
	r.Actor = c.actor()
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	output, err := os.OpenFile(filepath.Join(r.Dir, r.Actor+".log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+string(text), "GORACE=atexit_sleep_ms=0")
	cmd.Stdout, cmd.Stderr = output, output
	// Its own process group, so that an interrupt at the terminal reaches this process only.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd)
	exited, started := make(chan struct{}), make(chan error, 1)
	go func() {
		// Linux kills the child when the thread that started it exits, so keep that thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait() // the exit status is in ProcessState
			c.died = now()
		}
	}()
	c.cmd, c.exited = cmd, exited
	return <-started
}

// actor returns the name of the current generation.
func (c *child) actor() string { return fmt.Sprint(c.role.Actor, ".", c.generation) }

func (c *child) signal(s syscall.Signal) { c.cmd.Process.Signal(s) }

// kill kills the child and returns when it has exited.
func (c *child) kill() {
	c.signal(syscall.SIGKILL)
	<-c.exited
}

// alive reports whether the child is running, stopped or not.
func (c *child) alive() bool {
	select {
	case <-c.exited:
		return false
	default:
		return true
	}
}

// drain stops the child gracefully. It returns an error if the child takes longer than limit or fails, or if ctx is
// done before.
func (c *child) drain(ctx context.Context, limit time.Duration) error {
	c.signal(syscall.SIGCONT)
	c.signal(syscall.SIGTERM)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c.exited:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		c.signal(syscall.SIGQUIT) // logs its goroutines
		select {
		case <-c.exited:
		case <-time.After(5 * time.Second):
			c.kill()
		}
		return fmt.Errorf("%s did not exit within %v of SIGTERM", c.actor(), limit)
	}
	if !c.cmd.ProcessState.Success() && c.begun() {
		return fmt.Errorf("%s exited with %v: %s", c.actor(), c.cmd.ProcessState, lastLine(c.role.Dir, c.actor()))
	}
	return nil
}

// begun reports whether the current generation has written a record. Until then it need not exit cleanly.
func (c *child) begun() bool {
	info, err := os.Stat(filepath.Join(c.role.Dir, c.actor()+journalSuffix))
	return err == nil && info.Size() > 0
}

func lastLine(dir, actor string) string {
	text, _ := os.ReadFile(filepath.Join(dir, actor+".log"))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// openClient returns an idle client for this process.
func openClient(ctx context.Context, url string) (*later.Client, error) {
	return later.Open(ctx, url, later.WithLogger(slog.New(slog.DiscardHandler)))
}
