package main

import (
	"fmt"
	"strings"

	"github.com/laterq/later/store"
)

// exitCodes are the exit codes of errors. They never change. 75 is not among them: a command of later work --exec asks
// with it for a retry.
var exitCodes = map[store.Code]int{
	store.Internal:                1,
	store.ErrInvalid.Code:         2,
	store.ErrTooLarge.Code:        10,
	store.ErrNotFound.Code:        11,
	store.ErrDuplicate.Code:       12,
	store.ErrLeased.Code:          13,
	store.ErrDead.Code:            14,
	store.ErrLeaseLost.Code:       15,
	store.ErrFull.Code:            16,
	store.ErrNotDurable.Code:      17,
	store.ErrUnavailable.Code:     18,
	store.ErrUnsupported.Code:     19,
	store.ErrCorrupt.Code:         20,
	store.ErrClosed.Code:          21,
	store.ErrMisconfigured.Code:   22,
	store.ErrConflict.Code:        23,
	store.ErrUnauthenticated.Code: 24,
	store.ErrForbidden.Code:       25,
}

// exitCode returns the exit code of an error.
func exitCode(err error) int { return exitCodes[store.CodeOf(err)] }

// exitCodesText returns the part of the overview about exit codes.
func exitCodesText() string {
	var b strings.Builder
	b.WriteString("Exit codes, and their names with --json:\n\n")
	b.WriteString("   0                   success\n")
	fmt.Fprintf(&b, "  %2d  %-15s  any other error\n", exitCodes[store.Internal], store.Internal)
	for _, kind := range store.Kinds() {
		fmt.Fprintf(&b, "  %2d  %-15s  %v\n", exitCodes[kind.Code], kind.Code, kind)
	}
	fmt.Fprintf(&b, "  %2d                   later problems --check found a problem that needs a person now\n",
		exitProblems)
	b.WriteString(" 130                   interrupted by Ctrl-C; 143 by SIGTERM. When later work or\n" +
		"                       later forward has drained, or later stats --watch, later problems --watch or\n" +
		"                       later events is stopped, the exit code is 0\n\n")
	b.WriteString("With --json, each result is one JSON object per line on standard output, and an error is\n" +
		`{"error":{"code":"not_found","message":"..."}} on standard error.`)
	return b.String()
}
