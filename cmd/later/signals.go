package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// stopError is the error of a command that a signal stopped before it was done.
type stopError struct{ signal syscall.Signal }

func (e *stopError) Error() string { return "stopped: " + e.signal.String() }

// exit returns the exit code that shells use for a process that the signal ended.
func (e *stopError) exit() int { return exitBy(e.signal) }

func exitBy(s syscall.Signal) int { return 128 + int(s) }

// stopSignals are the signals that ask a program to end.
var stopSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM}

// copyWithin is how long after a SIGTERM another one counts as its copy.
const copyWithin = 2 * time.Second

// stopRequests tells repeated requests to stop from copies of the first. timeout(1), for example, sends SIGTERM to its
// command and at once to the whole process group, so that the command receives it twice. SIGINT comes from people, with
// Ctrl-C, and is never copied.
type stopRequests struct {
	mu         sync.Mutex
	terminated time.Time // when the first SIGTERM came
}

// isCopy reports whether a signal that comes now is a copy.
func (r *stopRequests) isCopy(s os.Signal) bool {
	if s != syscall.SIGTERM {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.terminated.IsZero() {
		r.terminated = time.Now()
		return false
	}
	return time.Since(r.terminated) < copyWithin
}

// end keeps copies that are still to come from killing the process on its way out. Call it before signals are no longer
// handled.
func (r *stopRequests) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.terminated.IsZero() {
		return
	}
	ignored := make(chan os.Signal, 1) // without a receiver
	signal.Notify(ignored, syscall.SIGTERM)
	time.AfterFunc(copyWithin-time.Since(r.terminated), func() { signal.Stop(ignored) })
}

// handleSignals calls handle for each of some signals, one at a time, until stop is called.
func handleSignals(handle func(syscall.Signal), signals ...os.Signal) (stop func()) {
	received, ended := make(chan os.Signal, 8), make(chan struct{})
	signal.Notify(received, signals...)
	go func() {
		defer close(ended)
		for s := range received {
			handle(s.(syscall.Signal))
		}
	}()
	return func() {
		signal.Stop(received)
		close(received)
		<-ended
	}
}

// interruptible returns a context that ends at Ctrl-C or SIGTERM, with a stopError as its cause. A second signal ends
// the process, unless it is a copy. Call stop when done.
func interruptible(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	requests, stopped := &stopRequests{}, false
	end := handleSignals(func(s syscall.Signal) {
		switch {
		case requests.isCopy(s):
		case stopped:
			os.Exit(exitBy(s))
		default:
			stopped = true
			cancel(&stopError{s})
		}
	}, stopSignals...)
	return ctx, func() {
		cancel(nil)
		requests.end()
		end()
	}
}

// onHangup calls f at each SIGHUP, unless it is ignored as by nohup, until stop is called. Windows has none.
func onHangup(f func()) (stop func()) {
	if signal.Ignored(syscall.SIGHUP) {
		return func() {}
	}
	return handleSignals(func(syscall.Signal) { f() }, syscall.SIGHUP)
}

// reportClosedOutput makes a write to a closed pipe return an error instead of ending the process, so that a command
// can release its messages. It does not ignore SIGPIPE, because child processes would inherit that.
func reportClosedOutput() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

// program returns the path that the program's name resolves to now, so that a link that was changed to another version
// is followed.
func program() (string, error) { return exec.LookPath(os.Args[0]) }

// restart executes the program again in this process, with the same arguments and the given environment. It returns
// only if that fails.
func restart(env []string) error {
	path, err := program()
	if err != nil {
		return err
	}
	// Another restart signal would end the process until the new program handles it.
	for s, w := range signalActions {
		if w == actionRestart {
			signal.Ignore(s)
		}
	}
	return fmt.Errorf("execute %s: %w", path, syscall.Exec(path, os.Args, env))
}
