// Command later sends, handles and manages the messages of Later's queues. Run it without arguments for an overview,
// and `later COMMAND --help` for help on a command.
//
// Each subject has a file with its commands: queues.go manages queues, change.go changes messages.
// The other files: main.go and root.go are the program, command.go makes commands, store.go selects and opens a store,
// embedded.go handles the embedded store, output.go and table.go print, value.go parses times, durations and options,
// signals.go handles signals, with a file for each system that differs, and log.go formats a worker's log. The program
// imports the public API, the engine contract, and the engine with URLs that the API does not register by itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

func main() {
	reportClosedOutput()
	logging.Disable() // go-redis would log errors that we already report
	m := &Main{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Env: os.Environ()}
	os.Exit(m.Run(context.Background(), os.Args[1:]))
}

// Main is the program. Tests call Run with their own streams and environment.
type Main struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Env            []string // as in os.Environ

	// Set by the global flags.
	storeURL string
	json     bool
}

// Run runs the command in args, which do not include the program's name. It returns the exit code after everything that
// it started has ended. Run can be called only once.
func (m *Main) Run(ctx context.Context, args []string) int {
	m.Stdout, m.Stderr = newOutput(m.Stdout), newOutput(m.Stderr)
	root := m.rootCommand()
	if len(args) == 0 || !strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) { // completion parses flags twice
		onlyOnce(root)
	}
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	root.SetIn(m.Stdin)
	root.SetOut(m.Stdout)
	root.SetErr(m.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if _, ok := errors.AsType[*commandError](err); err != nil && !ok {
		m.json = m.json || slices.Contains(args, "--json") // it may follow the argument that failed
		err = usageError(cmd, err)
	}
	return m.report(err)
}

// report prints an error and returns its exit code.
func (m *Main) report(err error) int {
	stop, stopped := errors.AsType[*stopError](err)
	switch {
	case err == nil || errors.Is(err, errOutputClosed):
		return 0 // the reader of the output has read enough
	case stopped:
		return stop.exit()
	case errors.Is(err, errProblems):
		return exitProblems // standard output has them
	}
	code := later.CodeOf(err)
	if m.json {
		fmt.Fprintf(m.Stderr, "%s\n", jsontext.Append(nil, wire.NewFailure(err)))
	} else {
		fmt.Fprintf(m.Stderr, "later: %v\n", err)
	}
	return exitCodes[code]
}

// reportAllButLast prints all errors except the last non-nil one, which it returns.
func (m *Main) reportAllButLast(errs []error) error {
	var last error
	for _, err := range errs {
		if err == nil {
			continue
		}
		if last != nil {
			m.report(last)
		}
		last = err
	}
	return last
}

// commandError is an error of a command that was started. Any other error comes from cobra and is a usage error.
type commandError struct{ error }

func (e *commandError) Unwrap() error { return e.error }

// run adapts a command's function to cobra.
func run(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := f(cmd.Context(), args); err != nil {
			return &commandError{err}
		}
		return nil
	}
}

func usageError(cmd *cobra.Command, err error) error {
	return store.Invalid("%v; see %s --help", err, cmd.CommandPath())
}

// getenv returns the value of an environment variable, or "" if it is not set.
func (m *Main) getenv(name string) string {
	for _, entry := range slices.Backward(m.Env) { // the last entry wins, as in os/exec
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}
