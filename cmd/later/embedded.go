package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/diskstore"
	"github.com/laterq/later/store"
)

const (
	// Commands that are short do not fail because of each other: heldPatience is how long a directory is waited for that one
	// and the same process has open, or until it had it for heldYoung, since on a busy machine a short command takes longer;
	// and heldLimit how long when they come and go.
	heldPatience = time.Second
	heldYoung    = 3 * time.Second
	heldLimit    = 15 * time.Second
	// Pauses between two tries to open it; they are jittered, so that of many processes each has its turn.
	minHeldPause = 4 * time.Millisecond
	maxHeldPause = 40 * time.Millisecond
)

// sourceDefault is the source of a store's name that nobody gave.
const sourceDefault = "the default"

// defaultStore gives the URL of the embedded store that is used when no store is named.
func (m *Main) defaultStore() (string, error) {
	dir, err := dataDirectory(runtime.GOOS, m.getenv)
	if err != nil {
		return "", store.Invalid("no store is named, and %v: give --store redis://localhost:6379/0, or --store ./dir for an "+
			"embedded one, or set LATER_STORE or REDIS_URL", err)
	}
	return fileURL(dir), nil
}

// dataDirectory gives the directory for Later's data of this user, by the rules of
//
//	Linux and others    XDG Base Directory Specification 0.8: $XDG_DATA_HOME, which counts only when it is absolute,
//	                    else ~/.local/share
//	macOS               File System Programming Guide of Apple: ~/Library/Application Support
//	Windows             KNOWNFOLDERID of Microsoft: %LocalAppData%
func dataDirectory(goos string, getenv func(string) string) (string, error) {
	under := func(variable string, path ...string) (string, error) {
		base := getenv(variable)
		switch {
		case base == "":
			return "", fmt.Errorf("%s is not set, under which the embedded one would be", variable)
		case !filepath.IsAbs(base):
			return "", fmt.Errorf("%s is %q, which is no absolute directory for the embedded one to be under", variable, base)
		}
		return filepath.Join(append(append([]string{base}, path...), "later")...), nil
	}
	switch goos {
	case "windows":
		return under("LocalAppData")
	case "darwin":
		return under("HOME", "Library", "Application Support")
	}
	if filepath.IsAbs(getenv("XDG_DATA_HOME")) {
		return under("XDG_DATA_HOME")
	}
	return under("HOME", ".local", "share")
}

func fileURL(dir string) string {
	path := filepath.ToSlash(dir)
	if !strings.HasPrefix(path, "/") { // C:/later of Windows
		path = "/" + path
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}

// directoryOf gives the directory of an embedded store's URL.
func directoryOf(text string) (dir string, ok bool) {
	if !strings.HasPrefix(text, "file:") {
		return "", false
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", false
	}
	path := filepath.FromSlash(u.Path)
	if drive := strings.TrimPrefix(path, `\`); filepath.VolumeName(drive) != "" { // Windows
		path = drive
	}
	return path, true
}

// isNew tells whether an embedded store is yet to be made: its directory is missing or empty.
func isNew(url string) bool {
	dir, ok := directoryOf(url)
	if !ok {
		return false
	}
	names, err := os.ReadDir(dir)
	return errors.Is(err, fs.ErrNotExist) || err == nil && len(names) == 0
}

// storeURLOf gives the URL of a store that a person named: a URL, or a directory by a path that begins with a slash,
// a dot, a tilde or, on Windows, a drive.
func (m *Main) storeURLOf(text string) (string, error) {
	first, _, _ := strings.Cut(text, "/")
	switch {
	case first == "" && text != "", first == ".", first == "..", first == "~", filepath.IsAbs(text):
		return m.directoryURL(text)
	case strings.HasPrefix(text, "file:") && !strings.HasPrefix(text, "file:///"):
		path := strings.TrimPrefix(strings.TrimPrefix(text, "file:"), "//")
		if filepath.IsAbs(path) {
			return "", store.Invalid("store URL %s lacks slashes: give file://%s", text, path)
		}
		return "", store.Invalid("store URL %s names no absolute directory: give ./%s, or file:///DIRECTORY with three slashes",
			text, strings.TrimPrefix(path, "./"))
	case !strings.Contains(text, "://"):
		return "", store.Invalid("store is neither a URL nor a directory: give such as redis://localhost:6379/0, or ./dir")
	}
	return text, nil
}

func (m *Main) directoryURL(path string) (string, error) {
	if rest, ok := strings.CutPrefix(path, "~"); ok {
		home := m.getenv("HOME")
		if !filepath.IsAbs(home) {
			return "", store.Invalid("store %s cannot be found, since HOME is %q: give the directory in full", path, home)
		}
		path = home + rest
	}
	dir, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if name, parameters, ok := strings.Cut(dir, "?"); ok {
		return "", store.Invalid("store %s has a question mark: with parameters give a URL, %s?%s", path, fileURL(name), parameters)
	}
	return fileURL(dir), nil
}

// openPatiently opens a store. It waits for an embedded one that another process has open.
func openPatiently(ctx context.Context, url string, opts ...later.Option) (*later.Client, error) {
	var holder string
	var until time.Time // the patience with this holder ends
	limit := time.Now().Add(heldLimit)
	for pause := minHeldPause; ; pause = min(2*pause, maxHeldPause) {
		opening, cancel := context.WithTimeout(ctx, openTimeout)
		client, err := later.Open(opening, url, opts...)
		cancel()
		held, ok := errors.AsType[*diskstore.HeldError](err)
		if !ok {
			return client, err
		}
		now := time.Now()
		if until.IsZero() || held.Holder != holder {
			holder, until = held.Holder, patienceEnds(held.Since, now)
		}
		if now.After(until) || now.After(limit) {
			return nil, err
		}
		again := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

// patienceEnds is until when a directory is waited for that has a new holder.
func patienceEnds(since, now time.Time) time.Time {
	until := now.Add(heldPatience)
	if old := since.Add(heldYoung); since.Before(now) && old.After(until) {
		return old
	}
	return until
}

// inUseError tells who has a store open, and what to do about it.
type inUseError struct{ held *diskstore.HeldError }

func (e *inUseError) Error() string {
	return fmt.Sprintf(`the embedded store in %s is in use by %s.
  One process at a time has it open. Stop that one, or use a Redis, which many processes share:
  --store redis://localhost:6379/0, or LATER_STORE with that URL`, e.held.Dir, cmp.Or(e.held.Holder, "another process"))
}

func (e *inUseError) Unwrap() error { return e.held }
