package diskstore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

func TestOneDirectoryOpensOnceHoweverItIsCalled(t *testing.T) {
	above := t.TempDir()
	t.Chdir(above)
	dir := filepath.Join(above, "store")
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, "link"); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{dir, dir + "/.", "store", "link", filepath.Join(above, "link")} {
		if second, err := Open(other); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("open of %s gives %v, want ErrUnavailable", other, err)
			if err == nil {
				second.Close()
			}
		} else if _, held := errors.AsType[*HeldError](err); !held {
			t.Errorf("open of %s gives %v, want a HeldError", other, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open("link"); err != nil {
		t.Fatalf("open after close: %v", err)
	}
	defer s.Close()
	if err := os.Remove("link"); err != nil { // it was followed when the store was opened
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	send(t, s, "m")
	if err := s.db.Flush(); err != nil {
		t.Errorf("after the link was removed: %v", err)
	}
}

func TestDirectoriesThatOpenMakesAreDurable(t *testing.T) {
	for _, dir := range []string{"later", "var/lib/later", "/var/lib/later"} {
		fs, clock := vfs.NewCrashableMem(), newManualClock()
		open := func(fs vfs.FS) *Store {
			s, err := Open(dir, withFS(fs), WithClock(clock))
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		s := open(fs)
		send(t, s, "m")
		after := fs.CrashClone(vfs.CrashCloneCfg{})
		s.Close()
		s = open(after)
		infos, err := s.Get(t.Context(), "q", []string{"m"})
		if err != nil || infos[0] == nil {
			t.Errorf("%s: the acknowledged message is lost with the directory (%v)", dir, err)
		}
		s.Close()
	}
}
