package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// stopError ends a command that a signal stopped before it was done.
type stopError struct{ signal syscall.Signal }

func (e *stopError) Error() string { return "stopped: " + e.signal.String() }

// exit is the code with which shells name an end by that signal.
func (e *stopError) exit() int { return exitBy(e.signal) }

func exitBy(s syscall.Signal) int { return 128 + int(s) }

// stopSignals ask a program to end.
var stopSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM}

// interruptible gives a context that ends, with a stopError as its cause, at Ctrl-C or SIGTERM; a second one
// ends the process as if this had not been called. Call stop when done.
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

// reportClosedOutput makes a write to a closed pipe an error instead of the end of the process, so that a
// command can give back the messages that it holds. It does not ignore SIGPIPE: child processes would too.
func reportClosedOutput() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

// program gives the path of the program: that which its name now leads to, so that a link that was moved to
// another version counts.
func program() (string, error) { return exec.LookPath(os.Args[0]) }

// restart executes the program again in this process, with the same arguments and this environment. It returns
// only when it failed.
func restart(env []string) error {
	path, err := program()
	if err != nil {
		return err
	}
	// Until the new program looks after the signal itself, one more of it would end the process.
	for s, w := range wishes {
		if w == wishRestart {
			signal.Ignore(s)
		}
	}
	return fmt.Errorf("execute %s: %w", path, syscall.Exec(path, os.Args, env))
}
