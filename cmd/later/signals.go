package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// stopError is the error of a command that a signal stopped before it was done.
type stopError struct{ signal syscall.Signal }

func (e *stopError) Error() string { return "stopped: " + e.signal.String() }

// exit returns the exit code that shells use for a process that the signal ended.
func (e *stopError) exit() int { return exitBy(e.signal) }

func exitBy(s syscall.Signal) int { return 128 + int(s) }

// stopSignals are the signals that ask a program to end.
var stopSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM}

// interruptible returns a context that ends at Ctrl-C or SIGTERM, with a stopError as its cause. A second signal ends
// the process. Call stop when done.
func interruptible(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, stopSignals...)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer signal.Stop(signals)
		select {
		case s := <-signals:
			cancel(&stopError{s.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-ended
	}
}

// onHangup calls f at each SIGHUP, unless it is ignored as by nohup, until stop is called. Windows has none.
func onHangup(f func()) (stop func()) {
	if signal.Ignored(syscall.SIGHUP) {
		return func() {}
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range signals {
			f()
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
		<-ended
	}
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
