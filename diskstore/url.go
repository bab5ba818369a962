package diskstore

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/laterq/later/internal/remote"
	"github.com/laterq/later/store"
)

func init() {
	store.Register("file", open)
}

// open opens the store of file:///absolute/directory or file:relative/directory. Parameters are sync=always (the
// default) or a duration such as sync=100ms, see SyncEvery, share=yes (the default, except where processes cannot share
// a directory) or share=no, and inflight=256MiB (the default), see MaxInFlight.
func open(ctx context.Context, text string, cfg store.OpenConfig) (store.Store, error) {
	u, err := parseURL(text)
	if err != nil {
		return nil, err
	}
	opts := []Option{WithLogger(cfg.Logger), SyncEvery(u.every), MaxInFlight(u.inFlight)}
	if !u.share {
		return Open(u.dir, opts...)
	}
	return openShared(ctx, u.dir, cfg.Logger, opts...)
}

// storeURL is a URL that was read.
type storeURL struct {
	dir      string
	every    time.Duration
	share    bool
	inFlight int64 // bytes
}

const knownParameters = "known are sync=always or sync=100ms, share=no, and inflight=256MiB"

func parseURL(text string) (parsed storeURL, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return parsed, store.Invalid("store URL cannot be read: an example that can is file:///var/lib/later")
	}
	path := u.Path
	if u.Opaque != "" { // file:relative/directory
		if path, err = url.PathUnescape(u.Opaque); err != nil {
			return parsed, store.Invalid("store URL cannot be read: a %% must be written as %%25")
		}
	}
	dir := filepath.FromSlash(path)
	if drive := strings.TrimPrefix(dir, `\`); filepath.VolumeName(drive) != "" { // Windows: file:///C:/later
		dir = drive
	}
	if u.Host != "" || u.User != nil || u.Fragment != "" || dir == "" {
		return parsed, store.Invalid("store URL %s names no directory: give file:///DIRECTORY, with three slashes, or "+
			"file:DIRECTORY for one in the working directory", store.RedactURL(text))
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return parsed, fmt.Errorf("directory of the store URL %s: %w", store.RedactURL(text), err)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return parsed, store.Invalid("store URL has parameters that cannot be read: %s", knownParameters)
	}
	parsed = storeURL{dir: filepath.Clean(dir), share: sharable,
		inFlight: remote.DefaultInFlight}
	for name, values := range query {
		if len(values) > 1 {
			return parsed, store.Invalid("store URL gives %s twice: give it once", name)
		}
		if err := parsed.set(name, values[0]); err != nil {
			return parsed, err
		}
	}
	return parsed, nil
}

const mebibytes = "MiB"

// set sets a parameter.
func (u *storeURL) set(name, value string) (err error) {
	switch {
	case name == "share" && value == "no":
		u.share = false
	case name == "share" && value == "yes":
		if !sharable {
			return fmt.Errorf("%w: processes on %s cannot share an embedded store: leave out share=yes",
				store.ErrUnsupported, runtime.GOOS)
		}
	case name == "share":
		return store.Invalid("store URL has share=%s: must be yes or no", value)
	case name == "inflight":
		n, err := strconv.ParseInt(strings.TrimSuffix(value, mebibytes), 10, 32)
		if u.inFlight = n << 20; err != nil || !strings.HasSuffix(value, mebibytes) || u.inFlight < remote.MinInFlight {
			return store.Invalid("store URL has inflight=%s: must be a number of mebibytes such as 256MiB, %d at least",
				value, remote.MinInFlight>>20)
		}
	case name == "sync" && value == "always":
	case name == "sync":
		if u.every, err = time.ParseDuration(value); err != nil || u.every < minSyncEvery {
			return store.Invalid("store URL has sync=%s: must be always or a duration such as 100ms, %v at least",
				value, minSyncEvery)
		}
	default:
		return store.Invalid("store URL has the unknown parameter %q: %s", name, knownParameters)
	}
	return nil
}
