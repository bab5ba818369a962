package diskstore

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

// holderFile names the process that has the directory open, for people. It exists from open to close, so a directory
// that has it and is not locked was left by a crash.
const holderFile = "HOLDER"

// HeldError is the error of opening a directory that is open already, in another process or in this one. It is an
// ErrUnavailable.
type HeldError struct {
	Dir string
	// Holder names the process that has the directory open, for people:
	// "process 123 on host, later work, since 2030-12-31T15:04:05Z". It may be "", or name the last holder, in the
	// moment after another process has locked the directory.
	Holder string
	// Since is when the holder opened the directory, by its clock and to the second; zero where that is unknown.
	Since time.Time
}

// heldBy returns the HeldError for the content of holderFile.
func heldBy(dir, holder string) *HeldError {
	e := &HeldError{Dir: dir, Holder: holder}
	if i := strings.LastIndex(holder, sinceWord); i >= 0 {
		e.Since, _ = time.Parse(time.RFC3339, holder[i+len(sinceWord):])
	}
	return e
}

func (e *HeldError) Error() string {
	holder := "another process"
	if e.Holder != "" {
		holder = e.Holder
	}
	return fmt.Sprintf("%v: %s is open in %s: one process at a time", store.ErrUnavailable, e.Dir, holder)
}

func (e *HeldError) Unwrap() error { return store.ErrUnavailable }

const sinceWord = ", since "

// describeHolder names the process that has the directory open when it does not answer, with advice.
func (s *sharing) describeHolder() string {
	text, err := os.ReadFile(filepath.Join(s.dir, holderFile))
	holder := strings.TrimSpace(string(text))
	if err != nil || holder == "" {
		return fmt.Sprintf("the process that has %s open does not answer", s.dir)
	}
	if pid, ok := pidOf(holder); ok && isStopped(pid) {
		return fmt.Sprintf("%s has %s open and is stopped: continue it with kill -CONT %d, or end it with "+
			"kill -KILL %d, then another process takes over", holder, s.dir, pid, pid)
	}
	return fmt.Sprintf("%s has %s open and does not answer", holder, s.dir)
}

// pidOf returns the number of a process that was described by holder, if that is on this machine.
func pidOf(holder string) (pid int, ok bool) {
	var host string
	if _, err := fmt.Sscanf(holder, "process %d on %s", &pid, &host); err != nil {
		return 0, false
	}
	here, err := os.Hostname()
	return pid, err == nil && strings.TrimSuffix(host, ",") == here
}

// isStopped reports whether a process is stopped, by a signal or a debugger. It is false where that is unknown.
func isStopped(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(text[bytes.LastIndexByte(text, ')')+1:]), " ") // behind the program's name
	return strings.HasPrefix(state, "T") || strings.HasPrefix(state, "t")
}

// holder describes this process.
func holder() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("process %d on %s, %s%s%s\n", os.Getpid(), host, command(os.Args),
		sinceWord, time.Now().Format(time.RFC3339))
}

// command returns the name of a program, with its first argument if that looks like a subcommand; other arguments may
// be secret.
func command(args []string) string {
	name := filepath.Base(args[0])
	if len(args) > 1 && subcommand.MatchString(args[1]) {
		name += " " + args[1]
	}
	return name
}

var subcommand = regexp.MustCompile(`^[a-z][a-z-]{0,15}$`)
