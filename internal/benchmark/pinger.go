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

// StartPinger starts a process that calls Ping and no other function of this package. worst ends it and returns the
// longest wait.
func StartPinger(cmd *exec.Cmd) (worst func() (time.Duration, error), err error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var problem strings.Builder
	cmd.Stderr = &problem
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
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
