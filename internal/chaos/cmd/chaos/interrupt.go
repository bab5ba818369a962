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

// interrupts are what a user or a supervisor sends to end the command: SIGINT and SIGTERM.
type interrupts struct {
	first  chan struct{}   // closed by the first
	ctx    context.Context // ended by the second
	signal atomic.Int32    // the first one's number
}

// patience is how long the command has to end its processes and remove its servers after a second interrupt.
const patience = 3 * time.Second

var errInterrupted = errors.New("interrupted twice: nothing was checked")

// listen begins to wait for interrupts, until the command ends.
func listen() *interrupts {
	ctx, stop := context.WithCancelCause(context.Background())
	in := &interrupts{first: make(chan struct{}), ctx: ctx}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		in.signal.Store(int32(s.(syscall.Signal)))
		fmt.Fprintf(os.Stderr, "%s: the load ends, and is accounted for; once more stops at once\n", s)
		close(in.first)
		<-signals
		stop(errInterrupted)
		time.Sleep(patience)
		os.Exit(in.code())
	}()
	return in
}

// code is the exit code of an interrupted command as a shell gives it, 0 when it was not interrupted.
func (in *interrupts) code() int {
	if n := in.signal.Load(); n != 0 {
		return 128 + int(n)
	}
	return 0
}

// stopped tells whether there was a second interrupt.
func (in *interrupts) stopped() bool { return in.ctx.Err() != nil }
