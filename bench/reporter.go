package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
)

// reporter is a child that exchanges lines of JSON over its standard input and output.
type reporter struct {
	*child
	in    io.WriteCloser
	lines chan []byte
}

// maxLine is the maximum line length: enough for a million latenesses.
const maxLine = 32 << 20

func startReporter(ctx context.Context, cmd *exec.Cmd) (*reporter, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, write := io.Pipe()
	cmd.Stdout = write
	c, err := startChild(cmd)
	if err != nil {
		return nil, err
	}
	r := &reporter{child: c, in: in, lines: make(chan []byte, 16)}
	go func() {
		<-c.exited // then all its output was read
		write.Close()
	}()
	go func() {
		defer close(r.lines)
		defer out.Close()
		scanner := bufio.NewScanner(out)
		scanner.Buffer(nil, maxLine)
		for scanner.Scan() {
			r.lines <- append([]byte(nil), scanner.Bytes()...)
		}
	}()
	if _, err := r.read(ctx); err != nil { // it has started
		r.stop()
		return nil, err
	}
	return r, nil
}

// read returns the next line of output.
func (r *reporter) read(ctx context.Context) ([]byte, error) {
	select {
	case line, ok := <-r.lines:
		if !ok {
			return nil, fmt.Errorf("%s: %w: %s", r.cmd.Path, errGone, r.errors)
		}
		return line, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// write sends a line of input.
func (r *reporter) write(value any) error {
	line, err := json.Marshal(value)
	if err == nil {
		_, err = r.in.Write(append(line, '\n'))
	}
	return err
}

// finish closes the input and returns the line that the child then prints.
func (r *reporter) finish(ctx context.Context) ([]byte, error) {
	r.in.Close()
	return r.read(ctx)
}

// stop kills the child.
func (r *reporter) stop() {
	r.in.Close()
	r.child.stop()
	for range r.lines { // until the reader has ended
	}
}

// request is a request to a Node process. A child of this program replies to any request with its CPU time.
type request struct {
	Op       string  `json:"op"`
	Messages int     `json:"messages"`
	Senders  int     `json:"senders"`
	Batch    int     `json:"batch"`
	Size     int     `json:"size"`
	Handlers int     `json:"handlers"`
	LimitMS  float64 `json:"limit_ms"`
	Rate     int     `json:"rate"`
	ForMS    float64 `json:"for_ms"`
	Longest  float64 `json:"longest_ms"`
}

// reply is the reply to a request.
type reply struct {
	Event     string `json:"event"` // began, filled, done or failed
	Error     string `json:"error,omitempty"`
	Messages  int
	Handled   int
	Doubles   int
	Early     int
	Left      int
	TookMS    float64   `json:"took_ms"`
	SettledMS float64   `json:"settled_ms"`
	LateMS    []float64 `json:"late_ms,omitempty"`
	CPUMicros float64   `json:"cpu_us"`
}

// do sends a request and returns the final reply. onFilled may be nil.
func (r *reporter) do(ctx context.Context, q request, onFilled func()) (reply, error) {
	if err := r.write(q); err != nil {
		return reply{}, err
	}
	for {
		line, err := r.read(ctx)
		if err != nil {
			return reply{}, err
		}
		var answer reply
		if err := json.Unmarshal(line, &answer); err != nil {
			return answer, fmt.Errorf("%s printed %.100q: %w", r.cmd.Path, line, err)
		}
		switch {
		case answer.Event == "failed":
			return answer, fmt.Errorf("%s", answer.Error)
		case answer.Event == "filled" && onFilled != nil:
			onFilled()
		case answer.Event == "done":
			return answer, nil
		}
	}
}
