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
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/laterq/later"
	_ "github.com/laterq/later/redisstore" // for the store's URLs
	"github.com/laterq/later/store"
)

// roleEnv holds the role of a child process as JSON.
const roleEnv = "LATER_CHAOS_ROLE"

// A role is what a child does.
type role struct {
	Kind    string // worker, receiver or producer
	Actor   string // names its journal
	Dir     string // of the journals
	URL     string
	Queues  []string
	Seed    uint64
	Profile bool
	NoRest  bool // nothing is left when all is handled: no message is due far away or buried

	// Of consumers.
	Lease       time.Duration
	Concurrency int

	// Of producers.
	Rate                   int // messages a second
	PayloadMin, PayloadMax int // bytes
	Spread                 time.Duration
	Far                    time.Duration // the delay of messages that are far; farAway, or about the step of a clock
	Durable                int           // replicas that must have a send; 0 asks for nothing
}

// Play plays the role that the environment asks for and ends the process; without one it returns. A program that
// starts runs calls it first.
func Play() {
	text := os.Getenv(roleEnv)
	if text == "" {
		return
	}
	logging.Disable() // go-redis would tell of each connection that a fault cost
	var r role
	err := json.Unmarshal([]byte(text), &r)
	if err == nil {
		err = r.play()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (r role) play() error {
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
	defer s.Close()
	j.one(begun, now(), "-", r.Kind)
	go reportUsage(ctx, j)
	switch r.Kind {
	case "producer":
		err = newProducer(r, s, j, log).run(ctx)
	case "worker":
		err = consumer{role: r, store: recorder{s, j}, journal: j, log: log}.work(ctx)
	case "receiver":
		err = consumer{role: r, store: recorder{s, j}, journal: j, log: log}.receive(ctx)
	default:
		err = fmt.Errorf("no role is called %q", r.Kind)
	}
	if err != nil {
		return err
	}
	j.one(ended, now(), "-")
	return nil
}

// openStore opens the store as soon as its server can be reached.
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

// reportUsage writes down every second what the process uses.
func reportUsage(ctx context.Context, j *journal) {
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	for sleep(ctx, time.Second) {
		metrics.Read(heap)
		j.one(usage, now(), "-", residentKiB(os.Getpid()), runtime.NumGoroutine(), int64(heap[0].Value.Uint64()>>10))
	}
}

// residentKiB is the memory that a process holds; 0 where the system does not tell.
func residentKiB(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if fields := strings.Fields(string(text)); err == nil && len(fields) > 1 {
		pages, _ := strconv.ParseInt(fields[1], 10, 64)
		return pages * int64(os.Getpagesize()) >> 10
	}
	return 0
}

// sleep waits so long; false when ctx ended before.
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

// child is a process that plays a role. When it has been killed, or has died, another takes its place.
type child struct {
	role   role // Actor is the name without the number of the life
	life   int
	cmd    *exec.Cmd
	exited chan struct{}
	died   int64 // when it ended, µs; known once exited is closed
}

// start starts the next life of a child.
func (c *child) start() error {
	c.life++
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// A group of its own: an interrupt at the terminal goes to a whole group, and is this process's business.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd)
	exited, started := make(chan struct{}), make(chan error, 1)
	go func() {
		// Linux ends the child with the thread that started it, so that thread is kept until then.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait() // how it ended is in ProcessState
			c.died = now()
		}
	}()
	c.cmd, c.exited = cmd, exited
	return <-started
}

// actor is the name of the present life.
func (c *child) actor() string { return fmt.Sprint(c.role.Actor, ".", c.life) }

func (c *child) signal(s syscall.Signal) { c.cmd.Process.Signal(s) }

// kill ends the child as a crash does and returns when it is gone.
func (c *child) kill() {
	c.signal(syscall.SIGKILL)
	<-c.exited
}

// alive tells whether the child runs, stopped or not.
func (c *child) alive() bool {
	select {
	case <-c.exited:
		return false
	default:
		return true
	}
}

// drain ends the child as a deploy does. It is an error if that takes longer than limit, or goes wrong. It does not
// wait longer than ctx.
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
		c.signal(syscall.SIGQUIT) // its goroutines go to its log
		select {
		case <-c.exited:
		case <-time.After(5 * time.Second):
			c.kill()
		}
		return fmt.Errorf("%s did not end within %v of SIGTERM", c.actor(), limit)
	}
	if !c.cmd.ProcessState.Success() && c.begun() {
		return fmt.Errorf("%s ended with %v: %s", c.actor(), c.cmd.ProcessState, lastLine(c.role.Dir, c.actor()))
	}
	return nil
}

// begun tells whether the present life has come so far as to do something; before that it need not end in good order.
func (c *child) begun() bool {
	info, err := os.Stat(filepath.Join(c.role.Dir, c.actor()+journalSuffix))
	return err == nil && info.Size() > 0
}

func lastLine(dir, actor string) string {
	text, _ := os.ReadFile(filepath.Join(dir, actor+".log"))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// openClient is a client of this process, which does nothing by itself.
func openClient(ctx context.Context, url string) (*later.Client, error) {
	return later.Open(ctx, url, later.WithLogger(slog.New(slog.DiscardHandler)))
}
