//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// interrupts handles SIGINT and SIGTERM, which a user or a supervisor sends to stop the command.
type interrupts struct {
	first  chan struct{}   // closed by the first signal
	ctx    context.Context // cancelled by the second signal
	signal atomic.Int32    // number of the first signal
}

// exitGrace is how long the command may take to stop its processes and servers after a second signal.
const exitGrace = 3 * time.Second

var errInterrupted = errors.New("interrupted twice: nothing was verified")

// listen handles interrupts until the command exits.
func listen() *interrupts {
	ctx, stop := context.WithCancelCause(context.Background())
	in := &interrupts{first: make(chan struct{}), ctx: ctx}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		in.signal.Store(int32(s.(syscall.Signal)))
		fmt.Fprintf(os.Stderr, "%s: stopping the load and verifying it; interrupt again to stop at once\n", s)
		close(in.first)
		<-signals
		stop(errInterrupted)
		time.Sleep(exitGrace)
		os.Exit(in.code())
	}()
	return in
}

// code returns the exit code for the first signal as a shell reports it, or 0 if there was none.
func (in *interrupts) code() int {
	if n := in.signal.Load(); n != 0 {
		return 128 + int(n)
	}
	return 0
}

// stopped reports whether there was a second signal.
func (in *interrupts) stopped() bool { return in.ctx.Err() != nil }
