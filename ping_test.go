package later

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/diskstore"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/memstore"
)

func TestPingReportsWhetherTheStoreServesCalls(t *testing.T) {
	server := redistest.Start(t)
	for name, url := range map[string]string{
		"memory": "mem://", "embedded": "file://" + filepath.ToSlash(t.TempDir()), "redis": server.URL(),
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Open(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Ping(t.Context()); err != nil {
				t.Errorf("Ping returned %v", err)
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			wantError(t, c.Ping(ended), context.Canceled)
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			wantError(t, c.Ping(t.Context()), ErrClosed)
		})
	}
}

func TestPingOfAServerThatIsAwayOrHangsDoesNotRetry(t *testing.T) {
	server := redistest.Start(t)
	c, err := Open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	server.Freeze(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = c.Ping(ctx)
	wantError(t, err, context.DeadlineExceeded)
	wantError(t, err, ErrUnavailable)
	server.Thaw(t)
	server.Kill()
	wantError(t, c.Ping(t.Context()), ErrUnavailable) // the retries of other calls would take 10 s
	server.Restart(t)
	if err := c.Ping(t.Context()); err != nil {
		t.Errorf("Ping of the restarted server: %v", err)
	}
}

func TestPingAsksEveryPrimaryOfACluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	c, err := Open(t.Context(), cluster.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	node := cluster.Node(t, "{q}")
	node.Kill()
	err = c.Ping(t.Context())
	wantError(t, err, ErrUnavailable)
	if !strings.Contains(err.Error(), node.Addr()) {
		t.Errorf("the error does not name the node %s: %v", node.Addr(), err)
	}
}

// plainStore is a store without Ping.
type plainStore struct{ *memstore.Store }

func (plainStore) Ping() {}

func TestPingOfAStoreWithoutPingMakesACall(t *testing.T) {
	s := memstore.New()
	c := newClientOn(t, plainStore{s})
	if err := c.Ping(t.Context()); err != nil {
		t.Errorf("Ping returned %v", err)
	}
	s.Close()
	wantError(t, c.Ping(t.Context()), ErrClosed)
}

func TestOpenWaitsForAServerThatStartsLater(t *testing.T) {
	server := redistest.Start(t)
	url := server.URL()
	server.Kill()
	waiting := make(chan struct{})
	var text lockedBuffer
	opened := make(chan error, 1)
	go func() {
		logger := slog.New(firstLine{text.logger().Handler(), waiting})
		c, err := Open(context.Background(), url, WaitForStore(time.Minute), WithLogger(logger))
		if err == nil {
			err = errors.Join(c.Ping(context.Background()), c.Close())
		}
		opened <- err
	}()
	<-waiting
	server.Restart(t)
	select {
	case err := <-opened:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("Open does not return")
	}
	got := text.String()
	if !strings.Contains(got, "waiting for the store") || !strings.Contains(got, "the store is open") {
		t.Errorf("logged %s", got)
	}
}

// firstLine closes a channel when something was logged.
type firstLine struct {
	slog.Handler
	logged chan struct{}
}

func (f firstLine) Handle(ctx context.Context, r slog.Record) error {
	err := f.Handler.Handle(ctx, r)
	if strings.Contains(r.Message, "waiting") {
		close(f.logged)
	}
	return err
}

func TestOpenWaitsNoLongerThanAsked(t *testing.T) {
	dir := t.TempDir()
	held, err := diskstore.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	url := "file://" + filepath.ToSlash(dir)
	quiet := WithLogger(slog.New(slog.DiscardHandler))
	_, err = Open(t.Context(), url, WaitForStore(120*time.Millisecond), quiet)
	wantError(t, err, ErrUnavailable)
	ctx, cancel := context.WithTimeout(t.Context(), 80*time.Millisecond)
	defer cancel()
	_, err = Open(ctx, url, WaitForStore(time.Hour), quiet)
	wantError(t, err, context.DeadlineExceeded)
	wantError(t, err, ErrUnavailable)
	for _, opts := range [][]Option{{WaitForStore(0)}, {WaitForStore(1), WaitForStore(1)}} {
		_, err = Open(t.Context(), "mem://", opts...)
		wantError(t, err, ErrInvalid)
	}
}
