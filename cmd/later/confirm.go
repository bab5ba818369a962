package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/laterq/later/store"
)

// confirm asks a question on standard error and reads the answer; ErrInvalid when it is not yes.
func (m *Main) confirm(format string, args ...any) error {
	fmt.Fprintf(m.Stderr, format+" [y/N] ", args...)
	answer, err := bufio.NewReader(io.LimitReader(m.Stdin, 100)).ReadString('\n')
	if err != nil || !isTerminal(m.Stdin) {
		fmt.Fprintln(m.Stderr) // nobody typed the end of the line
	}
	switch answer = strings.ToLower(strings.TrimSpace(answer)); answer {
	case "y", "yes":
		return nil
	case "":
		return store.Invalid("nothing was done, since nobody said yes: answer y, or give --yes")
	}
	return store.Invalid("nothing was done, since the answer was %q: answer y, or give --yes", answer)
}
