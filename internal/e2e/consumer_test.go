package e2e

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/laterq/later"
)

// consumer is the role of a process with one worker. SIGTERM drains it.
type consumer struct {
	URL         string
	Queues      []string
	Concurrency int
	Lease       time.Duration
}

// The payloads of messages tell a consumer's handler how to act.
const (
	doNothing  = "nothing"
	doBlock    = "block" // until child.release or the end of its context
	doPanic    = "panic"
	doDie      = "die"       // kills the whole process at once
	doWorkFor  = "work for " // followed by a time.Duration
	doThen     = "then "     // returns a follow-up in the queue that is named next
	panicValue = "panic requested by the message"
)

func (c consumer) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	released := make(chan struct{})
	go func() {
		if bufio.NewScanner(os.Stdin).Scan() {
			close(released)
		}
	}()

	client, err := later.Open(ctx, c.URL, later.WithObserver(func(e later.Event) { report(eventOf(e)) }))
	if err != nil {
		return err
	}
	w := later.NewWorker(client, later.WorkerConfig{
		Concurrency:     c.Concurrency,
		Lease:           c.Lease,
		Backoff:         later.ConstantBackoff(10 * time.Millisecond),
		ShutdownTimeout: patience,
	})
	for _, queue := range c.Queues {
		w.Handle(queue, func(ctx context.Context, m *later.Message) error {
			return handle(ctx, string(m.Payload), released)
		})
	}
	report(event{Kind: ready})
	return errors.Join(w.Run(ctx), client.Close())
}

func handle(ctx context.Context, order string, released <-chan struct{}) error {
	switch duration, work := strings.CutPrefix(order, doWorkFor); {
	case work:
		d, err := time.ParseDuration(duration)
		if err != nil {
			return later.Bury(err)
		}
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	case strings.HasPrefix(order, doThen):
		return later.Then(strings.TrimPrefix(order, doThen), nil)
	case order == doBlock:
		select {
		case <-released:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	case order == doPanic:
		panic(panicValue)
	case order == doDie:
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill()
		}
		if err != nil {
			return later.Bury(err)
		}
		select {}
	}
	return nil
}
