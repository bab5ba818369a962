package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// patience limits every wait. It is generous, because a busy machine must not fail a test.
const patience = 30 * time.Second

// role is the task of a child process. Its fields are its configuration.
type role interface {
	run() error
}

// Environment variables of a child.
const (
	roleEnv   = "LATER_E2E_ROLE"
	configEnv = "LATER_E2E_CONFIG"
)

// exitRestart is the exit code of a child after a command to its worker to restart.
const exitRestart = 3

func TestMain(m *testing.M) {
	logging.Disable() // go-redis logs each connection broken by a killed server
	if name := os.Getenv(roleEnv); name != "" {
		switch err := runRole(name); {
		case errors.Is(err, later.ErrRestart):
			os.Exit(exitRestart)
		case err != nil:
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	redistest.Main(m)
}

func runRole(name string) error {
	r, ok := map[string]role{"consumer": &consumer{}, "producer": &producer{}, "forwarder": &forwarder{},
		"watcher": &watcher{}}[name]
	if !ok {
		return fmt.Errorf("unknown role %q", name)
	}
	if err := json.Unmarshal([]byte(os.Getenv(configEnv)), r); err != nil {
		return err
	}
	return r.run()
}

// newQueueName returns a unique queue name for a shared server.
func newQueueName(t *testing.T) string { return t.Name() + " " + store.NewID() }

// open returns a client in this process. It is closed when the test ends.
func open(t *testing.T, url string, opts ...later.Option) *later.Client {
	t.Helper()
	opts = append(opts, later.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	c, err := later.Open(t.Context(), url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

// work runs a worker with one handler in this process until the test ends.
func work(t *testing.T, c *later.Client, cfg later.WorkerConfig, queue string, h later.HandlerFunc) {
	t.Helper()
	w := later.NewWorker(c, cfg)
	w.Handle(queue, h)
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// bounded returns a context that expires after patience.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// brief returns a context that expires soon, for calls that may find nothing.
func brief(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}

func send(t *testing.T, q *later.Queue, payload string, opts ...later.SendOption) string {
	t.Helper()
	id, err := q.Send(bounded(t), []byte(payload), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func sendBatch(t *testing.T, q *later.Queue, msgs []later.Outgoing) {
	t.Helper()
	if _, err := q.SendBatch(bounded(t), msgs); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, q *later.Queue, n int, opts ...later.ReceiveOption) []*later.Delivery {
	t.Helper()
	got, err := q.Receive(bounded(t), n, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func get(t *testing.T, q *later.Queue, id string) *later.Info {
	t.Helper()
	info, err := q.Get(bounded(t), id)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// wantEmpty checks that a queue has only the given number of dead messages, and that its keys are consistent.
func wantEmpty(t *testing.T, q *later.Queue, rdb redis.UniversalClient, dead int) {
	t.Helper()
	s, err := q.Stats(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	if s.Scheduled+s.Ready+s.Leased != 0 || s.Dead != int64(dead) {
		t.Errorf("queue has scheduled %d, ready %d, leased %d, dead %d; want %d dead and nothing else",
			s.Scheduled, s.Ready, s.Leased, s.Dead, dead)
	}
	if live := locations(t, rdb, q.Name()); len(live) != dead {
		t.Errorf("Redis holds %d messages of the queue; want %d", len(live), dead)
	}
}
