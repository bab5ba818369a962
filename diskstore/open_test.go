package diskstore

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

func TestSecondOpenIsRefusedNamingDirectoryAndHolder(t *testing.T) {
	dir, began := t.TempDir(), time.Now().Truncate(time.Second)
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir)
	held, ok := errors.AsType[*HeldError](err)
	if !ok || !errors.Is(err, store.ErrUnavailable) || held.Dir != dir || !strings.HasPrefix(held.Holder, "process ") ||
		!strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), held.Holder) {
		t.Errorf("the second open gives %v, want a HeldError with the directory and its holder", err)
	}
	if held.Since.Before(began) || held.Since.After(time.Now()) {
		t.Errorf("it says %v, want the time of the first, not before %v", held.Since, began)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir); err != nil {
		t.Fatalf("open after close: %v", err)
	}
	s.Close()
}

func TestOpensOfANewDirectoryAtTheSameTimeMakeOneStore(t *testing.T) {
	for range 20 {
		dir := filepath.Join(t.TempDir(), "new")
		var opens sync.WaitGroup
		for range 8 {
			opens.Go(func() {
				s, err := Open(dir)
				if err == nil {
					err = s.Close()
				}
				if _, held := errors.AsType[*HeldError](err); err != nil && !held {
					t.Errorf("open gives %v, want a store or a HeldError", err)
				}
			})
		}
		opens.Wait()
	}
}

func TestHolderTellsTheSubcommandAndNoSecret(t *testing.T) {
	for want, args := range map[string][]string{
		"later":      {"/usr/bin/later"},
		"later work": {"later", "work", "mail"},
		"prog":       {"prog", "--token=x"},
		"app":        {"app", "sk-123"},
		"tool":       {"tool", "/etc/passwd"},
	} {
		if got := command(args); got != want {
			t.Errorf("%q is told as %q, want %q", args, got, want)
		}
	}
}

func TestDirectoryThatCannotBeLockedIsNotHeld(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, lockFile), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir)
	if _, held := errors.AsType[*HeldError](err); held || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("open gives %v, want ErrUnavailable and no HeldError", err)
	}
}

func TestForeignDirectoryIsRefusedAndLeftAlone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "letter.txt")
	if err := os.WriteFile(file, []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "letter.txt") {
		t.Errorf("open gives %v, want ErrUnsupported with the file", err)
	}
	if found, _ := os.ReadDir(dir); len(found) != 1 {
		t.Errorf("the directory holds %v, want it untouched", found)
	}
}

func TestOpenRefusesOtherFormats(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	for text, want := range map[string]error{
		"later diskstore 1\n":                      store.ErrUnsupported,
		"later diskstore 3\npebble format 1\n":     store.ErrUnsupported,
		"later diskstore 17\npebble format 1\n":    store.ErrUnsupported,
		"later diskstore 16\npebble format 9999\n": store.ErrUnsupported,
		"later diskstore 15\npebble format 24\n":   store.ErrUnsupported,
		"later diskstore 16\n":                     store.ErrCorrupt,
		"":                                         store.ErrCorrupt,
		"something else":                           store.ErrCorrupt,
	} {
		if err := os.WriteFile(filepath.Join(dir, formatFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); !errors.Is(err, want) {
			t.Errorf("%q: open returns %v, want %v", text, err, want)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, formatFile), []byte(formatText), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir); err != nil {
		t.Fatal(err)
	}
	s.Close()
}

func TestDamagedFileStopsTheOpen(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	send(t, s, "m")
	s.Close()
	manifests, _ := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
	for _, name := range manifests {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 0xff
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(dir); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), dir) {
		t.Errorf("open gives %v, want ErrCorrupt with the directory", err)
	}
}

func TestURL(t *testing.T) {
	dir := t.TempDir()
	cfg := store.OpenConfig{Logger: slog.New(slog.DiscardHandler)}
	for _, suffix := range []string{"?share=no", "?share=no&sync=always", "?share=no&sync=50ms"} {
		s, err := store.Open(t.Context(), "file://"+dir+suffix, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := s.(*Store).syncEvery, 50*time.Millisecond; (got == want) != strings.Contains(suffix, "50ms") {
			t.Errorf("%q syncs every %v", suffix, got)
		}
		s.Close()
	}
	t.Chdir(dir)
	relative, err := store.Open(t.Context(), "file:below/rel%20ative?sync=always", cfg)
	if err != nil {
		t.Fatal(err)
	}
	relative.Close()
	if _, err := os.Stat(filepath.Join(dir, "below", "rel ative", "LATER")); err != nil {
		t.Error(err)
	}
	for url, want := range map[string]string{
		"file://relative/dir":           "three slashes",
		"file:":                         "three slashes",
		"file:a%zz":                     "cannot be read",
		"file://":                       "three slashes",
		"file:///d?size=1":              `"size"`,
		"file:///d?share=maybe":         "share=maybe",
		"file:///d?sync=soon":           "sync=soon",
		"file:///d?sync=-1s":            "sync=-1s",
		"file:///d?sync=10us":           "1ms at least",
		"file:///d?sync=1s&sync=always": "twice",
		"file:///d#part":                "three slashes",
	} {
		_, err := store.Open(t.Context(), url, cfg)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("open %s: %v, want ErrInvalid with %q", url, err, want)
		}
	}
}

func send(t testing.TB, s *Store, ids ...string) {
	t.Helper()
	var msgs []store.Outgoing
	for _, id := range ids {
		msgs = append(msgs, store.Outgoing{Message: store.Message{ID: id, Payload: []byte("payload of " + id)}})
	}
	if _, err := s.Send(t.Context(), "q", msgs); err != nil {
		t.Fatal(err)
	}
}
