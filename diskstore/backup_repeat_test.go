//go:build unix

package diskstore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/laterq/later/store"
)

func TestABackupThatWasInterruptedIsMadeAnew(t *testing.T) {
	for left, ours := range map[string]bool{"": true, "store/log": true, "something": false} {
		s, to := openStore(t, t.TempDir()), filepath.Join(t.TempDir(), "backup")
		sendTo(t, s, "a")
		file := filepath.Join(to+partialSuffix, left)
		try(t, os.MkdirAll(filepath.Dir(file), 0o700))
		if left != "" {
			try(t, os.WriteFile(file, []byte("x"), 0o600))
		}
		err := s.Backup(t.Context(), to)
		if _, missing := os.Stat(file); !ours {
			if !errors.Is(err, store.ErrInvalid) || missing != nil {
				t.Errorf("%q of others is left: %v, %v, want ErrInvalid", left, err, missing)
			}
			continue
		}
		try(t, err)
		wantReady(t, openStore(t, to), 1)
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
