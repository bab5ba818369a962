package e2e

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os/signal"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/laterq/later"
)

// forwarder is the role of a process that moves the messages of a queue to a destination. SIGTERM drains it.
type forwarder struct {
	URL   string
	Queue string
	To    string // see later.ParseDestination
	At    string // URL of the destination's store, if it is another one
	Lease time.Duration
	Every int // reports every n-th event; 0 means none, because a busy reporter would be killed while it reports
}

func (f forwarder) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var opts []later.Option
	if f.Every > 0 {
		var events atomic.Int64
		opts = append(opts, later.WithObserver(func(e later.Event) {
			if events.Add(1)%int64(f.Every) == 0 {
				report(eventOf(e))
			}
		}))
	}
	client, err := later.Open(ctx, f.URL, opts...)
	if err != nil {
		return err
	}
	to, err := later.ParseDestination(f.To)
	if err != nil {
		return errors.Join(err, client.Close())
	}
	if f.At != "" {
		other, err := later.Open(ctx, f.At)
		if err != nil {
			return errors.Join(err, client.Close())
		}
		defer other.Close()
		to = to.At(other)
	}
	w := later.NewWorker(client, later.WorkerConfig{Lease: f.Lease, ShutdownTimeout: patience})
	w.Forward(f.Queue, to)
	report(event{Kind: ready})
	return errors.Join(w.Run(ctx), client.Close())
}

// The kinds of events of outages.
const (
	outage   later.EventKind = "outage"
	recovery later.EventKind = "recovery"
)

// outageLog adds an event to a journal for each log message about the begin and the end of an outage.
type outageLog struct{ *journal }

func (l outageLog) Write(line []byte) (int, error) {
	switch {
	case bytes.Contains(line, []byte("messages cannot be forwarded")):
		l.add(event{Kind: outage, Err: string(line)})
	case bytes.Contains(line, []byte("messages are forwarded again")):
		l.add(event{Kind: recovery, Err: string(line)})
	}
	return len(line), nil
}

// forward runs a worker in this process that moves the messages of a queue until stop is called or the test ends. Its
// events and outages are added to the journal.
func forward(t *testing.T, j *journal, url, queue string, to later.Destination) (stop func()) {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(outageLog{j}, nil))
	c, err := later.Open(bounded(t), url, later.WithObserver(j.observe), later.WithLogger(logger))
	if err != nil {
		t.Fatal(err)
	}
	w := later.NewWorker(c, later.WorkerConfig{Lease: time.Second})
	w.Forward(queue, to)
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(w.Run(ctx), c.Close()) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		end()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}
