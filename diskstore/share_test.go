//go:build unix

package diskstore

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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
		f.Value.Set("5")
	}
	storetest.RunStateMachine(t, openBehindSocket)
}

func sendTo(t testing.TB, s store.Store, id string) {
	t.Helper()
	r, err := s.Send(t.Context(), "q", []store.Outgoing{plain(id)})
	if err != nil || r[0].Duplicate || r[0].Err != nil {
		t.Errorf("send of %s: %+v, %v", id, r, err)
	}
}

// wantReady checks how many messages are ready.
func wantReady(t testing.TB, s store.Store, want int64) {
	t.Helper()
	if stats, err := s.Stats(t.Context(), "q"); err != nil || stats.Ready != want {
		t.Errorf("%d are ready, want %d: %v", stats.Ready, want, err)
	}
}

func TestAnotherProcessTakesOverWhenTheHolderCloses(t *testing.T) {
	dir := t.TempDir()
	holder, heir, follower := share(t, dir), share(t, dir), share(t, dir)
	sendTo(t, holder, "a")
	w, err := follower.Watch(t.Context(), []string{"q"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	waited := make(chan error, 1)
	waiting, leave := context.WithCancelCause(t.Context())
	go func() {
		for waiting.Err() == nil { // it may end early
			if err := heir.Wait(waiting, "empty"); err != nil {
				waited <- err
				return
			}
		}
		waited <- context.Cause(waiting)
	}()
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	sendTo(t, follower, "b")
	sendTo(t, heir, "c")
	wantReady(t, follower, 3)
	if err := w.Add(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	if _, err := heir.Report(t.Context(), []store.Report{{Queue: "q", Events: []byte("x"), Number: 1}}); err != nil {
		t.Fatal(err)
	}
	if event, err := w.Next(t.Context()); err != nil || string(event.Events) != "x" || !event.Gap {
		t.Errorf("%+v, %v, want an event after a gap", event, err)
	}
	if _, err := holder.Stats(t.Context(), "q"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("the closed one returns %v", err)
	}
	enough := errors.New("enough")
	leave(enough)
	if err := <-waited; !errors.Is(err, enough) {
		t.Errorf("the wait ends with %v", err)
	}
}

func TestACallThatWasLostLateDoesNotConcernTheNextHolder(t *testing.T) {
	dir := t.TempDir()
	holder := share(t, dir)
	s := &sharing{dir: dir, log: silent}
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	first, err := s.Target(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	next, err := s.Target(t.Context(), first)
	if err != nil || next == first || next.Local == nil {
		t.Fatalf("%+v, %v, want this process", next, err)
	}
	if again, err := s.Target(t.Context(), first); err != nil || again != next {
		t.Errorf("%+v, %v, want the same", again, err)
	}
}

func TestAProcessThatCannotOpenADirectoryDoesNotListen(t *testing.T) {
	dir := t.TempDir()
	share(t, dir).Close()
	tables, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	for _, file := range tables {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := openShared(t.Context(), dir, silent); err == nil {
		t.Fatal("it opens a directory without its list of files")
	}
	if conn, err := dialSocket(t.Context(), dir); err == nil {
		conn.Close()
		t.Error("somebody listens")
	}
}

func TestDeadlineDoesNotEndTheOpeningOfAStore(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	s, err := openShared(ctx, t.TempDir(), silent)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	sendTo(t, s, "a")
}

func TestSocketOfAKilledProcessIsReplaced(t *testing.T) {
	dir := t.TempDir()
	listener, err := listenSocket(dir)
	if err != nil {
		t.Fatal(err)
	}
	listener.Close() // as the end of a process does
	socket := filepath.Join(dir, socketFile)
	if _, err := os.Stat(socket); err != nil {
		t.Fatal(err)
	}
	first, second := share(t, dir), share(t, dir)
	sendTo(t, second, "a")
	wantReady(t, first, 1)
	info, err := os.Stat(socket)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket has mode %v, %v", info.Mode(), err)
	}
	second.Close()
	first.Close()
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Close the socket is still there: %v", err)
	}
}

func TestDirectoryWithALongPathIsShared(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	first, second := share(t, dir), share(t, dir)
	sendTo(t, second, "a")
	wantReady(t, first, 1)
}

func TestLongPathLeadsToTheSameFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	address, done, err := socketAddress(dir, "f")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(address); err != nil || string(text) != "x" || len(address) > maxSocketPath {
		t.Errorf("it leads to %q, %v", text, err)
	}
	done()
	t.Setenv("TMPDIR", dir)
	if _, _, err := linkAddress(dir, "f"); err == nil || !strings.Contains(err.Error(), "TMPDIR") {
		t.Errorf("a long temporary directory: %v", err)
	}
}

func TestDirectoryThatIsNotSharedIsHeld(t *testing.T) {
	dir := t.TempDir()
	s, err := store.Open(t.Context(), "file://"+dir+"?share=no", store.OpenConfig{Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "?share=yes", "?share=no"} {
		_, err := store.Open(t.Context(), "file://"+dir+suffix, store.OpenConfig{Logger: silent})
		if _, held := errors.AsType[*HeldError](err); !held {
			t.Errorf("%q: %v, want a HeldError", suffix, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	share(t, dir)
}

func TestDamagedDirectoryIsRefusedAtOnce(t *testing.T) {
	dir := t.TempDir()
	share(t, dir).Close()
	if err := os.WriteFile(filepath.Join(dir, formatFile), []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openShared(t.Context(), dir, silent); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("%v, want ErrCorrupt", err)
	}
}
