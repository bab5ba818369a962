package benchmark

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// Ping sends PINGs until in ends, and then prints the longest wait in nanoseconds. It prints a line when it begins.
func (r *Redis) Ping(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, end := context.WithCancel(ctx)
	go func() {
		io.Copy(io.Discard, in)
		end()
	}()
	fmt.Fprintln(out, "began")
	worst, err := r.WorstPing(ctx)
	fmt.Fprintln(out, int64(worst))
	return err
}

// StartChild starts a process with a pipe to its standard input, and the lines of its standard output.
func StartChild(cmd *exec.Cmd) (in io.WriteCloser, lines *bufio.Scanner, err error) {
	in, err = cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	lines = bufio.NewScanner(out)
	lines.Buffer(nil, 32<<20) // enough for a million latenesses
	return in, lines, cmd.Start()
}

// StartPinger starts a process that calls Ping and no other function of this package. worst ends it and returns the
// longest wait.
func StartPinger(cmd *exec.Cmd) (worst func() (time.Duration, error), err error) {
	var problem strings.Builder
	cmd.Stderr = &problem
	in, lines, err := StartChild(cmd)
	if err != nil {
		return nil, err
	}
	lines.Scan() // it has begun, or failed
	return func() (time.Duration, error) {
		in.Close()
		var nanos int64
		if lines.Scan() {
			fmt.Sscan(lines.Text(), &nanos)
		}
		if err := cmd.Wait(); err != nil {
			return 0, fmt.Errorf("PING process: %w: %s", err, strings.TrimSpace(problem.String()))
		}
		return time.Duration(nanos), nil
	}, nil
}
