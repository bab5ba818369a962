package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/jsonfields"
	"github.com/laterq/later/internal/message"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

const (
	// exitTempFail is EX_TEMPFAIL of sysexits.h.
	exitTempFail = 75
	// killGrace is the time between SIGTERM and SIGKILL. It is also how long to wait for a command's output if a
	// process that the command left behind keeps it open.
	killGrace = 2 * time.Second
	// shutdownGrace replaces killGrace after the drain has timed out: a worker then waits a second for its handlers.
	shutdownGrace = 500 * time.Millisecond
	// maxTail is how many bytes of a command's standard error are kept as the last error.
	maxTail = 1500
)

// execute returns a handler that runs a command for each message.
func (w *worker) execute(command string) later.HandlerFunc {
	environment := slices.DeleteFunc(slices.Clone(w.main.Env), isWorkers)
	return func(ctx context.Context, msg *later.Message) error {
		stderr := &tail{to: w.main.Stderr}
		cmd := exec.Command("sh", "-c", command)
		cmd.Env = append(slices.Clip(environment), variables(msg)...)
		cmd.Stdin = bytes.NewReader(msg.Payload)
		cmd.Stdout = w.main.Stdout
		if file, ok := fileOf(w.main.Stdout); ok {
			cmd.Stdout = file // pass the file itself to the command
		}
		cmd.Stderr = stderr
		cmd.WaitDelay = killGrace
		return w.settleResult(ctx, msg, w.commands.run(ctx, cmd), stderr)
	}
}

// settleResult returns the handler's result for a command that has ended, and logs a failure.
func (w *worker) settleResult(ctx context.Context, msg *later.Message, err error, stderr *tail) error {
	if err == nil {
		return nil
	}
	log := w.log.With("queue", msg.Queue, "id", msg.ID, "attempt", fmt.Sprintf("%d/%d", msg.Attempt, msg.MaxAttempts))
	exit, _ := errors.AsType[*exec.ExitError](err)
	switch cause := context.Cause(ctx); {
	case cause == later.ErrShutdown:
		log.Warn("command was stopped and its message is released")
	case errors.Is(cause, later.ErrCancelled):
		log.Info("command was stopped because its message was cancelled")
	case cause != nil:
		log.Error("command was stopped", "error", cause)
	case exit != nil && exit.ExitCode() == exitTempFail:
	default:
		log.Error("command failed", "error", err)
	}
	if text := stderr.String(); text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// commands are the running commands, each in its own process group.
type commands struct {
	mu     sync.Mutex
	groups map[int]bool
}

// run runs a command until it ends. If ctx ends first, run stops the process group and returns an error, even if the
// command exits with 0.
func (c *commands) run(ctx context.Context, cmd *exec.Cmd) error {
	ownGroup(cmd)
	if err := c.start(cmd); err != nil {
		return err
	}
	group := cmd.Process.Pid
	defer c.ended(group)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if errors.Is(err, exec.ErrWaitDelay) {
			return nil // it succeeded, but a process that it left behind keeps its output open
		}
		return err
	case <-ctx.Done():
	}
	endGroup(group)
	grace := time.NewTimer(killGrace)
	if context.Cause(ctx) == later.ErrShutdown {
		grace.Reset(shutdownGrace)
	}
	defer grace.Stop()
	select {
	case err := <-done:
		killGroup(group) // processes of the group that do not keep the output open
		return stopped(err)
	case <-grace.C:
		killGroup(group)
		return stopped(<-done)
	}
}

func stopped(err error) error {
	if err == nil {
		return errors.New("command was stopped")
	}
	return fmt.Errorf("command was stopped: %w", err)
}

func (c *commands) start(cmd *exec.Cmd) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	if c.groups == nil {
		c.groups = map[int]bool{}
	}
	c.groups[cmd.Process.Pid] = true
	return nil
}

func (c *commands) ended(group int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.groups, group)
}

// killAll kills all commands. It keeps the lock, so that no other can start before the process ends.
func (c *commands) killAll() {
	c.mu.Lock()
	for group := range c.groups {
		killGroup(group)
	}
}

const headerVariable = "LATER_HEADER_"

// isWorkers reports whether a command does not inherit a variable, because it was set by an enclosing later work or has
// the worker's secret for its store. A command has the rights of its own configuration, not the worker's.
func isWorkers(entry string) bool {
	switch name, value, _ := strings.Cut(entry, "="); name {
	case "LATER_ID", "LATER_QUEUE", "LATER_ATTEMPT", "LATER_MAX_ATTEMPTS", "LATER_DUE", "LATER_TOKEN":
		return true
	case "LATER_STORE":
		return store.RedactURL(value) != value
	default:
		return strings.HasPrefix(name, headerVariable) || slices.Contains(optionVariables(), name)
	}
}

// optionVariables returns the names of the variables for the options of a message that are texts, such as LATER_KEY.
func optionVariables() (names []string) {
	var o message.Handled
	eachTextOption(&o, func(name, _ string) { names = append(names, name) })
	return names
}

// eachTextOption calls f with the variable of each option that is a text, and its value.
func eachTextOption(o *message.Handled, f func(name, value string)) {
	for _, field := range jsonfields.Fields(o) {
		if value := field.Value(o); value.Kind() == reflect.String {
			f("LATER_"+variableName(field.Name), value.String())
		}
	}
}

// variables returns the environment variables for a message. If header names map to the same variable, the last wins.
func variables(msg *later.Message) []string {
	vars := []string{
		"LATER_ID=" + msg.ID,
		"LATER_QUEUE=" + msg.Queue,
		"LATER_ATTEMPT=" + strconv.Itoa(msg.Attempt),
		"LATER_MAX_ATTEMPTS=" + strconv.Itoa(msg.MaxAttempts),
		"LATER_DUE=" + wire.FormatTime(msg.Due),
	}
	options := message.OptionsOf(msg)
	eachTextOption(&options.Handled, func(name, value string) {
		if value != "" {
			vars = append(vars, name+"="+value)
		}
	})
	for _, name := range slices.Sorted(maps.Keys(msg.Headers)) {
		value := strings.ReplaceAll(msg.Headers[name], "\x00", "") // not allowed in an environment
		vars = append(vars, headerVariable+variableName(name)+"="+value)
	}
	return vars
}

func variableName(header string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return r - 'a' + 'A'
		case 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return r
		}
		return '_'
	}, header)
}

// tail passes on writes and keeps the end of the output.
type tail struct {
	to   io.Writer
	kept []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - maxTail; over > 0 {
		t.kept = slices.Delete(t.kept, 0, over)
	}
	if _, err := t.to.Write(p); err != nil && !errors.Is(err, os.ErrClosed) && !errors.Is(err, errOutputClosed) {
		return 0, err
	}
	return len(p), nil // a closed standard error must not end the command
}

// String returns the end of the output. Call it only after the command has ended.
func (t *tail) String() string { return strings.TrimSpace(string(t.kept)) }
