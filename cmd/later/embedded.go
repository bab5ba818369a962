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
	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/store"
)

const (
	// A command waits for a directory that another process has open and does not share, so that short commands do not
	// fail because of each other. It waits holderWait for the same process, or until that process has had the directory
	// open for youngHolderAge, since a short command takes longer on a busy machine. It waits maxHolderWait at most
	// when processes come and go.
	holderWait     = time.Second
	youngHolderAge = 3 * time.Second
	maxHolderWait  = 15 * time.Second
	// Pauses between attempts to open the directory. They have jitter, so that each of many processes gets its turn.
	minRetryPause = 4 * time.Millisecond
	maxRetryPause = 40 * time.Millisecond
)

// sourceDefault is the source of the store when the user named none.
const sourceDefault = "the default"

// defaultStore returns the URL of the embedded store that is used when no store is named.
func (m *Main) defaultStore() (string, error) {
	dir, err := dataDirectory(runtime.GOOS, m.getenv)
	if err != nil {
		return "", store.Invalid("no store is named, and %v: use --store redis://localhost:6379/0, or --store "+
			"./dir for an embedded store, or set LATER_STORE or REDIS_URL", err)
	}
	return fileURL(dir), nil
}

// dataDirectory returns the user's directory for Later's data:
//
//	Linux and others    $XDG_DATA_HOME if it is absolute, else ~/.local/share
//	                    (XDG Base Directory Specification 0.8)
//	macOS               ~/Library/Application Support (Apple's File System Programming Guide)
//	Windows             %LocalAppData% (Microsoft's KNOWNFOLDERID)
func dataDirectory(goos string, getenv func(string) string) (string, error) {
	under := func(variable string, path ...string) (string, error) {
		base := getenv(variable)
		switch {
		case base == "":
			return "", fmt.Errorf("there is no default, because %s is not set", variable)
		case !filepath.IsAbs(base):
			return "", fmt.Errorf("there is no default, because %s is %q, not an absolute directory", variable, base)
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
	if !strings.HasPrefix(path, "/") { // C:/later on Windows
		path = "/" + path
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}

// unshared returns the URL that opens an embedded store without sharing it.
func unshared(url string) string {
	if strings.Contains(url, "?") {
		return url + "&share=no"
	}
	return url + "?share=no"
}

// directoryOf returns the directory of an embedded store's URL.
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

// isNew reports whether url is an embedded store that does not exist yet: its directory is missing or empty.
func isNew(url string) bool {
	dir, ok := directoryOf(url)
	if !ok {
		return false
	}
	names, err := os.ReadDir(dir)
	return errors.Is(err, fs.ErrNotExist) || err == nil && len(names) == 0
}

// storeURLOf returns the URL of the store that text names: a URL, or a directory with a path that begins with a slash,
// a dot, a tilde or, on Windows, a drive.
func (m *Main) storeURLOf(text string) (string, error) {
	first, _, _ := strings.Cut(text, "/")
	switch {
	case first == "" && text != "", first == ".", first == "..", first == "~", filepath.IsAbs(text):
		return m.directoryURL(text)
	case strings.HasPrefix(text, "http://"), strings.HasPrefix(text, "https://"):
		return m.withToken(text), nil
	case strings.HasPrefix(text, "file:///"):
	case strings.HasPrefix(text, "file://"):
		return "", store.Invalid("store URL %s has no absolute directory: use ./%s, or file:///DIRECTORY with "+
			"three slashes", text, strings.TrimPrefix(strings.TrimPrefix(text, "file://"), "./"))
	case strings.HasPrefix(text, "file:"): // relative to the working directory
		path, parameters, given := strings.Cut(strings.TrimPrefix(text, "file:"), "?")
		dir, err := filepath.Abs(filepath.FromSlash(path))
		if err != nil || path == "" {
			return "", store.Invalid("store URL %s names no directory: give file:///DIRECTORY or file:DIRECTORY", text)
		}
		if given {
			return fileURL(dir) + "?" + parameters, nil
		}
		return fileURL(dir), nil
	case !strings.Contains(text, "://"):
		return "", store.Invalid("store is neither a URL nor a directory: use one such as " +
			"redis://localhost:6379/0 or ./dir")
	}
	return text, nil
}

func (m *Main) directoryURL(path string) (string, error) {
	if rest, ok := strings.CutPrefix(path, "~"); ok {
		home := m.getenv("HOME")
		if !filepath.IsAbs(home) {
			return "", store.Invalid("store %s cannot be found, because HOME is %q: use an absolute path", path, home)
		}
		path = home + rest
	}
	dir, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if name, parameters, ok := strings.Cut(dir, "?"); ok {
		return "", store.Invalid("store %s has a question mark: to set parameters, use a URL, %s?%s",
			path, fileURL(name), parameters)
	}
	return fileURL(dir), nil
}

// openWithRetry opens a store. It waits for an embedded store that another process has open.
func openWithRetry(ctx context.Context, url string, opts ...later.Option) (*later.Client, error) {
	var holder string
	var until time.Time // end of the wait for this holder
	limit := time.Now().Add(maxHolderWait)
	for pause := minRetryPause; ; pause = min(2*pause, maxRetryPause) {
		opening, cancel := context.WithTimeout(ctx, openTimeout)
		client, err := later.Open(opening, url, opts...)
		cancel()
		held, ok := errors.AsType[*diskstore.HeldError](err)
		if !ok {
			return client, err
		}
		now := time.Now()
		if until.IsZero() || held.Holder != holder {
			holder, until = held.Holder, holderWaitEnds(held.Since, now)
		}
		if now.After(until) || now.After(limit) {
			return nil, err
		}
		if err := calls.Sleep(ctx, pause/2+rand.N(pause)); err != nil {
			return nil, err
		}
	}
}

// holderWaitEnds returns until when to wait for a process that has had the directory open since then.
func holderWaitEnds(since, now time.Time) time.Time {
	until := now.Add(holderWait)
	if old := since.Add(youngHolderAge); since.Before(now) && old.After(until) {
		return old
	}
	return until
}

// inUseError names the process that has a store open, and the remedy.
type inUseError struct{ held *diskstore.HeldError }

func (e *inUseError) Error() string {
	return fmt.Sprintf(`the embedded store in %s is in use by %s.
  That process does not share it with this one: it opened the store with share=no, or runs on another machine.
  Stop that process, or use Redis: --store redis://localhost:6379/0, or LATER_STORE with that URL`,
		e.held.Dir, cmp.Or(e.held.Holder, "another process"))
}

func (e *inUseError) Unwrap() error { return e.held }
