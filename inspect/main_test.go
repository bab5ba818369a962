package inspect

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/laterq/later"
	_ "github.com/laterq/later/diskstore"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inBubble runs a test on fake time, which advances only when all goroutines wait.
func inBubble(t *testing.T, f func(t *testing.T, c *later.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newClientOn(t, memstore.New())) })
}

// onEachStore runs a test with a client of each kind of store.
func onEachStore(t *testing.T, f func(t *testing.T, c *later.Client)) {
	t.Helper()
	for name, url := range map[string]func(*testing.T) string{
		"memory":   func(*testing.T) string { return "mem://" },
		"embedded": func(t *testing.T) string { return "file://" + t.TempDir() },
		"redis":    func(t *testing.T) string { return redistest.Start(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			c, err := later.Open(t.Context(), url(t))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			f(t, c)
		})
	}
}

// newClientOn returns a client that is closed when the test ends.
func newClientOn(t testing.TB, s store.Store, opts ...later.Option) *later.Client {
	t.Helper()
	quiet := later.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	c, err := later.New(s, append([]later.Option{quiet}, opts...)...)
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

// start runs a worker. stop ends it and returns the result of Run; the end of the test also stops it.
func start(t *testing.T, w *later.Worker) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- w.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-result
	})
	t.Cleanup(func() { stop() })
	return stop
}

func mustSend(t *testing.T, q *later.Queue, payload string, opts ...later.SendOption) string {
	t.Helper()
	id, err := q.Send(t.Context(), []byte(payload), opts...)
	wantNoError(t, err)
	return id
}

func mustReceive(t *testing.T, q *later.Queue, n int, opts ...later.ReceiveOption) []*later.Delivery {
	t.Helper()
	got, err := q.Receive(t.Context(), n, opts...)
	wantNoError(t, err)
	return got
}

func wantNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error is %v; want %v", err, want)
	}
}

// second returns the error of a call with another result.
func second(_ any, err error) error { return err }
