//go:build unix

package diskstore

import (
	"flag"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/laterq/later/internal/remote"
	"github.com/laterq/later/store"
	"github.com/laterq/later/store/storetest"
)

var silent = slog.New(slog.DiscardHandler)

// share opens a directory as another process would. It is closed when the test ends.
func share(t testing.TB, dir string, opts ...Option) *remote.Client {
	t.Helper()
	s, err := openShared(t.Context(), dir, silent, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// openBehindSocket opens a directory three times. The first has it open, and the others are under test.
func openBehindSocket(t *testing.T) storetest.Harness {
	dir, clock := t.TempDir(), newManualClock()
	holder := &sharing{dir: dir, log: silent, opts: []Option{WithClock(clock)}}
	if err := holder.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { holder.Close() })
	return storetest.Harness{
		Store: share(t, dir), Peer: share(t, dir), Exact: true,
		Advance: func(_ testing.TB, _ string, d time.Duration) { clock.Advance(d) },
		Asleep:  holder.holding.store.asleep,
	}
}

func TestConformanceOfASharedDirectory(t *testing.T) { storetest.Run(t, openBehindSocket) }

func TestStateMachineOfASharedDirectory(t *testing.T) {
	if os.Getenv("LATER_LONG") == "" {
		f := flag.Lookup("rapid.checks")
		defer f.Value.Set(f.Value.String())
		f.Value.Set("10")
	}
	storetest.RunStateMachine(t, openBehindSocket)
}

var _ = store.ErrClosed
