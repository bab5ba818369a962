// Command later sends, handles and looks after the messages of Later's queues. Run it without arguments for an
// overview, and `later COMMAND --help` for a page on a command.
//
// Each command has a file of its own. The others: main.go and root.go are the program, store.go names and opens
// the store, embedded.go is about the one in a directory, output.go and table.go print, value.go reads times and
// durations, signals.go is about being stopped, with files for the systems that differ, log.go is what a worker says.
// It imports the public API, the contract, and the one engine whose URLs the API does not know by itself.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

func main() {
	reportClosedOutput()
	logging.Disable() // go-redis would write of its own accord what our errors say
	m := &Main{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Env: os.Environ()}
	os.Exit(m.Run(context.Background(), os.Args[1:]))
}

// Main is the program. A test makes one with streams and an environment of its own and calls Run.
type Main struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Env            []string // as of os.Environ

	// Set by the flags that every command has.
	storeURL string
	json     bool
}

// Run runs the command that args names, without the program's own name, and returns the exit code when all
// that it started has ended. It may be called once.
func (m *Main) Run(ctx context.Context, args []string) int {
	m.Stdout, m.Stderr = newOutput(m.Stdout), newOutput(m.Stderr)
	root := m.rootCommand()
	root.SetArgs(append([]string{}, args...)) // not nil, which would mean os.Args
	root.SetIn(m.Stdin)
	root.SetOut(m.Stdout)
	root.SetErr(m.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if _, ok := errors.AsType[*commandError](err); err != nil && !ok {
		m.json = m.json || slices.Contains(args, "--json") // which may stand behind the error
		err = usageError(cmd, err)
	}
	return m.report(err)
}

// report prints an error and gives its exit code.
func (m *Main) report(err error) int {
	stop, stopped := errors.AsType[*stopError](err)
	switch {
	case err == nil || errors.Is(err, errOutputClosed):
		return 0 // who reads the output has enough of it
	case stopped:
		return stop.exit()
	}
	code := later.CodeOf(err)
	if m.json {
		m.printErrorJSON(code, err)
	} else {
		fmt.Fprintf(m.Stderr, "later: %v\n", err)
	}
	return code.Exit
}

func (m *Main) printErrorJSON(code later.Code, err error) {
	type body struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	line, _ := json.Marshal(map[string]body{"error": {code.Name, err.Error()}}) // strings always encode
	fmt.Fprintf(m.Stderr, "%s\n", line)
}

// several reports all errors but the last, which it returns; nil ones are passed over.
func (m *Main) several(errs []error) error {
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

// commandError is an error of a command that began; one of cobra's own is an error in its usage.
type commandError struct{ error }

func (e *commandError) Unwrap() error { return e.error }

// run makes a command's function into cobra's.
func run(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := f(cmd.Context(), args); err != nil {
			return &commandError{err}
		}
		return nil
	}
}

// arguments demands so many arguments, at least and at most.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return fmt.Errorf("usage: %s %s", strings.TrimSuffix(cmd.CommandPath(), " "+cmd.Name()), cmd.Use)
		}
		return nil
	}
}

// unlimited is no limit to the number of arguments.
const unlimited = math.MaxInt

func usageError(cmd *cobra.Command, err error) error {
	return store.Invalid("%v; see %s --help", err, cmd.CommandPath())
}

// getenv gives a variable of the environment; "" when it is not set.
func (m *Main) getenv(name string) string {
	for _, entry := range slices.Backward(m.Env) { // the last one wins, as in os/exec
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}
