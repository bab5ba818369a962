//go:build unix

package diskstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/laterq/later/store"
)

// requested is the context of a request by a session.
func requested(t *testing.T, session string) context.Context {
	return store.WithRequest(t.Context(), store.Request{Session: session, Number: 1})
}

func TestARepeatedBackupIsMadeOnce(t *testing.T) {
	s, to := openStore(t, t.TempDir()), filepath.Join(t.TempDir(), "backup")
	sendTo(t, s, "a")
	if err := s.Backup(requested(t, "one"), to); err != nil {
		t.Fatal(err)
	}
	sendTo(t, s, "b")
	if err := os.Mkdir(to+partialSuffix, 0o700); err != nil { // as left by a process that was killed in the end
		t.Fatal(err)
	}
	if err := s.Backup(requested(t, "one"), to); err != nil {
		t.Errorf("a repetition after the backup was completed: %v", err)
	}
	if _, err := os.Stat(to + partialSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the rest of it is left: %v", err)
	}
	for _, ctx := range []context.Context{t.Context(), requested(t, "two")} {
		if err := s.Backup(ctx, to); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("another backup to the same place: %v, want ErrInvalid", err)
		}
	}
	wantReady(t, openStore(t, to), 1)
}

func TestABackupThatWasInterruptedIsMadeAnewWhenItIsRepeated(t *testing.T) {
	for what, left := range map[string]struct {
		file, text string
		repeatable bool
	}{
		"its mark":           {backupFile, "one", true},
		"nothing":            {"", "", true},
		"half its mark":      {backupFile + newSuffix, "on", true},
		"the mark of others": {backupFile, "two", false},
		"something":          {"store", "x", false},
	} {
		s, to := openStore(t, t.TempDir()), filepath.Join(t.TempDir(), "backup")
		sendTo(t, s, "a")
		partial := to + partialSuffix
		if err := os.Mkdir(partial, 0o700); err != nil {
			t.Fatal(err)
		}
		if left.file != "" {
			if err := os.WriteFile(filepath.Join(partial, left.file), []byte(left.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Backup(t.Context(), to); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s is left, and a backup that is no repetition returns %v", what, err)
		}
		err := s.Backup(requested(t, "one"), to)
		if left.repeatable {
			if err != nil {
				t.Errorf("%s is left: %v", what, err)
			}
			wantReady(t, openStore(t, to), 1)
		} else if !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s is left: %v, want ErrInvalid", what, err)
		}
	}
}

func TestABackupWaitsForTheOneBefore(t *testing.T) {
	s, to := openStore(t, t.TempDir()), t.TempDir()
	s.backups <- struct{}{}
	made := make(chan error, 1)
	go func() { made <- s.Backup(t.Context(), filepath.Join(to, "backup")) }()
	for range 100 { // calls are the clock, as no event tells that it would have begun
		if err := s.SetPaused(t.Context(), "q", true); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := os.ReadDir(to); err != nil || len(names) > 0 {
		t.Errorf("%v, %v: the backup has begun", names, err)
	}
	<-s.backups
	if err := <-made; err != nil {
		t.Error(err)
	}
}

// openStore opens a store in a directory until the test ends.
func openStore(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
