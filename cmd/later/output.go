package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// errOutputClosed means that standard output was closed by its reader, as by `| head`. The command ends quietly.
var errOutputClosed = errors.New("output is closed")

// output is a stream for whole lines from several goroutines.
type output struct {
	mu sync.Mutex
	to io.Writer
}

func newOutput(w io.Writer) *output { return &output{to: w} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.to.Write(p)
	if isPipeClosed(err) {
		err = errOutputClosed
	}
	return n, err
}

func isPipeClosed(err error) bool {
	return errors.Is(err, io.ErrClosedPipe) ||
		slices.ContainsFunc(errPipeClosed, func(closed error) bool { return errors.Is(err, closed) })
}

// fileOf returns the file behind one of Main's streams, if there is one.
func fileOf(stream any) (*os.File, bool) {
	if o, ok := stream.(*output); ok {
		stream = o.to
	}
	f, ok := stream.(*os.File)
	return f, ok
}

func isTerminal(stream any) bool {
	f, ok := fileOf(stream)
	return ok && term.IsTerminal(int(f.Fd()))
}

// terminalSize returns the columns and rows of a terminal, or 80 and 24 if they are not known.
func terminalSize(stream any) (columns, rows int) {
	if f, ok := fileOf(stream); ok {
		if columns, rows, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 && rows > 0 {
			return columns, rows
		}
	}
	return 80, 24
}

// print writes to standard output.
func (m *Main) print(format string, args ...any) error {
	_, err := fmt.Fprintf(m.Stdout, format, args...)
	return err
}

// note prints a note to standard error.
func (m *Main) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if m.json {
		fmt.Fprintf(m.Stderr, "%s\n", jsontext.Append(nil, wire.Note{Note: text}))
		return
	}
	fmt.Fprintf(m.Stderr, "later: %s\n", text)
}

// printJSON writes an object to standard output, on one line.
func (m *Main) printJSON(value any) error {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false) // print payloads unchanged
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := m.Stdout.Write(line.Bytes())
	return err
}

// printResult writes a result as text, or as JSON with --json.
func (m *Main) printResult(value any, format string, args ...any) error {
	if m.json {
		return m.printJSON(value)
	}
	return m.print(format+"\n", args...)
}

// printDone is printResult for a change, unless it has failed.
func (m *Main) printDone(err error, value any, format string, args ...any) error {
	if err != nil {
		return err
	}
	return m.printResult(value, format, args...)
}

// messages counts messages in words.
func messages[N int | int64](n N) string { return plural(int(n), "message", "messages") }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// printable makes text safe for a terminal by escaping control characters.
func printable(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if unicode.IsPrint(r) || r == '\n' || r == '\t' {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(fmt.Sprintf("%+q", string(r)), `"`))
		}
	}
	return b.String()
}

// preview shortens text to one line of at most limit characters.
func preview(s string, limit int) string {
	if len(s) > 4*limit {
		s = s[:4*limit] // enough for limit characters of any size
	}
	line := strings.Join(strings.Fields(printable(s)), " ")
	if utf8.RuneCountInString(line) <= limit {
		return line
	}
	return string([]rune(line)[:limit-1]) + "…"
}

// progress shows how far a command is on one line of a terminal, ten times a second at most.
type progress struct {
	to      io.Writer
	shown   bool
	name    string    // of the queue that the command works on
	began   time.Time // with that queue
	last    time.Time // last report
	written time.Time
}

// newProgress returns the progress of a command, which is shown only to people. A command that prints its results
// meanwhile shows it only if they go elsewhere.
func (m *Main) newProgress(printing bool) *progress {
	shown := isTerminal(m.Stderr) && !m.json && !(printing && isTerminal(m.Stdout))
	return &progress{to: m.Stderr, shown: shown, began: time.Now(), last: time.Now()}
}

// show shows a line, which is formatted only if it is time.
func (p *progress) show(line func(elapsed time.Duration) string) {
	if now := time.Now(); p.shown && now.Sub(p.written) >= 100*time.Millisecond {
		p.written = now
		fmt.Fprintf(p.to, "\r%s%s", line(now.Sub(p.began)), clearLine)
	}
}

// report shows how many of the messages of a queue are done.
func (p *progress) report(name string, done, total int64) {
	if name != p.name {
		p.name, p.began = name, p.last
	}
	p.last = time.Now()
	p.show(func(elapsed time.Duration) string { return progressLine(name, done, total, elapsed) })
}

// progressLine formats how many messages are done. Without a name, their total is not known.
func progressLine(name string, done, total int64, elapsed time.Duration) string {
	line := messages(done)
	if name != "" {
		line = fmt.Sprintf("%s  %d of %d", preview(name, 40), done, max(total, done))
	}
	if total > 0 {
		line += fmt.Sprintf("  %d %%", 100*done/max(total, done))
	}
	if rate := formatRate(done, elapsed); rate != "" {
		line += "  " + rate[1:] + "/s"
	}
	return line
}

func (p *progress) clear() {
	if p.shown {
		fmt.Fprintf(p.to, "\r%s", clearLine)
	}
}

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
