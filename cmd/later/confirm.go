package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/laterq/later/store"
)

// confirm asks a question on standard error and reads the answer. It returns ErrInvalid unless the answer is yes.
func (m *Main) confirm(format string, args ...any) error {
	fmt.Fprintf(m.Stderr, format+" [y/N] ", args...)
	answer, err := bufio.NewReader(io.LimitReader(m.Stdin, 100)).ReadString('\n')
	if err != nil || !isTerminal(m.Stdin) {
		fmt.Fprintln(m.Stderr) // the answer was not echoed with a line end
	}
	switch answer = strings.ToLower(strings.TrimSpace(answer)); answer {
	case "y", "yes":
		return nil
	case "":
		return store.Invalid("not confirmed, nothing was done: answer y, or use --yes")
	}
	return store.Invalid("not confirmed by %q, nothing was done: answer y, or use --yes", answer)
}
