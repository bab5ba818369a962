package diskstore

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

func init() {
	store.Register("file", open)
}

// open opens the store of file:///absolute/directory or file:relative/directory, with the parameter sync=always (the
// default) or a duration such as sync=100ms; see SyncEvery.
func open(_ context.Context, text string, cfg store.OpenConfig) (store.Store, error) {
	dir, every, err := parseURL(text)
	if err != nil {
		return nil, err
	}
	return Open(dir, WithLogger(cfg.Logger), SyncEvery(every))
}

func parseURL(text string) (dir string, every time.Duration, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", 0, store.Invalid("store URL cannot be read: an example that can is file:///var/lib/later")
	}
	path := u.Path
	if u.Opaque != "" { // file:relative/directory
		if path, err = url.PathUnescape(u.Opaque); err != nil {
			return "", 0, store.Invalid("store URL cannot be read: a %% must be written as %%25")
		}
	}
	dir = filepath.FromSlash(path)
	if drive := strings.TrimPrefix(dir, `\`); filepath.VolumeName(drive) != "" { // Windows: file:///C:/later
		dir = drive
	}
	if u.Host != "" || u.User != nil || u.Fragment != "" || dir == "" {
		return "", 0, store.Invalid("store URL %s names no directory: give file:///DIRECTORY, with three slashes, or "+
			"file:DIRECTORY for one in the working directory", store.RedactURL(text))
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", 0, fmt.Errorf("directory of the store URL %s: %w", store.RedactURL(text), err)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", 0, store.Invalid("store URL has parameters that cannot be read: known is sync=always or sync=100ms")
	}
	for name, values := range query {
		switch {
		case name != "sync":
			return "", 0, store.Invalid("store URL has the unknown parameter %q: known is sync", name)
		case len(values) > 1:
			return "", 0, store.Invalid("store URL gives sync twice: give it once")
		case values[0] == "always":
			continue
		}
		if every, err = time.ParseDuration(values[0]); err != nil || every < minSyncEvery {
			return "", 0, store.Invalid("store URL has sync=%s: give always or a duration such as 100ms, %v at least",
				values[0], minSyncEvery)
		}
	}
	return filepath.Clean(dir), every, nil
}
